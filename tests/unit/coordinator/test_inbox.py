"""What the coordinator's inbox says of a control event."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from control_schemas.codec import encode
from control_schemas.events import (
    ContentFile,
    DataWritten,
    Event,
    FileContent,
    StartCommit,
    TableReference,
)
from coordinator.control_reader import ControlReader
from coordinator.inbox import Inbox
from coordinator.kernel.effects import Envelope


class OneRecordReader:
    """A reader that has one record."""

    def __init__(self, record: KafkaRecord) -> None:
        self.record = record

    def assign(self, positions: dict[TopicPartition, int]) -> None:
        """Where to start is of no interest."""

    def positions(self) -> dict[TopicPartition, int]:
        """Of no interest either."""
        return {}

    def poll(self, _: int) -> list[KafkaRecord]:
        """The record."""
        return [self.record]


def test_an_announcement_has_its_records_and_its_size() -> None:
    """Both are computed once, when the event is read."""
    file = ContentFile(FileContent.DATA, "p", "PARQUET", 0, (), 7, 100)
    table = TableReference("iceberg", ("db",), "t")
    written = DataWritten(UUID(int=2), table, (file, file), ())
    value = encode(Event(UUID(int=1), 0, "connect-c", written))
    record = KafkaRecord("control", 0, 5, None, 0, b"k", value, ())
    reader = cast("ControlReader", OneRecordReader(record))
    read, _ = Inbox(reader, {}, "connect-c", lambda *_: None).poll(0)
    assert isinstance(read, Envelope)
    assert (read.records, read.size_bytes) == (14, len(value))


def test_events_of_other_connectors_are_not_decoded() -> None:
    """What is no event at all is still reported: it may be a damaged one of ours."""
    malformed: list[bytes | None] = []
    read, decoded = [], 0
    values = [
        encode(Event(UUID(int=n), 0, f"connect-c{n:02}", StartCommit(UUID(int=n))))
        for n in range(20)
    ]
    for value in (*values, b"not an event"):
        record = KafkaRecord("control", 0, 5, None, 0, b"k", value, ())
        reader = cast("ControlReader", OneRecordReader(record))
        box = Inbox(reader, {}, "connect-c07", lambda record, _: malformed.append(record.value))
        read += [each for each in box.poll(0) if isinstance(each, Envelope)]
        decoded += box.decoded
    assert [envelope.event.group_id for envelope in read] == ["connect-c07"]
    assert decoded == 2
    assert malformed == [b"not an event"]
