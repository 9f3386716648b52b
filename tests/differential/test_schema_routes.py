"""Tables named by the schema of a value: the same by column and by record."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import message_factory
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from connect.records.converters.protobuf.protobuf_schema import pool_of
from tests.differential.both_paths import ALL, both
from tests.differential.support import config, decoded_by_columns, plan, source
from tests.support.fakes.schema_registry import SchemaRegistryServer

CONFLUENT = "io.confluent.connect."
KAFKA = "org.apache.kafka.connect.transforms."
TABLE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "note", StringType(), required=False),
)
NAMES = ("SignedUp", "Bought", "Left")
PROTO = 'syntax = "proto3"; package app; ' + " ".join(
    f"message {name} {{ int64 id = 1; string note = 2; }}" for name in NAMES
)
CHAINS: dict[str, dict[str, str]] = {
    "none": {},
    "topic": {
        "transforms": "r,f",
        "transforms.r.type": f"{KAFKA}RegexRouter",
        "transforms.r.regex": "t",
        "transforms.r.replacement": "u",
        "transforms.f.type": f"{KAFKA}Filter",
        "transforms.f.predicate": "p",
        "predicates": "p",
        "predicates.p.type": f"{KAFKA}predicates.TopicNameMatches",
        "predicates.p.pattern": "none",
    },
    "value": {
        "transforms": "s",
        "transforms.s.type": f"{KAFKA}SetSchemaMetadata$Value",
        "transforms.s.schema.name": "app.Bought",
    },
    "columns": {
        "transforms": "e",
        "transforms.e.type": f"{KAFKA}InsertField$Value",
        "transforms.e.static.field": "more",
        "transforms.e.static.value": "x",
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[SchemaRegistryServer]:
    """A registry that this module's schemas are in."""
    with SchemaRegistryServer() as running:
        yield running


def avro(server: SchemaRegistryServer) -> tuple[dict[str, str | None], Callable[..., bytes]]:
    """Records of several Avro schemas."""
    kinds = {
        name: {
            "type": "record",
            "name": f"app.{name}",
            "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
        }
        for name in NAMES
    }
    ids = {name: server.register(f"t-app.{name}", json.dumps(kinds[name])) for name in NAMES}

    def encode(name: str, value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(kinds[name]), value)
        return struct.pack(">bI", 0, ids[name]) + out.getvalue()

    return registry(server, "avro.AvroConverter"), encode


def protobuf(server: SchemaRegistryServer) -> tuple[dict[str, str | None], Callable[..., bytes]]:
    """Messages of several types of one file."""
    number = server.register("t-value", PROTO, "PROTOBUF")
    _, file = pool_of(PROTO, {})

    def encode(name: str, value: dict[str, Any]) -> bytes:
        message = message_factory.GetMessageClass(file.message_types_by_name[name])(**value)
        place = b"\0" if name == NAMES[0] else bytes([2, 2 * NAMES.index(name)])
        return struct.pack(">bI", 0, number) + place + message.SerializeToString()

    keys = registry(server, "protobuf.ProtobufConverter")
    return {**keys, "value.converter.enhanced.protobuf.schema.support": "true"}, encode


def json_schema(server: SchemaRegistryServer) -> tuple[dict[str, str | None], Callable[..., bytes]]:
    """JSON whose schemas have titles."""
    properties = {"id": {"type": "integer"}, "note": {"type": "string"}}
    ids = {
        name: server.register(
            f"t-{name}",
            json.dumps({"type": "object", "title": f"app.{name}", "properties": properties}),
            "JSON",
        )
        for name in NAMES
    }

    def encode(name: str, value: dict[str, Any]) -> bytes:
        return struct.pack(">bI", 0, ids[name]) + json.dumps(value).encode()

    return registry(server, "json.JsonSchemaConverter"), encode


def envelopes(_: SchemaRegistryServer) -> tuple[dict[str, str | None], Callable[..., bytes]]:
    """JSON that brings its schema."""

    def encode(name: str, value: dict[str, Any]) -> bytes:
        fields = [{"field": "id", "type": "int64"}, {"field": "note", "type": "string"}]
        schema = {"type": "struct", "name": f"app.{name}", "fields": fields}
        return json.dumps({"schema": schema, "payload": value}).encode()

    return {"value.converter.schemas.enable": "true"}, encode


def registry(server: SchemaRegistryServer, name: str) -> dict[str, str | None]:
    """A converter that asks the registry."""
    return {
        "value.converter": CONFLUENT + name,
        "value.converter.schemas.enable": None,
        "value.converter.schema.registry.url": server.url,
    }


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("form", [avro, protobuf, json_schema, envelopes])
def test_routes_by_schema_are_equal_on_both_paths(
    form: Any, chain: str, server: SchemaRegistryServer, tmp_path: Path
) -> None:
    """By columns if no transformation changes the value, else record by record."""
    keys, encode = form(server)
    template = {"iceberg.tables": None, "iceberg.tables.name-template": "lake.${schema}"}
    connector = config(**ALL, **template, **keys, **CHAINS[chain])
    tables = [plan(tmp_path, TABLE, name=f"lake.app_{name.lower()}") for name in NAMES]
    values: list[bytes | None] = [
        encode(NAMES[i % 3], {"id": i, "note": f"n{i}"}) for i in range(150)
    ]
    batch = source([*values[:70], None, *values[70:]])
    by_column, by_record = both(connector, tables, [batch])
    assert by_column == by_record
    counts = {table: len(rows) for table, rows in by_column["rows"].items()}
    written = {"lake.app_signedup": 0, "lake.app_bought": 150, "lake.app_left": 0}
    assert counts == (written if chain == "value" else dict.fromkeys(written, 50))
    by_column, by_record = both(connector, tables[1:2], [batch])
    assert by_column == by_record
    requested = {"lake.app_signedup", "lake.app_left"} if chain != "value" else set()
    assert by_column["tables"] == requested


