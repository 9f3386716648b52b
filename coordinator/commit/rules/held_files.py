"""Which announced files a table already holds: a file is committed once, by any announcement.

Rules of this file:
- Any client that can write to the control topic can repeat an announcement, also in the name of
  another connector. Floors do not detect that. The table's manifests do.
- Only manifests decide whether the table holds a file. The memory only decides which manifests need
  not be read.
- The name of a file that a worker wrote holds the time of its creation (a UUID of version 7).
  Manifests that were added before that time cannot list the file.
- In the usual case nothing is read: the files are younger than this memory, and every snapshot
  since then is our own.
- A file that a compaction or copy-on-write replaced, or whose rows were all deleted, is still held:
  its rows are in the table, in another file, or were superseded.
- A table whose head is our last commit may be loaded without its history. Others have added nothing
  to its branch since the last history that was read.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from connect.config.table_formats import COPY_ON_WRITE, DELETION_VECTORS
from connect.gateways.storage.object_store import storage_errors
from connect.protocol.snapshot_ancestry import WRITE_MODE

CLOCK_SKEW_MS: Final = 60_000  # a clock that is further off stops commits (``clock_off``)
COMMITTED_MAX: Final = 5_000
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
class HeldFiles:
    """What one coordinator remembers of one table's files. Used under the table's lock.

    Attributes:
        since_ms: every commit of this coordinator after that is remembered; None before the first
            question.
    """

    since_ms: int | None = None
    _foreign_ms: int = -1  # when the newest snapshot that is not remembered was made
    _committed: deque[tuple[int, str]] = field(default_factory=deque)
    _snapshots: dict[int, int] = field(default_factory=dict)  # id -> wall clock of our commit
    _read: dict[str, frozenset[str]] = field(default_factory=dict)  # by manifest, see _files
    _read_bytes: int = 0
    _consumed: dict[str, None] = field(default_factory=dict)  # in no snapshot, oldest first

    def reaches_back(self, now_ms: int) -> bool:
        """Whether files that are written now need no history, also if a clock is off."""
        if self.since_ms is None:
            return False
        return now_ms - max(self.since_ms, self._foreign_ms) > CLOCK_SKEW_MS

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
            RetriableError: ``storage_unavailable``.
        """
        if self.since_ms is None:
            self.since_ms = now_ms
        if head is None or not paths:
            return frozenset()
        consumed = self._consumed.keys() & set(paths)
        from_ms = oldest_created_ms(paths, now_ms)
        is_repeated = not set(paths).isdisjoint(path for _, path in self._committed)
        has_seen_all = self._has_seen_all(table, from_ms, has_history=load is None)
        if has_seen_all and not is_repeated:
            self._read.clear()
            self._read_bytes = 0
            return frozenset(consumed)
        if load is not None:
            table = load()
        with storage_errors("reading manifests for files that may be announced again"):
            is_known = known is not None and known[0] == head.snapshot_id
            listed = known[1] if known and is_known else head.manifests(table.io)
            manifests = [
                manifest
                for manifest in _added_since(table, listed, from_ms)
                if is_repeated or not self._is_remembered(manifest)
            ]
            announced = set(paths)
            held = {p for m in manifests for p in announced & self._files(table, m)}
            held.update(announced.intersection(self._replaced(table, head, from_ms)))
        return frozenset(held | consumed)

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
        self._committed.extend((now_ms, path) for path in paths)
        while len(self._committed) > COMMITTED_MAX:
            self.since_ms, _ = self._committed.popleft()
        while len(self._snapshots) > COMMITTED_MAX:
            at_ms = self._snapshots.pop(next(iter(self._snapshots)))
            self.since_ms = max(self.since_ms or 0, at_ms)

    def consumed(self, paths: Iterable[str]) -> None:
        """Remember files whose rows a commit took over without listing the files."""
        self._consumed.update(dict.fromkeys(paths))
        while len(self._consumed) > COMMITTED_MAX:
            self._consumed.pop(next(iter(self._consumed)))

    def _has_seen_all(self, table: Table, from_ms: int | None, *, has_history: bool) -> bool:
        """Whether every kept snapshot since then is our own and remembered."""
        kept = {s.snapshot_id: s.timestamp_ms for s in table.metadata.snapshots}
        foreign_ms = max((at for key, at in kept.items() if key not in self._snapshots), default=-1)
        if has_history:
            self._snapshots = {key: at for key, at in self._snapshots.items() if key in kept}
            self._foreign_ms = foreign_ms
        else:
            self._foreign_ms = max(self._foreign_ms, foreign_ms)
        if from_ms is None or self.since_ms is None or from_ms < self.since_ms:
            return False
        return self._foreign_ms < from_ms

    def _is_remembered(self, manifest: ManifestFile) -> bool:
        """Whether it lists only files that this memory holds: nothing was merged into it."""
        at_ms = self._snapshots.get(manifest.added_snapshot_id or 0)
        is_recent = at_ms is not None and self.since_ms is not None and at_ms > self.since_ms
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
