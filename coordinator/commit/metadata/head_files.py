"""The files of a branch's head, and those of them that a commit removes.

Rules of this file:
- Entries are read with all fields. A manifest that loses files is written again with them marked as
  deleted, and with the row ids and sequence numbers of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table

from connect.gateways.storage.avro_limits import ReadBudget
from connect.gateways.storage.object_store import storage_errors
from coordinator.commit.metadata.manifests import ManifestSet
from coordinator.commit.metadata.row_lineage import live_entries, writer_version
from coordinator.row_deletes.limits import NotResolved, ResolveBudget

_READERS: Final = 8


@dataclass(slots=True)
class HeadManifest:
    """A manifest of the head.

    Attributes:
        manifest: as its list names it.
        entries: of it that are not deleted.
        removed: places of the entries that the commit removes.
    """

    manifest: ManifestFile
    entries: list[ManifestEntry]
    removed: set[int] = field(default_factory=set)


class HeadFile(NamedTuple):
    """A file of the head, and the place of its entry."""

    manifest: HeadManifest
    place: int

    @property
    def entry(self) -> ManifestEntry:
        """The entry."""
        return self.manifest.entries[self.place]

    @property
    def file(self) -> DataFile:
        """The file."""
        return self.entry.data_file


@dataclass(slots=True)
class HeadFiles:
    """The files of a head that may have deleted rows.

    Attributes:
        listed: manifests of the head.
        data: of them, those of data files.
        deletes: of them, those of delete files.
    """

    listed: Sequence[ManifestFile]
    data: list[HeadManifest] = field(default_factory=list)
    deletes: list[HeadManifest] = field(default_factory=list)

    @classmethod
    def read(
        cls,
        table: Table,
        listed: Sequence[ManifestFile],
        is_needed: Callable[[ManifestFile], bool],
        budget: ResolveBudget,
    ) -> HeadFiles:
        """Read the entries of manifests.

        Args:
            table: as it was loaded.
            listed: manifests of the head.
            is_needed: whether a manifest may list files with deleted rows.
            budget: limits.

        Raises:
            NotResolved: there are too many. RetriableError: ``storage_unavailable``.
        """
        io, version = table.io, writer_version(table.metadata)
        live = [
            m for m in listed if (m.has_added_files() or m.has_existing_files()) and is_needed(m)
        ]
        count = sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in live)
        files_max = budget.limits.files_max
        if count > files_max:
            raise NotResolved("files", f"{count} files are listed, and {files_max} is the limit")

        memory = ReadBudget()

        def read(manifest: ManifestFile) -> list[ManifestEntry]:
            budget.check_time()
            with memory.applied():
                return live_entries(manifest, io, version)

        out = cls(listed)
        with (
            storage_errors("reading manifests"),
            ThreadPoolExecutor(_READERS, thread_name_prefix="manifest-read") as readers,
        ):
            for manifest, entries in zip(live, readers.map(read, live), strict=True):
                is_data = manifest.content == ManifestContent.DATA
                (out.data if is_data else out.deletes).append(HeadManifest(manifest, entries))
        return out

    @property
    def data_files(self) -> Iterator[HeadFile]:
        """The data files."""
        return (HeadFile(m, place) for m in self.data for place in range(len(m.entries)))

    @property
    def delete_files(self) -> Iterator[HeadFile]:
        """The delete files."""
        return (HeadFile(m, place) for m in self.deletes for place in range(len(m.entries)))

    def has_all_data(self, spec_id: int) -> bool:
        """Return whether ``data`` has all data files of a partition spec."""
        read = {m.manifest.manifest_path for m in self.data}
        return all(
            m.manifest_path in read or not (m.has_added_files() or m.has_existing_files())
            for m in self.listed
            if m.content == ManifestContent.DATA and m.partition_spec_id == spec_id
        )

    def unchanged(self) -> tuple[ManifestFile, ...]:
        """Return the manifests without removed files."""
        changed = {m.manifest.manifest_path for m in (*self.data, *self.deletes) if m.removed}
        return tuple(m for m in self.listed if m.manifest_path not in changed)

    def rewritten(self, manifests: ManifestSet) -> list[ManifestFile]:
        """Write the manifests that lose files again, and return them."""
        return [
            manifests.rewritten(m.manifest, m.entries, m.removed)
            for m in (*self.data, *self.deletes)
            if m.removed
        ]
