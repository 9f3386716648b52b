"""Protobuf behind a schema registry: message places, imports, presence, types with a meaning."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import message_factory

from connect.config.connector import ConverterConfig
from connect.errors import RecordError
from connect.model.records import Date, Struct, Time, Timestamp
from connect.records.converters import converter
from connect.records.converters.protobuf.protobuf_schema import pool_of
from tests.support.fakes.schema_registry import SchemaRegistryServer

PROTOBUF = "io.confluent.connect.protobuf.ProtobufConverter"
ADDRESS = 'syntax = "proto3"; package shop; message Address { string city = 1; }'
ORDER = """
syntax = "proto3"; package shop;
import "shop/address.proto"; import "google/protobuf/timestamp.proto";
import "google/type/date.proto"; import "google/type/timeofday.proto";
import "confluent/meta.proto"; import "confluent/type/decimal.proto";
import "google/protobuf/wrappers.proto";
message Other { int32 n = 1; }
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Line { string sku = 1; uint32 count = 2; }
  int64 id = 1; string who = 2; double amount = 3; bool gift = 4; State state = 5;
  repeated Line lines = 6; map<string, int64> tags = 7; Address to = 8;
  google.protobuf.Timestamp at = 9; google.type.Date day = 10; google.type.TimeOfDay hour = 11;
  confluent.type.Decimal total = 12 [(confluent.field_meta).params = {key: "scale", value: "2"}];
  oneof how { string card = 13; int32 cash = 14; }
  optional int32 rank = 15; repeated sint32 marks = 16; uint64 big = 17; bytes raw = 18;
  google.protobuf.StringValue note = 19; float ratio = 20; fixed64 fixed = 21;
  int32 small = 22 [(confluent.field_meta) = {params: {key: "connect.type", value: "int8"}}];
}
"""
STRUCT = """
syntax = "proto3"; import "google/protobuf/struct.proto";
message M { google.protobuf.Struct s = 1; }
"""
NAMED = {"shop/address.proto": ADDRESS}


@pytest.fixture(scope="module")
def order() -> Any:
    """The message class of ORDER, from descriptors of their own."""
    _, file = pool_of(ORDER, NAMED)
    return message_factory.GetMessageClass(file.message_types_by_name["Order"])


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        running.register("address", ADDRESS, "PROTOBUF")
        references = [{"name": "shop/address.proto", "subject": "address", "version": 1}]
        running.register("t-value", ORDER, "PROTOBUF", references)
        yield running


def built(server: SchemaRegistryServer, **options: str) -> Any:
    given = {k.replace("_", "."): v for k, v in options.items()}
    return converter(
        ConverterConfig(PROTOBUF, {"schema.registry.url": server.url, **given}), "value"
    )


def filled(order: Any) -> Any:
    message = order(id=5, who="x", amount=1.5, state=1, big=2**64 - 1, raw=b"\1", card="c")
    message.lines.add(sku="a", count=2**32 - 1)
    message.tags["k"] = -1
    message.to.city = "Köln"
    message.at.seconds, message.at.nanos = 1_700_000_000, 123_456_000
    message.day.year, message.day.month, message.day.day = 2024, 2, 29
    message.hour.hours, message.hour.minutes = 7, 51
    message.total.value, message.total.scale = b"\x30\x39", 2
    message.marks.extend([-1, 2])
    message.ratio = 0.5
    return message


PLACE = bytes([2, 2])  # one index, the second message
HEAD = b"\0\0\0\0\2" + PLACE


@pytest.mark.parametrize("knows_formats", [True, False])
def test_every_kind_of_field_is_read(
    server: SchemaRegistryServer, order: Any, knows_formats: bool
) -> None:
    """A full message, from descriptors and from text."""
    server.knows_formats = knows_formats
    data = HEAD + filled(order).SerializeToString()
    schema, value = built(server).to_connect("t", (), data)
    fields = {k: v.values if isinstance(v, Struct) else v for k, v in value.values.items()}
    assert schema.name == "Order"
    assert fields["lines"][0].values == {"sku": "a", "count": 2**32 - 1}
    del fields["lines"]
    assert fields == {
        "how_0": {"card": "c", "cash": None},
        "id": 5,
        "who": "x",
        "amount": 1.5,
        "gift": False,
        "state": "PAID",
        "tags": {"k": -1},
        "to": {"city": "Köln"},
        "at": Timestamp(1_700_000_000_123, 456_000),
        "day": Date(19782),
        "hour": Time(28_260_000),
        "total": Decimal("123.45"),
        "rank": 0,
        "marks": [-1, 2],
        "big": 2**64 - 1,
        "raw": b"\1",
        "note": None,
        "ratio": 0.5,
        "fixed": 0,
        "small": 0,
    }
    kinds = {name: inner.type for name, inner in schema.fields}
    assert (kinds["small"], kinds["big"], kinds["ratio"]) == ("int8", "int64", "float32")
    assert dict(schema.fields)["total"].parameters["scale"] == "2"


def test_unset_fields_are_null_or_default(server: SchemaRegistryServer, order: Any) -> None:
    """Messages and members of a oneof are null; plain fields have their default."""
    data = HEAD + order(id=1).SerializeToString()
    _, value = built(server).to_connect("t", (), data)
    assert (value.values["to"], value.values["how_0"], value.values["rank"]) == (None, None, 0)
    _, value = built(server, optional_for_nullables="true").to_connect("t", (), data)
    assert value.values["rank"] is None


def test_options_of_the_converter(server: SchemaRegistryServer, order: Any) -> None:
    """Enums as numbers, oneofs flat or without index, wrappers as nullable values."""
    message = filled(order)
    message.note.value = "n"
    data = HEAD + message.SerializeToString()
    reader = built(
        server, int_for_enums="true", flatten_unions="true", wrapper_for_nullables="true"
    )
    _, value = reader.to_connect("t", (), data)
    assert (value.values["state"], value.values["card"], value.values["note"]) == (1, "c", "n")
    _, value = built(server, generate_index_for_unions="false").to_connect("t", (), data)
    assert value.values["how"].values["card"] == "c"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (HEAD + b"\xff\xff\xff", "bad_protobuf"),
        (b"\0\0\0\0\2" + bytes([2, 40]), "bad_framing"),
        (b"\0\0\0\0\2" + bytes([250, 255, 3]), "bad_framing"),
        (b"\0\0\0\0\2", "bad_framing"),
        (HEAD + b"\x12\x02\xff\xff", "bad_protobuf"),
        (HEAD + b"\x52\x04\x08\xe8\x0f\x10", "bad_protobuf"),
        (HEAD + b"\x52\x02\x10\x20", "out_of_range"),
        (HEAD + b"\x4a\x02\x10\xff", "bad_protobuf"),
    ],
)
def test_invalid_messages_are_refused(server: SchemaRegistryServer, data: bytes, code: str) -> None:
    """Each with a code."""
    with pytest.raises(RecordError) as raised:
        built(server).to_connect("t", (), data)
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('syntax = "proto3"; message M { M inner = 1; }', "is recursive"),
        (STRUCT, "is recursive"),
        ('syntax = "proto3"; import "nowhere.proto"; message M { int32 a = 1; }', "nowhere.proto"),
        ("message", "not valid Protobuf"),
        ("{}", "not valid Protobuf"),
    ],
)
def test_an_unusable_schema_refuses_its_records(
    server: SchemaRegistryServer, text: str, why: str
) -> None:
    """The message contains the reason."""
    server.knows_formats = False
    number = server.register("bad", text, "PROTOBUF")
    with pytest.raises(RecordError, match=why) as raised:
        built(server).to_connect("t", (), b"\0" + number.to_bytes(4, "big") + b"\0")
    assert raised.value.code == "bad_schema"
