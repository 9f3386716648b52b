"""Deletion vectors as entries of delete manifests.

Rules of this file:
- Fields of format version 3, which PyIceberg 0.12 has no names for, are read by their place.
- Counters of a snapshot are those of Iceberg's Java library: a vector counts as ``added-dvs``, not
  as ``added-position-delete-files``, with the size of its blob.

Source:
    Iceberg specification, "Deletion Vectors"; Iceberg 1.12.0 ``SnapshotSummary``,
    ``BaseDVFileWriter``, ``ContentFileUtil``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.snapshots import UpdateMetrics, set_when_positive

_REFERENCED_DATA_FILE: Final = 17  # places among the fields of a ``DataFile`` of version 3
_CONTENT_OFFSET: Final = 18
_CONTENT_SIZE: Final = 19
_PATH_FIELD_ID: Final = 2_147_483_546
_MANIFEST_VERSION: Final = 3


class VectorPlace(NamedTuple):
    """Where a vector is."""

    path: str
    offset: int
    size_bytes: int


def is_vector(file: DataFile) -> bool:
    """Return whether an entry is a deletion vector."""
    return (
        file.content == DataFileContent.POSITION_DELETES and file.file_format == FileFormat.PUFFIN
    )


def place_of(file: DataFile) -> VectorPlace | None:
    """Return where the vector of an entry is; None if the entry does not say."""
    if len(file) <= _CONTENT_SIZE:  # of version 2, which has no vectors
        return None
    offset, size_bytes = file[_CONTENT_OFFSET], file[_CONTENT_SIZE]
    return None if None in (offset, size_bytes) else VectorPlace(file.file_path, offset, size_bytes)


def referenced_data_file(file: DataFile) -> str | None:
    """Return the data file whose rows an entry with position deletes marks; None for several."""
    has_it = len(file) > _REFERENCED_DATA_FILE
    named: str | None = file[_REFERENCED_DATA_FILE] if has_it else None
    if named is not None:
        return named
    low = (file.lower_bounds or {}).get(_PATH_FIELD_ID)
    high = (file.upper_bounds or {}).get(_PATH_FIELD_ID)
    return low.decode() if low is not None and low == high else None


def may_reference(file: DataFile, path: str) -> bool:
    """Return whether position deletes may mark rows of a data file, by their bounds."""
    named = referenced_data_file(file)
    if named is not None:
        return named == path
    low = (file.lower_bounds or {}).get(_PATH_FIELD_ID)
    high = (file.upper_bounds or {}).get(_PATH_FIELD_ID)
    raw = path.encode()
    return (low is None or low <= raw) and (high is None or raw <= high)


def vector_entry(
    data_file: DataFile, place: VectorPlace, file_size_bytes: int, cardinality: int
) -> DataFile:
    """Return the entry of a vector.

    Args:
        data_file: whose rows it marks.
        place: of the vector.
        file_size_bytes: of its Puffin file.
        cardinality: number of rows.
    """
    out = DataFile.from_args(
        _MANIFEST_VERSION,
        content=DataFileContent.POSITION_DELETES,
        file_path=place.path,
        file_format=FileFormat.PUFFIN,
        partition=data_file.partition,
        record_count=cardinality,
        file_size_in_bytes=file_size_bytes,
        referenced_data_file=data_file.file_path,
        content_offset=place.offset,
        content_size_in_bytes=place.size_bytes,
    )
    out.spec_id = data_file.spec_id
    return out


class RowChangeMetrics(UpdateMetrics):
    """Counters of a snapshot that may add and remove deletion vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.added_dvs = 0
        self.removed_dvs = 0

    def add_file(self, data_file: DataFile) -> None:
        """Count an added file."""
        if not is_vector(data_file):
            super().add_file(data_file)
            return
        self.added_file_size += _size_bytes(data_file)
        self.added_delete_files += 1
        self.added_dvs += 1
        self.added_pos_deletes += data_file.record_count

    def remove_file(self, data_file: DataFile) -> None:
        """Count a removed file."""
        if not is_vector(data_file):
            super().remove_file(data_file)
            return
        self.removed_file_size += _size_bytes(data_file)
        self.removed_delete_files += 1
        self.removed_dvs += 1
        self.removed_pos_deletes += data_file.record_count

    def to_dict(self) -> dict[str, str]:
        """Return the counters as snapshot properties."""
        properties = super().to_dict()
        set_when_positive(properties, self.added_dvs, "added-dvs")
        set_when_positive(properties, self.removed_dvs, "removed-dvs")
        return properties


def _size_bytes(vector: DataFile) -> int:
    place = place_of(vector)
    return vector.file_size_in_bytes if place is None else place.size_bytes
