"""Proper frames of other schemas: what is refused, what is passed over, what a refusal names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from control_schemas.codec import decode, encode
from control_schemas.events import (
    CommitComplete,
    ContentFile,
    DataWritten,
    Event,
    FileContent,
    PartitionField,
)
from control_schemas.limits import (
    PARTITION_FIELDS_MAX,
)
from tests.support.frames import (
    FILE,
    HUGE,
    ID,
    PARTITIONED,
    UUID_TYPE,
    file_fields,
    frame_of,
    long_bytes,
    parts,
    payload_fields,
    refusal,
    start,
    written,
)

# ---------------------------------------------------------------- what is said with proper bytes


def changed(event: Event, change: Callable[[Any], Any]) -> bytes:
    """The event's frame with another schema."""
    schema, datum = parts(event)
    change(schema)
    return frame_of(schema, datum)


def set_type(index: int, value: Any) -> Callable[[Any], Any]:
    """Give a field of the data file another type; the delete file, which refers to it, goes."""

    def change(schema: Any) -> None:
        file_fields(schema)[index].update(type=value)
        payload_fields(schema).pop()

    return change


def partition_fields(value: Any) -> Callable[[Any], Any]:
    """Give the partition tuple other fields."""
    return lambda schema: file_fields(schema)[4]["type"].update(fields=value)


def fixed(**attributes: Any) -> Callable[[Any], Any]:
    """Give the partition tuple one fixed field."""
    kind = {"type": "fixed", "name": "F", "size": 4, **attributes}
    return partition_fields([{"name": "p", "type": ["null", kind], "field-id": 1000}])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: payload_fields(s)[0].update(type="bytes"), "bytes where a uuid"),
        (lambda s: s["fields"][1].update(type="long"), "long where int"),
        (
            lambda s: s["fields"][2].update(
                type={"type": "long", "logicalType": "timestamp-millis"}
            ),
            "where microseconds are expected",
        ),
        (lambda s: s["fields"].pop(3), "has no group_id"),
        (lambda s: s["fields"][1].update({"field-id": 10500}), "field-id 10500 twice"),
        (lambda s: s.update(name="Evt"), "Evt where record"),
        (set_type(5, ["null", "int"]), "int where long"),
        (
            lambda s: payload_fields(s)[0].update(type=["uuid_fixed", {**UUID_TYPE, "name": "v"}]),
            "union of several types",
        ),
        (set_type(7, {"type": "map", "values": "long"}), "map where array"),
        (set_type(14, "long"), "long where array"),
        (
            set_type(7, {"type": "array", "items": "long", "logicalType": "map"}),
            "where a map of long",
        ),
        (set_type(4, "int"), "int where PartitionData"),
        (partition_fields([{"name": "p", "type": "int"}]), "field ids missing"),
        (
            partition_fields([{"name": n, "type": "int", "field-id": 1} for n in "ab"]),
            "or duplicate",
        ),
        (
            partition_fields(
                [
                    {"name": f"p{i}", "type": "int", "field-id": i}
                    for i in range(PARTITION_FIELDS_MAX + 1)
                ]
            ),
            "too many",
        ),
        (
            partition_fields([{"name": "p", "type": ["int", "string"], "field-id": 1}]),
            "of several types",
        ),
        (
            partition_fields(
                [{"name": "p", "type": {"type": "map", "values": "int"}, "field-id": 1}]
            ),
            "of type map",
        ),
        (fixed(logicalType="decimal", precision=0), "invalid precision"),
        (fixed(logicalType="decimal", precision=1, scale=2), "invalid precision"),
        (fixed(size=0), "size of 0 bytes"),
        (fixed(logicalType="decimal"), "invalid precision"),
        (fixed(logicalType="decimal", precision=9, scale="2"), "invalid precision"),
        (fixed(logicalType="decimal", precision=39), "invalid precision"),
        (fixed(logicalType="decimal", precision=9, size=17), "invalid precision"),
        (
            lambda s: file_fields(s).append({"name": "x", "type": "int", "field-id": 1}),
            "additional required field",
        ),
    ],
)
def test_a_field_of_another_type_is_refused(change: Callable[[Any], Any], reason: str) -> None:
    """The error names the expected and the actual type."""
    assert reason in refusal(changed(written(PARTITIONED), change)).reason


