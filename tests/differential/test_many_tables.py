"""Tables of one connector with overlapping fields: no field that a record's table lacks is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from connect.config.connector import ConnectorConfig
from tests.differential.both_paths import ALL, seen
from tests.differential.examples import generated
from tests.differential.support import config, plan, run_batches, source
from worker.batch.pipeline_spec import ChangePlan
from worker.pipeline.pipeline import PipelineLimits, TablePlan

ROUTED = {
    **ALL,
    "iceberg.tables": None,
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "t",
    "iceberg.tables.evolve-schema-enabled": "true",
}
_CHAINS: dict[str, dict[str, str]] = {
    "plain": {},
    "typed": {"value.converter.schemas.enable": "true"},
    "renamed": {
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.r.renames": "old:x",
    },
    "flattened": {
        "transforms": "f",
        "transforms.f.type": "org.apache.kafka.connect.transforms.Flatten$Value",
    },
    "changes": {
        "transforms": "d",
        "transforms.d.type": "io.tabular.iceberg.connect.transforms.DebeziumTransform",
        "iceberg.tables.cdc-field": "_cdc.op",
        "iceberg.tables.default-id-columns": "id",
        "iceberg.tables.route-field": "_cdc.target",
    },
}
_SHAPES: dict[str, Any] = {
    "x": 1,
    "y": "text",
    "s": {"a": 1, "b": "x", "in": {"c": 1, "d": 2}},
    "l": [{"a": 1, "b": "x"}],
    "ll": [[{"a": 1, "b": 2}]],
    "m": {"k": {"a": 1, "b": 2}},
    "n": {"k": 1},
    "o": [{"a": [{"b": 1, "c": 2}]}],
}
_MAPS = frozenset("mn")


@st.composite
def parts(draw: st.DrawFn, shape: Any) -> Any:
    """A part of a value: fields are left out, and some values are null."""
    if isinstance(shape, dict):
        names = [name for name in shape if draw(st.integers(0, 3))]
        return {name: draw(parts(shape[name])) for name in names}
    if draw(st.integers(0, 9)) == 0:
        return None
    if isinstance(shape, list):
        return [draw(parts(shape[0])) for _ in range(draw(st.integers(1, 2)))]
    return shape


def column(value: Any, ids: list[int], *, is_map: bool = False) -> IcebergType | None:
    """The column type of a value, None where it has none."""
    ids[0] += 1
    own = ids[0]
    if isinstance(value, dict):
        if is_map:
            ids[0] += 1
            inner = column(next(iter(value.values()), None), ids)
            return inner and MapType(own, StringType(), own + 1, inner, value_required=False)
        made = {name: column(inner, ids) for name, inner in value.items()}
        first, ids[0] = ids[0] + 1, ids[0] + len(made)
        fields = [
            NestedField(first + i, name, kind, required=False)
            for i, (name, kind) in enumerate(made.items())
            if kind is not None
        ]
        return StructType(*fields) if fields else None
    if isinstance(value, list):
        inner = column(value[0], ids)
        return inner and ListType(own, inner, element_required=False)
    if value is None:
        return None
    return LongType() if isinstance(value, int) else StringType()


def schema_of(document: dict[str, Any], *, maps: frozenset[str] = _MAPS) -> Schema:
    """A table with the columns of a document."""
    ids = [1000]
    kinds = {name: column(v, ids, is_map=name in maps) for name, v in document.items()}
    return Schema(
        *(
            NestedField(i, name, kind, required=False)
            for i, (name, kind) in enumerate(kinds.items(), 1)
            if kind is not None
        )
    )


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Schema], list[dict[str, Any]]]:
    """Tables with parts of the fields, and records that have parts of the fields."""
    tables = draw(st.lists(parts(_SHAPES), min_size=2, max_size=4))
    common = [{"id": 1}, {"id": 1, "t": "text"}]
    schemas = [schema_of({**draw(st.sampled_from(common)), **table}) for table in tables]
    records = []
    for number in range(draw(st.integers(1, 12))):
        table = draw(st.integers(0, len(tables) - 1))
        # most records have fields of their table only
        shape = draw(st.sampled_from([tables[table], tables[table], _SHAPES]))
        records.append({"t": f"db.t{table}", "id": number, **draw(parts(shape))})
    return schemas, records


def changed(record: dict[str, Any]) -> dict[str, Any]:
    """The record as a change of Debezium."""
    _, _, table = record["t"].partition(".")
    before, after = (record, None) if record["id"] % 5 == 4 else (None, record)
    op = "d" if after is None else "cu"[record["id"] % 2]
    return {
        "op": op,
        "ts_ms": 1,
        "source": {"db": "db", "table": table},
        "before": before,
        "after": after,
    }


def connect_schema(value: Any, shape: Any = None) -> dict[str, Any]:
    """The Connect schema of a record; parts have all fields of their shape."""
    if isinstance(value, dict):
        shapes = _SHAPES if shape is None else {}
        fields = [
            {"field": name, **connect_schema(shapes.get(name, inner), inner)}
            for name, inner in value.items()
        ]
        return {"type": "struct", "optional": True, "fields": fields}
    if isinstance(value, list):
        return {"type": "array", "optional": True, "items": connect_schema(value[0], value)}
    return {"type": "int64" if isinstance(value, int) else "string", "optional": True}


@generated(50)
@given(streams(), st.sampled_from(sorted(_CHAINS)), st.integers(1, 12))
def test_each_table_asks_for_the_fields_of_its_own_records(
    tmp_path_factory: pytest.TempPathFactory,
    stream: tuple[list[Schema], list[dict[str, Any]]],
    chain: str,
    block_rows: int,
) -> None:
    """Both paths request the same columns of the same tables, or write the same rows."""
    schemas, records = stream
    folder = tmp_path_factory.mktemp("t")
    plans = [plan(folder, schema, name=f"db.t{i}") for i, schema in enumerate(schemas)]
    if chain == "renamed":
        records = [{("old" if name == "x" else name): v for name, v in r.items()} for r in records]
    if chain == "changes":
        changes = ChangePlan((1,), plans[0].spec_json)
        plans = [replace(each, changes=changes) for each in plans]
        records = [changed(record) for record in records]
    if chain == "typed":
        records = [{"schema": connect_schema(record), "payload": record} for record in records]
    lines = [json.dumps(record).encode() for record in records]
    connector = config(**{**ROUTED, **_CHAINS[chain]})
    by_column, by_record = (
        observed(connector, plans, lines, block_rows, reference_only=only) for only in (False, True)
    )
    assert by_column == by_record


def observed(
    connector: ConnectorConfig,
    plans: Sequence[TablePlan],
    lines: Sequence[bytes],
    block_rows: int,
    *,
    reference_only: bool,
) -> dict[str, Any]:
    """What a path gives, with the columns that it requests."""
    limits = PipelineLimits(block_rows=block_rows)
    result = run_batches(
        connector, plans, [source(lines)], limits=limits, reference_only=reference_only
    )
    requested = {(request.table, *request.changes) for request in result.schema_requests}
    return {**seen(result, [each.name for each in plans]), "requested": requested}


def test_a_field_that_only_another_table_has_is_requested(tmp_path: Path) -> None:
    """The other table's column does not hide it."""
    one = schema_of({"t": "text", "id": 1, "x": 1})
    other = schema_of({"t": "text", "id": 1})
    plans = [plan(tmp_path, one, name="db.t0"), plan(tmp_path, other, name="db.t1")]
    lines = [b'{"t":"db.t0","id":1,"x":1}', b'{"t":"db.t1","id":1}', b'{"t":"db.t1","id":2,"x":5}']
    result = run_batches(config(**ROUTED), plans, [source(lines)])
    (request,) = result.schema_requests
    assert request.table == "db.t1"
    assert '"x"' in request.changes[0]
