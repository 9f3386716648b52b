"""Change events of Debezium and DMS by columns give what they give record by record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from tests.differential.both_paths import both
from tests.differential.examples import generated
from tests.differential.support import config, decoded_by_columns, plan, source

ALL = {"errors.tolerance": "all"}
EVOLVE = {"iceberg.tables.evolve-schema-enabled": "true"}
JSON = "org.apache.kafka.connect.json.JsonConverter"
DEBEZIUM = {
    "transforms": "d",
    "transforms.d.type": "org.apache.iceberg.connect.transforms.DebeziumTransform",
    "transforms.d.cdc.target.pattern": "lake.{db}_{table}",
}
DMS = {"transforms": "d", "transforms.d.type": "org.apache.iceberg.connect.transforms.DmsTransform"}
JSON_KEYS = {"key.converter": JSON, "key.converter.schemas.enable": "false"}


def optional(number: int, name: str, kind: Any) -> NestedField:
    return NestedField(number, name, kind, required=False)


CDC = StructType(
    optional(11, "op", StringType()),
    optional(12, "ts", TimestamptzType()),
    optional(13, "offset", LongType()),
    optional(14, "source", StringType()),
    optional(15, "target", StringType()),
    optional(16, "key", StructType(optional(17, "id", LongType()))),
)
SCHEMA = Schema(
    optional(1, "id", LongType()),
    optional(2, "name", StringType()),
    optional(3, "price", DoubleType()),
    optional(4, "_cdc", CDC),
)
ODD: dict[str, list[Any]] = {
    "op": ["c", "u", "d", "r", "t", "m", "x", "", None, 5, {}, []],
    "ts_ms": [1_700_000_000_123, 0, -1, None, 1.5, "x", 2**63, {}],
    "before": [None, {}, {"id": 1}, {"id": 2, "name": "n", "more": 1}, 5, [], {"id": "x"}],
    "after": [None, {}, {"id": 1}, {"id": 2, "name": None, "price": 1}, 5, [], {"_cdc": 1}],
    "source": [
        *(None, {}, {"db": "d"}, {"db": "d", "table": "t"}, {"schema": None, "db": "d"}, 7),
        *({"schema": None, "db": "d", "table": "t"}, {"schema": "s", "db": "d", "table": "{db}"}),
        *({"schema": 5, "table": "t"}, {"schema": "{table}", "table": "t"}, {"table": {}}),
        *({"db": "d", "collection": "c"}, {"db": "d", "table": None, "collection": "c"}),
    ],
}
GOOD = {
    "op": "u",
    "ts_ms": 1_700_000_000_123,
    "before": {"id": 1, "name": "old", "price": 0.5},
    "after": {"id": 1, "name": "new", "price": 1.5},
    "source": {"version": "2.1", "db": "inv", "schema": "public", "table": "cust", "lsn": 5},
}


def lines() -> list[Any]:
    """Every odd value in every field, among good ones of all operations."""
    events: list[Any] = [{**GOOD, "op": op} for op in "cudr"]
    for name, values in ODD.items():
        for value in values:
            events += [{**GOOD, name: value}, {**GOOD, name: value, "op": "d"}, GOOD]
            events += [{**GOOD, name: value, "op": "t", "before": None, "after": None}]
        events.append({k: v for k, v in GOOD.items() if k != name})
    return [*events, [], "x", {}, None]


def encoded(documents: list[Any]) -> list[bytes | None]:
    return [None if d is None else json.dumps(d).encode() for d in documents]


def keys_of(count: int) -> list[bytes | None]:
    some = [b'{"id":1}', None, b'{"id":2,"more":"x"}', b"5", b'"x"', b"{", b'{"id":"x"}', b"null"]
    return [some[i % 8] if i % 3 == 0 else b'{"id":7}' for i in range(count)]


@pytest.mark.parametrize("extra", [{}, EVOLVE, JSON_KEYS, {**JSON_KEYS, **EVOLVE}], ids=str)
def test_unusual_change_events_are_handled_alike(extra: dict[str, str], tmp_path: Path) -> None:
    """Unusual values in every field, and unusual keys: the same rows and refusals."""
    values = encoded(lines())
    batch = source(values, keys=keys_of(len(values)))
    connector = config(**ALL, **DEBEZIUM, **extra)
    by_column, by_record = both(connector, [plan(tmp_path, SCHEMA)], [batch])
    assert by_column == by_record


def test_events_without_a_schema_field_are_handled_alike(tmp_path: Path) -> None:
    """Sources that only name a database, like MySQL."""
    documents = [{**d, "source": {"db": "d", "table": "t"}} for d in lines() if type(d) is dict]
    batch = source(encoded(documents))
    by_column, by_record = both(config(**ALL, **DEBEZIUM), [plan(tmp_path, SCHEMA)], [batch])
    assert by_column == by_record


@pytest.mark.parametrize("extra", [{}, EVOLVE], ids=["fixed", "evolving"])
def test_common_change_events_use_the_column_path_only(
    extra: dict[str, str], tmp_path: Path
) -> None:
    """Also with fields that no table needs."""
    connector = config(**DEBEZIUM, **JSON_KEYS, **extra)
    batch = source(encoded([GOOD] * 50), keys=[b'{"id":7}'] * 50)
    columns = decoded_by_columns(connector, plan(tmp_path, SCHEMA), batch)
    assert [len(part.places) for part in columns] == [50]
    assert not len(columns[0].unexpected)


_NAME = st.sampled_from(["db", "schema", "table", "id", "name"])
_SCALAR = st.none() | st.text(max_size=3) | st.integers(-5, 5)
_STRUCT = st.none() | st.dictionaries(_NAME, _SCALAR, max_size=4)
_EVENT = st.fixed_dictionaries(
    {"op": st.sampled_from("cud")},
    optional={"ts_ms": _SCALAR, "before": _STRUCT, "after": _STRUCT, "source": _STRUCT},
)


@generated(25)
@given(events=st.lists(_EVENT, min_size=1, max_size=12))
def test_generated_change_events_are_handled_alike(events: list[Any], tmp_path: Path) -> None:
    """Generated events."""
    batch = source(encoded([GOOD, *events]))
    by_column, by_record = both(config(**ALL, **DEBEZIUM), [plan(tmp_path, SCHEMA)], [batch])
    assert by_column == by_record


# ------------------------------------------------------------------ with schemas


def field(name: str, kind: str, *, optional: bool = True, **more: Any) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": optional, **more}


ROW = [field("id", "int64"), field("name", "string"), field("price", "double")]
EVENT = {
    "type": "struct",
    "optional": False,
    "fields": [
        field("before", "struct", fields=ROW),
        field("after", "struct", fields=ROW),
        field(
            "source",
            "struct",
            optional=False,
            fields=[field("version", "string"), field("db", "string"), field("table", "string")],
        ),
        field("op", "string"),
        field("ts_ms", "int64"),
    ],
}
KEY = {"type": "struct", "optional": False, "fields": [field("id", "int64", optional=False)]}


def enveloped(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


@pytest.mark.parametrize("extra", [{}, EVOLVE], ids=["fixed", "evolving"])
@pytest.mark.parametrize("lacking", [(), ("source",), ("op",), ("after",)], ids=str)
def test_change_events_with_schemas_are_handled_alike(
    lacking: tuple[str, ...], extra: dict[str, str], tmp_path: Path
) -> None:
    """Enveloped events and keys, unusual ones among them, with complete and partial schemas."""
    schema = {**EVENT, "fields": [f for f in EVENT["fields"] if f["field"] not in lacking]}
    documents = [d for d in lines() if type(d) is dict]
    values = [enveloped(schema, document) for document in documents]
    keys = [enveloped(KEY, {"id": i}) if i % 3 else None for i in range(len(values))]
    connector = config(
        **ALL,
        **DEBEZIUM,
        **extra,
        **{"value.converter.schemas.enable": "true", "key.converter": JSON},
    )
    batches = [source(values, keys=keys)]
    for table in (SCHEMA, Schema(*SCHEMA.fields[:2])):
        by_column, by_record = both(connector, [plan(tmp_path, table)], batches)
        assert by_column == by_record
    if not lacking:
        good = source([enveloped(EVENT, GOOD)] * 50, keys=[enveloped(KEY, {"id": 1})] * 50)
        (columns,) = decoded_by_columns(connector, plan(tmp_path, SCHEMA), good)
        assert (len(columns.places), len(columns.unexpected)) == (50, 0)


def test_dms_events_are_handled_alike(tmp_path: Path) -> None:
    """Unusual ones among them."""
    good = {
        "data": {"id": 1, "name": "ann"},
        "metadata": {"operation": "update", "timestamp": "2023-01-01T00:00:00Z"}
        | {"schema-name": "s", "table-name": "t", "transaction-id": 5},
    }
    documents: list[Any] = [good]
    for name in ("data", "metadata"):
        for value in (None, {}, 5, "x", [], {"id": 2}, {"operation": "delete"}, {"operation": 5}):
            documents += [{**good, name: value}, good]
    for name in ("operation", "timestamp", "schema-name", "table-name"):
        for value in (None, "x", 5, {}, 1.5, "delete", "insert", 1_700_000_000_000):
            documents += [{**good, "metadata": {**good["metadata"], name: value}}, good]
    connector = config(**ALL, **DMS)
    batch: pa.RecordBatch = source(encoded(documents))
    by_column, by_record = both(connector, [plan(tmp_path, SCHEMA)], [batch])
    assert by_column == by_record
    (columns,) = decoded_by_columns(connector, plan(tmp_path, SCHEMA), source(encoded([good] * 9)))
    assert len(columns.places) == 9
