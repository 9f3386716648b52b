"""Events to bytes and back."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given

from control_schemas.codec import UnencodableEvent, decode, encode
from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    ContentFile,
    DataComplete,
    DataWritten,
    Event,
    EventType,
    FileContent,
    PartitionField,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
)
from control_schemas.limits import FRAME_BYTES_MAX, SCHEMA_BYTES_MAX, STRING_BYTES_MAX
from tests.support.event_strategies import as_read, events

ID = UUID(int=7)
TABLE = TableReference("iceberg", ("db",), "events", ID)
FILE = ContentFile(FileContent.DATA, "s3://lake/1.parquet", "PARQUET", 0, (), 3, 1000)


def event(payload: Any, **changes: Any) -> Event:
    """An event with a payload."""
    return replace(Event(ID, 1, "connect-orders", payload), **changes)


def written(*files: ContentFile, deletes: tuple[ContentFile, ...] | None = ()) -> Event:
    """A DataWritten event."""
    return event(DataWritten(ID, TABLE, files, deletes))


def partitioned(text: str, value: Any, name: str = "p") -> Event:
    """An event with one file in one partition."""
    return written(replace(FILE, partition=(PartitionField(1000, name, text, value),)))


def partition_value(given_event: Event) -> Any:
    """The partition value of the first file after a round trip."""
    payload = decode(encode(given_event)).payload
    assert isinstance(payload, DataWritten)
    assert payload.data_files
    return payload.data_files[0].partition[0].value


def with_fastavro(frame: bytes) -> Any:
    """The datum as fastavro reads it, from a schema without namespaces and logical types."""
    size = int.from_bytes(frame[2:4])
    return fastavro.schemaless_reader(
        io.BytesIO(frame[4 + size :]),
        fastavro.parse_schema(_plain(json.loads(frame[4 : 4 + size]))),
    )


def _plain(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {k: _plain(v) for k, v in schema.items() if k not in ("namespace", "logicalType")}
    return [_plain(item) for item in schema] if isinstance(schema, list) else schema


@given(events())
def test_every_event_survives_a_round_trip(given_event: Event) -> None:
    """Decoding the encoded bytes returns the same event."""
    assert decode(encode(given_event)) == as_read(given_event)


@given(events())
def test_encoding_is_deterministic(given_event: Event) -> None:
    """The same event gives the same bytes, with a new schema and with a cached one."""
    assert encode(given_event) == encode(given_event)


def test_the_schema_of_the_frame_reads_its_datum() -> None:
    """Fastavro alone reads our datum with the schema in the frame."""
    file = replace(
        FILE,
        partition=(PartitionField(1000, "ratio", "double", 0.5),),
        column_sizes={1: 2**40, 2: 0},
        lower_bounds={1: b"a"},
        split_offsets=(4, 900),
    )
    datum = with_fastavro(encode(written(file)))
    assert datum["group_id"] == "connect-orders"
    (read,) = datum["payload"]["data_files"]
    assert read["partition"] == {"ratio": 0.5}
    assert read["column_sizes"] == [{"key": 1, "value": 2**40}, {"key": 2, "value": 0}]
    assert read["lower_bounds"] == [{"key": 1, "value": b"a"}]
    assert read["split_offsets"] == [4, 900]
    assert read["upper_bounds"] is None


@pytest.mark.parametrize(
    "payload",
    [
        StartCommit(ID),
        DataWritten(ID, TABLE, None, None),
        DataWritten(ID, replace(TABLE, table_uuid=None), (), ()),
        DataComplete(ID, None),
        DataComplete(ID, ()),
        DataComplete(ID, (TopicPartitionOffset("orders", 0, None, None),)),
        CommitToTable(ID, TABLE, None, None),
        CommitToTable(ID, TABLE, -1, -1),
        CommitComplete(ID, None),
        CommitComplete(ID, 2**62),
    ],
    ids=repr,
)
def test_null_and_empty_are_distinguished(payload: Any) -> None:
    """Null on the wire is None, and an empty list is empty."""
    assert decode(encode(event(payload))).payload == payload


def test_the_event_type_follows_from_the_payload() -> None:
    """An event's type follows from its payload."""
    assert event(CommitComplete(ID, None)).type is EventType.COMMIT_COMPLETE


def test_a_table_identifier_has_namespace_and_name() -> None:
    """As a text, the levels are joined by dots."""
    assert TABLE.identifier == ("db", "events")
    assert str(TABLE) == "db.events"


@pytest.mark.parametrize("offsets", [(), (4, 1000), (2000,)])
def test_invalid_split_offsets_become_null(offsets: tuple[int, ...]) -> None:
    """Empty split offsets, and offsets past the end of the file, become null, as in Java."""
    payload = decode(encode(written(replace(FILE, split_offsets=offsets)))).payload
    assert isinstance(payload, DataWritten)
    assert payload.data_files
    assert payload.data_files[0].split_offsets is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0])
