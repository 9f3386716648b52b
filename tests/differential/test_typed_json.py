"""JSON with a schema, by column, gives what it gives by record."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from connect.records.converters.json.json_schema_data import readable_json_schema
from connect.records.tables.schema_changes import SchemaChanges, apply_changes, merge
from connect.records.tables.type_inference import type_of
from tests.differential.both_paths import ALL, both
from tests.differential.cases import VALUES
from tests.differential.examples import part
from tests.differential.support import JSON, config, plan, rows_of, run_batches, source
from tests.differential.typed_fields import (
    FIELDS,
    GOOD,
    VARIABLE,
    envelope,
    lines,
    table_of,
)
from worker.batch.pipeline_spec import ChangePlan

CHAIN = {
    "transforms": "i",
    "transforms.i.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.i.exclude": "unused",
}
JSON_SCHEMA = "io.confluent.connect.json.JsonSchemaConverter"


@pytest.mark.parametrize("name", FIELDS)
def test_envelopes_are_equal_on_both_paths(name: str, tmp_path: Path) -> None:
    """Every unusual value in a field of every schema type, and unusual envelopes."""
    schema, values = envelope(FIELDS[name]), part(VALUES, list(FIELDS).index(name), of=4)
    head = b'{"schema":' + json.dumps(schema).encode() + b',"payload":'
    records = [head + line + b"}" for line in lines(GOOD.get(name, "1"), values)]
    odd = [head + b'{"c":1}', head + b'{"c":1}}}', head + b'{"c":1}x', head + b'{"c":1}} ']
    odd += [head + b'{"n":1},"payload":{"n":2}}', head + b'{"n":1},"x":{}}', head + b"null}", b"{}"]
    connector = config(**{"value.converter.schemas.enable": "true", **ALL})
    table = plan(tmp_path, table_of(schema))
    by_column, by_record = both(connector, [table], [source([*records, *odd, *odd[::-1]])])
    assert by_column == by_record


def test_several_schemas_in_one_batch_are_equal_on_both_paths(tmp_path: Path) -> None:
    """With schema evolution."""
    records = []
    for i in range(60):
        schema = envelope(FIELDS["int64" if i % 2 else "int32"])
        records.append(json.dumps({"schema": schema, "payload": {"c": i, "n": 1}}).encode())
    keys = {"iceberg.tables.evolve-schema-enabled": "true"}
    connector = config(**{"value.converter.schemas.enable": "true", **ALL, **keys})
    for known in ("int32", "int64"):
        table = plan(tmp_path, table_of(envelope(FIELDS[known])))
        by_column, by_record = both(connector, [table], [source(records)])
        assert by_column == by_record


@pytest.mark.parametrize("kind", ["integer", "number", "string", "boolean"])
def test_json_schema_is_equal_on_both_paths(kind: str, tmp_path: Path) -> None:
    """Every unusual value in a property of every type, and unusual documents."""
    properties = {"c": {"type": [kind, "null"]}, "n": {"type": ["integer", "null"]}}
    file = tmp_path / "s.json"
    file.write_text(json.dumps({"type": "object", "properties": properties}))
    connector = config(
        **{
            "value.converter": JSON_SCHEMA,
            "value.converter.schemas.enable": None,
            "value.converter.schema.file": str(file),
            **ALL,
        }
    )
    field = {"integer": "int64", "number": "double"}.get(kind, kind)
    table = plan(tmp_path, table_of(envelope(FIELDS[field])))
    good = {"string": '"x"', "boolean": "true"}.get(kind, "1")
    by_column, by_record = both(connector, [table], [source(list(lines(good)))])
    assert by_column == by_record


EVOLVES = {"iceberg.tables.evolve-schema-enabled": "true"}
REQUIRED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "v", StringType(), required=True),
    identifier_field_ids=[1],
)


@pytest.mark.parametrize("chain", [{}, CHAIN], ids=["plain", "chain"])
def test_a_dropped_column_becomes_optional_on_both_paths(
    chain: dict[str, str], tmp_path: Path
) -> None:
    """Rows before and after the change are stored; records without their key are refused."""
    number = {"type": "int64", "optional": True}
    text = {"field": "v", "type": "string"}
    before = {"type": "struct", "fields": [{"field": "id", **number}, text]}
    after = {"type": "struct", "fields": [{"field": "id", **number}]}
    keyless = {"type": "struct", "fields": [{"field": "other", **number}, text]}
    records = [
        json.dumps({"schema": schema, "payload": payload}).encode()
        for schema, payload in (
            (before, {"id": 1, "v": "x"}),
            (after, {"id": 2}),
            (keyless, {"other": 3, "v": "x"}),
            (after, {"id": 4}),
            (before, {"id": 5, "v": None}),
        )
    ]
    connector = config(**ALL, **EVOLVES, **chain, **{"value.converter.schemas.enable": "true"})
    for reference_only in (False, True):
        schema, last = REQUIRED, 2
        for _ in range(3):
            result = run_batches(
                connector,
                [plan(tmp_path, schema)],
                [source(records)],
                reference_only=reference_only,
            )
            if not result.schema_requests:
                break
            for request in result.schema_requests:
                asked = merge(*map(SchemaChanges.from_json, request.changes))
                schema, last = apply_changes(schema, asked, last)
        assert [(f.name, f.required) for f in schema.fields] == [
            ("id", True),
            ("v", False),
            ("other", False),
        ]
        assert [(row["id"], row["v"]) for row in sorted(rows_of(result, "db.t1"), key=by_id)] == [
            (1, "x"),
            (2, None),
            (4, None),
        ]
        letters = [(d.record.offset, d.error.code) for d in result.dead_letters]
        assert sorted(letters) == [(2, "required_null"), (4, "bad_envelope")]


@pytest.mark.parametrize(("operation", "asked"), [("D", set()), ("I", {"v"})])
def test_deletes_make_no_column_optional(operation: str, asked: set[str], tmp_path: Path) -> None:
    """Their values may lack columns; nor does the column of a message key become optional."""
    schema: dict[str, Any] = {"type": "struct", "fields": [{"field": "op", "type": "string"}]}
    table = plan(tmp_path, Schema(*REQUIRED.fields))
    table = replace(table, changes=ChangePlan((), UNPARTITIONED_PARTITION_SPEC.model_dump_json()))
    keys = {
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "true",
        "iceberg.tables.cdc-field": "op",
    }
    if operation == "D":
        schema["fields"].append({"field": "id", "type": "int64"})
    payload = {"op": operation, "id": 1}
    record = json.dumps({"schema": schema, "payload": payload}).encode()
    connector = config(**ALL, **EVOLVES, **keys)
    for reference_only in (False, True):
        given = [source([record], keys=[b'{"id":1}'])]
        result = run_batches(connector, [table], given, reference_only=reference_only)
        changes = [SchemaChanges.from_json(c) for r in result.schema_requests for c in r.changes]
        assert {name for change in changes for (name,) in change.optionals} == asked
        assert not result.dead_letters


def by_id(row: dict[str, Any]) -> Any:
    return row["id"]


_DEFAULT = {"type": "int32", "optional": True, "default": 7}
TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "field": (_DEFAULT, "null"),
    "item": ({"type": "array", "items": _DEFAULT}, "[1,null]"),
    "value": ({"type": "map", "keys": {"type": "string"}, "values": _DEFAULT}, '{"k":null}'),
    "pair": ({"type": "map", "keys": {"type": "int32"}, "values": _DEFAULT}, "[[1,null]]"),
    "inner": ({"type": "struct", "fields": [{"field": "x", **_DEFAULT}]}, '{"x":null}'),
}


STEPS: dict[str, dict[str, str]] = {
    "none": {},
    "metadata": {
        "transforms": "m",
        "transforms.m.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform",
    },
    "copy": {
        "transforms": "c",
        "transforms.c.type": "org.apache.iceberg.connect.transforms.CopyValue",
        "transforms.c.source.field": "a",
        "transforms.c.target.field": "copy",
    },
    "cast": {
        "transforms": "c",
        "transforms.c.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.c.spec": "a:int64",
        "transforms.c.replace.null.with.default": "false",
    },
}
REPLACED = [("true", "7"), ("false", "null")]


@pytest.mark.parametrize(("replaced", "stored"), REPLACED)
@pytest.mark.parametrize("name", TEXTS)
def test_structs_in_text_columns_have_the_defaults_of_their_schema(
    name: str, replaced: str, stored: str, tmp_path: Path
) -> None:
    """For a null inside the struct, if the converter replaces it, on both paths."""
    field, given = TEXTS[name]
    inner = {"type": "struct", "optional": True, "fields": [{"field": "a", **field}]}
    table = Schema(
        NestedField(1, "c", StringType(), required=False),
        NestedField(2, "n", LongType(), required=False),
    )
    record = json.dumps({"schema": envelope(inner), "payload": "?"})
    records = [record.replace('"?"', f'{{"c":{{"a":{given}}},"n":1}}').encode()]
    keys = {
        "value.converter.schemas.enable": "true",
        "value.converter.replace.null.with.default": replaced,
    }
    by_column, by_record = both(config(**ALL, **keys), [plan(tmp_path, table)], [source(records)])
    assert by_column == by_record
    assert given.replace("null", stored) in str(by_column).replace("\\", "")


@pytest.mark.parametrize(("replaced", "stored"), [("true", 7), ("false", None)])
@pytest.mark.parametrize("step", STEPS)
def test_nulls_are_replaced_if_the_converter_does(
    step: str, replaced: str, stored: int | None, tmp_path: Path
) -> None:
    """At any depth, and through transformations."""
    inner = {"type": "struct", "optional": True, "fields": [{"field": "x", **_DEFAULT}]}
    fields = [{"field": "a", **_DEFAULT}, {"field": "missing", **_DEFAULT}, {"field": "s", **inner}]
    schema = {"type": "struct", "fields": fields}
    record = json.dumps({"schema": schema, "payload": {"a": None, "s": {"x": None}}}).encode()
    names = ("a", "missing", "copy")
    columns = [NestedField(i, n, LongType(), required=False) for i, n in enumerate(names, 1)]
    nested = StructType(NestedField(5, "x", LongType(), required=False))
    tables = [plan(tmp_path, Schema(*columns, NestedField(4, "s", nested, required=False)))]
    keys = {
        "value.converter.schemas.enable": "true",
        "value.converter.replace.null.with.default": replaced,
        "errors.tolerance": "none",
    }
    connector = config(**keys, **STEPS[step])
    for reference_only in (False, True):
        given = [source([record])]
        result = run_batches(connector, tables, given, reference_only=reference_only)
        (row,) = rows_of(result, "db.t1")
        assert (row["a"], row["missing"], row["s"]["x"]) == (stored, stored, stored)
        assert row["copy"] == (stored if step == "copy" else None)


# of java.lang.Double.toString, up to Java 18
DOUBLES = {
    "-8.5218099075542917E18": -8521809907554291712.0,
    "8.5218099075542912E17": 852180990755429120.0,
    "9.2233720368547758E18": 2.0**63,
    "1.0E10": 1e10,
    "2.2250738585072014E-308": 2.2250738585072014e-308,
    "4.9E-324": 5e-324,
    "1.7976931348623157E308": 1.7976931348623157e308,
    "-0.0": -0.0,
    '"NaN"': math.nan,
    '"Infinity"': math.inf,
    '"-Infinity"': -math.inf,
}
# a producer of such numbers means more digits than a double holds
INEXACT = ("8521809907554291700.0", "9007199254740993.0", "-8.5218099075542918E18", "1e400")


@pytest.mark.parametrize("typed", [True, False])
def test_doubles_of_kafkas_converter_are_read(typed: bool, tmp_path: Path) -> None:
    """As Java writes them; numbers with more digits are refused. On both paths."""
    schema = json.dumps(envelope({"type": "double"})).encode()
    payloads = [b'{"c":%s,"n":1}' % text.encode() for text in (*DOUBLES, *INEXACT)]
    records = [b'{"schema":%s,"payload":%s}' % (schema, p) if typed else p for p in payloads]
    columns = (DoubleType(), LongType())
    table = Schema(
        *(NestedField(i, n, t) for i, (n, t) in enumerate(zip("cn", columns, strict=True), 1))
    )
    connector = config(**ALL, **{"value.converter.schemas.enable": str(typed).lower()})
    for reference_only in (False, True):
        given = [source(records)]
        result = run_batches(
            connector, [plan(tmp_path, table)], given, reference_only=reference_only
        )
        stored = [repr(row["c"]) for row in rows_of(result, "db.t1")]
        assert sorted(stored) == sorted(map(repr, DOUBLES.values()))
        letters = [letter.record.offset - len(DOUBLES) for letter in result.dead_letters]
        assert sorted(letters) == list(range(len(INEXACT)))


@pytest.mark.parametrize(
    ("field", "column", "value", "stored"),
    [
        (VARIABLE, DecimalType(10, 2), '{"scale":1,"value":"AP8="}', Decimal("25.50")),
        (VARIABLE, DecimalType(10, 2), '{"scale":-2,"value":"/w=="}', Decimal("-100.00")),
        (VARIABLE, DecimalType(10, 2), '{"scale":0,"value":""}', Decimal("0.00")),
        (VARIABLE, DecimalType(10, 2), '{"scale":3,"value":"AQ=="}', "lost_fraction"),
        (VARIABLE, DecimalType(4, 2), '{"scale":0,"value":"AP8="}', "out_of_range"),
        (VARIABLE, DecimalType(10, 2), '{"scale":2000000000,"value":"AQ=="}', "out_of_range"),
    ],
)
def test_decimals_of_variable_scale_go_into_decimal_columns(
    tmp_path: Path, field: dict[str, Any], column: IcebergType, value: str, stored: Any
) -> None:
    """By their own scale, with both paths alike."""
    schema = json.dumps({"type": "struct", "fields": [{"field": "c", "optional": True, **field}]})
    line = f'{{"schema":{schema},"payload":{{"c":{value}}}}}'.encode()
    connector = config(**ALL, **{"value.converter.schemas.enable": "true"})
    table = plan(tmp_path, Schema(NestedField(1, "c", column, required=False)))
    for reference_only in (False, True):
        result = run_batches(connector, [table], [source([line])], reference_only=reference_only)
        codes = [letter.error.code for letter in result.dead_letters]
        rows = [row["c"] for row in rows_of(result, "db.t1")]
        assert (codes, rows) == (([stored], []) if isinstance(stored, str) else ([], [stored]))


def test_a_decimal_of_variable_scale_without_schema(tmp_path: Path) -> None:
    """Its bytes are base64, as JsonConverter writes them."""
    table = plan(tmp_path, Schema(NestedField(1, "c", DecimalType(10, 2), required=False)))
    lines = [b'{"c":{"scale":1,"value":"AP8="}}', b'{"c":{"scale":1}}', b'{"c":1.5}']
    by_column, by_record = both(config(**ALL), [table], [source(lines)])
    assert by_column == by_record
    assert len(by_column["rows"]["db.t1"]) == 2
    assert [letter[2] for letter in by_column["letters"]] == ["wrong_type"]


def test_an_object_without_properties_is_text(tmp_path: Path) -> None:
    """In the schema of a new column, inside of lists, and in rows of both paths."""
    properties = {
        "id": {"type": "integer"},
        "free": {"type": "object"},
        "all": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
        "none": {"oneOf": [{"type": "null"}, {"type": "object"}]},
    }
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"type": "object", "properties": properties}))
    options = {"value.converter": JSON_SCHEMA, "value.converter.schema.file": str(file)}
    connector = config(**ALL, **options, **{"value.converter.schemas.enable": None})
    reader = readable_json_schema(file.read_text(), {}, optional_unless_required=False)
    kind = type_of(reader.schema, force_optional=True)
    assert isinstance(kind, StructType)
    table = plan(tmp_path, assign_fresh_schema_ids(Schema(*kind.fields)))
    lines = [b'{"id":1,"free":{"a":1.5},"all":[{"b":[1]},{}],"none":null}']
    for reference_only in (False, True):
        result = run_batches(connector, [table], [source(lines)], reference_only=reference_only)
        assert rows_of(result, "db.t1") == [
            {"id": 1, "free": '{"a":1.5}', "all": ['{"b":[1]}', "{}"], "none": None}
        ]