def test_a_required_field_may_not_be_null() -> None:
    """A required field with an optional schema is read, but null is refused."""
    schema, datum = parts(start())
    payload_fields(schema)[0]["type"] = ["null", "uuid_fixed"]
    with_value = datum[:-16] + b"\x02" + datum[-16:]
    assert decode(frame_of(schema, with_value)) == start()
    assert "commit_id is null" in refusal(frame_of(schema, datum[:-16] + b"\x00")).reason


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (replace(FILE, content=FileContent.POSITION_DELETES), "content 1 in a data file"),
        (replace(FILE, file_format="LANCE"), "file format 'LANCE'"),
        (replace(FILE, file_path=""), "has no path"),
        (replace(FILE, record_count=-1), "negative count or size"),
        (replace(FILE, file_size_in_bytes=-1), "negative count or size"),
    ],
)
def test_invalid_files_are_refused(file: ContentFile, reason: str) -> None:
    """A file that no manifest could contain."""
    assert reason in refusal(encode(written(file))).reason


def test_a_decimal_beyond_its_precision_is_refused() -> None:
    """No table could store the value."""
    file = replace(FILE, partition=(PartitionField(1000, "p", "decimal(2, 1)", 99),))
    frame = encode(written(file))
    at = frame.rindex(b"PARQUET") + len(b"PARQUET") + 3
    assert frame[at : at + 1] == bytes([99])
    assert "more digits" in refusal(frame[:at] + bytes([100]) + frame[at + 1 :]).reason


def test_a_data_file_among_the_delete_files_is_refused() -> None:
    """It would add rows that are not counted."""
    event = written()
    assert isinstance(event.payload, DataWritten)
    event = replace(event, payload=replace(event.payload, delete_files=(FILE,)))
    assert "content 0 in a delete file" in refusal(encode(event)).reason


@pytest.mark.parametrize("byte", [b"\x02", b"\xff"])
def test_a_boolean_is_0_or_1(byte: bytes) -> None:
    """Java reads any byte except 1 as false; Icefloe refuses other bytes."""
    file = replace(FILE, partition=(PartitionField(1000, "p", "boolean", True),))  # noqa: FBT003
    schema, datum = parts(written(file))
    at = datum.index(b"PARQUET") + len(b"PARQUET") + 3
    assert datum[at : at + 1] == b"\x01"
    assert "a boolean is" in refusal(frame_of(schema, datum[:at] + byte + datum[at + 1 :])).reason


# ---------------------------------------------------------------- additional fields


EXTRAS: list[tuple[Any, bytes]] = [
    ("null", b""),
    ("boolean", b"\x01"),
    ("int", b"\x02"),
    ("long", b"\x02"),
    ("float", b"1234"),
    ("double", b"12345678"),
    ("bytes", b"\x02x"),
    ("string", b"\x02x"),
    ({"type": "fixed", "name": "F", "size": 3}, b"123"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x02"),
    ({"type": "array", "items": "int"}, b"\x04\x02\x04\x00"),
    ({"type": "map", "values": "int"}, b"\x02\x02k\x04\x00"),
    ({"type": "map", "values": "int"}, b"\x01\x06\x02k\x04\x00"),
    (["null", "int"], b"\x00"),
    (["null", "int"], b"\x02\x08"),
    (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]},
        b"\x02\x02x",
    ),
]


