"""Sums of the announcements that the control topic still contains.

Rules of this file:
- Announcements are summed, not stored by file, so that a week of them fits into memory.
- The rows of a round are compared with the row counts of its tasks. If a task of an older version
  announced no counts, rows are compared with records; a note names the rounds not provable so.
- Only announcements with source ranges are checked for completeness. The Java sink announces
  none: its files count for tables, and checks of a partition resume at its next range.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from uuid import UUID

from connect.model.layout import TopicPartition
from connect.operations.audit.audit_report import AuditReport, SourceSum
from connect.protocol.control_topic import ControlRecord
from control_schemas.events import (
    CommitComplete,
    DataComplete,
    DataWritten,
    EventHeaders,
    LostRange,
    RowCounts,
    SourceRange,
)


@dataclass(frozen=True, slots=True)
class Announcement:
    """Rows that one event announces for one table; files announced before are not counted."""

    partition: int
    offset: int
    commit_id: UUID
    table_uuid: UUID | None
    rows: int


@dataclass(slots=True)
class _Round:
    rows: int = 0
    dead_letter_rows: int = 0
    deletes: int = 0
    ranges: list[SourceRange] = field(default_factory=list)
    counted: RowCounts | None = field(default_factory=RowCounts)
    is_whole: bool = True


class AnnouncedSums:
    """Sums over the control topic; call ``take`` with all records before any other method.

    Args:
        audit: receives the source sums and the mismatches.
        group_id: of the connector.
        log_starts: control partition -> first retained control offset.
        is_one_row: whether each written record becomes exactly one row.
        is_row_level: whether a record may replace or delete rows of other records.
        dead_letter_table: table with one row for each dead letter, if configured.

    Attributes:
        tables: announcements by table.
        lost_ends: source partition -> end of the last range that was announced as lost, unless an
            operator changed its offsets since.
    """

    def __init__(
        self,
        audit: AuditReport,
        group_id: str,
        log_starts: Mapping[int, int],
        *,
        is_one_row: bool,
        is_row_level: bool = False,
        dead_letter_table: str | None = None,
    ) -> None:
        self._audit = audit
        self._group_id = group_id
        self._log_starts = log_starts
        self._is_one_row = is_one_row
        self._is_row_level = is_row_level
        self._dead_letter_table = dead_letter_table
        self._rounds: dict[UUID, _Round] = {}
        self._completed_partitions: set[int] = set()  # control partitions with a DataComplete
        self._resumable: set[TopicPartition] = set()  # source partitions: any next range is valid
        self._paths: defaultdict[str, set[int]] = defaultdict(set)
        self.tables: defaultdict[str, list[Announcement]] = defaultdict(list)
        self.lost_ends: dict[TopicPartition, int] = {}

    def take(self, records: Iterable[ControlRecord]) -> None:
        """Add all records; the records of each control partition are in order.

        DataComplete and CommitComplete events of all partitions are then sorted by time, because
        the Java sink distributes its events over the partitions.
        """
        malformed = 0
        progress_records: defaultdict[int, list[ControlRecord]] = defaultdict(list)
        for record in records:
            malformed += record.error is not None
            event = record.event
            if event is None or event.group_id != self._group_id:
                continue
            if isinstance(event.payload, DataWritten):
                self._add_written(record, event.payload)
            elif isinstance(event.payload, DataComplete | CommitComplete):
                progress_records[record.partition].append(record)
        for record in heapq.merge(*progress_records.values(), key=_time_us):
            assert record.event is not None
            if isinstance(record.event.payload, DataComplete):
                self._add_complete(record, record.event.payload)
            elif record.headers.moved is not None:
                self._mark_resumable(record.headers)
        if malformed:
            self._audit.notes.append(f"{malformed} control events cannot be read")

    def check_rounds(self) -> None:
        """Check that each round's announced files contain the rows that its tasks counted."""
        unproved = 0
        for commit_id, round_sums in self._rounds.items():
            if not round_sums.ranges or not round_sums.is_whole:
                continue
            if round_sums.counted is not None:
                self._check_counted(commit_id, round_sums, round_sums.counted)
            elif self._is_row_level or round_sums.deletes:
                unproved += 1
            else:
                self._check_records(commit_id, round_sums)
            refused = sum(r.records_dead_lettered for r in round_sums.ranges)
            if round_sums.dead_letter_rows and round_sums.dead_letter_rows != refused:
                self._audit.differs(
                    "round_differs",
                    f"{refused} records were counted as dead letters, but the files announced "
                    f"for the dead letter table contain {round_sums.dead_letter_rows} rows",
                    commit_id=str(commit_id),
                    **_range_coordinates(round_sums.ranges[0]),
                )
        if unproved:
            self._audit.notes.append(
                f"{unproved} rounds of row-level changes were announced by an older version, which "
                "did not count superseded rows: their rows are not verified"
            )

    def _check_counted(self, commit_id: UUID, round_sums: _Round, counted: RowCounts) -> None:
        written = sum(r.records_written for r in round_sums.ranges)
        self._audit.rows = self._audit.rows.plus(counted)
        if counted.made < written or (self._is_one_row and counted.made != written):
            self._differs(
                commit_id,
                round_sums,
                f"{written} records were counted as written, but they became {counted.made} rows",
            )
        if round_sums.rows != counted.kept:
            self._differs(
                commit_id,
                round_sums,
                f"of {counted.made} rows, {counted.superseded} were superseded and "
                f"{counted.deleted} were only deletes; the announced files contain "
                f"{round_sums.rows} rows instead of {counted.kept}",
            )

    def _check_records(self, commit_id: UUID, round_sums: _Round) -> None:
        written = sum(r.records_written for r in round_sums.ranges)
        if round_sums.rows < written or (self._is_one_row and round_sums.rows != written):
            self._differs(
                commit_id,
                round_sums,
                f"{written} records were counted as written, but the announced files contain "
                f"{round_sums.rows} rows",
            )

    def _differs(self, commit_id: UUID, round_sums: _Round, text: str) -> None:
        source_range = next(
            (r for r in round_sums.ranges if r.records_written), round_sums.ranges[0]
        )
        self._audit.differs(
            "round_differs", text, commit_id=str(commit_id), **_range_coordinates(source_range)
        )

    def ranges_of(self, commit_ids: Iterable[UUID]) -> list[SourceRange]:
        """Return the source ranges announced with these commit ids."""
        return [r for i in commit_ids if i in self._rounds for r in self._rounds[i].ranges]

    # ------------------------------------------------------------ one record

    def _add_written(self, record: ControlRecord, written: DataWritten) -> None:
        known_paths = self._paths[str(written.table)]
        rows = 0
        for file in written.data_files or ():
            path = hash(file.file_path)
            if path not in known_paths:
                known_paths.add(path)
                rows += file.record_count
        round_sums = self._round(written.commit_id)
        if str(written.table) == self._dead_letter_table:
            round_sums.dead_letter_rows += rows
        else:
            round_sums.rows += rows
        round_sums.deletes += sum(file.record_count for file in written.delete_files or ())
        self.tables[str(written.table)].append(
            Announcement(
                record.partition,
                record.offset,
                written.commit_id,
                written.table.table_uuid,
                rows,
            )
        )

    def _add_complete(self, record: ControlRecord, complete: DataComplete) -> None:
        round_sums = self._round(complete.commit_id)
        if record.partition not in self._completed_partitions and self._log_starts.get(
            record.partition
        ):
            round_sums.is_whole = (
                False  # retention may have removed DataWritten events of this round
            )
        self._completed_partitions.add(record.partition)
        ranges = record.headers.ranges
        if ranges is None:
            self._resumable |= {
                TopicPartition(a.topic, a.partition) for a in complete.assignments or ()
            }
            return
        round_sums.ranges += ranges
        rows = record.headers.rows
        if rows is None or round_sums.counted is None:
            round_sums.counted = None
        else:
            round_sums.counted = round_sums.counted.plus(rows)
        for r in ranges:
            self._add_range(record, r)
        for lost in record.headers.lost:
            if _add_lost(self._audit, record, lost) and lost.end_offset is not None:
                self.lost_ends[TopicPartition(lost.topic, lost.partition)] = lost.end_offset

    def _mark_resumable(self, headers: EventHeaders) -> None:
        moved = headers.moved or ()
        all_partitions = set(self._audit.sources)
        self._resumable |= {TopicPartition(*at) for at in moved} or all_partitions
        for tp in {TopicPartition(*at) for at in moved} or set(self.lost_ends):
            self.lost_ends.pop(tp, None)

    def _add_range(self, record: ControlRecord, r: SourceRange) -> None:
        tp = TopicPartition(r.topic, r.partition)
        source_sum = self._audit.sources.get(tp)
        control = {"control_partition": record.partition, "control_offset": record.offset}
        if source_sum is None or tp in self._resumable:
            if source_sum is None:
                source_sum = SourceSum(r.topic, r.partition, r.start_offset, r.start_offset)
                self._audit.sources[tp] = source_sum
            elif r.start_offset != source_sum.to_offset:
                self._audit.notes.append(
                    f"{r.topic}-{r.partition} was read from {r.start_offset} instead of "
                    f"{source_sum.to_offset}: another sink read it, or its offsets were altered"
                )
            self._resumable.discard(tp)
        elif r.start_offset != source_sum.to_offset:
            is_gap = r.start_offset > source_sum.to_offset
            from_offset, to_offset = sorted((r.start_offset, source_sum.to_offset))
            self._audit.differs(
                "source_gap" if is_gap else "source_overlap",
                f"source offsets [{from_offset}, {to_offset}) were announced "
                + ("by no task" if is_gap else "twice"),
                topic=r.topic,
                partition=r.partition,
                start_offset=from_offset,
                end_offset=to_offset,
                **control,
            )
        parts = r.records_dropped + r.records_dead_lettered + r.records_written
        if parts != r.records_read:
            self._audit.differs(
                "range_differs",
                f"{r.records_read} records were read, but {parts} were counted as written, dead "
                "letters or dropped",
                **_range_coordinates(r),
                **control,
            )
        source_sum.to_offset = max(source_sum.to_offset, r.end_offset)
        source_sum.read += r.records_read
        source_sum.dropped += r.records_dropped
        source_sum.dead_lettered += r.records_dead_lettered
        source_sum.written += r.records_written

    def _round(self, commit_id: UUID) -> _Round:
        return self._rounds.setdefault(commit_id, _Round())


