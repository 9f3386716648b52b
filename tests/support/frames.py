"""Valid frames for tests of the codec, and functions that change them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from control_schemas.avro import AvroType
from control_schemas.codec import MalformedEvent, decode, encode
from control_schemas.datum import encoded, wire_schema
from control_schemas.events import (
    ContentFile,
    DataWritten,
    Event,
    FileContent,
    PartitionField,
    StartCommit,
    TableReference,
)
from control_schemas.frame import frame_prefix

ID = UUID(int=7)
FILE = ContentFile(FileContent.DATA, "s3://lake/1.parquet", "PARQUET", 0, (), 3, 1000)
PARTITIONED = replace(FILE, partition=(PartitionField(1000, "p", "int", 1),))
UUID_TYPE = {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}
OLD_NAMESPACE = "io.tabular.iceberg.connect.events"


def long_bytes(number: int) -> bytes:
    """Encode a number, count or length in Avro."""
    return encoded(wire_schema(AvroType("long")), number)


def string_bytes(text: str) -> bytes:
    """Encode a text in Avro."""
    return encoded(wire_schema(AvroType("string")), text)


HUGE = long_bytes(2**62)


def start(commit_id: UUID = ID) -> Event:
    """The smallest event."""
    return Event(ID, 1, "connect-orders", StartCommit(commit_id))


def written(*files: ContentFile) -> Event:
    """A DataWritten event."""
    table = TableReference("iceberg", ("db",), "events", ID)
    return Event(ID, 1, "connect-orders", DataWritten(ID, table, files, ()))


def parts(event: Event) -> tuple[Any, bytes]:
    """Schema as JSON, and datum."""
    frame = encode(event)
    size = int.from_bytes(frame[2:4])
    return json.loads(frame[4 : 4 + size]), frame[4 + size :]


def frame_of(schema: Any, datum: bytes = b"") -> bytes:
    """A frame of any schema (JSON or text) and any datum."""
    return frame_prefix(schema if isinstance(schema, str) else json.dumps(schema)) + datum


def refusal(frame: bytes) -> MalformedEvent:
    """The refusal of a frame."""
    with pytest.raises(MalformedEvent) as caught:
        decode(frame)
    return caught.value


def payload_fields(schema: Any) -> list[Any]:
    """The payload's fields, to be changed."""
    fields: list[Any] = schema["fields"][4]["type"]["fields"]
    return fields


def file_fields(schema: Any) -> list[Any]:
    """The data file's fields, to be changed."""
    fields: list[Any] = payload_fields(schema)[2]["type"][1]["items"]["fields"]
    return fields


def old_frame(payload: str, group_id: str) -> bytes:
    """Return an old-format event with the parts that the reader checks: schema and group."""
    field = {"name": "payload", "type": {"type": "record", "name": payload, "fields": []}}
    schema = {
        "type": "record",
        "name": "Event",
        "namespace": "io.tabular.iceberg.connect.events",
        "fields": [field],
    }
    text = group_id.encode()
    assert len(text) < 64  # one byte of Avro length
    return frame_prefix(json.dumps(schema)) + b"\x01" * 40 + bytes([len(text) * 2]) + text
