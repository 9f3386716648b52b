"""Compares one table with its announcements.

Rules of this file:
- The control offsets in each snapshot of the branch's ancestry determine the announcements that
  the snapshot must contain.
- Changes by other writers are counted and noted; they are not a mismatch. A data file that is
  listed twice is a mismatch, as is a data file with two deletion vectors: a reader may use either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from connect.gateways.storage.avro_limits import CheckedAvroFile
from connect.operations.audit.announced_ranges import Announcement
from connect.operations.audit.audit_report import AuditReport, TableSum
from connect.protocol.control_offsets import merged, parse_offsets
from connect.protocol.snapshot_ancestry import (
    ANNOUNCED_RECORDS,
    REWIND_PROPERTY,
    ancestry,
    engine,
    is_cut_off,
    summary,
)
from control_schemas.events import SourceRange

EXAMPLE_FILES_MAX = 3
_REFERENCED_DATA_FILE: Final = 17  # place among the fields of a ``DataFile`` of version 3
RangesOf = Callable[[Iterable[UUID]], Sequence[SourceRange]]


@dataclass(frozen=True, slots=True)
class TableAudit:
    """The audit of one table.

    Attributes:
        audit: receives the mismatches.
        offsets_key: snapshot property with the connector's control offsets.
        branch: to which the connector commits.
        log_starts: control partition -> first retained control offset.
        log_ends: control partition -> control offset up to which announcements were read.
        passed: control partition -> committed control offset of the coordinator's group.
        ranges_of: returns the source ranges announced with commit ids.
    """

    audit: AuditReport
    offsets_key: str
    branch: str
    log_starts: Mapping[int, int]
    log_ends: Mapping[int, int]
    passed: Mapping[int, int]
    ranges_of: RangesOf

    def check(self, name: str, table: Table, announced: Sequence[Announcement]) -> TableSum:
        """Compare the table with its announcements; return its sums."""
        metadata = table.metadata
        chain = list(ancestry(metadata, self.branch))
        out = TableSum(name)
        own = [a for a in announced if a.table_uuid in {None, metadata.table_uuid}]
        other = sum(a.rows for a in announced) - sum(a.rows for a in own)
        if other:
            self.audit.notes.append(
                f"{name}: {other} rows were announced for a dropped table of the same name"
            )
        floor: Mapping[int, int] | None = {}
        if chain and is_cut_off(chain[-1], metadata):
            floor = None  # the control offsets of expired snapshots are unknown
        for snapshot in reversed(chain):
            text = summary(snapshot).get(self.offsets_key)
            if text is None:
                self._count_foreign_snapshot(out, snapshot)
                continue
            offsets = merged(floor or {}, parse_offsets(text))
            self._check_own_snapshot(out, snapshot, own, floor, offsets)
            floor = offsets
        self._check_uncommitted(out, own, floor or {}, has_snapshots=bool(chain))
        if chain:
            out.now = _count(chain[0], "total-records")
            self._check_files(out, table, chain)
        return out

    def _check_own_snapshot(
        self,
        out: TableSum,
        snapshot: Snapshot,
        announced: Sequence[Announcement],
        floor: Mapping[int, int] | None,
        offsets: Mapping[int, int],
    ) -> None:
        # copy-on-write adds rows of the table again, and leaves superseded ones out
        is_rewritten = ANNOUNCED_RECORDS in summary(snapshot)
        added = _count(snapshot, ANNOUNCED_RECORDS if is_rewritten else "added-records")
        is_retained = floor is not None and all(
            floor.get(p, 0) >= self.log_starts.get(p, 0) for p in offsets
        )
        is_read = all(at <= self.log_ends.get(p, 0) for p, at in offsets.items())
        if floor is None or not is_retained or not is_read:
            out.unproved += added
            return
        held = [
            a
            for a in announced
            if floor.get(a.partition, 0) <= a.offset < offsets.get(a.partition, 0)
        ]
        rows = sum(a.rows for a in held)
        if REWIND_PROPERTY in summary(snapshot):
            self.audit.notes.append(
                f"{out.name}: snapshot {snapshot.snapshot_id} is of a rewind: {rows} rows "
                "announced before it were removed; their records are read again"
            )
            return
        out.announced += rows
        out.committed += added
        if rows != added:
            self._differs(
                "snapshot_differs",
                f"snapshot {snapshot.snapshot_id} added {added} rows, but {rows} were announced",
                held,
                table=out.name,
                snapshot_id=snapshot.snapshot_id,
            )

    def _count_foreign_snapshot(self, out: TableSum, snapshot: Snapshot) -> None:
        added, deleted = _count(snapshot, "added-records"), _count(snapshot, "deleted-records")
        properties = summary(snapshot)
        operation = snapshot.summary.operation.value if snapshot.summary else "unknown"
        positions = _count(snapshot, "added-position-deletes")
        if added == deleted and not positions and "added-equality-deletes" not in properties:
            return
        out.others += added - deleted
        self.audit.changed_by_others = True
        self.audit.notes.append(
            f"{out.name}: snapshot {snapshot.snapshot_id} by {engine(properties)} "
            f"({operation}) added {added} and removed {deleted} rows"
            + (f", and marked {positions} as deleted" if positions else "")
        )

    def _check_uncommitted(
        self,
        out: TableSum,
        announced: Sequence[Announcement],
        floor: Mapping[int, int],
        *,
        has_snapshots: bool,
    ) -> None:
        """Check announcements in no snapshot: they wait, or are lost if the group passed them."""
        left = [a for a in announced if a.offset >= floor.get(a.partition, 0) and a.rows]
        passed = [a for a in left if a.offset < self.passed.get(a.partition, 0)]
        out.waiting = sum(a.rows for a in left) - sum(a.rows for a in passed)
        if passed:
            reason = (
                "no snapshot of the branch contains them" if has_snapshots else "it has no snapshot"
            )
            self._differs(
                "announcement_lost",
                f"the coordinator has passed {sum(a.rows for a in passed)} announced rows, but "
                f"{reason}: they were rolled back, skipped by an operator, or removed",
                passed,
                table=out.name,
            )

    def _check_files(self, out: TableSum, table: Table, chain: Sequence[Snapshot]) -> None:
        """Check that no file is listed twice and that the files contain the snapshot's total."""
        paths: Counter[str] = Counter()
        marked: Counter[str] = Counter()
        rows = 0
        for manifest in chain[0].manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                file: Any = entry.data_file
                if file.file_format != FileFormat.PUFFIN:  # one holds vectors of several files
                    paths[file.file_path] += 1
                rows += file.record_count if file.content.value == 0 else 0
            if manifest.content == ManifestContent.DELETES and table.metadata.format_version > 2:
                marked.update(_marked_files(table, manifest))
        twice = sorted(path for path, count in paths.items() if count > 1)
        if twice:
            self.audit.differs(
                "file_twice",
                f"{len(twice)} files are listed twice: their rows are duplicates",
                table=out.name,
                snapshot_id=chain[0].snapshot_id,
                files=twice[:EXAMPLE_FILES_MAX],
            )
        vectors = sorted(path for path, count in marked.items() if count > 1)
        if vectors:
            self.audit.differs(
                "vector_twice",
                f"{len(vectors)} data files have two deletion vectors: deleted rows may be read",
                table=out.name,
                snapshot_id=chain[0].snapshot_id,
                files=vectors[:EXAMPLE_FILES_MAX],
            )
        if rows != out.now:
            self.audit.differs(
                "total_differs",
                f"the files contain {rows} rows, but the newest snapshot's total is {out.now}",
                table=out.name,
                snapshot_id=chain[0].snapshot_id,
            )

    def _differs(self, code: str, text: str, held: Sequence[Announcement], **where: Any) -> None:
        ranges = sorted(
            self.ranges_of({a.commit_id for a in held}),
            key=lambda r: (r.topic, r.partition, r.start_offset),
        )
        source_range = next((r for r in ranges if r.records_written), None)
        if source_range is not None:
            where |= {
                "topic": source_range.topic,
                "partition": source_range.partition,
                "start_offset": source_range.start_offset,
                "end_offset": source_range.end_offset,
            }
        control = min(((a.partition, a.offset) for a in held), default=None)
        if control is not None:
            where |= {"control_partition": control[0], "control_offset": control[1]}
        self.audit.differs(code, text, **where)


def _marked_files(table: Table, manifest: ManifestFile) -> Iterator[str]:
    """Yield the data file of each deletion vector; PyIceberg's own reader drops the field."""
    with CheckedAvroFile[ManifestEntry](
        table.io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        for entry in entries:
            file = entry.data_file
            is_live = entry.status != ManifestEntryStatus.DELETED
            if is_live and file.file_format == FileFormat.PUFFIN:
                yield file[_REFERENCED_DATA_FILE]


def _count(snapshot: Snapshot, key: str) -> int:
    text = summary(snapshot).get(key, "0")
    return int(text) if text.isascii() and text.isdecimal() else 0
