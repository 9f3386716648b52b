"""Converters of users and of topics: the same rows by column and by record."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import random
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from connect.records.converters.column_converter import ColumnConverter
from connect.records.converters.custom_converters import GROUP, installed
from connect.records.record_path import ReferencePath
from tests.differential.both_paths import ALL, both
from tests.differential.support import (
    config,
    decoded_by_columns,
    plan,
    rows_of,
    run_batches,
    source,
)
from tests.support.entry_points import install
from worker.batch.pipeline_spec import ChangePlan, PipelineSpec
from worker.pipeline.column_path import ColumnForm
from worker.pipeline.topic_forms import column_form

TABLE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "note", StringType(), required=False),
)
INSTANT = pa.timestamp("us", "UTC")
COLUMNS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "flag": (pa.bool_(), BooleanType(), [True, False, None]),
    "small": (pa.int32(), IntegerType(), [1, -(2**31), None]),
    "big": (pa.int64(), LongType(), [2**63 - 1, -5, None]),
    "ratio": (pa.float64(), DoubleType(), [0.5, float("nan"), -0.0, 1e300, None]),
    "text": (pa.string(), StringType(), ["a", "", "\u00e4\U0001f600", None]),
    "raw": (pa.binary(), BinaryType(), [b"", b"\xff\0", None]),
    "day": (pa.date32(), DateType(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29), None]),
    "at": (
        INSTANT,
        TimestamptzType(),
        [
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
            dt.datetime(2024, 2, 29, 1, 2, 3, 456_789, dt.UTC),
            None,
        ],
    ),
    "price": (pa.decimal128(12, 2), DecimalType(12, 2), ["12.34", "-0.01", None]),
}


def row(place: int) -> dict[str, Any]:
    """The row that the converter ``Typed`` makes of a number."""
    return {
        name: values[place % len(values)] if name != "price" else _decimal(values[place % 3])
        for name, (_, _, values) in COLUMNS.items()
    }


def _decimal(text: str | None) -> Any:
    return None if text is None else pa.scalar(text).cast(pa.decimal128(12, 2)).as_py()


def typed(options: Any) -> ColumnConverter:
    """All column types."""

    def convert(values: pa.Array) -> pa.Table:
        calls.append(len(values))
        numbers = values.cast(pa.string()).cast(pa.int64()).to_pylist()
        rows = [row(number) for number in numbers]
        return pa.table(
            {n: pa.array([r[n] for r in rows], kind) for n, (kind, _, _) in COLUMNS.items()}
        )

    del options
    return ColumnConverter({n: kind for n, (kind, _, _) in COLUMNS.items()}, convert)


def lines(_: Any) -> Any:
    """Text of the form ``<id> <note>``, one record at a time."""

    def convert(data: bytes, topic: str, headers: Any) -> Any:
        del topic, headers
        number, note = data.decode().split(" ")
        return {"id": int(number), "note": note}

    return convert


def pairs(_: Any) -> ColumnConverter:
    """Text of the form ``<id> <note>``, by column."""

    def convert(values: pa.Array) -> pa.Table:
        calls.append(len(values))
        parts = pc.split_pattern(values.cast(pa.string()), " ")
        if not pc.all(pc.equal(pc.list_value_length(parts), 2)).as_py():
            raise ValueError("secret")
        return pa.table(
            {
                "id": pc.list_element(parts, 0).cast(pa.int64()),
                "note": pc.list_element(parts, 1),
            }
        )

    return ColumnConverter({"id": pa.int64(), "note": pa.string()}, convert, name="app.Pair")


calls: list[int] = []


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A package with converters."""
    module = types.ModuleType("own_converters")
    vars(module).update(typed=typed, lines=lines, pairs=pairs)
    monkeypatch.setitem(sys.modules, "own_converters", module)
    names = {"Typed": "typed", "Lines": "lines", "Pairs": "pairs"}
    text = "\n".join(f"{name} = own_converters:{member}" for name, member in names.items())
    install(monkeypatch, tmp_path / "package", GROUP, text)
    installed.cache_clear()
    calls.clear()
    yield
    installed.cache_clear()


def test_columns_of_all_types_are_those_of_single_records(tmp_path: Path) -> None:
    """Except for values that only the record path writes, no record goes one by one."""
    schema = Schema(
        *(
            NestedField(number, name, kind, required=False)
            for number, (name, (_, kind, _)) in enumerate(COLUMNS.items(), 1)
        )
    )
    connector = config(**ALL, **{"value.converter": "Typed"})
    values: list[bytes | None] = [str(n).encode() for n in range(60)]
    values[5], values[30] = b"x", None
    by_column, by_record = both(connector, [plan(tmp_path, schema)], [source(values)])
    assert by_column == by_record
    assert len(by_column["rows"]["db.t1"]) == 58
    assert [letter[0].offset for letter in by_column["letters"]] == [5]
    assert max(calls) > 1


