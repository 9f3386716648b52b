"""Files that no snapshot of a table needs after snapshots were removed.

Rules of this file:
- A file is named only when it is certain that no remaining snapshot reads it. Where that would take
  reading other branches' files, the file stays: the removal of orphan files finds it.
- Files that no snapshot ever listed are never named: they may belong to an announcement that waits,
  or to a commit whose outcome is unknown.
- Manifest lists are read once each: those of the removed snapshots, and of the remaining ones next
  to them.

A manifest is inherited from parent to child until a snapshot drops it, and never comes back. So the
snapshots that list it form one connected part of the ancestry. A manifest of a removed snapshot
that no remaining snapshot next to the removed ones lists is in no remaining snapshot at all. That
holds while the known snapshots are connected; otherwise every remaining list is read, up to a
bound. A data or delete file goes with the snapshot that dropped it: when all remaining snapshots
descend from that snapshot, none of them reads the file. A Puffin file holds the deletion vectors of
several data files, and each is dropped on its own. A vector that was dropped never comes back, so a
remaining snapshot needs the file only if one next to the removed ones lists a vector in it.

Source:
    Apache Iceberg ``IncrementalFileCleanup``; differs by never following abandoned snapshots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    FileFormat,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

LISTS_MAX: Final = 500
"""Manifest lists of remaining snapshots that are read where the snapshots are not connected."""


@dataclass(frozen=True, slots=True)
class ExpiredFiles:
    """What may be deleted, in this order: a reader of a newer snapshot needs none of it.

    Attributes:
        content: data and delete files.
        manifests: manifests.
        manifest_lists: one per removed snapshot.
        statistics: Puffin and partition statistics of removed snapshots.
        is_complete: False where files may be left for the removal of orphan files.
    """

    content: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    manifest_lists: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    is_complete: bool = True

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.content, *self.manifests, *self.manifest_lists, *self.statistics)


def expired_files(
    before: TableMetadata, removed: Collection[int], after: TableMetadata, io: FileIO
) -> ExpiredFiles:
    """Return the files that only removed snapshots need.

    Args:
        before: the table before the snapshots were removed.
        removed: their ids.
        after: the table now; a snapshot that is still in it is not treated as removed.
        io: reads manifest lists and manifests.

    Raises:
        OSError, CommitRefused: a list or manifest cannot be read; nothing is known then.
    """
    remaining = {snapshot.snapshot_id: snapshot for snapshot in after.snapshots}
    gone = {
        snapshot.snapshot_id: snapshot
        for snapshot in before.snapshots
        if snapshot.snapshot_id in removed and snapshot.snapshot_id not in remaining
    }
    if not gone:
        return ExpiredFiles()
    history = _History.of(before, remaining.values())
    if history.is_connected:
        neighbours = history.neighbours(gone)
        compared = [s for s in remaining.values() if s.snapshot_id in neighbours]
    else:
        compared = list(remaining.values())
    statistics = tuple(sorted(_statistics(before, gone) - _statistics(after, remaining)))
    if len(compared) > LISTS_MAX:
        return ExpiredFiles(statistics=statistics, is_complete=False)
    listed = {id_: _manifests(snapshot, io) for id_, snapshot in gone.items()}
    needed = {m.manifest_path: m for snapshot in compared for m in _manifests(snapshot, io)}
    old = {m.manifest_path: m for manifests in listed.values() for m in manifests}
    kept_lists = {snapshot.manifest_list for snapshot in remaining.values()}
    content, vectors, is_complete = _dropped(
        {**old, **needed}.values(),
        {*gone, *(s.snapshot_id for s in compared)},
        remaining,
        history,
        io,
    )
    if vectors:
        content |= vectors - _live_vectors(needed.values(), io)
    return ExpiredFiles(
        content=tuple(sorted(content)),
        manifests=tuple(sorted(old.keys() - needed.keys())),
        manifest_lists=tuple(sorted({s.manifest_list for s in gone.values()} - kept_lists)),
        statistics=statistics,
        is_complete=is_complete,
    )


@dataclass(frozen=True, slots=True)
class _History:
    """The known ancestry of snapshots, removed ones included.

    Attributes:
        parents: snapshot id -> parent id, None where it is not known.
    """

    parents: Mapping[int, int | None]

    @classmethod
    def of(cls, before: TableMetadata, remaining: Collection[Snapshot]) -> _History:
        """Parents as they were before the removal, which may have cut them off."""
        parents = {s.snapshot_id: s.parent_snapshot_id for s in (*remaining, *before.snapshots)}
        return cls({id_: parent if parent in parents else None for id_, parent in parents.items()})

    @property
    def is_connected(self) -> bool:
        """Whether all known snapshots have one common ancestor that is known."""
        return sum(parent is None for parent in self.parents.values()) <= 1

    def neighbours(self, snapshots: Collection[int]) -> frozenset[int]:
        """Parents and children of snapshots."""
        above = {self.parents[id_] for id_ in snapshots}
        below = {id_ for id_, parent in self.parents.items() if parent in snapshots}
        return frozenset(id_ for id_ in above | below if id_ is not None)

    def descends(self, snapshot_id: int, ancestor_id: int) -> bool:
        """Whether a snapshot is another one or descends from it, as far as is known."""
        left = len(self.parents)
        at: int | None = snapshot_id
        while at is not None and left >= 0:
            if at == ancestor_id:
                return True
            at = self.parents.get(at)
            left -= 1
        return False


def _manifests(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    return snapshot.manifests(io)


def _dropped(
    manifests: Collection[ManifestFile],
    dropping: Collection[int],
    remaining: Collection[int],
    history: _History,
    io: FileIO,
) -> tuple[set[str], set[str], bool]:
    """Files that snapshots dropped, of those snapshots that all remaining ones descend from.

    Returns:
        Data and delete files; Puffin files of dropped vectors; whether that is all.
    """
    paths: set[str] = set()
    vectors: set[str] = set()
    is_complete = True
    for manifest in manifests:
        by = manifest.added_snapshot_id
        if by is None or by not in dropping or manifest.deleted_files_count == 0:
            continue
        if not all(history.descends(id_, by) for id_ in remaining):
            is_complete = False  # another branch or tag may read them
            continue
        for path, file_format in _deleted_entries(manifest, by, io):
            (vectors if file_format == FileFormat.PUFFIN else paths).add(path)
    return paths, vectors, is_complete


def _live_vectors(manifests: Iterable[ManifestFile], io: FileIO) -> set[str]:
    """Puffin files of the vectors that manifests list."""
    return {
        entry.data_file.file_path
        for manifest in manifests
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(io)
        if entry.data_file.file_format == FileFormat.PUFFIN
    }


def _deleted_entries(
    manifest: ManifestFile, snapshot_id: int, io: FileIO
) -> Iterator[tuple[str, FileFormat]]:
    for entry in manifest.fetch_manifest_entry(io, discard_deleted=False):
        if entry.status == ManifestEntryStatus.DELETED and entry.snapshot_id == snapshot_id:
            yield entry.data_file.file_path, entry.data_file.file_format


def _statistics(metadata: TableMetadata, snapshots: Collection[int]) -> set[str]:
    paths = {s.statistics_path for s in metadata.statistics if s.snapshot_id in snapshots}
    more = metadata.partition_statistics
    return paths | {s.statistics_path for s in more if s.snapshot_id in snapshots}
