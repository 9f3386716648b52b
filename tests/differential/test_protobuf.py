"""Protobuf by column gives what Protobuf by record gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    BinaryType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from connect.records.converters.protobuf.protobuf_data import ProtobufOptions, protobuf_reader
from connect.records.converters.protobuf.protobuf_schema import pool_of
from connect.records.tables.type_inference import type_of
from tests.differential.both_paths import ALL, both
from tests.differential.mutations import mutated
from tests.differential.support import config, plan, source
from tests.support.fakes.schema_registry import SchemaRegistryServer

PROTOBUF = "io.confluent.connect.protobuf.ProtobufConverter"
TEXT = """
syntax = "proto3"; package t;
import "google/protobuf/timestamp.proto"; import "google/type/date.proto";
import "google/protobuf/wrappers.proto";
message First { int32 n = 1; }
message Wide {
  enum State { NEW = 0; PAID = 1; ODD = -5; }
  message Inner { string s = 1; optional int64 n = 2; repeated double d = 3; }
  int32 a = 1; int64 b = 2; uint32 c = 3; uint64 d = 4; sint32 e = 5; sint64 f = 6;
  fixed32 g = 7; fixed64 h = 8; sfixed32 i = 9; sfixed64 j = 10; float k = 11; double l = 12;
  bool m = 13; string n = 14; bytes o = 15; State p = 16; Inner q = 17;
  google.protobuf.Timestamp r = 18; google.type.Date s = 19;
  google.protobuf.StringValue t = 20; oneof u { string ua = 21; Inner ub = 22; int32 uc = 23; }
  optional int32 v = 24; repeated int32 w = 25; repeated string x = 26; repeated Inner y = 27;
  map<string, int32> z = 28; map<int32, string> za = 29; map<string, Inner> zb = 200;
  repeated State zc = 3000; repeated google.type.Date zd = 3001;
}
"""
HEAD = b"\0\0\0\0\1\2\2"
_NUMBERS = [0, 1, -1, 127, 128, 2**31 - 1, -(2**31)]
_TEXTS = ["", "a", "é😀", "12", "x" * 150]


@pytest.fixture(scope="module")
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        running.register("t-value", TEXT, "PROTOBUF")
        yield running


@pytest.fixture(scope="module")
def wide() -> Any:
    _, file = pool_of(TEXT, {})
    return file.message_types_by_name["Wide"]


def message(descriptor: Any, chance: random.Random, share: float) -> Any:
    """A message with some of its fields."""
    made = message_factory.GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if chance.random() > share:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(getattr(made, field.name), field.message_type, chance)
        elif field.is_repeated:
            items = getattr(made, field.name)
            for _ in range(chance.randrange(3)):
                if field.message_type is not None:
                    items.append(message(field.message_type, chance, 0.6))
                else:
                    items.append(scalar(field, chance))
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(message(field.message_type, chance, 0.6))
        else:
            setattr(made, field.name, scalar(field, chance))
    return made


def _fill_map(target: Any, entry: Any, chance: random.Random) -> None:
    key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for _ in range(chance.randrange(3)):
        if value.message_type is not None:
            target[scalar(key, chance)].CopyFrom(message(value.message_type, chance, 0.5))
        else:
            target[scalar(key, chance)] = scalar(value, chance)


def scalar(field: Any, chance: random.Random) -> Any:
    if field.name == "nanos":
        return chance.choice([0, 123_000_000, 123_456_000, 1, 10**9, -1])
    if field.name == "seconds":
        return chance.choice([0, 1_700_000_000, -5, 2**60])
    kind = field.cpp_type
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return chance.choice([0.0, 1.5, -2.25, float("inf"), float("nan"), 16777217.0])
    if kind == field.CPPTYPE_BOOL:
        return chance.random() < 0.5
    if kind == field.CPPTYPE_ENUM:
        return chance.choice([0, 1, -5, 77])
    if kind == field.CPPTYPE_STRING:
        is_bytes = field.type == field.TYPE_BYTES
        return chance.randbytes(chance.randrange(4)) if is_bytes else chance.choice(_TEXTS)
    numbers = list(_NUMBERS)
    if kind in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
        numbers += [2**40, 2**63 - 1, -(2**63)]
    if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        numbers = [abs(n) for n in numbers]
    return chance.choice(numbers)


def reordered(data: bytes, chance: random.Random) -> bytes:
    """The fields of a message in another place: still a message, and the same one."""
    return data[1:] + data[:1] if chance.random() < 0.02 else data


@pytest.mark.parametrize("seed", range(12))
def test_random_messages_are_equal_on_both_paths(
    seed: int, server: SchemaRegistryServer, wide: Any, tmp_path: Path
) -> None:
    """Some of them broken: the same rows and refusals."""
    chance = random.Random(seed)
    options = {
        "flatten.unions": chance.choice(["true", "false"]),
        "optional.for.nullables": chance.choice(["true", "false"]),
        "int.for.enums": chance.choice(["true", "false"]),
        "wrapper.for.nullables": chance.choice(["true", "false"]),
    }
    share = chance.choice([0.2, 0.6, 1.0])
    records = [
        HEAD + reordered(mutated(message(wide, chance, share).SerializeToString(), chance), chance)
        for _ in range(80)
    ]
    keys = {f"value.converter.{name}": value for name, value in options.items()}
    connector = config(
        **{
            "value.converter": PROTOBUF,
            "value.converter.schemas.enable": None,
            "value.converter.schema.registry.url": server.url,
            **ALL,
            **keys,
        }
    )
    flags = {name: value == "true" for name, value in options.items()}
    schema = protobuf_reader(
        wide,
        ProtobufOptions(
            flatten_unions=flags["flatten.unions"],
            enums_as_numbers=flags["int.for.enums"],
            wrapped_nullables=flags["wrapper.for.nullables"],
            null_when_absent=flags["optional.for.nullables"],
        ),
    ).schema
    kind = type_of(schema, force_optional=True)
    assert isinstance(kind, StructType)
    other = Schema(
        *(
            NestedField(
                i,
                name,
                chance.choice([LongType(), StringType(), TimestamptzType()]),
                required=False,
            )
            for i, name in enumerate(["a", "d", "n", "r", "k", "p"], 1)
        )
    )
    for table in (assign_fresh_schema_ids(Schema(*kind.fields)), other):
        by_column, by_record = both(connector, [plan(tmp_path, table)], [source(records)])
        assert by_column == by_record


def test_a_text_before_absent_fields_has_the_right_end(
    server: SchemaRegistryServer, tmp_path: Path
) -> None:
    """A text that every record has ends where it ends, whichever fields follow it."""
    text = 'syntax = "proto3"; message M { string s = 1; bool b = 2; bytes o = 3; int32 n = 4; }'
    schema_id = server.register("texts", text, "PROTOBUF")
    _, file = pool_of(text, {})
    make = message_factory.GetMessageClass(file.message_types_by_name["M"])
    head = b"\0" + schema_id.to_bytes(4, "big") + b"\0"
    records = [
        head + make(s=f"text {n}", b=n % 2 == 1, o=b"o", n=n % 3).SerializeToString()
        for n in range(40)
    ]
    connector = config(
        **{
            "value.converter": PROTOBUF,
            "value.converter.schemas.enable": None,
            "value.converter.schema.registry.url": server.url,
            **ALL,
        }
    )
    table = Schema(
        NestedField(1, "s", StringType(), required=False),
        NestedField(2, "b", StringType(), required=False),
        NestedField(3, "o", BinaryType(), required=False),
        NestedField(4, "n", LongType(), required=False),
    )
    by_column, by_record = both(connector, [plan(tmp_path, table)], [source(records)])
    assert len(by_record["rows"]["db.t1"]) == len(records)
    assert by_column == by_record
