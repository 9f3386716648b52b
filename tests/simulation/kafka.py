"""A simulated broker: one control topic with transactions, source partitions, group offsets.

Rules of this file:
- What a read_committed reader may see of it is what Kafka lets it see: nothing at or past the
  first offset of an open transaction, nothing aborted, markers take an offset each.
- The transactional id is the only fence: a producer of an older epoch can do nothing visible.
"""

from __future__ import annotations

from typing import Any

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


class FencedError(Exception):
    """A newer producer of the same transactional id exists."""


class Transaction:
    """One transaction: where it began and what became of it."""

    __slots__ = ("first", "offsets", "state")

    def __init__(self, first: int) -> None:
        self.first = first
        self.state = OPEN
        self.offsets: dict[tuple[str, int], int] = {}


class Log:
    """The control topic (one partition) and the group offsets that live beside it."""

    def __init__(self) -> None:
        self.entries: list[tuple[Transaction, Any]] = []  # payload None is a marker
        self.start = 0
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self.groups: dict[str, dict[Any, int]] = {}
        self.unfenced: tuple[str, ...] = ()  # planted bugs: prefixes of ids that nobody fences

    # ------------------------------------------------------------------ producers

    def init(self, transactional_id: str) -> int:
        """Take the id over; what its last owner left open is aborted."""
        if not transactional_id.startswith(self.unfenced or ("/",)):
            self.epochs[transactional_id] = self.epochs.get(transactional_id, 0) + 1
            self.abort(transactional_id)
        return self.epochs.get(transactional_id, 0)

    def abort(self, transactional_id: str) -> None:
        """End an open transaction without effect (a successor, or the broker's timeout)."""
        transaction = self.open.pop(transactional_id, None)
        if transaction is not None:
            transaction.state = ABORTED
            self.entries.append((transaction, None))

    def begin(self, transactional_id: str, epoch: int) -> Transaction:
        """Open a transaction."""
        self._check(transactional_id, epoch)
        transaction = Transaction(len(self.entries))
        self.open[transactional_id] = transaction
        return transaction

    def produce(
        self, transactional_id: str, epoch: int, transaction: Transaction, value: object
    ) -> None:
        """Append a record to the open transaction."""
        self._check(transactional_id, epoch)
        if transaction.state != OPEN:
            raise FencedError
        self.entries.append((transaction, value))

    def commit(
        self,
        transactional_id: str,
        epoch: int,
        transaction: Transaction,
        group: str | None = None,
        offsets: dict[Any, int] | None = None,
    ) -> None:
        """Make it visible, with the offsets, at once."""
        self._check(transactional_id, epoch)
        if transaction.state != OPEN:
            raise FencedError
        transaction.state = COMMITTED
        self.entries.append((transaction, None))
        self.open.pop(transactional_id, None)
        if group is not None and offsets:
            self.groups.setdefault(group, {}).update(offsets)

    def _check(self, transactional_id: str, epoch: int) -> None:
        if self.epochs.get(transactional_id, 0) != epoch:
            raise FencedError

    # ------------------------------------------------------------------ readers

    @property
    def stable_end(self) -> int:
        """Last stable offset: the end for read_committed."""
        if not self.open:
            return len(self.entries)
        return min(t.first for t in self.open.values())

    def read(self, position: int, limit: int) -> tuple[list[tuple[int, Any]], int]:
        """Up to ``limit`` committed records from ``position``, and the position after them."""
        out: list[tuple[int, Any]] = []
        end = self.stable_end
        while position < end and len(out) < limit:
            transaction, value = self.entries[position]
            if value is not None and transaction.state == COMMITTED:
                out.append((position, value))
            position += 1
        return out, position


class Source:
    """Source partitions; a record is its offset and its timestamp, which rises with arrival."""

    def __init__(self, partitions: int) -> None:
        self.timestamps_us: list[list[int]] = [[] for _ in range(partitions)]

    def produce(self, partition: int, timestamp_us: int) -> None:
        """One record."""
        self.timestamps_us[partition].append(timestamp_us)

    def end(self, partition: int) -> int:
        """Next offset to be produced."""
        return len(self.timestamps_us[partition])

    def add_partition(self) -> None:
        """The topic grows."""
        self.timestamps_us.append([])
