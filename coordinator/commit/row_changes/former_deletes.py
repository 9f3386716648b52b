"""The rows that a table has deleted by position before a commit.

Rules of this file:
- A vector that cannot be checked is not used (``NotResolved``). Else rows could come back.
- A vector or a position delete file is read once in all attempts of a commit.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyroaring import BitMap64

from connect.gateways.storage.object_store import storage_errors
from coordinator.commit.metadata.head_files import HeadFile, HeadFiles
from coordinator.commit.row_changes.deletion_vectors import (
    VectorPlace,
    is_vector,
    may_reference,
    place_of,
    referenced_data_file,
)
from coordinator.commit.row_changes.source_files import FilePartition, TableFiles, partition_of
from coordinator.row_deletes.limits import NotResolved, ResolveBudget
from coordinator.row_deletes.parquet_rows import open_parquet
from coordinator.row_deletes.row_positions import POSITION_DELETES, positions_by_path
from coordinator.row_deletes.vector_format import vector_of

_READERS: Final = 8
_VECTOR_FORM: Final = "vector_form"


@dataclass(frozen=True, slots=True)
class FormerDeletes:
    """The deletes by position of a head.

    Attributes:
        vectors: by the path of their data file.
        of_one_file: position delete files of one data file, by its path.
        of_several_files: other position delete files, by partition.
    """

    vectors: Mapping[str, HeadFile]
    of_one_file: Mapping[str, Sequence[HeadFile]]
    of_several_files: Mapping[FilePartition, Sequence[HeadFile]]

    @classmethod
    def of(cls, head: HeadFiles) -> FormerDeletes:
        """Find them.

        Raises:
            NotResolved: a data file has two vectors, or one whose place is not known.
        """
        vectors: dict[str, HeadFile] = {}
        of_one_file: dict[str, list[HeadFile]] = defaultdict(list)
        of_several_files: dict[FilePartition, list[HeadFile]] = defaultdict(list)
        for each in head.delete_files:
            if each.file.content != DataFileContent.POSITION_DELETES:
                continue
            path = referenced_data_file(each.file)
            if is_vector(each.file):
                if path is None or path in vectors or place_of(each.file) is None:
                    raise NotResolved(_VECTOR_FORM, f"{path} has two vectors, or an incomplete one")
                vectors[path] = each
            elif path is not None:
                of_one_file[path].append(each)
            else:
                of_several_files[_partition(each.file)].append(each)
        return cls(vectors, of_one_file, of_several_files)

    def positions_of(self, each: HeadFile) -> list[HeadFile]:
        """Return the position delete files that may mark rows of a data file."""
        path, number = each.file.file_path, each.entry.sequence_number or 0
        deletes = (
            *self.of_one_file.get(path, ()),
            *self.of_several_files.get(_partition(each.file), ()),
        )
        return [
            delete
            for delete in deletes
            if (delete.entry.sequence_number or 0) >= number and may_reference(delete.file, path)
        ]


@dataclass(slots=True)
class FormerVectors:
    """The vectors of a table that one commit reads.

    Attributes:
        budget: limits.
    """

    budget: ResolveBudget
    _known: dict[VectorPlace, BitMap64] = field(default_factory=dict)

    def of(self, files: TableFiles, vectors: Iterable[HeadFile]) -> dict[VectorPlace, BitMap64]:
        """Return the rows that vectors mark, by their place; those of other calls, too.

        Raises:
            NotResolved: they are too large, or one is not right.
            RetriableError: ``storage_unavailable``.
        """
        new = [vector for vector in vectors if place_in_file(vector) not in self._known]

        def read(vector: HeadFile) -> BitMap64:
            self.budget.check_time()
            try:
                positions = vector_of(files.read_part(*place_in_file(vector)))
            except ValueError as error:
                raise NotResolved(_VECTOR_FORM, f"{vector.file.file_path}: {error}") from error
            if len(positions) != vector.file.record_count:
                raise NotResolved(
                    _VECTOR_FORM, f"{vector.file.file_path} has another number of rows"
                )
            return positions

        if new:
            check_size(self.budget, sum(place_in_file(vector).size_bytes for vector in new))
            with ThreadPoolExecutor(_READERS, thread_name_prefix="vector-read") as readers:
                for vector, positions in zip(new, readers.map(read, new), strict=True):
                    self._known[place_in_file(vector)] = positions
        return self._known


@dataclass(slots=True)
class FormerPositions:
    """The position delete files of a table that one commit reads.

    Attributes:
        budget: limits.
    """

    budget: ResolveBudget
    _known: dict[str, Mapping[str, BitMap64]] = field(default_factory=dict)
    _bytes: int = 0

    def of(
        self, files: TableFiles, deletes: Iterable[HeadFile]
    ) -> dict[str, Mapping[str, BitMap64]]:
        """Return the rows that position delete files mark, by data file, by the delete file.

        Raises:
            NotResolved: they are too large, or one is no plain Parquet file.
            RetriableError: ``storage_unavailable``.
        """
        new = {
            delete.file.file_path: delete.file
            for delete in deletes
            if delete.file.file_path not in self._known
        }
        for path, file in new.items():
            if file.file_format != FileFormat.PARQUET or file.key_metadata:
                raise NotResolved(POSITION_DELETES, f"{path} is no plain Parquet file")
        size = self._bytes + sum(file.file_size_in_bytes for file in new.values())
        self.budget.check_bytes(size)
        check_size(self.budget, size)

        def read(path: str) -> Mapping[str, BitMap64]:
            self.budget.check_time()
            with storage_errors(f"reading {path}"), files.open_input(path) as stream:
                return positions_by_path(open_parquet(stream), self.budget.check_time)

        if new:
            with ThreadPoolExecutor(_READERS, thread_name_prefix="position-read") as readers:
                self._known.update(zip(new, readers.map(read, new), strict=True))
            self._bytes = size
        return self._known

    def of_file(self, files: TableFiles, deletes: Sequence[HeadFile], path: str) -> BitMap64:
        """Return the rows of a data file that position delete files mark.

        Raises:
            NotResolved, RetriableError: as ``of``.
        """
        known = self.of(files, deletes)
        parts = (known[delete.file.file_path].get(path, BitMap64()) for delete in deletes)
        return BitMap64.union(BitMap64(), *parts)


def _partition(file: DataFile) -> FilePartition:
    """Return the partition of a file in a form in which a NaN equals another."""
    spec_id, values = partition_of(file)
    return FilePartition(
        spec_id,
        tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in values),
    )


def place_in_file(vector: HeadFile) -> VectorPlace:
    """Return the place of a vector that ``FormerDeletes`` has."""
    place = place_of(vector.file)
    assert place is not None  # checked by FormerDeletes
    return place


def check_size(budget: ResolveBudget, size_bytes: int) -> None:
    """Raise ``NotResolved`` where vectors or position deletes are too large for the memory."""
    if size_bytes > budget.limits.vector_bytes_max:
        raise NotResolved(
            "vectors",
            f"deletes by position have {size_bytes} bytes, and {budget.limits.vector_bytes_max} is "
            "the limit",
        )
