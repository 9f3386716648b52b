"""Avro files of manifests and manifest lists, with schemas that are prepared once.

PyIceberg derives the writer and the text of the schema again for each file. In a commit of a few
files to one table that takes more time than the entries.

Source:
    PyIceberg 0.12.0 ``pyiceberg.avro.file.AvroOutputFile``, whose files these equal.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Self, TypeVar

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, CODEC_MAPPING_ICEBERG_TO_AVRO
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.resolver import construct_writer, resolve_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestFile,
    ManifestListWriter,
    ManifestListWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.typedef import StructProtocol, TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

D = TypeVar("D", bound=StructProtocol)

_DATA_FILE_ID = 2
_PARTITION_ID = 102
_EQUALITY_IDS_ID = 135
_EQUALITY_ID_ID = 136
_SCHEMA_KEY = "avro.schema"


@dataclass(frozen=True, slots=True)
class AvroForm:
    """What files of one schema share.

    Attributes:
        schema: of the file.
        name: of the records.
        text: the schema as JSON of Avro.
        writer: writes a record; it has no state.
    """

    schema: Schema
    name: str
    text: str
    writer: Writer

    @classmethod
    def of(cls, schema: Schema, records: Schema, name: str) -> AvroForm:
        """Prepare a schema; ``records`` is that of the values that are written."""
        text = json.dumps(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name))
        return cls(schema, name, text, resolve_writer(record_schema=records, file_schema=schema))


class PreparedAvroFile(AvroOutputFile[D]):
    """An Avro file with a schema that is prepared.

    Args:
        output_file: where it goes; the path is unique.
        form: its schema.
        metadata: of its header, with the codec.
    """

    def __init__(self, output_file: OutputFile, form: AvroForm, metadata: dict[str, str]) -> None:
        # not PyIceberg's: it would derive the writer
        self.output_file = output_file
        self.file_schema = form.schema
        self.schema_name = form.name
        self.sync_bytes = hashlib.sha256(output_file.location.encode()).digest()[:SYNC_SIZE]
        self.writer = form.writer
        self.metadata = metadata
        self._text = form.text

    def _write_header(self) -> None:
        named = self.metadata[AVRO_CODEC_KEY]
        codec = CODEC_MAPPING_ICEBERG_TO_AVRO.get(named, named)
        meta = {**self.metadata, _SCHEMA_KEY: self._text, AVRO_CODEC_KEY: codec}
        _header_writer().write(self.encoder, AvroFileHeader(MAGIC, meta, self.sync_bytes))


class PreparedListWriter(ManifestListWriterV2):
    """Writes a manifest list of format version 2, or of version 3 with ``assigning_row_ids``."""

    def assigning_row_ids(self, first_row_id: int) -> Self:
        """Make it a list of version 3, which PyIceberg 0.12.0 cannot write; return it.

        Args:
            first_row_id: of the snapshot.
        """
        self._format_version = 3
        self._meta |= {"format-version": "3", "first-row-id": str(first_row_id)}
        return self

    def __enter__(self) -> ManifestListWriter:
        """Begin the file."""
        form = _list_form(self._format_version)
        self._writer = PreparedAvroFile[ManifestFile](self._output_file, form, self._meta)
        self._writer.__enter__()
        return self


@lru_cache(maxsize=256)
def entry_form(partition_type: StructType, version: TableVersion) -> AvroForm:
    """Return the form of manifests of format version 2 or 3 as Java reads them.

    PyIceberg 0.12.0 declares ``equality_ids`` as a list of longs where the format says int, on
    which Spark fails, and leaves partition names as they are where Avro allows fewer characters.
    The encoding of both is the same, so only the schema in the file's header changes.
    """
    schema = _entry_schema(version, partition_type)
    return AvroForm.of(schema, schema, "manifest_entry")


def _entry_schema(version: TableVersion, partition_type: StructType) -> Schema:
    data_file = data_file_with_partition(format_version=version, partition_type=partition_type)
    schema = manifest_entry_schema_with_data_file(format_version=version, data_file=data_file)
    return Schema(*map(_corrected, schema.fields))


def _corrected(f: NestedField) -> NestedField:
    if f.field_id == _EQUALITY_IDS_ID:
        ids = ListType(_EQUALITY_ID_ID, IntegerType(), element_required=True)
        return f.model_copy(update={"field_type": ids})
    if isinstance(f.field_type, StructType):
        if f.field_id == _DATA_FILE_ID:
            fields = [_corrected(x) for x in f.field_type.fields]
        elif f.field_id == _PARTITION_ID:
            fields = [
                x.model_copy(update={"name": make_compatible_name(x.name)})
                for x in f.field_type.fields
            ]
        else:
            return f
        return f.model_copy(update={"field_type": StructType(*fields)})
    return f


@cache
def _list_form(version: TableVersion) -> AvroForm:
    schema = MANIFEST_LIST_FILE_SCHEMAS[version]
    return AvroForm.of(schema, schema, "manifest_file")


@cache
def _header_writer() -> Writer:
    return construct_writer(META_SCHEMA)
