"""JSON with a schema, by column, gives what it gives by record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import LongType, NestedField, StringType, StructType

from connect.records.tables.type_inference import type_of
from tests.differential.both_paths import ALL, both
from tests.differential.cases import RECORDS, VALUES
from tests.differential.examples import part
from tests.differential.support import config, plan, source
from tests.golden.records_model import schema_of

JSON_SCHEMA = "io.confluent.connect.json.JsonSchemaConverter"
_CONNECT = "org.apache.kafka.connect.data."
FIELDS: dict[str, dict[str, Any]] = {
    "int8": {"type": "int8", "optional": True},
    "int32": {"type": "int32", "optional": False},
    "int64": {"type": "int64", "optional": True},
    "float": {"type": "float", "optional": True},
    "double": {"type": "double", "optional": True},
    "boolean": {"type": "boolean", "optional": True},
    "string": {"type": "string", "optional": True},
    "required": {"type": "string", "optional": False},
    "default": {"type": "int64", "optional": True, "default": 9},
    "bytes": {"type": "bytes", "optional": True},
    "date": {"type": "int32", "optional": True, "name": _CONNECT + "Date"},
    "time": {"type": "int32", "optional": True, "name": _CONNECT + "Time"},
    "timestamp": {"type": "int64", "optional": True, "name": _CONNECT + "Timestamp"},
    "micros": {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"},
    "decimal": {
        "type": "bytes",
        "optional": True,
        "name": _CONNECT + "Decimal",
        "parameters": {"scale": "2"},
    },
    "list": {"type": "array", "optional": True, "items": {"type": "int64", "optional": True}},
    "strict list": {"type": "array", "optional": True, "items": {"type": "int32"}},
    "map": {
        "type": "map",
        "optional": True,
        "keys": {"type": "string"},
        "values": {"type": "int64", "optional": True},
    },
    "struct": {
        "type": "struct",
        "optional": True,
        "fields": [
            {"field": "a", "type": "int32", "optional": False},
            {"field": "b", "type": "string", "optional": True, "default": "d"},
        ],
    },
}


def envelope(field: dict[str, Any]) -> dict[str, Any]:
    fields = [{"field": "c", **field}, {"field": "n", "type": "int64", "optional": True}]
    return {"type": "struct", "optional": False, "fields": fields}


def table_of(schema: dict[str, Any]) -> Schema:
    found = schema_of(schema)
    assert found is not None
    kind = type_of(found, force_optional=True)
    assert isinstance(kind, StructType)
    return assign_fresh_schema_ids(Schema(*kind.fields))


def lines(good: str, values: Sequence[str] = VALUES) -> Iterator[bytes]:
    for i, value in enumerate(values):
        for _ in range(3):
            yield f'{{"c":{good},"n":{i}}}'.encode()
        yield f'{{"c":{value},"n":{i}}}'.encode()
    yield from (record for record in RECORDS if record is not None)


GOOD = {"string": '"x"', "required": '"x"', "boolean": "true", "bytes": '"AQ=="', "map": "{}"} | {
    "list": "[1]",
    "strict list": "[1]",
    "struct": '{"a":1}',
    "decimal": "1.25",
    "double": "1.5",
}


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


_DEFAULT = {"type": "int32", "optional": True, "default": 7}
TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "field": (_DEFAULT, "null"),
    "item": ({"type": "array", "items": _DEFAULT}, "[1,null]"),
    "value": ({"type": "map", "keys": {"type": "string"}, "values": _DEFAULT}, '{"k":null}'),
    "pair": ({"type": "map", "keys": {"type": "int32"}, "values": _DEFAULT}, "[[1,null]]"),
    "inner": ({"type": "struct", "fields": [{"field": "x", **_DEFAULT}]}, '{"x":null}'),
}


@pytest.mark.parametrize("name", TEXTS)
def test_structs_in_text_columns_have_the_defaults_of_their_schema(
    name: str, tmp_path: Path
) -> None:
    """For a null inside the struct, on both paths."""
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
        "value.converter.replace.null.with.default": "false",
    }
    by_column, by_record = both(config(**ALL, **keys), [plan(tmp_path, table)], [source(records)])
    assert by_column == by_record
    assert given.replace("null", "7") in str(by_column).replace("\\", "")
