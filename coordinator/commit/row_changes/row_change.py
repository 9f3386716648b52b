"""What one attempt adds to a table and removes from it, where rows are deleted.

Rules of this file:
- All new files and delete files have the sequence number of the snapshot: a delete of the round is
  resolved into rows, so the order of its steps needs no numbers.
- An announced file that is listed without being read is verified in the store: an announcement that
  is repeated may name a file that an earlier round has consumed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table.snapshots import UpdateMetrics

from connect.gateways.storage.object_store import storage_errors
from coordinator.commit.metadata.head_files import HeadFile, HeadFiles
from coordinator.commit.metadata.manifests import ManifestSet, NewFile
from coordinator.commit.metadata.prepared_manifests import AddedManifests
from coordinator.commit.row_changes.deletion_vectors import RowChangeMetrics
from coordinator.commit.row_changes.source_files import TableFiles, partition_of
from coordinator.row_deletes.limits import NotResolved
from coordinator.row_deletes.round_deletes import SourceFile


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """What one attempt adds and removes, as manifests.

    Attributes:
        added: manifests of the new files.
        existing: manifests of the head without removed files.
        changed: manifests that replace those with removed files.
        summary: snapshot properties.
    """

    added: AddedManifests
    existing: tuple[ManifestFile, ...]
    changed: tuple[ManifestFile, ...]
    summary: Mapping[str, str]


class NewSource(NamedTuple):
    """An announced data file, as the table lists it and as a source of deleted rows."""

    file: DataFile
    source: SourceFile


@dataclass(slots=True)
class RowChange:
    """What one attempt adds and removes, file by file.

    Attributes:
        files: of the table.
        new: the announced data files.
        head: files of the head.
        manifests: writes manifests.
        verified: announced files that are certainly in the store.
    """

    files: TableFiles
    new: Sequence[NewSource]
    head: HeadFiles
    manifests: ManifestSet
    verified: set[str]
    metrics: UpdateMetrics = field(default_factory=RowChangeMetrics)
    _data: list[NewFile] = field(default_factory=list)
    _deletes: list[NewFile] = field(default_factory=list)
    _partitions: set[Hashable] = field(default_factory=set)

    def add_announced(self, file: DataFile) -> None:
        """List an announced data file."""
        if file.file_path not in self.verified:
            self.files.verify(file.file_path)
            self.verified.add(file.file_path)
        self.add(file)

    def add(self, file: DataFile, sequence_number: int | None = None) -> None:
        """List a data file that was read or written; None is the snapshot's sequence number."""
        self._add(self._data, file, sequence_number)

    def add_vector(self, file: DataFile) -> None:
        """List a deletion vector; ``check_spec`` was called."""
        self._add(self._deletes, file)

    def remove(self, file: HeadFile) -> None:
        """Remove a file of the head.

        Raises:
            NotResolved: its manifest cannot be written.
        """
        self.check_spec(file.file)
        file.manifest.removed.add(file.place)
        self.metrics.remove_file(file.file)
        self._partitions.add(partition_of(file.file))

    def check_spec(self, file: DataFile) -> None:
        """Raise ``NotResolved`` where a manifest with a file's partition cannot be written."""
        if not self.manifests.is_mergeable(file.spec_id):
            raise NotResolved("partition_spec", "a column of a partition spec was dropped")

    @property
    def used(self) -> frozenset[str]:
        """Paths of the files that are added."""
        return frozenset(new.data_file.file_path for new in (*self._data, *self._deletes))

    def write(self, summary: Mapping[str, str]) -> RemovedRows:
        """Make the manifests.

        Raises:
            RetriableError: ``storage_unavailable``.
        """
        with storage_errors("reading manifests"):
            changed = self.head.rewritten(self.manifests)
            data = self.manifests.add(ManifestContent.DATA, self._data)
            deletes = self.manifests.add(ManifestContent.DELETES, self._deletes)
        added = AddedManifests(data, deletes, self.metrics, len(self._partitions))
        return RemovedRows(added, self.head.unchanged(), tuple(changed), summary)

    def _add(self, out: list[NewFile], file: DataFile, sequence_number: int | None = None) -> None:
        self.metrics.add_file(file)
        self._partitions.add(partition_of(file))
        out.append(NewFile(file, sequence_number))


class RowWriter(Protocol):
    """Removes rows in one way, over all attempts on one shape of a table."""

    def apply(self, change: RowChange) -> None:
        """Add the new files to a change, and remove the rows that the round deletes.

        Raises:
            NotResolved: a limit is reached, or the rows cannot be removed in this way.
            RetriableError: ``storage_unavailable``.
        """
        ...

    def count(self, labels: Mapping[str, str]) -> None:
        """Count the work, after the commit."""
        ...
