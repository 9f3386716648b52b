"""What a task has read and not yet announced: plain arithmetic, no clients, no clock.

Rules of this file:
- Per partition ``announced <= position``; what lies between is exactly the pending batches.
- Batches are contiguous: each starts where the one before it ended, else a bug (raise).
- An announcement carries all pending batches or none; its source offsets are the positions.
- A partition's timestamp never goes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any
from uuid import UUID

from connect.errors import InvariantViolation
from connect.model.layout import TopicPartition
from control_schemas.events import (
    ContentFile,
    RowCounts,
    SourceRange,
    TableReference,
    TopicPartitionOffset,
)
from worker.batch.descriptors import PartitionProgress

Offsets = Mapping[TopicPartition, int]
TableFiles = tuple[tuple[TableReference, tuple[ContentFile, ...]], ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Exact source ranges of one micro-batch: first offset and the one after the last.

    Holes (transaction markers, aborted records, compaction) are inside the ranges.
    """

    starts: Offsets
    ends: Offsets

    @property
    def record_count_max(self) -> int:
        """Offsets in the ranges: no more records than this are in them."""
        return sum(end - self.starts[tp] for tp, end in self.ends.items())

    def head(self, record_count: int) -> Slice:
        """The first of it: about so many offsets, spread evenly over the partitions that move.

        Where more partitions move than that, one offset each of those with the most to read.
        """
        left = {tp: end - self.starts[tp] for tp, end in self.moved().ends.items()}
        chosen = sorted(left, key=lambda tp: (-left[tp], tp))[:record_count]
        share = -(-record_count // max(1, len(chosen)))
        ends = {tp: self.starts[tp] + min(left[tp], share) for tp in chosen}
        return Slice(self.starts, {**self.starts, **ends})

    def after(self, head: Slice) -> Slice:
        """What is left of it behind ``head``."""
        return Slice({**self.starts, **head.ends}, self.ends)

    def moved(self) -> Slice:
        """Only the partitions whose range is not empty."""
        tps = [tp for tp, end in self.ends.items() if end > self.starts[tp]]
        return Slice({tp: self.starts[tp] for tp in tps}, {tp: self.ends[tp] for tp in tps})


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """One micro-batch whose files are complete.

    Attributes:
        slice: its source ranges.
        progress: what became of the records; a partition without a record may be absent.
        steps: per table the files written, data and deletes; deletes reach the rows of the steps
            and batches before their own.
        dead_letters: records for the dead letter topic, in the form the announcer sends.
        rows: what became of the rows that its records made.
    """

    slice: Slice
    progress: Mapping[TopicPartition, PartitionProgress]
    steps: tuple[TableFiles, ...] = ()
    dead_letters: tuple[Any, ...] = ()
    rows: RowCounts = field(default_factory=RowCounts)


@dataclass(frozen=True, slots=True)
class TaskAnnouncement:
    """Everything one announcement says.

    Attributes:
        batches: the pending batches, oldest first.
        ranges: one per partition that moved, contiguous with the announcement before.
        assignments: every partition of the task, next offset and timestamp.
        offsets: source offsets to be stored with the transaction: of every partition, for a
            broker forgets one that is not stored again in time (``offsets.retention.minutes``).
    """

    batches: tuple[WrittenBatch, ...]
    ranges: tuple[SourceRange, ...]
    assignments: tuple[TopicPartitionOffset, ...]
    offsets: Offsets

    @property
    def rows(self) -> RowCounts:
        """What became of the rows that the batches' records made."""
        return reduce(RowCounts.plus, (batch.rows for batch in self.batches), RowCounts())


@dataclass(slots=True)
class _PartitionLedger:
    announced: int
    position: int
    timestamp_max_ms: int | None = None  # of everything read by this task object
    end_seen_ms: int | None = None  # wall clock of the last look that found us at the log's end
    given_us: int | None = None


@dataclass(slots=True)
class Ledger:
    """Positions of a task's partitions and its pending batches.

    Args:
        positions: where reading starts: the committed source offsets.
        out_of_order_ms: subtracted from record timestamps (``iceberg.control.vtts.*``).
        idle_lag_ms: subtracted from the time at which a partition was seen read to its end.
    """

    positions: Offsets
    out_of_order_ms: int
    idle_lag_ms: int
    pending: list[WrittenBatch] = field(default_factory=list)
    _partitions: dict[TopicPartition, _PartitionLedger] = field(init=False)

    def __post_init__(self) -> None:
        self._partitions = {
            tp: _PartitionLedger(at, at) for tp, at in sorted(self.positions.items())
        }
        self.positions = dict(self.positions)

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """Per partition the first source offset not yet read."""
        return {tp: p.position for tp, p in self._partitions.items()}

    @property
    def announced_offsets(self) -> dict[TopicPartition, int]:
        """Per partition the first source offset not yet announced."""
        return {tp: p.announced for tp, p in self._partitions.items()}

    @property
    def unannounced_max(self) -> int:
        """Offsets read and not announced, of the partition with the most."""
        return max((p.position - p.announced for p in self._partitions.values()), default=0)

    @property
    def letter_bytes(self) -> int:
        """Bytes of the pending batches' dead letters."""
        return sum(letter.size for batch in self.pending for letter in batch.dead_letters)

    def unread(self, ends: Offsets) -> int:
        """Offsets between the positions and ``ends``: at most so many records wait."""
        return sum(max(0, end - self._partitions[tp].position) for tp, end in ends.items())

    def slice_to(self, ends: Offsets) -> Slice:
        """The ranges from the positions to ``ends`` (never backwards)."""
        starts = self.next_offsets
        return Slice(starts, {tp: max(starts[tp], ends.get(tp, starts[tp])) for tp in starts})

    def see_ends(self, ends: Offsets, *, asked_at_ms: int) -> None:
        """Note which partitions are read to their end.

        Args:
            ends: the log's ends.
            asked_at_ms: wall clock from before the question, so that the answer is not older.
        """
        for tp, end in ends.items():
            partition = self._partitions[tp]
            if partition.position >= end:
                partition.end_seen_ms = asked_at_ms

    def add(self, batch: WrittenBatch) -> None:
        """Take a batch into the pending round and move the positions to its ends.

        Raises:
            InvariantViolation: it does not start where the last one ended, or its counts do not
                add up.
        """
        for tp, end in batch.slice.ends.items():
            at = self._partitions[tp].position
            if batch.slice.starts[tp] != at or end < at:
                raise InvariantViolation(
                    f"a batch covers [{batch.slice.starts[tp]}, {end}) but reading stands at {at}",
                    code="ranges_not_contiguous",
                    topic=tp.topic,
                    partition=tp.partition,
                )
        for tp, counted in batch.progress.items():
            room = batch.slice.ends[tp] - batch.slice.starts[tp] if tp in batch.slice.ends else 0
            parts = counted.dropped + counted.dead_lettered + counted.written
            if counted.read != parts or counted.read > room:
                raise InvariantViolation(
                    f"{counted.read} records read of {room} offsets, but {counted.dropped} "
                    f"dropped, {counted.dead_lettered} dead letters, {counted.written} written",
                    code="counts_do_not_add_up",
                    topic=tp.topic,
                    partition=tp.partition,
                )
        for tp, end in batch.slice.ends.items():
            partition = self._partitions[tp]
            partition.position = end
            counted_locally = batch.progress.get(tp)
            if counted_locally is not None:
                partition.timestamp_max_ms = _later(
                    partition.timestamp_max_ms, counted_locally.timestamp_max_ms
                )
        self.pending.append(batch)

    def answer(self) -> TaskAnnouncement:
        """Everything that is to be announced now; changes nothing until ``announced``."""
        ranges, assignments = [], []
        for tp, partition in self._partitions.items():
            if partition.position != partition.announced:
                ranges.append(self._range(tp, partition))
            assignments.append(
                TopicPartitionOffset(
                    tp.topic, tp.partition, partition.position, self._timestamp_us(partition)
                )
            )
        return TaskAnnouncement(
            tuple(self.pending), tuple(ranges), tuple(assignments), self.next_offsets
        )

    def announced(self, answer: TaskAnnouncement) -> None:
        """The transaction with ``answer`` is committed."""
        assert tuple(self.pending) == answer.batches, "nothing may be added while announcing"
        self.pending.clear()
        for said in answer.assignments:
            partition = self._partitions[TopicPartition(said.topic, said.partition)]
            assert said.offset is not None, "a task always knows its positions"
            partition.announced = said.offset
            partition.given_us = said.timestamp_us

    def _range(self, tp: TopicPartition, partition: _PartitionLedger) -> SourceRange:
        counted = [b.progress[tp] for b in self.pending if tp in b.progress]
        return SourceRange(
            topic=tp.topic,
            partition=tp.partition,
            start_offset=partition.announced,
            end_offset=partition.position,
            records_read=sum(c.read for c in counted),
            records_dropped=sum(c.dropped for c in counted),
            records_dead_lettered=sum(c.dead_lettered for c in counted),
            records_written=sum(c.written for c in counted),
            timestamp_max_ms=_latest(c.timestamp_max_ms for c in counted),
        )

    def _timestamp_us(self, partition: _PartitionLedger) -> int | None:
        by_records = (
            None
            if partition.timestamp_max_ms is None
            else (partition.timestamp_max_ms - self.out_of_order_ms) * 1000
        )
        by_end = (
            None
            if partition.end_seen_ms is None
            else (partition.end_seen_ms - self.idle_lag_ms) * 1000
        )
        return _latest((by_records, by_end, partition.given_us))


@dataclass(slots=True)
class Backlog:
    """Announced rounds whose CommitComplete has not been seen: the task's back-pressure.

    Args:
        rounds_max: more than so many stop the reading (``iceberg.worker.max-uncommitted-rounds``).
        silence_ms_max: with files pending and no StartCommit for so long, reading stops as well:
            nobody is there to take them.
    """

    rounds_max: int
    silence_ms_max: int
    _open: deque[UUID] = field(default_factory=deque)
    _received_ms: int | None = None

    def announced(self, commit_id: UUID) -> None:
        """We announced data for this round."""
        self._open.append(commit_id)

    def completed(self, commit_id: UUID, waiting: Iterable[UUID] = ()) -> None:
        """A round is over: all that we announced up to it is in the tables.

        A round that we never answered takes everything announced before it as well.

        Args:
            commit_id: the round.
            waiting: rounds of which no table holds anything of this task or of its predecessors.
        """
        if commit_id not in self._open:
            self._open.clear()
        while self._open:
            if self._open.popleft() == commit_id:
                break
        still = dict.fromkeys(waiting)
        self._open = deque([*still, *(later for later in self._open if later not in still)])

    def received(self, now_ms: int) -> None:
        """A StartCommit came, or waiting for one began (monotonic clock)."""
        self._received_ms = now_ms

    def is_full(self, now_ms: int, *, has_pending: bool) -> bool:
        """True when the task must not read on."""
        if len(self._open) > self.rounds_max:
            return True
        silent_ms = 0 if self._received_ms is None else now_ms - self._received_ms
        return has_pending and silent_ms > self.silence_ms_max

    @property
    def rounds(self) -> int:
        """Announced rounds not known to be committed."""
        return len(self._open)


def _later(a: int | None, b: int | None) -> int | None:
    return _latest((a, b))


def _latest(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return max(known, default=None)
