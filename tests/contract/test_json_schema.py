"""JSON Schema behind a schema registry, and with the schema in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from connect.config.connector import ConverterConfig
from connect.errors import ConfigError, RecordError
from connect.model.records import Date, Struct, Timestamp
from connect.records.converters import converter
from tests.support.fakes.schema_registry import SchemaRegistryServer

JSON_SCHEMA = "io.confluent.connect.json.JsonSchemaConverter"
CUSTOMER = {"type": "object", "properties": {"name": {"type": "string"}}}
ORDER: dict[str, Any] = {
    "type": "object",
    "title": "Order",
    "properties": {
        "id": {"type": "integer", "connect.index": 1},
        "amount": {"type": "number", "connect.index": 0},
        "small": {"type": "integer", "connect.type": "int8", "default": 7},
        "when": {
            "type": "integer",
            "title": "org.apache.kafka.connect.data.Timestamp",
            "connect.version": 1,
            "connect.type": "int64",
        },
        "day": {
            "type": "integer",
            "title": "org.apache.kafka.connect.data.Date",
            "connect.type": "int32",
        },
        "total": {
            "type": "number",
            "title": "org.apache.kafka.connect.data.Decimal",
            "connect.type": "bytes",
            "connect.parameters": {"scale": "2"},
        },
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "state": {"enum": ["NEW", "PAID"]},
        "who": {"$ref": "customer.json"},
        "tags": {
            "type": "object",
            "connect.type": "map",
            "additionalProperties": {"type": "integer"},
        },
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    },
    "definitions": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}}},
}
DOCUMENT: dict[str, Any] = {
    "id": 1,
    "amount": 5,
    "when": 1700000000123,
    "day": 3,
    "total": 1.25,
    "note": None,
    "state": "NEW",
    "who": {"name": "x"},
    "tags": {"a": 1},
    "lines": [{"sku": "s"}],
    "either": 3,
    "more": [1],
}


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        running.register("customer", json.dumps(CUSTOMER), "JSON")
        references = [{"name": "customer.json", "subject": "customer", "version": 1}]
        running.register("t-value", json.dumps(ORDER), "JSON", references)
        yield running


def built(server: SchemaRegistryServer, **options: str) -> Any:
    given = {"schema.registry.url": server.url, **options}
    return converter(ConverterConfig(JSON_SCHEMA, given), "value")


def framed(document: Any) -> bytes:
    return b"\0\0\0\0\2" + json.dumps(document).encode()


def test_every_kind_of_property_is_converted(server: SchemaRegistryServer) -> None:
    """Types, logical types, references, maps, choices, defaults; order by connect.index."""
    schema, value = built(server).to_connect("t", (), framed(DOCUMENT))
    fields = dict(value.values)
    assert [name for name, _ in schema.fields][:3] == ["amount", "id", "small"]
    assert fields.pop("who").values == {"name": "x"}
    assert fields.pop("lines")[0].values == {"sku": "s"}
    chosen = fields.pop("either")
    assert isinstance(chosen, Struct)
    assert [v for v in chosen.values.values() if v is not None] == [3]
    assert fields == {
        "id": 1,
        "amount": 5.0,
        "small": 7,
        "when": Timestamp(1700000000123),
        "day": Date(3),
        "total": Decimal("1.25"),
        "note": None,
        "state": "NEW",
        "tags": {"a": 1},
    }


@pytest.mark.parametrize(
    "change",
    [
        {"id": "1"},
        {"id": 1.5},
        {"id": None},
        {"amount": "x"},
        {"small": 300},
        {"lines": {}},
        {"note": 5},
        {"tags": {"a": "b"}},
        {"either": []},
    ],
)
def test_values_of_another_kind_are_refused(
    server: SchemaRegistryServer, change: dict[str, Any]
) -> None:
    """A value of another kind than the schema's is no record."""
    with pytest.raises(RecordError) as raised:
        built(server).to_connect("t", (), framed({**DOCUMENT, **change}))
    assert raised.value.code in ("schema_mismatch", "out_of_range", "lost_fraction")


def test_only_nullable_properties_may_be_missing_by_default(server: SchemaRegistryServer) -> None:
    """With the option, all properties that are not required."""
    document = {k: v for k, v in DOCUMENT.items() if k != "state"}
    with pytest.raises(RecordError, match="required"):
        built(server).to_connect("t", (), framed(document))
    options = {"use.optional.for.nonrequired": "true"}
    _, value = built(server, **options).to_connect("t", (), framed(document))
    assert value.values["state"] is None


def test_bare_documents_are_read_by_the_schema_of_a_file(tmp_path: Path) -> None:
    """Bare documents are read by the schema of schema.file."""
    file = tmp_path / "customer.json"
    file.write_text(json.dumps(CUSTOMER))
    reader = converter(ConverterConfig(JSON_SCHEMA, {"schema.file": str(file)}), "value")
    assert reader.to_connect("t", (), b'{"name":"x"}')[1].values == {"name": "x"}
    with pytest.raises(ConfigError, match=r"schema\.file"):
        converter(ConverterConfig(JSON_SCHEMA, {"schema.file": str(tmp_path / "no")}), "value")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$ref": "#"}, "is recursive"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "is recursive"),
        ({"$ref": "http://example.com/x.json"}, "not among its references"),
        ({"type": "array"}, "items"),
        ({"type": "object", "properties": {"a": {}}}, "no Connect type"),
        (5, "JSON object"),
        ({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}, "default"),
    ],
)
def test_unsupported_schemas_are_refused(
    server: SchemaRegistryServer, schema: Any, why: str
) -> None:
    """With the reason; nothing is fetched."""
    number = server.register("bad", json.dumps(schema), "JSON")
    with pytest.raises(RecordError, match=why):
        built(server).to_connect("t", (), b"\0" + number.to_bytes(4, "big") + b"{}")
