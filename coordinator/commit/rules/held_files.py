"""Which announced files a table already holds: a file is committed once, by any announcement.

Rules of this file:
- Any client that can write to the control topic can repeat an announcement, also in the name of
  another connector. Floors do not detect that. The table's manifests do.
- What this process committed is decided by its memory: compaction and expiry remove it from the
  table's history. For all other files the manifests decide.
- The name of a file that a worker wrote holds the time of its creation (a UUID of version 7).
  Manifests that were added before that time cannot list the file.
- In the usual case nothing is read: the files are younger than this memory, and every snapshot
  since then is our own.
- Nor is the store asked for a file of that kind that was written within ``FRESH_MS``: it cannot be
  a repetition, and no cleanup deletes it so early. All others must be in the store.
- A file that is older than this memory and than ``UNPROVED_MS`` is refused if snapshots that may
  have added and replaced it have expired.
- A file that a compaction or copy-on-write replaced, or whose rows were all deleted, is still held:
  its rows are in the table, in another file, or were superseded.
- A table whose head is our last commit may be loaded without its history. Others have added nothing
  to its branch since the last history that was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from connect.config.table_formats import COPY_ON_WRITE, DELETION_VECTORS
from connect.errors import CommitRefused
from connect.gateways.storage.object_store import storage_errors
from connect.protocol.snapshot_ancestry import WRITE_MODE

CLOCK_SKEW_MS: Final = 60_000  # a clock that is further off stops commits (``clock_off``)
COMMITTED_MAX: Final = 5_000
FRESH_MS: Final = 600_000
UNPROVED_MS: Final = 3_600_000
READ_MAX: Final = 200
READ_BYTES_MAX: Final = 32 * 2**20
_DELETED: Final = "#deleted"  # of a manifest's path in the memory
_TIMED_NAME: Final = re.compile(
    r"([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})(?:-[0-9]+)?\.parquet"
)


def created_ms(path: str) -> int | None:
    """When a file was created, milliseconds since 1970; None where its name does not say."""
    match = _TIMED_NAME.fullmatch(path.rsplit("/", 1)[-1])
    return UUID(match[1]).int >> 80 if match else None


@dataclass(slots=True)
class CommittedFiles:
    """What this process committed to one table; used under the table's lock.

    Attributes:
        since_ms: every commit of this process after that is remembered; None before the first
            question.
    """

    since_ms: int | None = None
    _paths: dict[str, int] = field(default_factory=dict)  # -> wall clock, oldest first

    def add(self, paths: Iterable[str], now_ms: int) -> None:
        """Remember what was just committed."""
        self._paths.update(dict.fromkeys(paths, now_ms))
        while len(self._paths) > COMMITTED_MAX:
            self.since_ms = self._paths.pop(next(iter(self._paths)))

    def among(self, paths: Iterable[str], now_ms: int) -> frozenset[str]:
        """Return those that are remembered."""
        if self.since_ms is None:
            self.since_ms = now_ms
        return frozenset(path for path in paths if path in self._paths)

    def older(self, paths: Iterable[str]) -> list[str]:
        """Return files that may be older than this memory, clocks that are off included."""
        if self.since_ms is None:
            return list(paths)
        limit_ms = self.since_ms + CLOCK_SKEW_MS
        return [path for path in paths if (created_ms(path) or 0) < limit_ms]

    def unverified(self, paths: Collection[str], now_ms: int) -> tuple[str, ...]:
        """Return files that may be gone: a commit asks the store for them."""
        older = set(self.older(paths))
        return tuple(p for p in paths if p in older or (created_ms(p) or 0) < now_ms - FRESH_MS)


@dataclass(slots=True)
class HeldFiles:
    """What one coordinator remembers of one table's files. Used under the table's lock.

    Attributes:
        own: what it committed.
    """

    own: CommittedFiles = field(default_factory=CommittedFiles)
    _foreign_ms: int = -1  # when the newest snapshot that is not remembered was made
    _snapshots: dict[int, int] = field(default_factory=dict)  # id -> wall clock of our commit
    _read: dict[str, frozenset[str]] = field(default_factory=dict)  # by manifest, see _files
    _read_bytes: int = 0

    def reaches_back(self, now_ms: int) -> bool:
        """Whether files that are written now need no history, also if a clock is off."""
        if self.own.since_ms is None:
            return False
        return now_ms - max(self.own.since_ms, self._foreign_ms) > CLOCK_SKEW_MS

    def among(
        self,
        table: Table,
        head: Snapshot | None,
        paths: Collection[str],
        now_ms: int,
        *,
        known: tuple[int, Sequence[ManifestFile]] | None = None,
        load: Callable[[], Table] | None = None,
    ) -> frozenset[str]:
        """The files that the table's branch holds.

        Args:
            table: as it was loaded.
            head: snapshot of the branch; None without any.
            paths: of announced files.
            now_ms: wall clock, milliseconds since 1970.
            known: a snapshot and its manifests, which need not be read.
            load: loads the table with its history, where ``table`` has none because its head is
                our last commit.

        Raises:
            CommitRefused: ``file_history_expired``; RetriableError: ``storage_unavailable``.
        """
        own = self.own.among(paths, now_ms)
        left = set(paths) - own
        if head is None or not left:
            return own
        from_ms = oldest_created_ms(left, now_ms)
        if self._has_seen_all(table, from_ms, has_history=load is None):
            self._read.clear()
            self._read_bytes = 0
            return own
        if load is not None:
            table = load()
        with storage_errors("reading manifests for files that may be announced again"):
            is_known = known is not None and known[0] == head.snapshot_id
            listed = known[1] if known and is_known else head.manifests(table.io)
            manifests = [
                manifest
                for manifest in _added_since(table, listed, from_ms)
                if not self._is_remembered(manifest)
            ]
            held = {p for m in manifests for p in left & self._files(table, m)}
            held.update(left.intersection(self._replaced(table, head, from_ms)))
        for path in self.own.older(left - held):
            _refuse_unproved(table, head, path, now_ms)
        return own | held

    def _replaced(self, table: Table, head: Snapshot, from_ms: int | None) -> Iterator[str]:
        """Yield files that compactions of the branch replaced since then, or ever."""
        by_id = {s.snapshot_id: s for s in table.metadata.snapshots}
        snapshot: Snapshot | None = by_id.pop(head.snapshot_id, None)
        while snapshot is not None:
            if (from_ms is None or snapshot.timestamp_ms >= from_ms) and _replaces(snapshot):
                for manifest in snapshot.manifests(table.io):
                    if manifest.added_snapshot_id == snapshot.snapshot_id and _has_deleted(
                        manifest
                    ):
                        yield from self._files(table, manifest, is_deleted=True)
            snapshot = by_id.pop(snapshot.parent_snapshot_id or -1, None)

    def committed(self, paths: Iterable[str], snapshot_id: int, now_ms: int) -> None:
        """Remember what was just committed."""
        self._snapshots[snapshot_id] = now_ms
        self.own.add(paths, now_ms)
        while len(self._snapshots) > COMMITTED_MAX:
            at_ms = self._snapshots.pop(next(iter(self._snapshots)))
            self.own.since_ms = max(self.own.since_ms or 0, at_ms)

    def _has_seen_all(self, table: Table, from_ms: int | None, *, has_history: bool) -> bool:
        """Whether every kept snapshot since then is our own and remembered."""
        kept = {s.snapshot_id: s.timestamp_ms for s in table.metadata.snapshots}
        foreign_ms = max((at for key, at in kept.items() if key not in self._snapshots), default=-1)
        if has_history:
            self._snapshots = {key: at for key, at in self._snapshots.items() if key in kept}
            self._foreign_ms = foreign_ms
        else:
            self._foreign_ms = max(self._foreign_ms, foreign_ms)
        since_ms = self.own.since_ms
        if from_ms is None or since_ms is None or from_ms < since_ms:
            return False
        return self._foreign_ms < from_ms

    def _is_remembered(self, manifest: ManifestFile) -> bool:
        """Whether it lists only files that this memory holds: nothing was merged into it."""
        at_ms = self._snapshots.get(manifest.added_snapshot_id or 0)
        since_ms = self.own.since_ms
        is_recent = at_ms is not None and since_ms is not None and at_ms > since_ms
        return is_recent and not manifest.has_existing_files()

    def _files(
        self, table: Table, manifest: ManifestFile, *, is_deleted: bool = False
    ) -> frozenset[str]:
        """Files that a manifest lists, or those that it marks as deleted."""
        key = manifest.manifest_path + (_DELETED if is_deleted else "")
        if key not in self._read:
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=not is_deleted)
            paths = frozenset(
                entry.data_file.file_path
                for entry in entries
                if (entry.status == ManifestEntryStatus.DELETED) == is_deleted
            )
            self._remember_read(key, paths)
            return paths
        return self._read[key]

    def _remember_read(self, key: str, paths: frozenset[str]) -> None:
        size = sum(map(len, paths))
        if len(self._read) >= READ_MAX or self._read_bytes + size > READ_BYTES_MAX:
            self._read.clear()
            self._read_bytes = 0
        if size <= READ_BYTES_MAX:
            self._read[key] = paths
            self._read_bytes += size


def _replaces(snapshot: Snapshot) -> bool:
    """Whether the rows of files that a snapshot removed count as held by the table."""
    summary = snapshot.summary
    return summary is not None and (
        summary.operation == Operation.REPLACE
        or summary.additional_properties.get(WRITE_MODE) in {COPY_ON_WRITE, DELETION_VECTORS}
    )


def _has_deleted(manifest: ManifestFile) -> bool:
    return manifest.deleted_files_count != 0


def _refuse_unproved(table: Table, head: Snapshot, path: str, now_ms: int) -> None:
    """Raise if the table may have added and replaced a file in snapshots that have expired.

    Raises:
        CommitRefused: ``file_history_expired``.
    """
    made_ms = created_ms(path)
    if made_ms is None or made_ms >= now_ms - UNPROVED_MS:
        return
    by_id = {s.snapshot_id: s for s in table.metadata.snapshots}
    snapshot: Snapshot | None = head
    while snapshot is not None and snapshot.timestamp_ms >= made_ms - CLOCK_SKEW_MS:
        parent_id, number = snapshot.parent_snapshot_id, snapshot.sequence_number or 0
        snapshot = None if parent_id is None else by_id.pop(parent_id, None)
        # some clients remove the parent's id with the parent, so the number decides then
        if snapshot is None and (parent_id is not None or number > 1):
            raise history_expired(path)


def history_expired(path: str) -> CommitRefused:
    """Return the error of a file that may have been committed and replaced long ago."""
    return CommitRefused(
        "whether an announced file was committed before cannot be proved: the table's history "
        "since the file was written has expired; skip the announcement if the table has its rows, "
        "else skip it and read its records again",
        code="file_history_expired",
        file=path,
    )


def oldest_created_ms(paths: Collection[str], now_ms: int) -> int | None:
    """Before that no file was created, clocks that are off included; None where it is unknown."""
    times = [created_ms(path) for path in paths]
    known = [at for at in times if at is not None and at <= now_ms + CLOCK_SKEW_MS]
    return min(known) - CLOCK_SKEW_MS if len(known) == len(times) else None


def _added_since(
    table: Table, manifests: Sequence[ManifestFile], from_ms: int | None
) -> list[ManifestFile]:
    """Manifests that may list a file created then or later; all of them where that is not known.

    A snapshot that is not kept any more counts as added in that time, unless one that is kept and
    older than that time came after it.
    """
    if from_ms is None:
        return list(manifests)
    older = [s.sequence_number or 0 for s in table.metadata.snapshots if s.timestamp_ms < from_ms]
    last_before = max(older, default=-1)
    return [m for m in manifests if m.sequence_number > last_before]
