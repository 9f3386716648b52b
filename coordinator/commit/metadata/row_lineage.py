"""Row ids of tables of format version 3: read from manifests, assigned to manifests and snapshots.

Rules of this file:
- A snapshot begins with the table's next row id. Each data manifest of its list that has no first
  row id yet gets the next one, and takes as many ids as it has rows.
- New manifests and new entries have no first row id: they inherit it from the list. So a manifest
  is used again by any attempt, and each attempt assigns ids of its own.
- An entry that a merge copies keeps the id that it inherited. A data file never changes its ids.
- PyIceberg 0.12 reads manifests and lists without the fields of version 3. This module keeps them.

Source:
    Iceberg's table specification, "Row Lineage"; Iceberg 1.12.0 ``ManifestListWriter.V3Writer``,
    ``ManifestReader.idAssigner``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import TableVersion

from connect.gateways.storage.avro_limits import CheckedAvroFile
from coordinator.row_deletes.row_state import RowLineage

_LINEAGE_VERSION: Final = 3
_MANIFEST_FIRST_ROW_ID: Final = 15  # place among the fields of a ``ManifestFile``
_FILE_FIRST_ROW_ID: Final = 16  # place among the fields of a ``DataFile``
_FILE_FIELDS: Final = 20


def writer_version(metadata: TableMetadata) -> TableVersion:
    """Return the format version that manifests of a table are written in: 2 or 3."""
    return 3 if has_row_lineage(metadata) else 2


def has_row_lineage(metadata: TableMetadata) -> bool:
    """Return whether snapshots of the table assign row ids."""
    return metadata.format_version >= _LINEAGE_VERSION


def next_row_id(metadata: TableMetadata) -> int:
    """Return the first row id of the table's next snapshot; 0 where none was assigned."""
    return getattr(metadata, "next_row_id", None) or 0


def listed_manifests(table: Table, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """Return the manifests of a snapshot, with their first row ids where the table has some."""
    if not has_row_lineage(table.metadata):
        return tuple(snapshot.manifests(table.io))
    with CheckedAvroFile[ManifestFile](
        table.io.new_input(snapshot.manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[_LINEAGE_VERSION],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return tuple(map(_whole_manifest, reader))


def live_entries(manifest: ManifestFile, io: FileIO, version: TableVersion) -> list[ManifestEntry]:
    """Return the entries of a manifest that are not deleted.

    Args:
        manifest: as its list names it.
        io: reads it.
        version: ``writer_version`` of the table; from 3 on files have their first row ids.
    """
    if version < _LINEAGE_VERSION:
        return manifest.fetch_manifest_entry(io)
    with CheckedAvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[_LINEAGE_VERSION],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        entries = [e for e in reader if e.status != ManifestEntryStatus.DELETED]
    row_id = first_row_id(manifest)
    for entry in entries:
        file = entry.data_file
        if len(file) < _FILE_FIELDS:  # of an older version
            file = entry.data_file = DataFile(*_values(file, _FILE_FIELDS))
        _inherit(entry, manifest)
        if manifest.content != ManifestContent.DATA or row_id is None:
            file[_FILE_FIRST_ROW_ID] = None
        elif file[_FILE_FIRST_ROW_ID] is None:
            file[_FILE_FIRST_ROW_ID] = row_id
            row_id += file.record_count
    return entries


def first_row_id(manifest: ManifestFile) -> int | None:
    """Return the first row id that a list assigned to a manifest; None if it assigned none."""
    has_all = len(manifest) > _MANIFEST_FIRST_ROW_ID
    row_id: int | None = manifest[_MANIFEST_FIRST_ROW_ID] if has_all else None
    return row_id


def lineage_of(entry: ManifestEntry) -> RowLineage:
    """Return what the rows of a data file inherit, by an entry of ``live_entries``."""
    first = entry.data_file[_FILE_FIRST_ROW_ID]
    return RowLineage(first, entry.sequence_number or 0)


def with_row_ids(
    manifests: Sequence[ManifestFile], start: int
) -> tuple[tuple[ManifestFile, ...], int]:
    """Assign first row ids to the data manifests that have none.

    Args:
        manifests: of the list, in its order.
        start: the snapshot's first row id.

    Returns:
        The manifests as the list names them, and the table's next row id.
    """
    out = []
    row_id = start
    for manifest in manifests:
        if manifest.content == ManifestContent.DATA and first_row_id(manifest) is None:
            assigned = _whole_manifest(manifest)
            assigned[_MANIFEST_FIRST_ROW_ID] = row_id
            row_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
            out.append(assigned)
        else:
            out.append(_with_all_fields(manifest))
    return tuple(out), row_id


def _with_all_fields(manifest: ManifestFile) -> ManifestFile:
    """The manifest itself if it has them, so that it is known to be the same."""
    has_all = len(manifest) > _MANIFEST_FIRST_ROW_ID
    return manifest if has_all else _whole_manifest(manifest)


def copy_of(manifest: ManifestFile) -> ManifestFile:
    """Return a manifest with values of its own."""
    return ManifestFile(*_values(manifest, 0))


def _whole_manifest(manifest: ManifestFile) -> ManifestFile:
    return ManifestFile(*_values(manifest, _MANIFEST_FIRST_ROW_ID + 1))


def _values(record: DataFile | ManifestFile, fields: int) -> list[Any]:
    """Return the values of a record, and None for fields that its version does not have."""
    values = [record[at] for at in range(len(record))]
    return values + [None] * (fields - len(values))


def _inherit(entry: ManifestEntry, manifest: ManifestFile) -> None:
    """Fill in what an entry inherits from its manifest, as PyIceberg does."""
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    if manifest.sequence_number == 0 or entry.status == ManifestEntryStatus.ADDED:
        if entry.sequence_number is None:
            entry.sequence_number = manifest.sequence_number
        if entry.file_sequence_number is None:
            entry.file_sequence_number = manifest.sequence_number
    entry.data_file.spec_id = manifest.partition_spec_id
