"""Values that their columns do not take: both paths put them into the same other columns."""

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
from pyiceberg.types import LongType, NestedField

from connect.config.connector import ConnectorConfig
from connect.errors import RetriableError
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.conversion.row_converter import ConversionOptions, RowConverter
from connect.records.conversion.text import to_string
from connect.records.tables.schema_changes import SchemaChanges, apply_changes, merge
from tests.differential.both_paths import ALL, seen
from tests.differential.cases import PLAIN, TYPES, VALUES
from tests.differential.examples import generated
from tests.differential.support import config, plan, rows_of, run_batches, run_distributed, source
from worker.batch.descriptors import BatchResult
from worker.batch.distribution import Distribution
from worker.batch.pipeline_spec import ChangePlan
from worker.pipeline.pipeline import PipelineLimits, TablePlan

EVOLVE = {**ALL, "iceberg.tables.evolve-schema-enabled": "true"}
KEY = "iceberg.tables.type-conflict"
FORMS: dict[str, dict[str, str | None]] = {
    "plain": {},
    "typed": {"value.converter.schemas.enable": "true"},
    "steps": {
        "transforms": "f",
        "transforms.f.type": "org.apache.kafka.connect.transforms.Flatten$Value",
    },
    "upserts": {
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-id-columns": "id",
    },
    "delta": {
        "icefloe.format": "delta",
        "icefloe.delta.location": "file:///tmp/lake",
        "iceberg.catalog.type": None,
        "iceberg.catalog.uri": None,
    },
}
_TEXTS = [json.dumps(text) for text in ("abc", "12", "", "2024-01-02", "12.5", "true", "é")]


def table(columns: dict[str, tuple[str, bool]]) -> Schema:
    """A table with a key and columns of some kinds, required or not."""
    fields = [
        NestedField(100 + i, name, TYPES[kind], required=required)
        for i, (name, (kind, required)) in enumerate(columns.items())
    ]
    return Schema(NestedField(1, "id", LongType(), required=True), *fields)


def envelope(record: dict[str, Any]) -> dict[str, Any]:
    """The record with a schema, in which columns that changed are texts."""
    kinds = {int: "int64", str: "string", bool: "boolean", float: "double"}
    fields = [
        {"field": name, "type": kinds[type(value)], "optional": name != "id"}
        for name, value in record.items()
        if value is not None
    ]
    payload = {name: value for name, value in record.items() if value is not None}
    return {"schema": {"type": "struct", "fields": fields}, "payload": payload}


@st.composite
def streams(draw: st.DrawFn, form: str) -> tuple[Schema, list[bytes]]:
    """A table, and records of which some have a value of another type."""
    kinds = sorted(TYPES if form == "plain" else {"int", "boolean", "double", "date", "string"})
    columns = {
        name: (draw(st.sampled_from(kinds)), draw(st.booleans()))
        for name in draw(st.sampled_from(["c", "cd", "cC"]))
    }
    if draw(st.integers(0, 4)) == 0:
        columns["c__text"] = draw(st.sampled_from([("string", False), ("int", False)]))
    lines = []
    for number in range(draw(st.integers(1, 12))):
        members = {"id": str(number)}
        for name, (kind, _) in columns.items():
            choice = draw(st.integers(0, 9))
            if choice < 4:
                odd = VALUES if form == "plain" else _TEXTS
                members[name] = draw(st.sampled_from(odd))
            elif choice < 8:
                members[name] = PLAIN[kind]
            elif choice == 8:
                members[name] = "null"
        body = ",".join(f'"{name}":{value}' for name, value in members.items())
        line = f"{{{body}}}"
        lines.append((json.dumps(envelope(json.loads(line))) if form == "typed" else line).encode())
    return table(columns), lines


def written(
    connector: ConnectorConfig,
    first: TablePlan,
    lines: Sequence[bytes],
    *,
    block_rows: int = 7,
    reference_only: bool = False,
) -> tuple[Schema, BatchResult]:
    """Run a batch, and again with the columns that it requests; the table's schema afterwards."""
    limits = PipelineLimits(block_rows=block_rows)
    for _ in range(10):
        result = run_batches(
            connector, [first], [source(lines)], limits=limits, reference_only=reference_only
        )
        schema = Schema.model_validate_json(first.schema_json)
        if not result.schema_requests:
            return schema, result
        (request,) = result.schema_requests
        asked = merge(*map(SchemaChanges.from_json, request.changes))
        changed, _ = apply_changes(schema, asked, max(1000, schema.highest_field_id))
        assert changed.as_struct() != schema.as_struct()
        first = replace(first, schema_json=changed.model_dump_json())
    raise AssertionError("the batch keeps requesting columns")


