"""Rows of the records page about formats, and how one is tried."""

from __future__ import annotations

import io
import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import fastavro
import pytest
from pyiceberg.types import DecimalType, TimestamptzType, TimeType

from connect.errors import RecordError, RetriableError
from connect.model.records import SinkRecord
from connect.records.record_path import ReferencePath
from tests.differential.support import config
from tests.support.fakes.schema_registry import SchemaRegistryServer
from tests.support.records_page import Trial, into, micros, read, table

CONFLUENT: Final = "io.confluent.connect."


NO_ENVELOPE: Final[dict[str, str | None]] = {"value.converter.schemas.enable": None}


def avro(schema: Any, data: bytes, folder: Path) -> SinkRecord:
    """Bare Avro of a schema, read."""
    file = folder / "schema.avsc"
    file.write_text(json.dumps(schema))
    keys = {"value.converter": f"{CONFLUENT}avro.AvroConverter", **NO_ENVELOPE}
    return read(data, **{**keys, "value.converter.schema.file": str(file)})


def field(kind: Any) -> dict[str, Any]:
    """The Avro schema of one field ``c``."""
    return {"type": "record", "name": "R", "fields": [{"name": "c", "type": kind}]}


def datum(kind: Any, value: Any) -> bytes:
    """A datum of it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(field(kind)), {"c": value})
    return out.getvalue()


def registered(kind: str, schema: str, data: bytes) -> SinkRecord:
    """A message of a registered schema, read."""
    names = {
        "AVRO": "avro.AvroConverter",
        "JSON": "json.JsonSchemaConverter",
        "PROTOBUF": "protobuf.ProtobufConverter",
    }
    with SchemaRegistryServer() as server:
        number = server.register("t-value", schema, kind)
        place = b"\0" if kind == "PROTOBUF" else b""
        url = {"value.converter.schema.registry.url": server.url}
        given = {"value.converter": CONFLUENT + names[kind], **NO_ENVELOPE, **url}
        return read(struct.pack(">bI", 0, number) + place + data, **given)


def contains_itself(_: Path) -> None:
    kind = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    ref = '{"type":"object","properties":{"c":{"$ref":"#"}}}'
    message = 'syntax = "proto3"; message R { R r = 1; }'
    for make in (
        lambda: registered("AVRO", json.dumps(kind), b"\0"),
        lambda: registered("JSON", ref, b"{}"),
        lambda: registered("PROTOBUF", message, b""),
    ):
        with pytest.raises(RecordError) as caught:
            make()
        assert caught.value.code == "bad_schema"


def free_object(_: Path) -> None:
    schema = '{"type":"object","properties":{"c":{"type":"object"}}}'
    value = registered("JSON", schema, b'{"c":{"a":[1]}}').value
    assert json.loads(value.values["c"]) == {"a": [1]}


def fixed_decimal(folder: Path) -> None:
    kind = {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal"}
    kind |= {"precision": 9, "scale": 2}
    record = avro(field(kind), datum(kind, Decimal("1.25")), folder)
    assert into(DecimalType(9, 2), record) == Decimal("1.25")


def connect_type(folder: Path) -> None:
    kind = {"type": "int", "connect.type": "int8"}
    with pytest.raises(RecordError) as caught:
        avro(field(kind), datum("int", 300), folder)
    assert caught.value.code == "out_of_range"


def avro_leftovers(folder: Path) -> None:
    for kind, data, why in (
        ("int", b"\2\0", "bad_avro"),
        ("boolean", b"\2", "bad_avro"),
        ("string", b"\2\xff", "bad_text"),
    ):
        with pytest.raises(RecordError) as caught:
            avro(field(kind), data, folder)
        assert caught.value.code == why, kind


ENTRY: Final = {"type": "record", "name": "E", "connect.internal.type": "MapEntry"}


def entries(key: Any) -> dict[str, Any]:
    """The Avro schema of a map as Connect writes those without text keys."""
    fields = [{"name": "key", "type": key}, {"name": "value", "type": "int"}]
    return {"type": "array", "items": {**ENTRY, "fields": fields}}


def avro_alone(folder: Path) -> None:
    enum = {"type": "enum", "name": "N", "symbols": ["A"], "connect.name": "x"}
    for kind, data, stored in (
        ("null", b"", None),
        (entries("string"), b"\2\2k\2\0", {"k": 1}),
        (["int", entries("int")], b"\2\2\2\2\0", {"int": None, "array": {1: 1}}),
        (["int", enum], b"\2\0", {"int": None, "N": "A"}),
    ):
        value = avro(field(kind), data, folder).value.values["c"]
        assert getattr(value, "values", value) == stored or value == stored, kind


def used_before_defined(_: Path) -> None:
    first = {"type": "record", "name": "First", "fields": [{"name": "c", "type": ["null", "P"]}]}
    later = {"type": "record", "name": "P", "fields": [{"name": "n", "type": "int"}]}
    fields = [{"name": "a", "type": first}, {"name": "b", "type": later}]
    schema = {"type": "record", "name": "R", "fields": fields}
    with pytest.raises(RecordError, match="'P' is not defined") as caught:
        registered("AVRO", json.dumps(schema), b"\0\2")
    assert caught.value.code == "bad_schema"


def odd_names(folder: Path) -> None:
    enum = {"type": "enum", "name": "N", "symbols": ["my-s"]}
    fields = [{"name": "my-field", "type": enum}]
    record = avro({"type": "record", "name": "größe.R", "fields": fields}, b"\0", folder)
    assert record.value.values == {"my-field": "my-s"}
    assert record.value.schema.name == "größe.R"


def odd_properties(folder: Path) -> None:
    instant = {"type": "long", "logicalType": "timestamp-millis"}
    for more in ({"connect.version": "3"}, {"connect.version": 3}, {"connect.name": "x"}):
        record = avro(field({**instant, **more}), datum("long", 5), folder)
        assert micros(into(TimestamptzType(), record)) == 5000
    record = avro(field({"type": "int", "connect.type": "int32"}), datum("int", 5), folder)
    assert record.value.values["c"] == 5


def union_of_bytes(folder: Path) -> None:
    record = avro(field(["bytes", {"type": "fixed", "name": "F", "size": 1}]), b"\2x", folder)
    assert record.value.values["c"].values == {"bytes": None, "F": b"x"}


def key_of_parts(folder: Path) -> None:
    kind = entries({"type": "array", "items": "int"})
    with pytest.raises(RecordError) as caught:
        avro(field(kind), b"\2\0\2\0", folder)
    assert caught.value.code == "wrong_type"


def avro_units(folder: Path) -> None:
    for unit, value in (("micros", 1_700_000_000_123_456), ("nanos", 1_700_000_000_123_456_000)):
        kind = {"type": "long", "logicalType": f"timestamp-{unit}"}
        record = avro(field(kind), datum("long", value), folder)
        assert micros(into(TimestamptzType(), record)) == 1_700_000_000_123_456
    kind = {"type": "long", "logicalType": "time-micros"}
    stored = into(TimeType(), avro(field(kind), datum("long", 5), folder))
    assert getattr(stored, "microsecond", stored) == 5


def partial_default(folder: Path) -> None:
    inner = {**field("int"), "name": "I", "connect.default": {}}
    inner["fields"][0]["default"] = 7
    record = avro(field(["null", inner]), b"\0", folder)
    assert record.value_schema is not None
    assert dict(record.value_schema.fields[0][1].default.values) == {"c": 7}


def null_without_schema(_: Path) -> None:
    union = ["null", *({"type": "fixed", "name": f"{space}.F", "size": 1} for space in "ab")]
    with pytest.raises(RecordError) as caught:
        registered("AVRO", json.dumps(union), b"\0")
    assert caught.value.code == "bad_schema"


def end_of_day(folder: Path) -> None:
    kind = {"type": "int", "connect.name": "org.apache.kafka.connect.data.Time"}
    with pytest.raises(RecordError) as caught:
        avro(field(kind), datum("int", 86_400_000), folder)
    assert caught.value.code == "out_of_range"


def other_kinds(_: Path) -> None:
    schema = '{"type":"object","properties":{"c":{"type":"integer"}}}'
    with pytest.raises(RecordError) as caught:
        registered("JSON", schema, b'{"c":"x"}')
    assert caught.value.code == "schema_mismatch"


def unsigned(_: Path) -> None:
    schema = 'syntax = "proto3"; message R { uint64 c = 1; }'
    record = registered("PROTOBUF", schema, b"\x08" + b"\xff" * 9 + b"\x01")
    assert into(DecimalType(20, 0), record) == 2**64 - 1


def proto_timestamp(_: Path) -> None:
    schema = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; '
        "message R { google.protobuf.Timestamp c = 1; }"
    )
    record = registered("PROTOBUF", schema, b"\x0a\x06\x08\x01\x10\xc1\x84\x3d")  # 1 s 1000001 ns
    path = ReferencePath(config())
    assert micros(path.row(record, table(TimestamptzType()))["c"]) == 1_001_000
    assert path.losses.sub_micro == 1


def silent_registry(_: Path) -> None:
    keys = {"value.converter": f"{CONFLUENT}avro.AvroConverter", **NO_ENVELOPE}
    keys |= {"value.converter.schema.registry.url": "http://127.0.0.1:9"}
    keys |= {"value.converter.max.retries": "0"}
    with pytest.raises(RetriableError):
        read(b"\0\0\0\0\1\2", **keys)


TRIALS: Final[dict[str, Trial]] = {
    "JSON Schema: an object property whose schema": free_object,
    "an Avro schema, JSON Schema or message": contains_itself,
    "a decimal of Avro's `fixed`": fixed_decimal,
    "Avro's `null` as the only type": avro_alone,
    "Avro: a `connect.version`": odd_properties,
    "Avro: two types of a union": union_of_bytes,
    "Avro: a record's own `connect.default`": partial_default,
    "Avro: a named type that is used": used_before_defined,
    "Avro: a field, symbol or alias whose name": odd_names,
    "Avro: a null of a schema": null_without_schema,
    "Avro: `connect.name` of a time": end_of_day,
    "Avro: a map's entry whose key": key_of_parts,
    "a number outside of its `connect.type`": connect_type,
    "Avro: bytes after the datum": avro_leftovers,
    "Avro's `timestamp-micros`": avro_units,
    "JSON Schema: a value of another type": other_kinds,
    "Protobuf's unsigned numbers": unsigned,
    "Protobuf's `Timestamp` below": proto_timestamp,
    "a schema registry that does not answer": silent_registry,
}
