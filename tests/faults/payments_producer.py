"""Produces payments continuously; a few records belong to no table.

Rules of this file:
- The identity of a record is the number of its partition and its number in it: the columns
  ``partition`` and ``sequence`` of the tables. Partitions of several topics are numbered together.
- The destination of a record follows from its identity: see ``destinations``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from connect.clock import SystemClock
from connect.embedded import payments
from connect.gateways.kafka.bulk_producer import BulkProducer
from connect.java_compat.iso_time import instant_text
from connect.model.layout import TopicPartition
from tests.faults.checkers import Numbers

CHUNK_RECORDS = 500
TRICKLE = 500  # this part of what is left, repeatedly: some records are always left
TRICKLE_PAUSE_S = 0.5
# of so many records of a partition one cannot be decoded, and one has a kind without a table
ODD_EVERY = 5_003
BROKEN_AT, UNKNOWN_KIND_AT = 7, 11
DEAD_LETTER, DROPPED = len(payments.KINDS), len(payments.KINDS) + 1


def destinations(partition: int, sequences: Numbers) -> Numbers:
    """Return the destination of each record: index of its table, ``DEAD_LETTER`` or ``DROPPED``."""
    out = payments.kind_codes(partition, sequences)
    out[sequences % ODD_EVERY == BROKEN_AT] = DEAD_LETTER
    out[sequences % ODD_EVERY == UNKNOWN_KIND_AT] = DROPPED
    return out


@dataclass(slots=True)
class NumberedPartition:
    """A partition that receives records, and how many it received; no more once it is closed."""

    target: TopicPartition
    sent: int = 0
    is_open: bool = True


class PaymentsProducer:
    """A thread that produces payments evenly to all open partitions, up to an allowance.

    Args:
        bootstrap_servers: of the broker.
        targets: the first partitions, numbered from 0.
        records_per_s: pace; far slower, but never zero, once the allowance is used up.
    """

    def __init__(
        self, bootstrap_servers: str, targets: Sequence[TopicPartition], records_per_s: int
    ) -> None:
        self.sent = 0
        self.total = 0
        self.partitions = [NumberedPartition(target) for target in targets]
        self._allowed = 0
        self._records_per_s = records_per_s
        self._kafka = {"bootstrap.servers": bootstrap_servers}
        self._producer = BulkProducer(self._kafka)
        self._tails = payments.variant_tails()
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    @property
    def is_done(self) -> bool:
        """Whether every record of the total is sent."""
        return self.sent >= self.total

    @property
    def rows(self) -> int:
        """Rows that the tables must contain of the records sent."""
        return sum(
            int(
                (
                    destinations(number, np.arange(partition.sent, dtype=np.int64)) < DEAD_LETTER
                ).sum()
            )
            for number, partition in enumerate(self.partitions)
        )

    def add_partitions(self, *targets: TopicPartition) -> None:
        """Also produce to these partitions from now on."""
        with self._lock:
            # a client that knew the topic with fewer partitions refuses the new ones for minutes
            self._producer.finish("every topic")
            self._producer = BulkProducer(self._kafka)
            self.partitions += [NumberedPartition(target) for target in targets]

    def close_topic(self, topic: str) -> None:
        """Produce nothing more to a topic; return when what was sent is acknowledged."""
        with self._lock:
            for partition in self.partitions:
                partition.is_open &= partition.target.topic != topic
            self._producer.finish(topic)

    def start(self, total: int, allowed: int) -> None:
        """Produce so many more records, at the pace only while fewer than ``allowed`` are sent."""
        self.total, self._allowed = self.total + total, allowed
        self._thread = threading.Thread(target=self._run, name="payments", daemon=True)
        self._thread.start()

    def allow(self, records: int) -> None:
        """Allow so many records of the total at the pace."""
        self._allowed = max(self._allowed, records)

    def finish(self) -> None:
        """Produce what is left and wait until the broker has it; raise the error of the thread."""
        assert self._thread is not None
        self.allow(self.total)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Send nothing more, and wait until the broker has what was sent."""
        self.request_stop()
        if self._thread is not None:
            self._thread.join()
        self._stopping.clear()
        self.total = self.sent
        if self._failure is not None:
            raise self._failure

    def request_stop(self) -> None:
        """Send nothing more; return at once."""
        self._stopping.set()

    def _run(self) -> None:
        try:
            while not self.is_done and not self._stopping.is_set():
                left = self.total - self.sent
                is_free = self.sent < self._allowed
                with self._lock:
                    full = CHUNK_RECORDS * sum(partition.is_open for partition in self.partitions)
                    self._send(min(full, left if is_free else left // TRICKLE))
                pause_s = full / self._records_per_s if is_free else TRICKLE_PAUSE_S
                self._stopping.wait(pause_s)
            self._producer.finish("every topic")
        except Exception as e:  # the boundary of the thread: raised by ``finish``
            self._failure = e

    def _send(self, records: int) -> None:
        at = instant_text(SystemClock().now_ms() * 1_000_000)
        open_numbers = [
            number for number, partition in enumerate(self.partitions) if partition.is_open
        ]
        for part in payments.ranges(
            records, [self.partitions[number].sent for number in open_numbers]
        ):
            number = open_numbers[part.partition]
            partition = self.partitions[number]
            values = payments.chunk(number, part.start, part.end, at, self._tails)
            _corrupt_some(values, part.start)
            self._producer.send(partition.target.topic, partition.target.partition, values)
            partition.sent = part.end
        self.sent += records


def _corrupt_some(values: list[bytes], start: int) -> None:
    """Truncate some records, and give others an unknown kind."""
    for place, value in enumerate(values):
        odd = (start + place) % ODD_EVERY
        if odd == BROKEN_AT:
            values[place] = value[:-1]
        elif odd == UNKNOWN_KIND_AT:
            head, separator, rest = value.partition(b'"kind":"')
            values[place] = head + separator + b"no" + rest
