"""Removes rows by deletion vectors, in tables of format version 3.

Rules of this file:
- A data file has one vector. A new vector holds the rows of the former one, which is removed.
- Position delete files of a file without a vector are merged into its first vector, because readers
  ignore them from then on. They are removed only if they are of this file alone.
- A data file whose rows are all deleted is removed, with its vector. An announced one is not added.
- The vectors of a commit are in one Puffin file. While they are the same, attempts share it.

Source:
    Iceberg specification, "Deletion Vectors"; Iceberg 1.12.0 ``BaseDVFileWriter``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import NamedTuple

from pyiceberg.manifest import DataFile
from pyroaring import BitMap64

from connect.metrics import process_metrics
from coordinator.commit.metadata.head_files import HeadFile
from coordinator.commit.row_changes.deletion_vectors import (
    VectorPlace,
    referenced_data_file,
    vector_entry,
)
from coordinator.commit.row_changes.former_deletes import (
    FormerDeletes,
    FormerPositions,
    FormerVectors,
    check_size,
    place_in_file,
)
from coordinator.commit.row_changes.row_change import RowChange
from coordinator.commit.row_changes.source_files import TableFiles
from coordinator.row_deletes.deleted_keys import IN_TABLE
from coordinator.row_deletes.limits import ResolveBudget
from coordinator.row_deletes.row_positions import RowPositions
from coordinator.row_deletes.vector_format import puffin_file, vector_bytes


class _Vector(NamedTuple):
    """A data file and its deleted rows."""

    file: DataFile
    positions: BitMap64


@dataclass(frozen=True, slots=True)
class _Written:
    """A Puffin file, and what it holds."""

    blobs: Mapping[str, bytes]
    path: str
    size_bytes: int
    offsets: tuple[int, ...]


@dataclass(slots=True)
class VectorWriter:
    """The deletion vectors of one round.

    Attributes:
        positions: of the rows that the round deletes.
        vectors: of the table.
        former: position delete files of the table.
        created: gets the paths of Puffin files.
    """

    positions: RowPositions
    vectors: FormerVectors
    former: FormerPositions
    created: list[str]
    _written: _Written | None = None

    @property
    def _budget(self) -> ResolveBudget:
        return self.positions.deletes.budget

    def apply(self, change: RowChange) -> None:
        """Mark the deleted rows; see ``RowWriter``."""
        files = change.files
        old = [(each, files.source(each.file, IN_TABLE)) for each in change.head.data_files]
        deleted = self.positions.of(
            [*(new.source for new in change.new), *(source for _, source in old)]
        )
        vectors = []
        for file, source in change.new:
            positions = deleted.get(source.path)
            if positions is None:
                change.add_announced(file)
            elif len(positions) < file.record_count:
                change.add(file)
                vectors.append(_Vector(file, positions))
        marked = [(each, deleted[source.path]) for each, source in old if source.path in deleted]
        vectors += self._merged(change, marked)
        if vectors:
            self._add(change, vectors)

    def count(self, labels: Mapping[str, str]) -> None:
        """Count the vectors."""
        vectors = 0 if self._written is None else len(self._written.blobs)
        process_metrics.counter("deletion_vectors", **labels).inc(vectors)
        process_metrics.counter("deletion_vector_read_bytes", **labels).inc(
            self.positions.bytes_read
        )

    def _merged(
        self, change: RowChange, marked: Sequence[tuple[HeadFile, BitMap64]]
    ) -> list[_Vector]:
        """Return the new vectors of files of the table; remove what they replace."""
        if not marked:
            return []
        former = FormerDeletes.of(change.head)
        paths = [each.file.file_path for each, _ in marked]
        replaced_vectors = [former.vectors[path] for path in paths if path in former.vectors]
        self.vectors.of(change.files, replaced_vectors)
        out = []
        for each, positions in marked:
            before, replaced = self._before(change.files, former, each)
            if positions.issubset(before):
                continue
            for file in replaced:
                change.remove(file)
            both = before | positions
            if len(both) < each.file.record_count:
                out.append(_Vector(each.file, both))
            else:
                change.remove(each)
        return out

    def _before(
        self, files: TableFiles, former: FormerDeletes, each: HeadFile
    ) -> tuple[BitMap64, list[HeadFile]]:
        """Return the rows that are deleted by position already, and what a vector replaces."""
        vector = former.vectors.get(each.file.file_path)
        if vector is not None:
            return self.vectors.of(files, [vector])[place_in_file(vector)], [vector]
        deletes = former.positions_of(each)
        positions = self.former.of_file(files, deletes, each.file.file_path)
        return positions, [d for d in deletes if referenced_data_file(d.file) is not None]

    def _add(self, change: RowChange, vectors: Sequence[_Vector]) -> None:
        """Write the vectors, and list them."""
        blobs: dict[str, bytes] = {}
        for vector in vectors:
            self._budget.check_time()
            blobs[vector.file.file_path] = vector_bytes(vector.positions)
        check_size(self._budget, sum(map(len, blobs.values())))
        for vector in vectors:
            change.check_spec(vector.file)
        if self._written is None or self._written.blobs != blobs:
            self._written = self._puffin(change, vectors, blobs)
        written = self._written
        for vector, offset in zip(vectors, written.offsets, strict=True):
            size = len(blobs[vector.file.file_path])
            place = VectorPlace(written.path, offset, size)
            entry = vector_entry(vector.file, place, written.size_bytes, len(vector.positions))
            change.add_vector(entry)

    def _puffin(
        self, change: RowChange, vectors: Sequence[_Vector], blobs: Mapping[str, bytes]
    ) -> _Written:
        puffin = puffin_file(
            [(v.file.file_path, blobs[v.file.file_path], len(v.positions)) for v in vectors],
            {"created-by": _created_by()},
        )
        path = change.files.new_vector_path()
        self.created.append(path)
        change.files.write(path, puffin.content)
        return _Written(blobs, path, len(puffin.content), puffin.offsets)


@cache
def _created_by() -> str:
    return f"Icefloe {version('icefloe')}"
