"""Metadata of format version 3, which PyIceberg 0.12 reads and does not write.

Clients of SQL, Hive, Glue and DynamoDB catalogs write the metadata files themselves.
"""

from __future__ import annotations

from typing import cast

from pyiceberg.io import FileIO
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import UTF8, IcebergBaseModel

from connect.gateways.catalog.metadata_files import WithHistoryText


def write_metadata(metadata: TableMetadata, io: FileIO, path: str) -> None:
    """Write a metadata file of any version.

    The store is not asked whether the file exists: its name has a random UUID, and the question is
    two requests to an object store.
    """
    if isinstance(metadata, WithHistoryText):
        with io.new_output(path).create(overwrite=True) as file:
            for piece in metadata.pieces():
                file.write(cast(bytes, piece))  # any buffer
        return
    if not isinstance(metadata, TableMetadataV3):
        ToOutputFile.table_metadata(metadata, io.new_output(path), overwrite=True)
        return
    # PyIceberg's own method of this class raises NotImplementedError
    text = IcebergBaseModel.model_dump_json(with_next_row_id(metadata))
    with io.new_output(path).create(overwrite=True) as file:
        file.write(text.encode(UTF8))


def with_next_row_id(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata with the next row id, which PyIceberg does not give to a new table."""
    if isinstance(metadata, TableMetadataV3) and metadata.next_row_id is None:
        return metadata.model_copy(update={"next_row_id": 0})
    return metadata
