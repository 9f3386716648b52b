"""A simulated broker: control topic with transactions, group offsets, source partitions.

Rules of this file:
- Readers are read_committed, as in Kafka: they see no event at or after the first offset of an
  open transaction and no aborted event; each marker has an offset.
- Only the transactional id fences: a producer of an older epoch has no visible effect.
- The envelope of a record is created at its write; all readers receive the same object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from connect.model.layout import TopicPartition
from control_schemas.events import DataComplete, EventHeaders
from coordinator.kernel.effects import Envelope

CONTROL_TOPIC = "control"
GROUP, CONTROL_GROUP = "connect-c", "connect-c-coord"
OPEN, COMMITTED, ABORTED = 0, 1, 2


class FencedError(Exception):
    """A newer producer of the same transactional id exists."""


class LostAnswerError(Exception):
    """The broker's answer is lost: the producer cannot be used further."""


class OutOfRangeError(Exception):
    """The position is not, or no longer, in the log."""


class FakeEvent:
    """The part of an event that the kernel reads."""

    __slots__ = ("payload",)
    payload: Any


class QuickEnvelope(Envelope):
    """An envelope that is not frozen: every event needs one, and it takes a third of the time."""

    __slots__ = ()
    __setattr__ = object.__setattr__

    def __init__(self, payload: object, headers: EventHeaders, partition: int, offset: int) -> None:
        event = FakeEvent()
        event.payload = payload
        self.event = event  # type: ignore[assignment,misc] # see FakeEvent
        self.headers = headers  # type: ignore[misc] # not frozen
        self.partition = partition  # type: ignore[misc] # as above
        self.offset = offset  # type: ignore[misc] # as above
        self.records = self.size_bytes = 0  # type: ignore[misc] # as above


class Transaction:
    """A transaction: its first offset in each control partition, and its state."""

    __slots__ = ("first", "state")

    def __init__(self) -> None:
        self.first: dict[int, int] = {}
        self.state = OPEN


Entry = tuple[Transaction, Envelope | None]


