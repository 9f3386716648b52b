"""Payments that keep coming, with some records in between that no table may get.

Rules of this file:
- A record's identity is its lane and its number in it: columns ``partition`` and ``sequence`` of
  the tables. A lane is one partition of one topic, and no two lanes share a number.
- What becomes of a record follows from its identity: see ``fates``.
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
TRICKLE = 500  # that part of what is left, again and again: it never ends
TRICKLE_PAUSE_S = 0.5
# of so many records of a lane one cannot be decoded, and one is of a kind that has no table
ODD_EVERY = 5_003
BROKEN_AT, FOREIGN_AT = 7, 11
DEAD_LETTER, DROPPED = len(payments.KINDS), len(payments.KINDS) + 1


def fates(lane: int, sequences: Numbers) -> Numbers:
    """Where each record belongs: index of its table, ``DEAD_LETTER`` or ``DROPPED``."""
    out = payments.kind_codes(lane, sequences)
    out[sequences % ODD_EVERY == BROKEN_AT] = DEAD_LETTER
    out[sequences % ODD_EVERY == FOREIGN_AT] = DROPPED
    return out


@dataclass(slots=True)
class Lane:
    """One partition that gets records, and how many it got; a closed one gets no more."""

    target: TopicPartition
    sent: int = 0
    is_open: bool = True


class Production:
    """A thread that produces payments, to all open lanes alike, as far as it is allowed to.

    Args:
        bootstrap_servers: of the broker.
        targets: the first lanes, numbered from 0.
        records_per_s: pace; below it by far once the allowance is used up, but never zero.
    """

    def __init__(
        self, bootstrap_servers: str, targets: Sequence[TopicPartition], records_per_s: int
    ) -> None:
        self.sent = 0
        self.total = 0
        self.lanes = [Lane(target) for target in targets]
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
        """Rows that the tables must hold of what is sent."""
        return sum(
            int((fates(number, np.arange(lane.sent, dtype=np.int64)) < DEAD_LETTER).sum())
            for number, lane in enumerate(self.lanes)
        )

    def open(self, *targets: TopicPartition) -> None:
        """Send to these as well from now on."""
        with self._lock:
            # a client that knew the topic with fewer partitions refuses the new ones for minutes
            self._producer.finish("every topic")
            self._producer = BulkProducer(self._kafka)
            self.lanes += [Lane(target) for target in targets]

    def shut(self, topic: str) -> None:
        """Send nothing more to a topic; what was sent is acknowledged when this returns."""
        with self._lock:
            for lane in self.lanes:
                lane.is_open &= lane.target.topic != topic
            self._producer.finish(topic)

    def start(self, total: int, allowed: int) -> None:
        """Produce so many records more, at the pace only while fewer than ``allowed`` are sent."""
        self.total, self._allowed = self.total + total, allowed
        self._thread = threading.Thread(target=self._run, name="production", daemon=True)
        self._thread.start()

    def allow(self, records: int) -> None:
        """So many records of the total may be produced at the pace."""
        self._allowed = max(self._allowed, records)

    def finish(self) -> None:
        """Produce all that is left and wait until the broker has it; raises what went wrong."""
        assert self._thread is not None
        self.allow(self.total)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Give up what is left, and wait until the broker has the rest."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        self._stopping.clear()
        self.total = self.sent
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Give up what is left."""
        self._stopping.set()

    def _run(self) -> None:
        try:
            while not self.is_done and not self._stopping.is_set():
                left = self.total - self.sent
                is_free = self.sent < self._allowed
                with self._lock:
                    full = CHUNK_RECORDS * sum(lane.is_open for lane in self.lanes)
                    self._send(min(full, left if is_free else left // TRICKLE))
                pause_s = full / self._records_per_s if is_free else TRICKLE_PAUSE_S
                self._stopping.wait(pause_s)
            self._producer.finish("every topic")
        except Exception as e:  # the boundary of the thread: raised by ``finish``
            self._failure = e

    def _send(self, records: int) -> None:
        at = instant_text(SystemClock().now_ms() * 1_000_000)
        lanes = [number for number, lane in enumerate(self.lanes) if lane.is_open]
        for part in payments.ranges(records, [self.lanes[number].sent for number in lanes]):
            number = lanes[part.partition]
            lane = self.lanes[number]
            values = payments.chunk(number, part.start, part.end, at, self._tails)
            _spoil(values, part.start)
            self._producer.send(lane.target.topic, lane.target.partition, values)
            lane.sent = part.end
        self.sent += records


def _spoil(values: list[bytes], start: int) -> None:
    """Truncate some records and give others an unknown kind."""
    for place, value in enumerate(values):
        odd = (start + place) % ODD_EVERY
        if odd == BROKEN_AT:
            values[place] = value[:-1]
        elif odd == FOREIGN_AT:
            head, found, rest = value.partition(b'"kind":"')
            values[place] = head + found + b"no" + rest
