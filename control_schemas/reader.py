"""Builds a decoder of events from the schema of a frame.

Rules of this file:
- The schema of the frame determines how bytes are decoded; field ids determine their meaning.
- Events that Java's reader refuses are refused, except for additional fields: these are skipped,
  so that events of newer versions can be read (docs/decisions/0002-control-event-reader.md). In
  the struct of a file they must be null, because they could change the meaning of the file.
- An invalid payload is refused after the envelope is decoded, so that the error has the group: an
  invalid event of another connector on a shared topic must not stop this connector.

Source:
    Iceberg Kafka Connect 1.12.0, ``AvroUtil.decode`` and its answers to
    ``tests/golden/control_events/variants``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from uuid import UUID

from control_schemas.avro import AvroType, parse_event_schema
from control_schemas.datum import Decoder, source_of
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
    Make,
    Shape,
    Step,
    described,
    list_of,
    record,
    record_steps,
    scalar,
    timestamp,
    uuid,
)


@lru_cache(maxsize=SCHEMA_CACHE_ENTRIES)
def event_reader(schema: bytes) -> Callable[[bytes], Event]:
    """Return the decoder of a schema; its argument is the bytes of a datum.

    Args:
        schema: undecoded schema of the frame.

    Raises:
        MalformedEvent: not a schema of a control event. The decoder raises it for an invalid datum.
    """
    steps = record_steps(
        parse_event_schema(schema_text(schema)), f"{EVENTS_NAMESPACE}.Event", _ENVELOPE
    )
    # field by field, so that an error has the group if that is already decoded
    fields = [_envelope_field(step) for step in steps]
    reads_max = min(decoder.reads_max for _, decoder, _ in fields if decoder is not None)

    def read(datum: bytes) -> Event:
        values: list[Any] = [None] * (len(_ENVELOPE) + 1)
        source = source_of(datum, reads_max)
        try:
            for slot, decoder, make in fields:
                values[slot] = make(None if decoder is None else decoder.read(source))
            return _event(*values[: len(_ENVELOPE)])
        except MalformedEvent as error:
            raise MalformedEvent(error.reason, group_id=values[_GROUP_ID]) from None

    return read


def _envelope_field(step: Step) -> tuple[int, Decoder | None, Make]:
    """Return slot and decoder of an envelope field; the decoder of an invalid field raises."""
    if isinstance(step.make, _Refusal):
        return step.slot, None, step.make
    try:
        return step.slot, Decoder(step.type), step.make
    except MalformedEvent as error:
        return step.slot, None, _Refusal(error.reason)


def _event(
    event_id: UUID, type_id: int, timestamp_us: int, group_id: str, payload: Payload
) -> Event:
    if type_id != payload.TYPE:
        raise MalformedEvent(f"event type {type_id} with payload {type(payload).__name__}")
    return Event(event_id, timestamp_us, group_id, payload)


def _payload(node: AvroType) -> Make:
    """Return the decoder of the payload; the decoder of an invalid payload raises."""
    shape = _PAYLOADS.get((node.name or "").removeprefix(f"{EVENTS_NAMESPACE}."))
    if shape is None:
        return _Refusal(f"schema: payload {described(node)}")
    try:
        return shape(node)
    except MalformedEvent as error:
        return _Refusal(error.reason)


class _Refusal:
    """A decoder that always raises MalformedEvent."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __call__(self, _value: Any) -> None:
        raise MalformedEvent(self._reason)


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