class Log:
    """The control topic and the group offsets.

    Args:
        partitions: of the control topic.
        home: the partition to which the connector's key belongs.
    """

    def __init__(self, partitions: int, home: int) -> None:
        self.entries: list[list[Entry]] = [[] for _ in range(partitions)]
        self.starts = [0] * partitions
        self.home = home
        self.topic_id = 1
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self._seen_open: list[Transaction] = []
        self.groups: dict[str, dict[int, int]] = {GROUP: {}, CONTROL_GROUP: {}}
        self.unfenced = "/"  # a planted bug: ids with this beginning are not fenced

    # ------------------------------------------------------------------ producers

    def init(self, transactional_id: str) -> int:
        """Take over the id; an open transaction of its last owner is aborted."""
        epoch = self.epochs.get(transactional_id, 0)
        if not transactional_id.startswith(self.unfenced):
            epoch += 1
            self.epochs[transactional_id] = epoch
            self.abort(transactional_id)
        return epoch

    def abort(self, transactional_id: str) -> None:
        """End an open transaction without effect (a successor, or the broker's timeout)."""
        transaction = self.open.pop(transactional_id, None)
        if transaction is not None:
            transaction.state = ABORTED
            self._mark(transaction)

    def begin(self, transactional_id: str, epoch: int) -> Transaction:
        """Open a transaction."""
        if self.epochs.get(transactional_id, 0) != epoch:
            raise FencedError
        transaction = Transaction()
        self.open[transactional_id] = transaction
        return transaction

    def produce(
        self,
        transactional_id: str,
        epoch: int,
        transaction: Transaction,
        payload: object,
        headers: EventHeaders,
        *,
        partition: int | None = None,
    ) -> None:
        """Append an event to the open transaction; its partition is that of the key by default."""
        if self.epochs.get(transactional_id, 0) != epoch or transaction.state != OPEN:
            raise FencedError
        where = self.home if partition is None else partition
        log = self.entries[where]
        offset = len(log)
        if where not in transaction.first:
            transaction.first[where] = offset
        log.append((transaction, QuickEnvelope(payload, headers, where, offset)))

    def commit(
        self,
        transactional_id: str,
        epoch: int,
        transaction: Transaction,
        group: str | None = None,
        offsets: Mapping[int, int] | None = None,
    ) -> None:
        """Commit the transaction and the offsets atomically."""
        if self.epochs.get(transactional_id, 0) != epoch or transaction.state != OPEN:
            raise FencedError
        transaction.state = COMMITTED
        self._mark(transaction)
        self.open.pop(transactional_id, None)
        if group is not None and offsets:
            self.groups[group].update(offsets)

    def _mark(self, transaction: Transaction) -> None:
        for partition in transaction.first:
            self.entries[partition].append((transaction, None))

    def store(self, group: str, offsets: Mapping[int, int]) -> None:
        """Store group offsets outside a transaction; they are not fenced."""
        self.groups[group].update(offsets)

    def time_out(self) -> None:
        """Abort the transactions that were open at the last call already."""
        for transactional_id, transaction in list(self.open.items()):
            if transaction in self._seen_open:
                self.abort(transactional_id)
        self._seen_open = list(self.open.values())

    # ------------------------------------------------------------------ readers

    def stable_end(self, partition: int) -> int:
        """Last stable offset: the end for read_committed."""
        end = len(self.entries[partition])
        for transaction in self.open.values():
            if partition in transaction.first:
                end = min(end, transaction.first[partition])
        return end

    def read(self, partition: int, position: int, limit: int) -> tuple[list[Envelope], int]:
        """Up to ``limit`` committed events from ``position``, and the position after them.

        Raises:
            OutOfRangeError: retention passed the position, or the log ends before it.
        """
        log = self.entries[partition]
        end = len(log)
        if position < self.starts[partition] or position > end:
            raise OutOfRangeError
        out: list[Envelope] = []
        if self.open:
            end = self.stable_end(partition)
        at = position
        while at < end:
            transaction, read = log[at]
            at += 1
            if read is not None and transaction.state == COMMITTED:
                out.append(read)
                if len(out) == limit:
                    break
        return out, at

    def kept_events(self) -> Iterator[Envelope]:
        """Every committed event that retention has left."""
        for partition, entries in enumerate(self.entries):
            for transaction, read in entries[self.starts[partition] :]:
                if read is not None and transaction.state == COMMITTED:
                    yield read

    def announced_partitions(self) -> set[int]:
        """Source partitions of which the control topic still has announcements."""
        return {
            at.partition
            for read in self.kept_events()
            if isinstance(read.event.payload, DataComplete)
            for at in read.event.payload.assignments or ()
        }

    def newest_layout(self) -> int:
        """The highest layout number of the announcements that the control topic still has."""
        return max((r.headers.layout or 0 for r in self.kept_events()), default=0)

    # ------------------------------------------------------------------ what start_offsets asks

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        count = len(self.entries) if topic == CONTROL_TOPIC else 0
        return [TopicPartition(topic, number) for number in range(count)]

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The group's offsets, None where it has none."""
        stored = self.groups[group]
        return {tp: stored.get(tp.partition) for tp in partitions}

    def watermarks(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """First retained offset and end."""
        return {
            tp: (self.starts[tp.partition], len(self.entries[tp.partition])) for tp in partitions
        }

    # ------------------------------------------------------------------ what happens to topics

    def truncate(self, partition: int, start: int) -> None:
        """Retention deletes everything below ``start``."""
        self.starts[partition] = max(self.starts[partition], start)

    def create_again(self) -> None:
        """The topic is deleted and created again; open transactions end with it."""
        self.open.clear()
        self.entries = [[] for _ in self.entries]
        self.starts = [0] * len(self.starts)
        self.topic_id += 1