def test_special_floats_survive_a_round_trip(value: float) -> None:
    """NaN, infinity and minus zero are unchanged."""
    for text in ("float", "double"):
        assert repr(partition_value(partitioned(text, value))) == repr(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("boolean", False),
        ("boolean", True),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("float", 0.5),
        ("double", 0.1),
        ("string", "größe \U0001f600"),
        ("binary", b"\x00\xff"),
        ("fixed[3]", b"abc"),
        ("uuid", ID.bytes),
        ("date", -1),
        ("time", 86_399_999_999),
        ("timestamp", -1),
        ("timestamptz", 1),
        ("timestamp_ns", -1),
        ("timestamptz_ns", 1),
        ("decimal(9, 2)", -1),
        ("decimal(38, 38)", 10**38 - 1),
    ],
)
def test_every_partition_type_survives_a_round_trip(text: str, value: Any) -> None:
    """Type and value of each type, and null, are unchanged."""
    given_event = partitioned(text, value)
    assert decode(encode(given_event)) == given_event
    assert partition_value(partitioned(text, None)) is None


def test_an_integer_in_a_float_partition_becomes_a_float() -> None:
    """A whole number in a float partition is written as a float."""
    assert partition_value(partitioned("double", 2)) == 2.0


def test_blanks_in_a_decimal_type_do_not_matter() -> None:
    """``decimal(9,2)`` and ``decimal(9, 2)`` are encoded alike."""
    assert encode(partitioned("decimal(9,2)", 1)) == encode(partitioned("decimal(9, 2)", 1))


def test_a_named_type_is_defined_once() -> None:
    """The second partition field of a named type refers to the first by name."""
    fields = tuple(PartitionField(1000 + i, f"p{i}", "decimal(9, 2)", i) for i in range(2))
    frame = encode(written(replace(FILE, partition=fields)))
    assert frame.count(b'"name":"decimal_9_2"') == 1
    assert frame.count(b'["null","decimal_9_2"]') == 1


def test_partition_names_are_rewritten() -> None:
    """Names that are invalid in Avro are rewritten and kept in ``iceberg-field-name``."""
    frame = encode(partitioned("int", 1, name="9 \U0001f600\n"))
    assert b'"name":"_9_x20_xD83D_xDE00_xA"' in frame
    assert b'"iceberg-field-name":"9 \xed\xa0\xbd\xed\xb8\x80\\n"' in frame


@pytest.mark.parametrize(
    ("unencodable", "reason"),
    [
        (partitioned("int", 2**31), "does not fit into int"),
        (partitioned("long", 2**63), "does not fit into long"),
        (written(replace(FILE, record_count=2**63)), "does not fit into long"),
        (written(replace(FILE, column_sizes={2**31: 1})), "does not fit into int"),
        (written(replace(FILE, upper_bounds={1: bytes(STRING_BYTES_MAX + 1)})), "a string of"),
        (written(replace(FILE, file_path="\ud800")), "unpaired surrogate"),
        (partitioned("float", 1e300), "does not fit into float"),
        (partitioned("int", "1"), "a str in a partition of type int"),
        (partitioned("int", value=True), "a bool in a partition of type int"),
        (partitioned("boolean", 1), "a int in a partition of type boolean"),
        (partitioned("uuid", b"short"), "not 16 bytes in a partition of type uuid"),
        (partitioned("fixed[3]", "abc"), "not 3 bytes in a partition of type fixed"),
        (partitioned("decimal(3, 1)", 1000), "not an unscaled integer"),
        (partitioned("decimal(3, 1)", 1.5), "not an unscaled integer"),
        (partitioned("decimal(39, 1)", 1), "is not a type of partition fields"),
        (partitioned("decimal(3, 4)", 1), "is not a type of partition fields"),
        (partitioned("fixed[0]", b""), "is not a type of partition fields"),
        (partitioned("list<int>", 1), "is not a type of partition fields"),
        (partitioned("int", 1, name=""), "no name"),
        (partitioned("int", 1, name="x" * SCHEMA_BYTES_MAX), "schema of"),
        (partitioned("string", "\ud800"), "unpaired surrogate"),
        (partitioned("string", "x" * (STRING_BYTES_MAX + 1)), "a string of"),
        (
            written(replace(FILE, partition=(PartitionField(1, "p", "int", 1),) * 513)),
            "513 partition fields",
        ),
        (
            written(
                replace(
                    FILE,
                    partition=(
                        PartitionField(1000, "a.b", "int", 1),
                        PartitionField(1001, "a_x2Eb", "int", 1),
                    ),
                )
            ),
            "same name or id",
        ),
        (
            written(FILE, replace(FILE, partition=(PartitionField(1000, "p", "int", 1),))),
            "different partition types",
        ),
        (
            written(*[replace(FILE, file_path="x" * STRING_BYTES_MAX)] * 17),
            f"more than {FRAME_BYTES_MAX}",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_outside_their_type_are_refused(unencodable: Event, reason: str) -> None:
    """A value that its type cannot hold is an error; it is not encoded as other bytes."""
    with pytest.raises(UnencodableEvent, match=reason):
        encode(unencodable)
