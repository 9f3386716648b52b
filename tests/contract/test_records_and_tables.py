"""Random records, schemas, tables and partition specs: each record is written or refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connect.gateways.catalog.catalog import open_catalog
from tests.differential.support import config, source
from tests.support.unusable_tables import AT, OneTableRefused, SparkRows, Task, rows_of
from worker.batch.descriptors import DeadLetter
from worker.batch.error_rows import RECORD_FAILED
from worker.task.read_ledger import OffsetRanges

GROW = {
    "errors.tolerance": "all",
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.evolve-schema-enabled": "true",
}
NAMES = st.sampled_from(
    [
        "id",
        "ID",
        "a",
        "b",
        "a.b",
        "ts",
        "ts_day",
        "element",
        "key",
        "value",
        "",
        " ",
        "é",
        "x" * 300,
    ]
)
TEXTS = st.sampled_from(["", "x", "é", "a" * 15 + "\ud7ff" + "b", "a" * 16 + "\U0010ffff", "\0"])
NUMBERS = st.sampled_from([0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**63, 10**40, 0.5, -0.0, 1e308])
TIMES = st.sampled_from(["2024-02-29T00:00:00Z", "1969-12-31", "0001-01-01T00:00:00", 10**17])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | TIMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)
BYTES = st.one_of(
    RECORDS.map(lambda value: json.dumps(value).encode()),
    RECORDS.map(
        lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    ),
    st.sampled_from(
        [None, b"", b"[]", b"1", b"null", b"{", b"\xff", b'{"a":NaN}', b'{"a":1,"a":2}']
    ),
)
KINDS = st.sampled_from(["int8", "int32", "int64", "float", "double", "boolean", "string", "bytes"])
SCHEMAS = st.recursive(
    KINDS.map(lambda kind: {"type": kind, "optional": True}),
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items, "optional": True}),
        inner.map(
            lambda values: {
                "type": "map",
                "keys": {"type": "string"},
                "values": values,
                "optional": True,
            }
        ),
        st.lists(st.tuples(NAMES, inner), max_size=3).map(
            lambda fields: {
                "type": "struct",
                "optional": True,
                "fields": [{**kind, "field": name} for name, kind in fields],
            }
        ),
    ),
    max_leaves=4,
)
SPECS = st.sampled_from(
    ["", "id", "a", "ts", "day(ts)", "bucket(id, 4)", "truncate(a, 3)", "day(ts),b", "hour(a)"]
)
counter = itertools.count()


@pytest.fixture
def catalog(sql_catalog_properties: dict[str, str]) -> Iterator[OneTableRefused]:
    """Tables on SQLite and a local folder."""
    opened = open_catalog("iceberg", sql_catalog_properties)
    opened.close()
    gateway = OneTableRefused("iceberg", opened.config)
    yield gateway
    gateway.close()


def check(
    catalog: OneTableRefused, batches: list[list[bytes | None]], **more: str
) -> list[DeadLetter]:
    """Write batches to a new table: every record is counted once. Return the dead letters."""
    connector = config(**{**GROW, **more, "iceberg.tables": f"db.n{next(counter)}"})
    task = Task(catalog, connector)
    letters: list[DeadLetter] = []
    for values in batches:
        task.runner.refresh()
        rows = source(values).select(list(task.runner.columns))
        batch = task.runner.run(SparkRows(rows), OffsetRanges({AT: 0}, {AT: len(values)}))
        counts = batch.progress[AT]
        assert counts.read == len(values)
        assert counts.read == counts.written + counts.dropped + counts.dead_lettered
        assert counts.dead_lettered == len(batch.dead_letters)
        # each record that cannot be written has a cause that the code knows
        assert {d.error.code for d in batch.dead_letters}.isdisjoint(
            {RECORD_FAILED, "table_failed"}
        )
        assert sum(rows_of(batch).values()) == counts.written
        letters.extend(batch.dead_letters)
    return letters


SETTINGS = settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@SETTINGS
@given(
    st.lists(st.lists(BYTES, min_size=1, max_size=6), min_size=1, max_size=3), SPECS, st.booleans()
)
def test_records_without_schema(
    catalog: OneTableRefused, batches: list[list[bytes | None]], spec: str, folds: bool
) -> None:
    """Inferred types, evolution between the records, any bytes."""
    keys = {"iceberg.tables.schema-case-insensitive": str(folds).lower()}
    if spec:
        keys["iceberg.tables.default-partition-by"] = spec
    check(catalog, batches, **keys)


def typed(fields: list[tuple[str, Any]], value: dict[str, Any]) -> bytes:
    """A record with its schema."""
    schema = {"type": "struct", "fields": [{**kind, "field": name} for name, kind in fields]}
    return json.dumps({"schema": schema, "payload": value}).encode()


FIELDS = st.lists(st.tuples(NAMES, SCHEMAS), max_size=4, unique_by=lambda field: field[0])
TYPED = st.builds(typed, FIELDS, st.just({}) | RECORDS)


@SETTINGS
@given(st.lists(st.lists(TYPED, min_size=1, max_size=4), min_size=1, max_size=3), SPECS)
def test_records_with_schemas(
    catalog: OneTableRefused, batches: list[list[bytes | None]], spec: str
) -> None:
    """Schemas that change between records, with or without values that fit."""
    keys = {"iceberg.tables.default-partition-by": spec} if spec else {}
    check(catalog, batches, **{"value.converter.schemas.enable": "true"}, **keys)


def test_numbers_that_are_no_json_in_a_new_field_are_refused(catalog: OneTableRefused) -> None:
    """The record alone, also if it has no known field."""
    letters = check(catalog, [[b'{"id":1}'], [b'{"a":NaN}', b'{"a":-Infinity}', b'{"id":2}']])
    assert [(d.record.offset, d.error.stage) for d in letters] == [
        (0, "VALUE_CONVERTER"),
        (1, "VALUE_CONVERTER"),
    ]
