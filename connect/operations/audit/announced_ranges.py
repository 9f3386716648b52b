"""What a connector's tasks announced, as far as the control topic still holds it.

Rules of this file:
- Announcements are kept as sums, not as files: a week of them fits into memory.
- A round's rows are held against the counts that its tasks announced. Where a task announced none
  (an older version), rows are held against records, and what that cannot prove is noted.
- Only what carries ranges can be proved. Announcements of the Java sink carry none; they count
  for tables, and their source partitions are taken up again at the next range.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from connect.model.layout import TopicPartition
from connect.operations.audit.audit_report import AuditReport, SourceSum
from connect.protocol.control_topic import ControlRecord
from control_schemas.events import (
    CommitComplete,
    DataComplete,
    DataWritten,
    EventHeaders,
    RowCounts,
    SourceRange,
)


@dataclass(frozen=True, slots=True)
class Announcement:
    """Rows announced for one table by one event; files announced before count no more."""

    partition: int
    offset: int
    commit_id: UUID
    table_uuid: UUID | None
    rows: int


@dataclass(slots=True)
class _Round:
    rows: int = 0
    letters: int = 0
    deletes: int = 0
    ranges: list[SourceRange] = field(default_factory=list)
    counted: RowCounts | None = field(default_factory=RowCounts)
    is_whole: bool = True


class AnnouncedSums:
    """Sums over the control topic; ``take`` every record in order, then ask.

    Args:
        audit: gets the source sums and what does not add up.
        group_id: of the connector.
        log_starts: control partition -> first retained control offset.
        is_one_row: whether each written record makes exactly one row.
        is_row_level: whether a record may replace or delete rows of others.
        dead_letter_table: where each dead letter leaves one row, when there is such a table.
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
        self._begun: set[int] = set()
        self._free: set[TopicPartition] = set()
        self._paths: defaultdict[str, set[int]] = defaultdict(set)
        self.tables: defaultdict[str, list[Announcement]] = defaultdict(list)

    def take(self, records: Iterable[ControlRecord]) -> None:
        """Take every record, each partition's in order.

        What says how far sources were read is put in order over all partitions afterwards: the
        Java sink spreads its events over them.
        """
        malformed = 0
        said: defaultdict[int, list[ControlRecord]] = defaultdict(list)
        for record in records:
            malformed += record.error is not None
            event = record.event
            if event is None or event.group_id != self._group_id:
                continue
            if isinstance(event.payload, DataWritten):
                self._written(record, event.payload)
            elif isinstance(event.payload, DataComplete | CommitComplete):
                said[record.partition].append(record)
        for record in heapq.merge(*said.values(), key=_time):
            assert record.event is not None
            if isinstance(record.event.payload, DataComplete):
                self._complete(record, record.event.payload)
            elif record.headers.moved is not None:
                self._moved(record.headers)
        if malformed:
            self._audit.notes.append(f"{malformed} control events cannot be read")

    def check_rounds(self) -> None:
        """Each commit id must have announced the rows that its tasks counted."""
        unproved = 0
        for commit_id, found in self._rounds.items():
            if not found.ranges or not found.is_whole:
                continue
            if found.counted is not None:
                self._check_counted(commit_id, found, found.counted)
            elif self._is_row_level or found.deletes:
                unproved += 1
            else:
                self._check_records(commit_id, found)
            refused = sum(r.records_dead_lettered for r in found.ranges)
            if found.letters and found.letters != refused:
                self._audit.differs(
                    "round_differs",
                    f"{refused} records were counted as dead letters, the files announced for "
                    f"their table hold {found.letters} rows",
                    commit_id=str(commit_id),
                    **_place(found.ranges[0]),
                )
        if unproved:
            self._audit.notes.append(
                f"{unproved} rounds of row-level changes were announced by an older version, which "
                "did not count superseded rows: their rows are not proved"
            )

    def _check_counted(self, commit_id: UUID, found: _Round, counted: RowCounts) -> None:
        written = sum(r.records_written for r in found.ranges)
        self._audit.rows = self._audit.rows.plus(counted)
        if counted.made < written or (self._is_one_row and counted.made != written):
            self._differs(
                commit_id,
                found,
                f"{written} records were counted as written, they made {counted.made} rows",
            )
        if found.rows != counted.kept:
            self._differs(
                commit_id,
                found,
                f"{counted.made} rows were made, {counted.superseded} of them superseded and "
                f"{counted.deleted} only deletes; the announced files hold {found.rows} rows "
                f"instead of {counted.kept}",
            )

    def _check_records(self, commit_id: UUID, found: _Round) -> None:
        written = sum(r.records_written for r in found.ranges)
        if found.rows < written or (self._is_one_row and found.rows != written):
            self._differs(
                commit_id,
                found,
                f"{written} records were counted as written, the announced files hold "
                f"{found.rows} rows",
            )

    def _differs(self, commit_id: UUID, found: _Round, text: str) -> None:
        first = next((r for r in found.ranges if r.records_written), found.ranges[0])
        self._audit.differs("round_differs", text, commit_id=str(commit_id), **_place(first))

    def ranges_of(self, commit_ids: Iterable[UUID]) -> list[SourceRange]:
        """Source ranges that were announced under these commit ids."""
        return [r for i in commit_ids if i in self._rounds for r in self._rounds[i].ranges]

    # ------------------------------------------------------------ one record

    def _written(self, record: ControlRecord, written: DataWritten) -> None:
        known = self._paths[str(written.table)]
        rows = 0
        for file in written.data_files or ():
            path = hash(file.file_path)
            if path not in known:
                known.add(path)
                rows += file.record_count
        one = self._round(written.commit_id)
        if str(written.table) == self._dead_letter_table:
            one.letters += rows
        else:
            one.rows += rows
        one.deletes += sum(file.record_count for file in written.delete_files or ())
        self.tables[str(written.table)].append(
            Announcement(
                record.partition,
                record.offset,
                written.commit_id,
                written.table.table_uuid,
                rows,
            )
        )

    def _complete(self, record: ControlRecord, complete: DataComplete) -> None:
        one = self._round(complete.commit_id)
        if record.partition not in self._begun and self._log_starts.get(record.partition):
            one.is_whole = False  # retention may have taken the files that were announced with it
        self._begun.add(record.partition)
        ranges = record.headers.ranges
        if ranges is None:
            self._free |= {TopicPartition(a.topic, a.partition) for a in complete.assignments or ()}
            return
        one.ranges += ranges
        rows = record.headers.rows
        if rows is None or one.counted is None:
            one.counted = None
        else:
            one.counted = one.counted.plus(rows)
        for r in ranges:
            self._range(record, r)

    def _moved(self, headers: EventHeaders) -> None:
        moved = headers.moved or ()
        everywhere = set(self._audit.sources)
        self._free |= {TopicPartition(*at) for at in moved} or everywhere

    def _range(self, record: ControlRecord, r: SourceRange) -> None:
        tp = TopicPartition(r.topic, r.partition)
        known = self._audit.sources.get(tp)
        control = {"control_partition": record.partition, "control_offset": record.offset}
        if known is None or tp in self._free:
            if known is None:
                known = SourceSum(r.topic, r.partition, r.start_offset, r.start_offset)
                self._audit.sources[tp] = known
            elif r.start_offset != known.to_offset:
                self._audit.notes.append(
                    f"{r.topic}-{r.partition} was read on from {r.start_offset} instead of "
                    f"{known.to_offset}: by another sink, or because its offsets were set"
                )
            self._free.discard(tp)
        elif r.start_offset != known.to_offset:
            is_gap = r.start_offset > known.to_offset
            first, last = sorted((r.start_offset, known.to_offset))
            self._audit.differs(
                "source_gap" if is_gap else "source_overlap",
                f"source offsets [{first}, {last}) were announced "
                + ("by no task" if is_gap else "twice"),
                topic=r.topic,
                partition=r.partition,
                start_offset=first,
                end_offset=last,
                **control,
            )
        parts = r.records_dropped + r.records_dead_lettered + r.records_written
        if parts != r.records_read:
            self._audit.differs(
                "range_differs",
                f"{r.records_read} records were read, {parts} accounted for",
                **_place(r),
                **control,
            )
        known.to_offset = max(known.to_offset, r.end_offset)
        known.read += r.records_read
        known.dropped += r.records_dropped
        known.dead_lettered += r.records_dead_lettered
        known.written += r.records_written

    def _round(self, commit_id: UUID) -> _Round:
        return self._rounds.setdefault(commit_id, _Round())


def _time(record: ControlRecord) -> int:
    return record.event.timestamp_us if record.event is not None else 0


def _place(r: SourceRange) -> dict[str, object]:
    return {
        "topic": r.topic,
        "partition": r.partition,
        "start_offset": r.start_offset,
        "end_offset": r.end_offset,
    }
