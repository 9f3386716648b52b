"""Write defaults of columns, on both paths, for fields that a record lacks."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.differential.both_paths import ALL, both
from tests.differential.support import config, plan, rows_of, run_batches, source
from worker.decode.decoded_rows import Columns
from worker.pipeline.table_group import Part
from worker.write.table_writer import TableWriter

DEFAULTS: list[tuple[IcebergType, Any, str]] = [
    (BooleanType(), True, "false"),
    (IntegerType(), 7, "1"),
    (LongType(), 2**40, "1"),
    (FloatType(), 1.5, "0.5"),
    (DoubleType(), 2.5, "0.5"),
    (DecimalType(9, 2), Decimal("1.50"), '"2.25"'),
    (StringType(), "text", '"own"'),
    (BinaryType(), b"\x01\x02", '"AQI="'),
    (FixedType(2), b"\x01\x02", '"AwQ="'),
    (UUIDType(), uuid.UUID(int=7), '"3d7e7a06-7ee5-4b7e-9b1f-1f0a6a2f3b11"'),
    (DateType(), dt.date(2024, 2, 29), '"2024-01-01"'),
    (TimeType(), dt.time(1, 2, 3, 4), '"03:04:05"'),
    (TimestampType(), dt.datetime(2024, 1, 2, 3, 4), '"2024-01-02T00:00:00"'),  # noqa: DTZ001
    (
        TimestamptzType(),
        dt.datetime(2024, 1, 2, 3, 4, tzinfo=dt.UTC),
        '"2024-01-02T00:00:00Z"',
    ),
]


def schema_of(kind: IcebergType, default: Any, *, required: bool = False) -> Schema:
    """A table with the default."""
    return Schema(
        NestedField(
            1, "c", kind, required=required, initial_default=default, write_default=default
        ),
        NestedField(2, "n", LongType(), required=False),
    )


def stored(default: Any) -> Any:
    """A default as a row holds it."""
    if isinstance(default, uuid.UUID):
        return default.bytes
    if isinstance(default, dt.datetime):
        seconds = int(default.replace(tzinfo=dt.UTC).timestamp())
        return seconds * 1_000_000 + default.microsecond
    if isinstance(default, dt.date):
        return (default - dt.date(1970, 1, 1)).days
    if isinstance(default, dt.time):
        seconds = (default.hour * 60 + default.minute) * 60 + default.second
        return seconds * 1_000_000 + default.microsecond
    return default


def lines_of(value: str) -> list[bytes]:
    """Records with and without the field, and with null."""
    return [
        b'{"n":1}',
        f'{{"c":{value},"n":2}}'.encode(),
        b'{"c":null,"n":3}',
        b'{"n":null}',
        b'{"n":5,"x":"null"}',
    ]


@pytest.mark.parametrize(("kind", "default", "value"), DEFAULTS, ids=lambda v: str(v)[:12])
def test_missing_fields_have_the_default_on_both_paths(
    kind: IcebergType, default: Any, value: str, tmp_path: Path
) -> None:
    """A null in a record stays null, or is refused where the column is required."""
    for required in (False, True):
        schema = schema_of(kind, default, required=required)
        connector, plans = config(**ALL), [plan(tmp_path, schema)]
        by_column, by_record = both(connector, plans, [source(lines_of(value))])
        assert by_column == by_record
        assert len(by_column["letters"]) == required
    result = run_batches(
        config(**ALL), [plan(tmp_path, schema_of(kind, default))], [source(lines_of(value))]
    )
    rows = {row["n"]: row["c"] for row in rows_of(result, "db.t1")}
    found = rows[1].bytes if isinstance(rows[1], uuid.UUID) else rows[1]
    assert found == stored(default)
    assert rows[None] == rows[5] == rows[1]
    assert rows[3] is None
    assert rows[2] not in (None, rows[1]) or kind == BinaryType()


def test_columns_are_filled_without_the_record_path(tmp_path: Path) -> None:
    """Where no document has a null, and where the schema of the records lacks the field."""
    table = TableWriter(plan(tmp_path, schema_of(StringType(), "text")), lambda: "name")
    count = pa.array([1, 2, 3])
    own = pa.table({"c": pa.array(["own", None, None]), "n": count})
    lacking = pa.table({"c": pa.nulls(3), "n": count})
    no_rows, all_rows = np.empty(0, np.int64), np.arange(3)
    known = np.array([True, True, False])
    for decoded, values, ambiguous in (
        (Columns(lacking, all_rows, no_rows, missing=frozenset("c")), ["text"] * 3, None),
        (
            Columns(own, all_rows, no_rows, nulls_are_missing=known),
            ["own", "text", None],
            [False, False, True],
        ),
        (Columns(own, all_rows, no_rows), ["own", None, None], [False, True, True]),
    ):
        part = Part.of([table], np.ones(1, np.bool_), decoded, np.zeros(3, np.int64), unit="ms")
        assert part.converted.column(0).to_pylist() == values
        assert (part.ambiguous if ambiguous is None else part.ambiguous.tolist()) == ambiguous


def test_a_schema_tells_missing_fields_from_nulls(tmp_path: Path) -> None:
    """A field of the record's schema without a value is null; without such a field, the default."""
    settings = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        **ALL,
    }

    def line(payload: dict[str, Any], *names: str) -> bytes:
        fields = [{"field": n, "type": "string", "optional": True} for n in names]
        fields.append({"field": "n", "type": "int64", "optional": True})
        schema = {"type": "struct", "fields": fields, "optional": False}
        return json.dumps({"schema": schema, "payload": payload}).encode()

    lines = [line({"n": 1}), line({"n": 2}, "c"), line({"n": 3, "c": None}, "c"), line({"n": 4})]
    plans = [plan(tmp_path, schema_of(StringType(), "text"))]
    by_column, by_record = both(config(**settings), plans, [source(lines)])
    assert by_column == by_record
    result = run_batches(config(**settings), plans, [source(lines)])
    rows = {row["n"]: row["c"] for row in rows_of(result, "db.t1")}
    assert rows == {1: "text", 2: None, 3: None, 4: "text"}


