"""``UnwrapUnion`` and ``HeaderToValue``: values with schemas, headers, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from connect.config.connector import TransformConfig
from connect.errors import ConfigError, RecordError
from connect.model.records import ConnectSchema, Header, SinkRecord, Struct
from connect.records.transforms.transform_chain import Chain

STRING = ConnectSchema("string")
SIGNED_UP = ConnectSchema("struct", optional=True, name="app.SignedUp", fields=(("mail", STRING),))
BOUGHT = ConnectSchema("struct", optional=True, name="app.Bought", fields=(("item", STRING),))
TEXT = ConnectSchema("string", optional=True)


def union(name: str, **values: Any) -> SinkRecord:
    """A record with a union of two types."""
    schema = ConnectSchema("struct", name=name, fields=(("a", SIGNED_UP), ("b", BOUGHT)))
    struct = Struct(schema, {"a": None, "b": None, **values})
    return SinkRecord("t", 0, 1, None, value=struct, value_schema=schema)


def apply(kind: str, record: SinkRecord, **options: str) -> SinkRecord:
    (found,) = Chain((TransformConfig("x", kind, options),)).apply(record)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "io.confluent.connect.avro.Union",
        "io.confluent.connect.json.OneOf",
        "io.confluent.connect.protobuf.Union.event",
    ],
)
def test_a_union_becomes_its_type(name: str) -> None:
    """With the schema of the type, which routes the record."""
    bought = Struct(BOUGHT, {"item": "x"})
    found = apply("UnwrapUnion", union(name, b=bought))
    assert (found.value_schema, found.value) == (BOUGHT, bought)


def test_other_values_are_kept() -> None:
    """Records with another schema, and tombstones."""
    bought = Struct(BOUGHT, {"item": "x"})
    for record in (
        union("app.Pair", b=bought),
        SinkRecord("t", 0, 1, None, value=None, value_schema=TEXT),
        SinkRecord("t", 0, 1, None, value="x", value_schema=STRING),
    ):
        assert apply("UnwrapUnion", record) == record


@pytest.mark.parametrize(
    "record",
    [
        union("io.confluent.connect.avro.Union"),
        SinkRecord("t", 0, 1, None, value={"a": 1, "b": "secret"}),
        SinkRecord("t", 0, 1, None, value={}),
        SinkRecord("t", 0, 1, None, value="secret"),
    ],
)
def test_values_that_are_no_union_are_refused(record: SinkRecord) -> None:
    """The error has no values."""
    with pytest.raises(RecordError) as refused:
        apply("UnwrapUnion", record)
    assert (refused.value.stage, refused.value.code) == ("TRANSFORMATION", "wrong_type")
    assert "secret" not in str(refused.value)


HEADERS = (Header("h", b"first"), Header("n", 5), Header("h", "\u00e4\u00f6".encode()))


@pytest.mark.parametrize("kind", ["HeaderToValue", "io.debezium.transforms.HeaderToValue"])
def test_headers_become_fields_of_maps_and_structs(kind: str) -> None:
    """The last header of a name counts; a missing one is null; a field is replaced."""
    options = {"headers": "h,n,x", "fields": "kind,mail,other"}
    added = {"kind": "\u00e4\u00f6", "mail": "5", "other": None}
    plain = SinkRecord("t", 0, 1, None, value={"id": 1, "mail": 2}, headers=HEADERS)
    found = apply(kind, plain, **options)
    assert (found.value, found.headers) == ({"id": 1, **added}, HEADERS)
    struct = Struct(SIGNED_UP, {"mail": "a"})
    typed = SinkRecord("t", 0, 1, None, value=struct, value_schema=SIGNED_UP, headers=HEADERS)
    moved = apply(kind, typed, **options, operation="move")
    assert moved.headers == ()
    assert moved.value_schema == moved.value.schema
    assert moved.value.schema.fields == (("kind", TEXT), ("mail", TEXT), ("other", TEXT))
    assert (moved.value.schema.name, moved.value.values) == ("app.SignedUp", added)


def test_headers_that_are_no_text_and_tombstones() -> None:
    """Bytes that are no UTF-8 are replaced, as in Java; a tombstone stays one."""
    options = {"headers": "h", "fields": "kind"}
    record = SinkRecord("t", 0, 1, None, value={}, headers=(Header("h", b"\xff"),))
    assert apply("HeaderToValue", record, **options).value == {"kind": "\ufffd"}
    tombstone = SinkRecord("t", 0, 1, None, headers=HEADERS)
    assert apply("HeaderToValue", tombstone, **options) == tombstone


@pytest.mark.parametrize(("headers", "fields"), [("a,b", "x"), ("a,b", "x,x"), ("", "")])
def test_headers_and_fields_are_pairs(headers: str, fields: str) -> None:
    """Else the configuration is invalid."""
    with pytest.raises(ConfigError, match="same number of entries"):
        Chain((TransformConfig("x", "HeaderToValue", {"headers": headers, "fields": fields}),))
