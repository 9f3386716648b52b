"""The rows that a table has deleted by position before a commit.

Rules of this file:
- A vector that cannot be checked is not used (``NotResolved``). Else rows could come back.
- A vector is read once in all attempts of a commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.manifest import DataFileContent
from pyroaring import BitMap64

from coordinator.commit.deletion_vectors import (
    VectorPlace,
    is_vector,
    may_reference,
    place_of,
    referenced_data_file,
)
from coordinator.commit.head_files import HeadFile, HeadFiles
from coordinator.commit.source_files import FilePartition, TableFiles, partition_of
from coordinator.row_deletes.limits import NotResolved, ResolveBudget
from coordinator.row_deletes.vector_format import vector_of

_READERS: Final = 8
_VECTOR_FORM: Final = "vector_form"


@dataclass(frozen=True, slots=True)
class FormerDeletes:
    """The deletes by position of a head.

    Attributes:
        vectors: by the path of their data file.
        positions: position delete files by partition.
    """

    vectors: Mapping[str, HeadFile]
    positions: Mapping[FilePartition, Sequence[HeadFile]]

    @classmethod
    def of(cls, head: HeadFiles) -> FormerDeletes:
        """Find them.

        Raises:
            NotResolved: a data file has two vectors, or one whose place is not known.
        """
        vectors: dict[str, HeadFile] = {}
        positions: dict[FilePartition, list[HeadFile]] = defaultdict(list)
        for each in head.delete_files:
            if is_vector(each.file):
                path = referenced_data_file(each.file)
                if path is None or path in vectors or place_of(each.file) is None:
                    raise NotResolved(_VECTOR_FORM, f"{path} has two vectors, or an incomplete one")
                vectors[path] = each
            elif each.file.content == DataFileContent.POSITION_DELETES:
                positions[partition_of(each.file)].append(each)
        return cls(vectors, positions)

    def positions_of(self, each: HeadFile) -> list[HeadFile]:
        """Return the position delete files that may mark rows of a data file."""
        number = each.entry.sequence_number or 0
        return [
            delete
            for delete in self.positions.get(partition_of(each.file), ())
            if (delete.entry.sequence_number or 0) >= number
            and may_reference(delete.file, each.file.file_path)
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


def place_in_file(vector: HeadFile) -> VectorPlace:
    """Return the place of a vector that ``FormerDeletes`` has."""
    place = place_of(vector.file)
    assert place is not None  # checked by FormerDeletes
    return place


def check_size(budget: ResolveBudget, size_bytes: int) -> None:
    """Raise ``NotResolved`` where vectors are too large for the memory."""
    if size_bytes > budget.limits.vector_bytes_max:
        raise NotResolved(
            "vectors",
            f"deletion vectors have {size_bytes} bytes, and {budget.limits.vector_bytes_max} is "
            "the limit",
        )