def test_values_without_a_schema_have_no_table(tmp_path: Path) -> None:
    """Plain JSON: both paths refuse every record."""
    template = {"iceberg.tables": None, "iceberg.tables.name-template": "lake.${schema}"}
    tables = [plan(tmp_path, TABLE, name="lake.app_bought")]
    batch = source([b'{"id":1,"schema":"app.Bought"}', b'{"id":2}'])
    by_column, by_record = both(config(**ALL, **template), tables, [batch])
    assert by_column == by_record
    assert [letter[2] for letter in by_column["letters"]] == ["unmatched", "unmatched"]


@pytest.mark.parametrize(("chain", "count"), [("none", 60), ("topic", 60), ("columns", 0)])
def test_a_step_that_may_change_schemas_uses_the_reference_path(
    chain: str, count: int, server: SchemaRegistryServer, tmp_path: Path
) -> None:
    """A step that may give values another schema takes the records one by one."""
    keys, encode = avro(server)
    template = {"iceberg.tables": None, "iceberg.tables.name-template": "lake.${schema}"}
    connector = config(**ALL, **template, **keys, **CHAINS[chain])
    batch = source([encode("Bought", {"id": i, "note": "n"}) for i in range(60)])
    table = plan(tmp_path, TABLE, name="lake.app_bought")
    decoded = decoded_by_columns(connector, table, batch)
    assert sum(part.table.num_rows for part in decoded) == count
    assert {part.schema_name for part in decoded} <= {"app.Bought"}


def avro_union(server: SchemaRegistryServer) -> tuple[dict[str, str | None], Callable[..., bytes]]:
    """A union whose members are references."""
    avro(server)
    members = [f"app.{name}" for name in NAMES]
    references = [{"name": m, "subject": f"t-{m}", "version": 1} for m in members]
    number = server.register("t-union", json.dumps(members), references=references)
    kinds = [
        {
            "type": "record",
            "name": member,
            "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
        }
        for member in members
    ]

    def encode(name: str, value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(kinds), (f"app.{name}", value))
        return struct.pack(">bI", 0, number) + out.getvalue()

    return registry(server, "avro.AvroConverter"), encode


def json_one_of(server: SchemaRegistryServer) -> tuple[dict[str, str | None], Callable[..., bytes]]:
    """Alternatives with a required property that only they have."""
    number = server.register(
        "t-one-of",
        json.dumps(
            {
                "oneOf": [
                    {
                        "type": "object",
                        "title": f"app.{name}",
                        "properties": {"id": {"type": "integer"}, name: {"type": "string"}},
                    }
                    for name in NAMES
                ]
            }
        ),
        "JSON",
    )

    def encode(name: str, value: dict[str, Any]) -> bytes:
        return struct.pack(">bI", 0, number) + json.dumps({**value, name: ""}).encode()

    return registry(server, "json.JsonSchemaConverter"), encode


def protobuf_one_of(
    server: SchemaRegistryServer,
) -> tuple[dict[str, str | None], Callable[..., bytes]]:
    """A message with a oneof."""
    fields = " ".join(f"{name} f{i} = {i};" for i, name in enumerate(NAMES, 1))
    text = f"{PROTO} message Event {{ oneof event {{ {fields} }} }}"
    number = server.register("t-oneof", text, "PROTOBUF")
    _, file = pool_of(text, {})
    event = message_factory.GetMessageClass(file.message_types_by_name["Event"])
    place = bytes([2, 2 * len(NAMES)])

    def encode(name: str, value: dict[str, Any]) -> bytes:
        message = event(**{f"f{NAMES.index(name) + 1}": value})
        return struct.pack(">bI", 0, number) + place + message.SerializeToString()

    keys: dict[str, str | None] = {
        **registry(server, "protobuf.ProtobufConverter"),
        "value.converter.enhanced.protobuf.schema.support": "true",
        "transforms": "e,u",
        "transforms.e.type": f"{KAFKA}ExtractField$Value",
        "transforms.e.field": "event_0",
    }
    return keys, encode


@pytest.mark.parametrize("form", [avro_union, json_one_of, protobuf_one_of])
def test_types_of_a_union_have_their_own_tables(
    form: Any, server: SchemaRegistryServer, tmp_path: Path
) -> None:
    """``UnwrapUnion`` gives each value the schema of its type."""
    keys, encode = form(server)
    chain = {
        "transforms": "u",
        "transforms.u.type": "UnwrapUnion",
        "iceberg.tables": None,
        "iceberg.tables.name-template": "lake.${schema}",
    }
    connector = config(**ALL, **{**chain, **keys})
    tables = [plan(tmp_path, TABLE, name=f"lake.app_{name.lower()}") for name in NAMES]
    values = [encode(NAMES[i % 3], {"id": i, "note": f"n{i}"}) for i in range(60)]
    by_column, by_record = both(connector, tables, [source(values)])
    assert by_column == by_record
    assert [len(rows) for rows in by_column["rows"].values()] == [20, 20, 20], by_column["letters"]
