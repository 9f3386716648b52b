"""A schema as written -> a function that reads its datum into an event.

Rules of this file:
- The schema in the frame decides how the bytes are read, the field ids decide what they mean.
- What Java's reader refuses is refused here too, but for additional fields: those are passed
  over, so that a newer writer does not stop us (docs/decisions/0002-control-event-reader.md).
  In a file's struct they must be null, because there they could change what the file means.
- A payload that cannot be read is refused after the envelope was read, and the refusal names the
  group: an odd event of another connector on a shared topic need not stop this one.

Source:
    Iceberg Kafka Connect 1.12.0, ``AvroUtil.decode`` and its answers to
    ``tests/golden/control_events/variants``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from uuid import UUID

from control_schemas.avro import Node, parse_schema
from control_schemas.datum import Cursor
from control_schemas.errors import MalformedEvent
from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Event,
    Payload,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
)
from control_schemas.files import data_file, delete_file
from control_schemas.frame import schema_text
from control_schemas.limits import SCHEMA_CACHE_ENTRIES
from control_schemas.schemas import EVENTS_NAMESPACE
from control_schemas.shapes import (
    Column,
    Read,
    Shape,
    list_of,
    record,
    record_steps,
    scalar,
    timestamp,
    uuid,
)


@lru_cache(maxsize=SCHEMA_CACHE_ENTRIES)
def event_reader(schema: bytes) -> Callable[[Cursor], Event]:
    """The reader of a schema; the cursor stands at the beginning of the datum.

    Args:
        schema: schema bytes as they stand in the frame.

    Raises:
        MalformedEvent: no schema of a control event; later, no datum of this schema.
    """
    steps = record_steps(parse_schema(schema_text(schema)), f"{EVENTS_NAMESPACE}.Event", _ENVELOPE)

    def read(cursor: Cursor) -> Event:
        values: list[Any] = [None] * (len(_ENVELOPE) + 1)
        try:
            for slot, read_field in steps:
                values[slot] = read_field(cursor)
            return _event(*values[: len(_ENVELOPE)])
        except MalformedEvent as error:
            raise MalformedEvent(error.reason, group_id=values[_GROUP_ID]) from None
        except IndexError:  # the cursor ran off the end
            raise MalformedEvent("datum is cut short", group_id=values[_GROUP_ID]) from None

    return read


def _event(
    event_id: UUID, type_id: int, timestamp_us: int, group_id: str, payload: Payload
) -> Event:
    if type_id != payload.TYPE:
        raise MalformedEvent(f"event type {type_id} with payload {type(payload).__name__}")
    return Event(event_id, timestamp_us, group_id, payload)


def _payload(node: Node) -> Read:
    """The payload's reader; one that cannot be had refuses when its turn comes."""
    shape = _PAYLOADS.get(node.name.removeprefix(f"{EVENTS_NAMESPACE}."))
    reason = f"schema: payload {node.kind} {node.name[:80]}"
    if shape is not None:
        try:
            return shape(node)
        except MalformedEvent as error:
            reason = error.reason

    def refuse(_cursor: Cursor) -> None:
        raise MalformedEvent(reason)

    return refuse


def _required(name: str, shape: Shape) -> Column:
    return Column(name, shape, is_required=True)


_GROUP_ID = 3
_ENVELOPE = {
    10500: _required("id", uuid),
    10501: _required("type", scalar("int")),
    10502: _required("timestamp", timestamp),
    10503: _required("group_id", scalar("string")),
    10504: _required("payload", _payload),
}
_TABLE = record(
    f"{EVENTS_NAMESPACE}.TableReference",
    {
        10600: _required("catalog", scalar("string")),
        10601: _required("namespace", list_of(scalar("string"))),
        10603: _required("name", scalar("string")),
        10604: Column("table_uuid", uuid),
    },
    TableReference,
)
_ASSIGNMENT = record(
    f"{EVENTS_NAMESPACE}.TopicPartitionOffset",
    {
        10700: _required("topic", scalar("string")),
        10701: _required("partition", scalar("int")),
        10702: Column("offset", scalar("long")),
        10703: Column("timestamp", timestamp),
    },
    TopicPartitionOffset,
)
_COLUMNS: dict[type[Payload], dict[int, Column]] = {
    StartCommit: {10200: _required("commit_id", uuid)},
    DataWritten: {
        10300: _required("commit_id", uuid),
        10301: _required("table_reference", _TABLE),
        10302: Column("data_files", list_of(data_file)),
        10304: Column("delete_files", list_of(delete_file)),
    },
    DataComplete: {
        10100: _required("commit_id", uuid),
        10101: Column("assignments", list_of(_ASSIGNMENT)),
    },
    CommitToTable: {
        10400: _required("commit_id", uuid),
        10401: _required("table_reference", _TABLE),
        10402: Column("snapshot_id", scalar("long")),
        10403: Column("valid_through_ts", timestamp),
    },
    CommitComplete: {
        10000: _required("commit_id", uuid),
        10001: Column("valid_through_ts", timestamp),
    },
}
_PAYLOADS: dict[str, Shape] = {
    payload.__name__: record(f"{EVENTS_NAMESPACE}.{payload.__name__}", columns, payload)
    for payload, columns in _COLUMNS.items()
}
