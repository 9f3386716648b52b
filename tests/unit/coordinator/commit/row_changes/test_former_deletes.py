"""Vectors of a table that cannot be used: rows must not come back."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from connect.clock import SystemClock
from coordinator.commit.metadata.head_files import HeadFiles, HeadManifest
from coordinator.commit.row_changes.deletion_vectors import VectorPlace, vector_entry
from coordinator.commit.row_changes.former_deletes import (
    FormerDeletes,
    FormerVectors,
    place_in_file,
)
from coordinator.row_deletes.limits import NotResolved, ResolveBudget
from coordinator.row_deletes.vector_format import vector_bytes

DATA_FILE = DataFile.from_args(
    3,
    content=DataFileContent.DATA,
    file_path="a.parquet",
    file_format=FileFormat.PARQUET,
    partition=Record(),
    record_count=10,
    file_size_in_bytes=100,
)
DATA_FILE.spec_id = 0


def vector(offset: int, rows: int = 2) -> DataFile:
    """The entry of a vector of the data file."""
    return vector_entry(DATA_FILE, VectorPlace("v.puffin", offset, 50), 200, rows)


def head(*deletes: DataFile) -> HeadFiles:
    """A head with delete files."""
    entries = [ManifestEntry.from_args(data_file=each, sequence_number=1) for each in deletes]
    return HeadFiles([], deletes=[HeadManifest(cast("Any", None), entries)])


def of_version_2() -> DataFile:
    """A Puffin file that a table of version 2 cannot have."""
    out = DataFile.from_args(
        2,
        content=DataFileContent.POSITION_DELETES,
        file_path="v.puffin",
        file_format=FileFormat.PUFFIN,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=100,
        lower_bounds={2147483546: b"a.parquet"},
        upper_bounds={2147483546: b"a.parquet"},
    )
    out.spec_id = 0
    return out


@pytest.mark.parametrize(
    "deletes", [[vector(4), vector(54)], [of_version_2()]], ids=["two", "no place"]
)
def test_a_data_file_has_one_vector_with_a_place(deletes: list[DataFile]) -> None:
    """Else nothing is removed by position."""
    assert list(FormerDeletes.of(head(vector(4))).vectors) == ["a.parquet"]
    with pytest.raises(NotResolved) as caught:
        FormerDeletes.of(head(*deletes))
    assert caught.value.reason == "vector_form"


class OneBlob:
    """A store with one vector.

    Args:
        positions: of the vector.
    """

    def __init__(self, *positions: int) -> None:
        self._blob = vector_bytes(BitMap64(positions))
        self.reads = 0

    def read_part(self, *_: object) -> bytes:
        """Return the vector."""
        self.reads += 1
        return self._blob


def test_a_vector_is_read_once_and_has_as_many_rows_as_its_entry() -> None:
    """Another number means that it is not the vector of the entry."""
    vectors = FormerVectors(ResolveBudget(SystemClock(), 0))
    [entry] = head(vector(4)).delete_files
    files: Any = OneBlob(3, 5)
    for _ in range(2):
        assert vectors.of(files, [entry])[place_in_file(entry)] == BitMap64([3, 5])
    assert files.reads == 1
    wrong: Any = OneBlob(3, 5, 7)
    with pytest.raises(NotResolved) as caught:
        FormerVectors(vectors.budget).of(wrong, [entry])
    assert caught.value.reason == "vector_form"
