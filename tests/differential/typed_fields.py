"""Fields of each type of Connect, and documents with them, for comparisons of JSON with schemas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import StructType

from connect.records.tables.type_inference import type_of
from tests.differential.cases import RECORDS, VALUES
from tests.golden.records_model import schema_of

CONNECT = "org.apache.kafka.connect.data."
DECIMAL = {
    "type": "bytes",
    "optional": True,
    "name": CONNECT + "Decimal",
    "parameters": {"scale": "2"},
}
VARIABLE = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
}
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
    "date": {"type": "int32", "optional": True, "name": CONNECT + "Date"},
    "time": {"type": "int32", "optional": True, "name": CONNECT + "Time"},
    "timestamp": {"type": "int64", "optional": True, "name": CONNECT + "Timestamp"},
    "micros": {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"},
    "decimal": DECIMAL,
    "other date": {"type": "string", "optional": True, "name": CONNECT + "Date"},
    "default decimal": {**DECIMAL, "default": "AQ=="},
    "default digits": {**DECIMAL, "default": 1.5},
    "default wide": {**DECIMAL, "default": "/w" + "A" * 29 + "="},
    "default text": {"type": "string", "optional": True, "default": "\ud800"},
    "default date": {"type": "int32", "name": CONNECT + "Date", "default": 5},
    "default timestamp": {"type": "int64", "name": CONNECT + "Timestamp", "default": 5},
    "default micros": {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "default": 5},
    "default float": {"type": "float", "optional": True, "default": 1.25},
    "default bytes": {"type": "bytes", "optional": True, "default": "AQ=="},
    "default items": {
        "type": "array",
        "optional": True,
        "items": {"type": "string", "optional": True, "default": "d"},
    },
    "point": {
        "type": "struct",
        "optional": True,
        "fields": [
            {"field": "x", "type": "double"},
            {"field": "wkb", "type": "bytes", "optional": True},
        ],
    },
    "variable decimal": {**VARIABLE, "optional": True},
    "decimals": {"type": "array", "optional": True, "items": DECIMAL},
    "floats": {"type": "array", "optional": True, "items": {"type": "float", "optional": True}},
    "map of bytes": {
        "type": "map",
        "optional": True,
        "keys": {"type": "string"},
        "values": {"type": "bytes"},
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
    "decimal": '"AQ=="',
    "default decimal": '"AQ=="',
    "default digits": '"AQ=="',
    "default wide": '"AQ=="',
    "default text": '"x"',
    "default bytes": '"AQ=="',
    "default float": "1.5",
    "default items": '["x",null]',
    "double": "1.5",
    "other date": '"2024-01-02"',
    "point": '{"x":1.5,"wkb":"AQ=="}',
    "variable decimal": '{"scale":1,"value":"AQ=="}',
    "decimals": '["AQ=="]',
    "floats": "[1.5]",
    "map of bytes": '{"k":"AQ=="}',
}
