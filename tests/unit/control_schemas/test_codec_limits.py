"""Frames of unknown clients: what is refused, without any other effect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from control_schemas.codec import decode, encode
from control_schemas.events import (
    DataComplete,
    Event,
    PartitionField,
)
from control_schemas.frame import MAGIC
from control_schemas.limits import (
    FRAME_BYTES_MAX,
    JSON_DEPTH_MAX,
    STRING_BYTES_MAX,
    VALUES_MAX,
)
from tests.support.frames import (
    FILE,
    HUGE,
    ID,
    PARTITIONED,
    UUID_TYPE,
    frame_of,
    long_bytes,
    parts,
    payload_fields,
    refusal,
    start,
    string_bytes,
    written,
)

# ---------------------------------------------------------------- the frame


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "shorter than its header"),
        (b"\xc2\x01\x00", "shorter than its header"),
        (b"\xc3\x01\x00\x00", "begins with c3 01"),
        (MAGIC + b"\x00\x05{}", "ends in its schema"),
        (MAGIC + b"\x00\x00", "not JSON"),
        (MAGIC + b"\x00\x01\xff", "not modified UTF-8"),
        (MAGIC + b"\x00\x04\xf0\x9f\x98\x80", "plain UTF-8"),
        (MAGIC + b"\x00\x03\xed\xa0\xbd", "not modified UTF-8"),
        (bytes(FRAME_BYTES_MAX + 1), "frame of"),
    ],
    ids=lambda given: repr(given)[:40],
)
def test_broken_frames_are_refused(frame: bytes, reason: str) -> None:
    """The error contains the reason and no group."""
    if len(frame) > 100:
        frame = bytes(frame)
    error = refusal(frame)
    assert reason in error.reason
    assert error.group_id is None
    assert str(error) == error.reason


# ---------------------------------------------------------------- the schema's text and tree


def nested(depth: int) -> str:
    """Arrays in arrays."""
    return '{"type":"array","items":' * depth + '"int"' + "}" * depth


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 60_000, "nested deeper"),
        ('{"a":' * 10_000, "nested deeper"),
        (nested(JSON_DEPTH_MAX + 1), "nested deeper"),
        (nested(JSON_DEPTH_MAX - 1), "levels deep"),
        ('"' + '\\"' * 20_000, "not JSON"),
        ('"[[[\\"[[["', "is not defined"),
        ("1" * 60_000, "not JSON"),
        ("7", "neither text, list nor object"),
        ('"Event"', "is not defined"),
        ("[]", "a union is empty"),
        ('["null",["null"]]', "contains a union"),
        ('{"type":7}', "neither text, list nor object"),
        ('{"type":{"type":"int"}}', "int where record"),
        ('{"type":"record","name":"A"}', "has no fields"),
        ('{"type":"record","fields":[]}', "no valid name"),
        ('{"type":"record","name":"A","namespace":7,"fields":[]}', "no valid name"),
        ('{"type":"record","name":"A","fields":[7]}', "not an object with a name"),
        (
            '{"type":"record","name":"A","fields":['
            + ",".join(['{"name":"a","type":"int"}'] * 2)
            + "]}",
            "two fields with the same name",
        ),
        (
            '{"type":"record","name":"A","fields":[{"name":"a","type":"int","field-id":"7"}]}',
            "a field-id is not an integer",
        ),
        ('{"type":"record","name":"A","fields":[{"name":"a","type":"A"}]}', "recursive"),
        ('{"type":"fixed","name":"F","size":-1}', "size of the fixed"),
        ('{"type":"fixed","name":"F","size":1e9}', "size of the fixed"),
        ('{"type":"fixed","name":"F","size":999999999}', "size of the fixed"),
        ('{"type":"enum","name":"E"}', "has no symbols"),
        ('{"type":"enum","name":"E","symbols":["A"]}', "enum E where record"),
        ('{"type":"long","logicalType":"date"}', "long (date) where record"),
        ('{"type":"map","values":"int"}', "map where record"),
        ('{"type":"record","name":"x.y.Event","fields":[]}', "record x.y.Event where record"),
    ],
    ids=lambda text: text[:40],
)
def test_invalid_schemas_are_refused_before_any_datum(text: str, reason: str) -> None:
    """The text is not a finite, small Avro schema of an event."""
    assert reason in refusal(frame_of(text)).reason


def test_types_that_grow_exponentially_are_refused() -> None:
    """Thirty names that each contain the previous one twice are a short text and a huge tree."""
    fields: list[Any] = []
    for i in range(30):
        before = f"T{i - 1}" if i else "int"
        inner = [{"name": name, "type": before} for name in "ab"]
        fields.append(
            {"name": f"f{i}", "type": {"type": "record", "name": f"T{i}", "fields": inner}}
        )
    schema = {"type": "record", "name": "Event", "fields": fields}
    assert "after expansion" in refusal(frame_of(schema)).reason


def test_a_chain_of_names_counts_as_depth() -> None:
    """Names that each contain the previous one are flat in the text and deep in the tree."""
    fields: list[Any] = []
    for i in range(100):
        inner = [{"name": "a", "type": f"T{i - 1}" if i else "int"}]
        fields.append(
            {"name": f"f{i}", "type": {"type": "record", "name": f"T{i}", "fields": inner}}
        )
    refused = refusal(frame_of({"type": "record", "name": "E", "fields": fields}))
    assert "levels deep" in refused.reason


def test_a_second_definition_of_a_name_is_refused() -> None:
    """As in Java."""
    schema, _ = parts(start())
    payload_fields(schema)[0]["type"] = {**UUID_TYPE, "name": "uuid_fixed", "namespace": ""}
    assert "defined twice" in refusal(frame_of(schema)).reason


# ---------------------------------------------------------------- the datum


def test_every_truncated_datum_is_refused() -> None:
    """After the group was read, the error contains it."""
    frame = encode(written(PARTITIONED))
    _, datum = parts(written(PARTITIONED))
    group_at = datum.index(b"connect-orders") + len(b"connect-orders")
    for left in range(len(datum)):
        error = refusal(frame[: len(frame) - len(datum) + left])
        assert error.group_id == ("connect-orders" if left >= group_at else None)


def envelope(type_id: int = 0) -> bytes:
    """The datum up to the payload."""
    return ID.bytes + long_bytes(type_id) + long_bytes(1) + string_bytes("connect-orders")


def complete(assignments: bytes) -> bytes:
    """A DataComplete frame with any bytes for its assignments."""
    schema, _ = parts(Event(ID, 1, "connect-orders", DataComplete(ID, None)))
    return frame_of(schema, envelope(2) + ID.bytes + assignments)


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        (b"\x04", "branch 2 of a union of 2"),
        (b"\x01", "branch -1 of a union of 2"),
        (b"\x02" + HUGE, "truncated"),
        (b"\x02" + long_bytes(VALUES_MAX), "truncated"),
        (b"\x02" + long_bytes(-(2**63)) + b"\x00", "truncated"),
        (b"\x02" + long_bytes(-(2**63)) + b"\x00\x00", "more values than any event"),
        (b"\x02\x02" + HUGE, "truncated"),
        (b"\x02\x02\x01", "truncated"),
        (b"\x02\x02\x01" + b"t" * 100, "truncated"),
        (
            b"\x02\x02" + string_bytes("t" * (STRING_BYTES_MAX + 1)) + b"\x00\x00\x00\x00",
            f"more than {STRING_BYTES_MAX}",
        ),
        (b"\x02\x02" + b"\x02\xff", "not UTF-8"),
        (
            b"\x02\x02" + string_bytes("t") + long_bytes(2**31) + b"\x00\x00\x00",
            "more than 32 bits",
        ),
        (b"\x02" + b"\xff" * 10, "more than 64 bits"),
        (b"\x02" + b"\xff" * 9 + b"\x7f", "more than 64 bits"),
        (b"\x02" + b"\x80" * 9 + b"\x02", "more than 64 bits"),
    ],
    ids=lambda given: repr(given)[:60],
)
def test_counts_and_lengths_are_limited(assignments: bytes, reason: str) -> None:
    """A count or length is compared with a limit before memory is allocated."""
    error = refusal(complete(assignments))
    assert reason in error.reason
    assert error.group_id == "connect-orders"
    assert str(error).endswith("[group=connect-orders]")


def test_blocks_with_sizes_are_read() -> None:
    """A writer may cut a list into blocks and give their sizes."""
    item = string_bytes("t") + long_bytes(0) + b"\x00\x00"
    frame = complete(
        b"\x02" + long_bytes(-1) + long_bytes(len(item)) + item + b"\x02" + item + b"\0"
    )
    payload = decode(frame).payload
    assert isinstance(payload, DataComplete)
    assert payload.assignments is not None
    assert [item.topic for item in payload.assignments] == ["t", "t"]


def test_the_number_of_values_is_limited() -> None:
    """Lists of nulls have many values per byte; the limit is per event."""
    nulls = [{"name": f"n{i}", "type": "null"} for i in range(1000)]
    items = {"type": "record", "name": "R", "fields": [*nulls, {"name": "a", "type": "int"}]}
    schema, datum = parts(start())
    payload_fields(schema).append({"name": "x", "type": {"type": "array", "items": items}})
    fits, beyond = 5_900, VALUES_MAX // 1000
    frame = frame_of(schema, datum + long_bytes(fits) + bytes(fits) + b"\x00")
    assert decode(frame) == start()
    frame = frame_of(schema, datum + long_bytes(beyond) + bytes(beyond) + b"\x00")
    error = refusal(frame)
    assert "more values than any event" in error.reason
    assert error.group_id == "connect-orders"


def test_text_that_resembles_a_long_number_is_read() -> None:
    """Bytes that are too long as a number are valid in a text or a bound."""
    doubtful = b"\xff" * 40
    event = written(
        replace(FILE, lower_bounds={1: doubtful, 2: b"x"}, file_path="\U0010ffff" * 40),
        replace(PARTITIONED, partition=()),
    )
    assert decode(encode(event)) == event


def test_the_smallest_number_is_read() -> None:
    """-2^63 is read as a number, although fastavro takes it for an empty list."""
    smallest = PartitionField(1000, "p", "long", -(2**63))
    event = written(replace(FILE, partition=(smallest,), split_offsets=(-(2**63), 4)))
    assert decode(encode(event)) == event