@pytest.mark.parametrize("converter", ["Lines", "Pairs"])
@pytest.mark.parametrize("evolves", ["false", "true"])
def test_new_tables_and_columns_are_those_of_single_records(
    tmp_path: Path, converter: str, evolves: str
) -> None:
    """The schema of a function over columns asks for the columns that a table lacks."""
    narrow = Schema(NestedField(1, "id", LongType(), required=False))
    more = {"value.converter": converter, "iceberg.tables.evolve-schema-enabled": evolves}
    values = [b"%d n" % n for n in range(40)]
    by_column, by_record = both(config(**ALL, **more), [plan(tmp_path, narrow)], [source(values)])
    assert by_column == by_record
    assert by_column["schemas"] == ({"db.t1"} if evolves == "true" else set())
    absent = config(
        **ALL, **{"value.converter": converter, "iceberg.tables.auto-create-enabled": "true"}
    )
    by_column, by_record = both(absent, [], [source(values)])
    assert by_column == by_record
    assert by_column["tables"] == {"db.t1"}


TOPICS = {
    "topics": "json,lines,pairs-a,pairs-b",
    "icefloe.topic.lines.value.converter": "Lines",
    "icefloe.topic.pairs.regex": "pairs-[ab]",
    "icefloe.topic.pairs.value.converter": "Pairs",
    "icefloe.topic.pairs.key.converter": "org.apache.kafka.connect.converters.LongConverter",
}


def record(topic: str, number: int, rng: random.Random) -> tuple[bytes | None, bytes | None]:
    """Key and value of a record; some of them are bad."""
    key = rng.choice([None, b"k", bytes(7) + b"\1"])
    if rng.random() < 0.05:
        return key, rng.choice([None, b"secret", b"{}", b"1 2 3"])
    if topic == "json":
        return key, json.dumps({"id": number, "note": topic}).encode()
    return key, f"{number} {topic}".encode()


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="plain"),
        pytest.param(
            {
                "transforms": "i",
                "transforms.i.type": "org.apache.kafka.connect.transforms.InsertField$Value",
                "transforms.i.topic.field": "note",
            },
            id="transformed",
        ),
        pytest.param(
            {
                "iceberg.tables": None,
                "iceberg.tables.name-template": "db.${topic}",
                "iceberg.tables.auto-create-enabled": "true",
            },
            id="by-topic",
        ),
        pytest.param(
            {
                "iceberg.tables.upsert-mode-enabled": "true",
                "iceberg.tables.default-id-columns": "id",
            },
            id="upsert",
        ),
    ],
)
def test_topics_have_their_own_converters(tmp_path: Path, more: dict[str, str | None]) -> None:
    """Blocks of one topic and of several; bad records of each are dead letters."""
    connector = config(**ALL, **{**TOPICS, **more})
    topics = ("json", "lines", "pairs-a", "pairs-b")
    names = [f"db.{t}" for t in topics] if "iceberg.tables" in more else ["db.t1"]
    changes = ChangePlan((1,), UNPARTITIONED_PARTITION_SPEC.model_dump_json())
    plans = [
        dataclasses.replace(
            plan(tmp_path, TABLE, name=name), changes=changes if connector.is_row_level else None
        )
        for name in names
    ]
    rng = random.Random(7)
    batches = []
    for topic in (*topics, *topics):
        records = [record(topic, n, rng) for n in range(rng.choice([3, 70]))]
        keys, values = zip(*records, strict=True)
        batches.append(source(values, keys=keys, topic=topic, start=100 * len(batches)))
    mixed = pa.Table.from_batches(batches)
    order = np.random.default_rng(7).permutation(mixed.num_rows)
    for given in (batches, mixed.take(pa.array(order)).combine_chunks().to_batches()):
        by_column, by_record = both(connector, plans, given)
        assert by_column == by_record
        letters = {(letter[0].topic, letter[1]) for letter in by_column["letters"]}
        assert {("lines", "VALUE_CONVERTER"), ("pairs-a", "KEY_CONVERTER")} <= letters
        assert "secret" not in str([letter[1:] for letter in by_column["letters"]])
        assert sum(map(len, by_column["rows"].values())) > 100
    assert max(calls) > 1


def test_only_topics_with_a_record_converter_go_one_by_one(tmp_path: Path) -> None:
    """The other topics of a block are decoded by column."""
    connector = config(**TOPICS)
    batches = [
        source([json.dumps({"id": 1}).encode()] * 5, topic="json"),
        source([b"1 a"] * 6, topic="lines"),
        source([b"1 a"] * 7, topic="pairs-a"),
    ]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    found = decoded_by_columns(connector, plan(tmp_path, TABLE), batch)
    assert sorted(place for each in found for place in each.places) == [*range(5), *range(11, 18)]


def test_without_topics_there_is_one_form(tmp_path: Path) -> None:
    """The name of a column converter's schema routes; nothing is divided."""
    connector = config(
        **{
            "value.converter": "Pairs",
            "iceberg.tables": None,
            "iceberg.tables.name-template": "db.${schema}",
            "iceberg.tables.auto-create-enabled": "true",
        }
    )
    table = plan(tmp_path, TABLE, name="db.app_pair")
    result = run_batches(connector, [table], [source([b"1 a", b"2 b"])])
    assert [found["id"] for found in rows_of(result, "db.app_pair")] == [1, 2]
    assert calls == [2]
    spec = PipelineSpec(connector, (table,))
    assert isinstance(column_form(spec, [], (), ReferencePath(connector)), ColumnForm)
    assert spec.columns() == (*PipelineSpec(config(), (table,)).columns(), "headers")