def _time_us(record: ControlRecord) -> int:
    return record.event.timestamp_us if record.event is not None else 0


def _range_coordinates(r: SourceRange) -> dict[str, object]:
    return {
        "topic": r.topic,
        "partition": r.partition,
        "start_offset": r.start_offset,
        "end_offset": r.end_offset,
    }


def _add_lost(audit: AuditReport, record: ControlRecord, lost: LostRange) -> bool:
    """Count lost offsets; return whether they are inside a range of the same announcement."""
    if lost.end_offset is None:
        audit.notes.append(
            f"{lost.topic}-{lost.partition}: the topic was deleted and created again; its records "
            f"from offset {lost.start_offset} on are lost, and the connector continued"
        )
        return True
    is_announced = any(
        (r.topic, r.partition) == (lost.topic, lost.partition)
        and r.start_offset <= lost.start_offset < lost.end_offset <= r.end_offset
        and r.records_read <= r.end_offset - r.start_offset - lost.offsets
        for r in record.headers.ranges or ()
    )
    if not is_announced:
        audit.differs(
            "loss_differs",
            f"source offsets [{lost.start_offset}, {lost.end_offset}) were announced as lost, "
            "and are not part of the announced ranges, or were counted as read",
            **asdict(lost),
            control_partition=record.partition,
            control_offset=record.offset,
        )
        return False
    audit.sources[TopicPartition(lost.topic, lost.partition)].lost += lost.offsets
    audit.notes.append(
        f"{lost.topic}-{lost.partition}: source records [{lost.start_offset}, "
        f"{lost.end_offset}) were deleted before they were read; the connector continued"
    )
    return True
