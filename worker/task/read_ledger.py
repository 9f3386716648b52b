"""What a task has read and not yet announced: arithmetic only, no clients, no clock.

Rules of this file:
- Per partition ``announced <= position``. The pending batches and the lost ranges cover exactly
  the offsets between.
- Batches are contiguous: each starts where the previous one ended, or where a lost range ended.
  Anything else is a bug.
- An announcement carries all pending batches or none. Its source offsets are the positions.
- The timestamp of a partition never decreases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from connect.errors import InvariantViolation
from connect.model.layout import TopicPartition
from control_schemas.events import (
    ContentFile,
    LostRange,
    RowCounts,
    SourceRange,
    TableReference,
    TopicPartitionOffset,
)
from worker.batch.descriptors import PartitionProgress
from worker.batch.messages import MessageChunk

Offsets = Mapping[TopicPartition, int]
TableFiles = tuple[tuple[TableReference, tuple[ContentFile, ...]], ...]


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """The source offsets of one micro-batch: per partition the first, and the next after the last.

    Gaps (transaction markers, aborted records, compaction) are inside the ranges.
    """

    starts: Offsets
    ends: Offsets

    @property
    def record_count_max(self) -> int:
        """Number of offsets in the ranges: an upper bound of the number of records."""
        return sum(self.record_counts())

    def record_counts(self) -> list[int]:
        """Return the number of offsets of each partition, where there are any."""
        counts = (end - self.starts[tp] for tp, end in self.ends.items())
        return [count for count in counts if count]

    def head(self, record_count: int) -> OffsetRanges:
        """Return the first offsets: about ``record_count``, spread evenly over the partitions.

        With more partitions than that, it is one offset of each of the longest ranges.
        """
        left = {tp: end - self.starts[tp] for tp, end in self.not_empty().ends.items()}
        chosen = sorted(left, key=lambda tp: (-left[tp], tp))[:record_count]
        share = -(-record_count // max(1, len(chosen)))
        ends = {tp: self.starts[tp] + min(left[tp], share) for tp in chosen}
        return OffsetRanges(self.starts, {**self.starts, **ends})

    def starting_at(self, starts: Offsets) -> OffsetRanges:
        """Return what remains from ``starts`` on; empty where a start is above its end."""
        return OffsetRanges(starts, {tp: max(starts[tp], end) for tp, end in self.ends.items()})

    def not_empty(self) -> OffsetRanges:
        """Return only the partitions with a range that is not empty."""
        tps = [tp for tp, end in self.ends.items() if end > self.starts[tp]]
        return OffsetRanges({tp: self.starts[tp] for tp in tps}, {tp: self.ends[tp] for tp in tps})


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """One micro-batch with complete files.

    Attributes:
        ranges: its source offsets.
        progress: counts of the records by outcome; a partition without a record may be absent.
        steps: per table the data and delete files. Deletes apply to the rows of earlier steps and
            earlier batches.
        dead_letters: records for the dead letter topic, in the form the announcer sends.
        rows: counts of the rows that the records produced, by outcome.
        messages: rows for outputs.
        truncated: number of values that lost digits beyond microseconds.
        unavailable: by table and column, written values that their source did not send.
        conflicts: by table, column and column that took them, values that moved.
    """

    ranges: OffsetRanges
    progress: Mapping[TopicPartition, PartitionProgress]
    steps: tuple[TableFiles, ...] = ()
    dead_letters: tuple[Any, ...] = ()
    rows: RowCounts = field(default_factory=RowCounts)
    messages: tuple[MessageChunk, ...] = ()
    truncated: int = 0
    unavailable: Mapping[tuple[str, str], int] = field(default_factory=dict)
    conflicts: Mapping[tuple[str, str, str], int] = field(default_factory=dict)

    @property
    def message_bytes(self) -> int:
        """Bytes of the rows for outputs."""
        return sum(chunk.size for chunk in self.messages)

    @property
    def timestamp_max_ms(self) -> int | None:
        """Highest record timestamp; None if no record has one."""
        stamps = (progress.timestamp_max_ms for progress in self.progress.values())
        return max((stamp for stamp in stamps if stamp is not None), default=None)

    @property
    def records_read(self) -> int:
        """Records of all partitions."""
        return sum(progress.read for progress in self.progress.values())


@dataclass(frozen=True, slots=True)
class TaskAnnouncement:
    """The content of one announcement.

    Attributes:
        batches: the pending batches, oldest first.
        ranges: one per partition with new offsets, contiguous with the previous announcement.
        assignments: every partition of the task, with its next offset and timestamp.
        offsets: source offsets to store with the transaction. They cover every partition, because
            a broker deletes offsets that are not stored again (``offsets.retention.minutes``).
        lost: source records inside ``ranges`` that were deleted before they were read.
        lost_to_report: these, and those of earlier announcements that had no file, for the
            snapshots that get the files of this one.
    """

    batches: tuple[WrittenBatch, ...]
    ranges: tuple[SourceRange, ...]
    assignments: tuple[TopicPartitionOffset, ...]
    offsets: Offsets
    lost: tuple[LostRange, ...] = ()
    lost_to_report: tuple[LostRange, ...] = ()

    @property
    def has_files(self) -> bool:
        """Whether a table gets a file."""
        return any(files for batch in self.batches for step in batch.steps for _, files in step)

    @property
    def message_count(self) -> int:
        """Number of the rows for outputs."""
        return sum(chunk.count for batch in self.batches for chunk in batch.messages)

    @property
    def message_bytes(self) -> int:
        """Bytes of the rows for outputs."""
        return sum(batch.message_bytes for batch in self.batches)

    @property
    def rows(self) -> RowCounts:
        """Counts of the rows of all batches, by outcome."""
        return reduce(RowCounts.plus, (batch.rows for batch in self.batches), RowCounts())


@dataclass(slots=True)
class _PartitionLedger:
    announced: int
    position: int
    timestamp_max_ms: int | None = None  # of all records since the start of the task
    end_seen_ms: int | None = None  # wall clock of the last poll that found all records read
    announced_us: int | None = None  # last announced timestamp


@dataclass(slots=True)
class ReadLedger:
    """Positions of a task's partitions and its pending batches.

    Args:
        positions: the committed source offsets, where reading starts.
        pending: batches that are not announced.
        lost: lost ranges that are not announced.
        recreated: partitions of topics that were created again, which nothing was announced of yet
            -> where the lost records of the former topic begin. Announced with their first range.
        out_of_order_ms: subtracted from record timestamps (``iceberg.control.vtts.*``).
        idle_lag_ms: subtracted from the time of a poll that found all records of a partition read.
    """

    positions: Offsets
    out_of_order_ms: int
    idle_lag_ms: int
    pending: list[WrittenBatch] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    recreated: dict[TopicPartition, int] = field(default_factory=dict)
    _lost_unreported: tuple[LostRange, ...] = ()
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
        """Offsets that are read and not announced, in the partition with the most of them."""
        return max((p.position - p.announced for p in self._partitions.values()), default=0)

    @property
    def dead_letter_bytes(self) -> int:
        """Bytes of the pending batches' dead letters."""
        return sum(dead_letter.size for batch in self.pending for dead_letter in batch.dead_letters)

    @property
    def output_bytes(self) -> int:
        """Bytes of the pending batches' rows for outputs."""
        return sum(batch.message_bytes for batch in self.pending)

    def unread(self, ends: Offsets) -> int:
        """Return the offsets between the positions and ``ends``: an upper bound of the records."""
        return sum(max(0, end - self._partitions[tp].position) for tp, end in ends.items())

    def unread_max(self, ends: Offsets) -> int:
        """Return the same, of the partition with the most."""
        left = (end - self._partitions[tp].position for tp, end in ends.items())
        return max(0, *left) if ends else 0

    def ranges_to(self, ends: Offsets) -> OffsetRanges:
        """Return the ranges from the positions to ``ends``; empty where an end is lower."""
        starts = self.next_offsets
        return OffsetRanges(
            starts, {tp: max(starts[tp], ends.get(tp, starts[tp])) for tp in starts}
        )

    def see_ends(self, ends: Offsets, *, polled_at_ms: int) -> None:
        """Note which partitions are read to their end.

        Args:
            ends: the ends of the logs.
            polled_at_ms: wall clock before the ends were requested from the broker.
        """
        for tp, end in ends.items():
            partition = self._partitions[tp]
            if partition.position >= end:
                partition.end_seen_ms = polled_at_ms

    def add(self, batch: WrittenBatch) -> None:
        """Add a batch to the pending batches and move the positions to its ends.

        Raises:
            InvariantViolation: it does not start where the previous batch ended, or its counts do
                not add up.
        """
        for tp, end in batch.ranges.ends.items():
            at = self._partitions[tp].position
            if batch.ranges.starts[tp] != at or end < at:
                start = batch.ranges.starts[tp]
                raise InvariantViolation(
                    f"a batch covers [{start}, {end}) but the next offset is {at}",
                    code="ranges_not_contiguous",
                    topic=tp.topic,
                    partition=tp.partition,
                )
        for tp, counted in batch.progress.items():
            room = batch.ranges.ends[tp] - batch.ranges.starts[tp] if tp in batch.ranges.ends else 0
            parts = counted.dropped + counted.dead_lettered + counted.written
            if counted.read != parts or counted.read > room:
                raise InvariantViolation(
                    f"{counted.read} records were read from {room} offsets, but {counted.dropped} "
                    f"dropped, {counted.dead_lettered} dead letters, {counted.written} written",
                    code="counts_do_not_add_up",
                    topic=tp.topic,
                    partition=tp.partition,
                )
        for tp, end in batch.ranges.ends.items():
            partition = self._partitions[tp]
            partition.position = end
            progress = batch.progress.get(tp)
            if progress is not None:
                partition.timestamp_max_ms = _latest(
                    (partition.timestamp_max_ms, progress.timestamp_max_ms)
                )
        self.pending.append(batch)

    def skip(self, starts: Offsets) -> tuple[LostRange, ...]:
        """Move positions to the starts of their logs; what lies between is lost.

        Args:
            starts: first offset of the log, of partitions whose position is below it.

        Returns:
            The lost ranges, which the next announcement contains.
        """
        ranges = []
        for tp, start in sorted(starts.items()):
            partition = self._partitions[tp]
            if start > partition.position:
                ranges.append(LostRange(tp.topic, tp.partition, partition.position, start))
                partition.position = start
        self.lost += ranges
        return tuple(ranges)

    def answer(self) -> TaskAnnouncement:
        """Return the next announcement. The ledger changes only with ``announced``."""
        ranges, assignments = [], []
        for tp, partition in self._partitions.items():
            if partition.position != partition.announced:
                ranges.append(self._range(tp, partition))
            assignments.append(
                TopicPartitionOffset(
                    tp.topic, tp.partition, partition.position, self._timestamp_us(partition)
                )
            )
        moved = {TopicPartition(r.topic, r.partition) for r in ranges}
        former = ((tp, at) for tp, at in sorted(self.recreated.items()) if tp in moved)
        lost = (*self.lost, *(LostRange(*tp, at, None) for tp, at in former))
        return TaskAnnouncement(
            tuple(self.pending),
            tuple(ranges),
            tuple(assignments),
            self.next_offsets,
            lost=lost,
            lost_to_report=self._lost_unreported + lost,
        )

    def announced(self, answer: TaskAnnouncement) -> None:
        """Note that the transaction with ``answer`` is committed: no batch is pending."""
        assert tuple(self.pending) == answer.batches, "no batch may be added during an announcement"
        self.pending.clear()
        self.lost.clear()
        for r in answer.ranges:
            self.recreated.pop(TopicPartition(r.topic, r.partition), None)
        self._lost_unreported = () if answer.has_files else answer.lost_to_report
        for assigned in answer.assignments:
            partition = self._partitions[TopicPartition(assigned.topic, assigned.partition)]
            assert assigned.offset is not None, "a task always knows its positions"
            partition.announced = assigned.offset
            partition.announced_us = assigned.timestamp_us

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
        return _latest((by_records, by_end, partition.announced_us))


def _latest(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return max(known, default=None)