@pytest.mark.parametrize(("kind", "datum"), EXTRAS, ids=str)
@pytest.mark.parametrize("field_id", [None, 999], ids=["no-id", "id"])
def test_additional_fields_are_skipped(kind: Any, datum: bytes, field_id: int | None) -> None:
    """An unknown field of any type does not prevent decoding."""
    schema, rest = parts(start())
    extra = {"name": "extra", "type": kind, "field-id": field_id}
    payload_fields(schema).insert(0, extra)
    assert decode(frame_of(schema, rest[:-16] + datum + rest[-16:])) == start()


def test_additional_lists_count_against_the_limit() -> None:
    """A list of 2^62 empty items is refused at once."""
    schema, rest = parts(start())
    nothing = {"type": "record", "name": "Nothing", "fields": [{"name": "n", "type": "null"}]}
    for kind, reason in (
        ({"type": "array", "items": "null"}, "may have no bytes"),
        ({"type": "array", "items": nothing}, "may have no bytes"),
        ({"type": "array", "items": {"type": "array", "items": "null"}}, "may have no bytes"),
        ({"type": "map", "values": "null"}, "truncated"),
    ):
        extra = {"name": "extra", "type": kind}
        schema["fields"][4]["type"]["fields"] = [extra, payload_fields(schema)[-1]]
        error = refusal(frame_of(schema, rest[:-16] + HUGE))
        assert reason in error.reason
        assert error.group_id == "connect-orders"


def test_additional_fields_of_a_file_must_be_null() -> None:
    """Null in an unknown field of a file is skipped; a value is refused."""
    schema, datum = parts(written(FILE))
    for kind, null, value in (
        (["null", "int"], b"\x00", b"\x02\x02"),
        (["int", "null"], b"\x02", b"\x00\x02"),
        ("null", b"", None),
    ):
        file_fields(schema)[20:] = [*file_fields(schema)[20:21], {"name": "x", "type": kind}]
        assert datum.endswith(b"\x00\x00\x02\x00")  # last field, end of files, no deletes
        assert decode(frame_of(schema, datum[:-3] + null + datum[-3:])) == written(FILE)
        if value is not None:
            frame = frame_of(schema, datum[:-3] + value + datum[-3:])
            assert "additional field with a value" in refusal(frame).reason


# ---------------------------------------------------------------- refusals name the group


def test_an_unknown_payload_names_its_group() -> None:
    """The group of an unknown event type is read before the event is refused."""
    schema, datum = parts(start())
    schema["fields"][4]["type"]["name"] = "Vacuum"
    error = refusal(frame_of(schema, datum))
    assert error.group_id == "connect-orders"
    assert "Vacuum" in error.reason


def test_a_contradiction_names_its_group() -> None:
    """The group is in the error when type and payload contradict each other."""
    schema, datum = parts(start())
    error = refusal(frame_of(schema, datum[:16] + long_bytes(4) + datum[17:]))
    assert error.reason == "event type 4 with payload StartCommit"
    assert error.group_id == "connect-orders"


def test_a_group_after_a_broken_payload_is_not_used() -> None:
    """Bytes after the position where decoding failed are not read."""
    schema, datum = parts(Event(ID, 1, "connect-orders", CommitComplete(ID, None)))
    schema["fields"] = [schema["fields"][4], *schema["fields"][:4]]
    schema["fields"][0]["type"]["fields"][0]["type"] = {**UUID_TYPE, "name": "uuid_fixed"}
    schema["fields"][1]["type"] = "org.apache.iceberg.connect.events.uuid_fixed"
    payload, head = datum[-17:], datum[:-17]
    assert decode(frame_of(schema, payload + head)).group_id == "connect-orders"
    assert refusal(frame_of(schema, payload[:-1] + b"\x09" + head)).group_id is None


def test_error_texts_are_bounded() -> None:
    """An error contains at most a log line of the frame."""
    schema, datum = parts(start())
    schema["fields"][4]["type"]["name"] = "V" * 50_000
    assert len(refusal(frame_of(schema, datum)).reason) <= 400
