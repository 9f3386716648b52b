"""Reads the control topic from given offsets to its end, for tools that change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from connect.clock import Clock
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from control_schemas.codec import decode
from control_schemas.errors import MalformedEvent
from control_schemas.events import Event, EventHeaders
from control_schemas.headers import decode_headers
from control_schemas.legacy import LegacyEvent, legacy_event

SILENCE_MS_MAX = 30_000
CONTROL_TOPIC_CONFIG = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 3600 * 1000)}
"""Configuration of a control topic that Icefloe creates."""
OWN_PARTITION = 0
"""The partition of all Icefloe events: by key, they would move when the topic gets partitions."""


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One record of the control topic; exactly one of event, legacy and error is set.

    Attributes:
        partition: control partition.
        offset: control offset.
        event: the event, decoded.
        headers: Icefloe's additions to it.
        legacy: an event of the older sink (``io.tabular``).
        error: why it cannot be decoded.
    """

    partition: int
    offset: int
    event: Event | None = None
    headers: EventHeaders = field(default_factory=EventHeaders)
    legacy: LegacyEvent | None = None
    error: str | None = None


def read_to_end(
    reader: LogReader,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    clock: Clock,
    *,
    holding: bytes = b"",
) -> Iterator[ControlRecord]:
    """Yield every committed record from ``starts`` up to ``ends``, in order within a partition.

    Args:
        reader: assigned to nothing else; the caller closes it.
        starts: first control offset to read, per partition.
        ends: first control offset not to read, per partition.
        clock: for the time that the broker may be silent.
        holding: events without these bytes are skipped and not decoded.

    Raises:
        RetriableError: the broker cannot be reached.
    """
    left = {tp: end for tp, end in ends.items() if starts[tp] < end}
    if not left:
        return
    reader.assign({tp: starts[tp] for tp in left})
    received_ms = clock.monotonic_ms()
    while left:
        before = reader.positions()
        for record in reader.poll(500):
            is_before_end = record.offset < ends[TopicPartition(record.topic, record.partition)]
            if is_before_end and holding in (record.value or b""):
                yield _read(record)
        after = reader.positions()
        if after != before:
            received_ms = clock.monotonic_ms()
        elif clock.monotonic_ms() - received_ms > SILENCE_MS_MAX:
            raise RetriableError("the control topic could not be read to its end")
        left = {tp: end for tp, end in left.items() if after[tp] < end}


def _read(record: KafkaRecord) -> ControlRecord:
    at = record.partition, record.offset
    legacy = legacy_event(record.value or b"")
    if legacy is not None:
        return ControlRecord(*at, legacy=legacy)
    try:
        return ControlRecord(*at, decode(record.value or b""), decode_headers(record.headers))
    except MalformedEvent as e:
        return ControlRecord(*at, error=str(e))