@generated(80)
@given(st.data(), st.sampled_from(sorted(FORMS)), st.sampled_from(["text", "new-column"]))
def test_conflicts_are_equal_on_both_paths(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, form: str, action: str
) -> None:
    """Same columns, rows, refusals and counts. No value is lost: it is in one of two columns."""
    schema, lines = data.draw(streams(form))
    first = plan(tmp_path_factory.mktemp("t"), schema)
    if form == "upserts":
        first = replace(first, changes=ChangePlan((1,), first.spec_json))
    connector = config(**{**EVOLVE, **FORMS[form], KEY: action})
    after, by_column = written(connector, first, lines, block_rows=data.draw(st.integers(1, 12)))
    other, by_record = written(connector, first, lines, reference_only=True)
    assert after.as_struct() == other.as_struct()
    assert seen(by_column, ["db.t1"]) == seen(by_record, ["db.t1"])
    if form == "plain" and action == "text":
        check_rows(by_column, lines)


def check_rows(result: BatchResult, lines: Sequence[bytes]) -> None:
    """Check each row against its record, and the counts against the rows."""
    rows = {row["id"]: row for row in rows_of(result, "db.t1")}
    dead = {letter.record.offset for letter in result.dead_letters}
    assert len(rows) + len(dead) == len(lines)
    moved = 0
    for number, row in rows.items():
        if lines[number].count(b'"id"') > 1:
            continue
        record = json.loads(lines[number], parse_float=str, parse_int=str)
        for name in ("c", "d", "C", "c__text"):
            value = record.get(name)
            own = record.get(f"{name}__text") is not None
            other = None if own else row.get(f"{name}__text")
            moved += other is not None
            if name not in row or value is None:
                assert other is None
            else:
                assert (row[name] is None) == (f"{name}__text" in row and other is not None)
    assert sum(result.conflicts.values()) == moved


CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("int", '"abc"', "abc", {"c__string": "abc"}),
    ("int", "99999999999", "99999999999", {"c__long": 99999999999}),
    ("int", "1.5", "1.5", {"c__double": 1.5}),
    ("int", '{"a":"b"}', '{"a":"b"}', {"c__struct": {"a": "b"}}),
    ("boolean", "7", "7", {"c__long": 7}),
    ("struct", "true", "true", {"c__boolean": True}),
    ("list", '"x"', "x", {"c__string": "x"}),
    ("date", "[1]", "[1]", {"c__list": [1]}),
]


@pytest.mark.parametrize(("kind", "value", "text", "new"), CASES)
def test_a_value_goes_to_the_column_of_its_type(
    kind: str, value: str, text: str, new: dict[str, Any], tmp_path: Path
) -> None:
    """As text, or with its inferred type; a required column becomes optional."""
    first = plan(tmp_path, table({"c": (kind, True)}))
    lines = [f'{{"id":0,"c":{PLAIN[kind]}}}'.encode(), f'{{"id":1,"c":{value}}}'.encode()]
    schema, result = written(config(**EVOLVE, **{KEY: "text"}), first, lines)
    assert not schema.find_field("c").required
    rows = sorted(rows_of(result, "db.t1"), key=lambda row: row["id"])
    assert rows[0]["c"] is not None
    assert rows[0]["c__text"] is None
    assert rows[1] == {"id": 1, "c": None, "c__text": text}
    assert result.conflicts == {("db.t1", "c", "c__text"): 1}
    _, result = written(config(**EVOLVE, **{KEY: "new-column"}), first, lines)
    (row,) = (row for row in rows_of(result, "db.t1") if row["id"])
    assert row == {"id": 1, "c": None, **new}


