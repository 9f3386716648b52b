"""What the coordinator's inbox says of a control event."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import pytest

from connect.errors import DataLost
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


T1 = TableReference("iceberg", ("db",), "t1", UUID(int=101))
OWN = "connect-c07"
ANNOUNCED = encode(Event(UUID(int=1), 0, OWN, DataWritten(UUID(int=2), T1, (), ())))


@pytest.mark.parametrize(
    ("key", "value", "headers", "stops"),
    [
        (OWN, ANNOUNCED[:-3], [("icefloe.layout", b"1")], True),
        (OWN, ANNOUNCED[:40], [("icefloe.layout", b"1")], True),
        (OWN, b"", [("icefloe.layout", b"1")], True),
        ("other", ANNOUNCED, [("icefloe.layout", b"x")], True),
        ("other", b"garbage", [("icefloe.layout", b"1")], False),
        (OWN, b"garbage", [], False),
    ],
)
def test_a_damaged_event_of_the_own_group_stops(
    key: str, value: bytes, headers: list[tuple[str, bytes]], stops: bool
) -> None:
    """It may announce files, which the control offsets must not pass."""
    record = KafkaRecord("control", 0, 5, None, 0, key.encode(), value, tuple(headers))
    malformed: list[KafkaRecord] = []
    reader = cast("ControlReader", OneRecordReader(record))
    box = Inbox(reader, {}, OWN, lambda record, _: malformed.append(record))
    if stops:
        with pytest.raises(DataLost, match="cannot be read") as stopped:
            box.poll(0)
        assert stopped.value.code == "control_event_damaged"
        assert stopped.value.coordinates["offset"] == 5
    else:
        box.poll(0)
        assert malformed == [record]
