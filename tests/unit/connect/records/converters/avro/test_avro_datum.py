"""Single Avro data: what fastavro would accept is checked, and what it reads is converted."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from connect.records.converters.avro.avro_data import avro_reader
from connect.records.converters.avro.avro_datum import EMPTY_ITEMS_MAX
from connect.records.converters.avro.avro_schema import parse_avro
from connect.records.converters.payload_errors import Malformed

LONG_MIN = b"\xff" * 9 + b"\x01"
TOO_LONG = (b"\x80" * 9 + b"\x02", b"\xff" * 9 + b"\x03", b"\x80" * 10 + b"\x01")
TEXT = "Приветствуем вас"


def number(value: int) -> bytes:
    """A zig-zag number."""
    left = (value << 1) ^ (value >> 63)
    found = bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


def record(*types: Any) -> Any:
    fields = [{"name": f"f{i}", "type": kind} for i, kind in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


def read(schema: Any, data: bytes) -> Any:
    """The values of a record, or another datum."""
    value = avro_reader(parse_avro(json.dumps(schema)), {}).read(data)[1]
    return getattr(value, "values", value) if schema != "bytes" else value


def code(schema: Any, data: bytes) -> str:
    with pytest.raises(Malformed) as refused:
        read(schema, data)
    return refused.value.code


ARRAY = {"type": "array", "items": "int"}
MAP = {"type": "map", "values": "int"}
ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}


@pytest.mark.parametrize("prefix", [b"", text(TEXT), number(1) + b"\xff"], ids=repr)
@pytest.mark.parametrize("digits", TOO_LONG, ids=repr)
@pytest.mark.parametrize(
    "kind", ["long", "int", "bytes", "string", ARRAY, MAP, ENUM, ["null", "int"], ["int"]], ids=str
)
def test_numbers_of_more_than_64_bits_are_refused(kind: Any, digits: bytes, prefix: bytes) -> None:
    """As value, length, count, symbol and branch, also after a text."""
    first = {b"": [], text(TEXT): ["string"]}.get(prefix, ["bytes"])
    assert code(record(*first, kind), prefix + digits + b"\0\0") == "bad_avro"


def test_the_smallest_number_is_a_valid_long() -> None:
    """-2^63, also next to a text and in a map."""
    kinds = ["string", "long", {"type": "map", "values": "long"}]
    data = text(TEXT) + LONG_MIN + number(2) + (text("a") + LONG_MIN) * 2 + b"\0"
    assert read(record(*kinds), data) == {"f0": TEXT, "f1": -(2**63), "f2": {"a": -(2**63)}}


@pytest.mark.parametrize("kind", [ARRAY, MAP, "string", ENUM, ["null", "int"]], ids=str)
def test_the_smallest_number_is_an_invalid_count(kind: Any) -> None:
    """-2^63 items are no empty list, although fastavro reads them as one."""
    assert code(record("long", kind), LONG_MIN + LONG_MIN + b"\0\0") == "bad_avro"


@pytest.mark.parametrize("kind", ["bytes", {"type": "fixed", "name": "F", "size": 1}], ids=str)
def test_one_byte_is_no_part_of_the_next_number(kind: Any) -> None:
    """A single byte of 0x80 or more may precede a number of ten bytes."""
    length = number(1) if kind == "bytes" else b""
    data = length + b"\xff" + number(2**63 - 1) + text(TEXT)
    assert read(record(kind, "long", "string"), data) == {
        "f0": b"\xff",
        "f1": 2**63 - 1,
        "f2": TEXT,
    }


EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize("item", ["null", {"type": "fixed", "name": "F", "size": 0}, EMPTY])
def test_items_without_bytes_are_bounded(item: Any) -> None:
    """Over all arrays of a message."""
    schema = {"type": "array", "items": {"type": "array", "items": item}}
    half = number(EMPTY_ITEMS_MAX // 2) + b"\0"
    assert [len(part) for part in read(schema, number(2) + half + half + b"\0")] == [50_000] * 2
    data = number(3) + half + half + number(1) + b"\0\0"
    assert code(schema, data) == "too_large"
    assert code(schema, number(1) + number(2**62) + b"\0\0") == "too_large"


def test_the_bound_is_per_message() -> None:
    """Each message begins to count from 0."""
    reader = avro_reader(parse_avro('{"type":"array","items":"null"}'), {})
    for _ in range(3):
        assert len(reader.read(number(EMPTY_ITEMS_MAX) + b"\0")[1]) == EMPTY_ITEMS_MAX


@pytest.mark.parametrize("branch", [-1, -2, 2, -(2**62)])
def test_unknown_branches_of_a_union_are_refused(branch: int) -> None:
    """Negative branches do not count from the end."""
    for union in (["null", "int"], ["string", "int"]):
        assert code(record(union), number(branch) + b"\2") == "bad_avro"


def test_unknown_symbols_of_an_enum_are_refused() -> None:
    """Negative symbols do not count from the end."""
    assert read(record(ENUM), b"\0") == {"f0": "A"}
    assert [code(record(ENUM), number(i)) for i in (-1, 1)] == ["bad_avro"] * 2


def test_booleans_are_0_or_1() -> None:
    """Any other byte is refused."""
    assert read(record("boolean", "boolean"), b"\0\1") == {"f0": False, "f1": True}
    assert code(record("boolean"), b"\2") == "bad_avro"


def test_truncated_and_extended_data_are_refused() -> None:
    """A message that ends early or late is no datum of the schema."""
    kinds = ["long", "string", "double", "float", ARRAY, MAP, ["null", "string", "int"], "boolean"]
    data = number(300) + text(TEXT) + struct.pack("<df", 1.5, 0.5)
    data += number(2) + b"\2\4\0" + number(1) + text("a") + b"\2\0" + number(1) + text("b") + b"\1"
    assert read(record(*kinds), data)["f7"] is True
    for end in range(len(data)):
        assert code(record(*kinds), data[:end]) in ("bad_avro", "bad_text")
    assert code(record(*kinds), data + b"\0") == "bad_avro"


def test_text_that_is_not_utf_8_is_refused() -> None:
    """As bytes it is accepted."""
    assert code(record("string"), number(1) + b"\xff") == "bad_text"
    assert code(record(MAP), number(1) + number(1) + b"\xff\2\0") == "bad_text"
    assert read(record("bytes"), number(1) + b"\xff") == {"f0": b"\xff"}


def test_a_map_entry_that_a_later_one_replaces_is_checked() -> None:
    """A value outside its range is refused, although the map would not contain it."""
    data = number(2) + text("a") + number(2**31) + text("a") + b"\2\0"
    assert code(record(MAP), data) == "bad_avro"
    assert read(record(MAP), number(2) + (text("a") + b"\2") * 2 + b"\0") == {"f0": {"a": 1}}


def test_the_size_of_a_block_is_skipped() -> None:
    """It follows a negative count; Java's reader ignores it too."""
    for size in (2, 0, 1_000_000, -1):
        assert read(record(ARRAY), number(-2) + number(size) + b"\2\4\0") == {"f0": [1, 2]}


def test_a_named_type_can_be_used_twice() -> None:
    """A record, enum or fixed, also in unions and items."""
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}
    fixed = {"type": "fixed", "name": "F", "size": 2}
    kinds = [inner, ["null", "I"], {"type": "array", "items": "I"}, ["I", "string"], fixed, "F"]
    data = b"\2" + b"\2\4" + b"\2\6\0" + b"\0\x08" + b"abcd"
    found = read(record(*kinds), data)
    assert found["f0"].values == {"n": 1}
    assert found["f1"].values == {"n": 2}
    assert found["f1"].schema.optional
    assert not found["f0"].schema.optional
    assert [item.values for item in found["f2"]] == [{"n": 3}]
    assert found["f3"].values["I"].values == {"n": 4}
    assert found["f3"].values["string"] is None
    assert (found["f4"], found["f5"]) == (b"ab", b"cd")


@pytest.mark.parametrize("name", ["", "a b", "é", "value", "1", "a.b"])
def test_names_that_fastavro_refuses_are_read(name: str) -> None:
    """Fields have any name that the schema parser accepts."""
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"}]}
    assert read(schema, b"\2") == {name: 1}