def test_fields_of_structs_have_defaults_too(tmp_path: Path) -> None:
    """Not where the struct is null or missing itself."""
    inner = StructType(
        NestedField(2, "a", LongType(), required=False, write_default=7),
        NestedField(3, "b", StringType(), required=False),
    )
    schema = Schema(
        NestedField(1, "s", inner, required=False), NestedField(4, "n", LongType(), required=False)
    )
    lines = [
        b'{"n":1,"s":{"b":"x"}}',
        b'{"n":2,"s":{"a":null,"b":"x"}}',
        b'{"n":3,"s":{"a":1}}',
        b'{"n":4,"s":null}',
        b'{"n":5}',
    ]
    by_column, by_record = both(config(**ALL), [plan(tmp_path, schema)], [source(lines)])
    assert by_column == by_record
    result = run_batches(config(**ALL), [plan(tmp_path, schema)], [source(lines)])
    rows = {row["n"]: row["s"] for row in rows_of(result, "db.t1")}
    assert rows == {
        1: {"a": 7, "b": "x"},
        2: {"a": None, "b": "x"},
        3: {"a": 1, "b": None},
        4: None,
        5: None,
    }


def test_transformed_records_have_defaults(tmp_path: Path) -> None:
    """On both paths alike: a transformation may remove a field or set it to null."""
    settings = {
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.r.exclude": "gone",
        **ALL,
    }
    plans = [plan(tmp_path, schema_of(StringType(), "text"))]
    lines = [*lines_of('"own"'), b'{"n":6,"gone":1}']
    by_column, by_record = both(config(**settings), plans, [source(lines)])
    assert by_column == by_record