@pytest.mark.parametrize("action", ["text", "new-column", "fail"])
@pytest.mark.parametrize("form", ["plain", "upserts", "identifier"])
def test_a_conflict_in_the_key_is_an_error_of_the_record(
    action: str, form: str, tmp_path: Path
) -> None:
    """Whether the configuration or the table names the key."""
    schema = table({"c": ("int", False)})
    more = {"iceberg.tables.default-id-columns": "id"} if form == "plain" else {}
    if form == "identifier":
        schema = Schema(*schema.fields, identifier_field_ids=[1])
    first = plan(tmp_path, schema)
    if form == "upserts":
        more = {**more, **FORMS["upserts"]}
        first = replace(first, changes=ChangePlan((1,), first.spec_json))
    connector = config(**{**EVOLVE, **more, KEY: action})
    _, result = written(connector, first, [b'{"id":"x","c":1}', b'{"id":2,"c":2}'])
    (letter,) = result.dead_letters
    assert (letter.error.code, letter.error.coordinates["column"]) == ("bad_text", "id")
    assert {row["id"] for row in rows_of(result, "db.t1")} == {2}


@pytest.mark.parametrize("form", ["plain", "upserts"])
def test_distributed_rows_have_their_values(form: str, tmp_path: Path) -> None:
    """A moved value is counted by the task that read it, and written by another one."""
    first = plan(tmp_path, table({"c": ("int", False), "c__text": ("string", False)}))
    if form == "upserts":
        first = replace(first, changes=ChangePlan((1,), first.spec_json))
    lines = [b'{"id":%d,"c":%s}' % (n, b'"x"' if n % 3 else b"1") for n in range(30)]
    reads = [[source(lines[:15])], [source(lines[15:], partition=1)]]
    connector = config(**{**EVOLVE, **FORMS[form], KEY: "text"})
    result, _ = run_distributed(connector, [first], reads, Distribution(2, 1_000, folder=None))
    assert result.conflicts == {("db.t1", "c", "c__text"): 20}
    moved = {row["id"] for row in rows_of(result, "db.t1") if row.get("c__text") == "x"}
    assert moved == {n for n in range(30) if n % 3}


@pytest.mark.parametrize("tolerance", ["all", "none"])
def test_fail_fails_the_table(tolerance: str, tmp_path: Path) -> None:
    """Also where records are tolerated: the error names table, column and cure."""
    connector = config(**{"errors.tolerance": tolerance, KEY: "fail"})
    lines = [b'{"id":1,"c":1}', b'{"id":2,"c":"x"}']
    _, result = written(connector, plan(tmp_path, table({"c": ("int", False)})), lines)
    assert isinstance(result.error, RetriableError)
    assert result.error.code == "type_conflict"
    assert result.error.coordinates["table"] == "db.t1"
    assert "iceberg.table.db.t1.type-conflict" in result.error.message
    assert not result.dead_letters


def test_a_table_has_its_own_action(tmp_path: Path) -> None:
    """`iceberg.table.<name>.type-conflict` wins over the connector's."""
    lines, first = [b'{"id":1,"c":"x"}'], plan(tmp_path, table({"c": ("int", False)}))
    own = {"iceberg.table.db.t1.type-conflict": "text", KEY: "dead-letter"}
    _, result = written(config(**EVOLVE, **own), first, lines)
    assert rows_of(result, "db.t1") == [{"id": 1, "c": None, "c__text": "x"}]
    _, result = written(config(**EVOLVE, **{KEY: "dead-letter"}), first, lines)
    assert [letter.error.code for letter in result.dead_letters] == ["bad_text"]


def test_a_required_column_without_iceberg_keeps_the_error(tmp_path: Path) -> None:
    """A column of a Delta table cannot become optional."""
    first = plan(tmp_path, table({"c": ("int", True), "d": ("int", False)}))
    lines = [b'{"id":1,"c":"x","d":1}', b'{"id":2,"c":2,"d":"y"}']
    _, result = written(config(**{**EVOLVE, **FORMS["delta"], KEY: "text"}), first, lines)
    assert [letter.error.coordinates["column"] for letter in result.dead_letters] == ["c"]
    assert rows_of(result, "db.t1") == [{"id": 2, "c": 2, "d": None, "d__text": "y"}]


def test_the_converter_keeps_conflicts_on_request() -> None:
    """The row has null in their place; without the request they are errors."""
    converter = RowConverter(table({"c": ("int", False)}), ConversionOptions())
    conflicts: dict[str, Any] = {}
    assert converter.row({"id": 1, "c": [1, None]}, conflicts) == {"id": 1, "c": None}
    assert to_string(conflicts["c"].value) == "[1,null]"
    with pytest.raises(Unconvertible):
        converter.row({"id": 1, "c": [1, None]})
