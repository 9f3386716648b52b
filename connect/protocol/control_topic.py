"""The control topic read from somewhere to its end, for tools that look and change nothing."""

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
"""What a control topic is created with."""
OWN_PARTITION = 0
"""Where Icefloe's events of every connector go: a key would move when the topic gets partitions."""


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One record of the control topic; exactly one of event, legacy and error is given.

    Attributes:
        partition: control partition.
        offset: control offset.
        event: what it says.
        headers: Icefloe's own additions to it.
        legacy: an event of the sink's ancestor.
        error: why it cannot be read.
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
    """Every committed record from ``starts`` up to ``ends``, in order within a partition.

    Args:
        reader: assigned to nothing else; not closed here.
        starts: control offset to begin at, per partition.
        ends: first control offset not to be read, per partition.
        clock: for the time that the broker may be silent.
        holding: events without these bytes are passed over and never decoded.

    Raises:
        RetriableError: the broker is away.
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
