"""A control topic in memory, and readers of it that promise what ``LogReader`` promises."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, cast
from uuid import UUID

from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from control_schemas.codec import encode
from control_schemas.events import Event, StartCommit

TP = TopicPartition("control", 0)
TIMEOUT_S = 150


class ControlLog:
    """A control topic in memory, and the readers of it.

    Args:
        batch_max: so many events a poll returns at most.
    """

    def __init__(self, batch_max: int = 500) -> None:
        self.batch_max = batch_max
        self.records: dict[TopicPartition, list[KafkaRecord | None]] = {TP: []}
        self.readers: list[ControlLogReader] = []
        self.error: Exception | None = None
        self.changed = threading.Condition()

    def append(self, value: bytes, tp: TopicPartition = TP, *, header: str | None = None) -> None:
        """Append a record."""
        with self.changed:
            log = self.records[tp]
            headers = () if header is None else ((header, b"1"),)
            log.append(KafkaRecord(*tp, len(log), None, 0, b"k", value, headers))
            self.changed.notify_all()

    def append_marker(self, tp: TopicPartition = TP) -> None:
        """Append the end of a transaction: it has an offset and is no record."""
        with self.changed:
            self.records[tp].append(None)
            self.changed.notify_all()

    def ends(self) -> dict[TopicPartition, int]:
        """The end of each partition."""
        with self.changed:
            return {tp: len(log) for tp, log in self.records.items()}

    def fail(self, error: Exception) -> None:
        """Let the next poll of every reader raise."""
        with self.changed:
            self.error = error
            self.changed.notify_all()

    def open_reader(self, _: Any = None) -> LogReader:
        """Return a new reader."""
        made = ControlLogReader(self)
        self.readers.append(made)
        return cast("LogReader", made)

    @property
    def open_readers(self) -> list[ControlLogReader]:
        """Readers that are not closed."""
        return [reader for reader in self.readers if not reader.is_closed]


class ControlLogReader:
    """What ``LogReader`` promises, for a log in memory."""

    def __init__(self, log: ControlLog) -> None:
        self._log = log
        self._positions: dict[TopicPartition, int] = {}
        self.is_closed = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on."""
        self._positions = dict(positions)

    def positions(self) -> dict[TopicPartition, int]:
        """Next offset of each partition."""
        return dict(self._positions)

    def poll(self, timeout_ms: int) -> list[KafkaRecord]:
        """Return what is there."""
        with self._log.changed:
            self._log.changed.wait_for(lambda: self._log.error or self._new(), timeout_ms / 1000)
            if self._log.error is not None:
                raise self._log.error
            found = self._new()
            for tp in self._positions:
                self._positions[tp] = len(self._log.records[tp])
            found, left = found[: self._log.batch_max], found[self._log.batch_max :]
            for record in reversed(left):
                self._positions[TopicPartition(record.topic, record.partition)] = record.offset
            return found

    def close(self) -> None:
        """Close it."""
        self.is_closed = True

    def _new(self) -> list[KafkaRecord]:
        new = [r for tp, at in self._positions.items() for r in self._log.records[tp][at:]]
        return [record for record in new if record is not None]


def start_commit(group: str, number: int = 1) -> bytes:
    """Return an encoded StartCommit of a group."""
    return encode(Event(UUID(int=number), 0, group, StartCommit(UUID(int=number))))


def wait_until(condition: Callable[[], Any]) -> Any:
    """Poll until the value is true; return it."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found
