"""Avro files of manifests and manifest lists: prepared once, encoded in memory, written at once.

PyIceberg derives the writer and the texts of the header again for each file. It writes each byte of
a number to the store's client. In a commit of a few files to one table that takes more time than
the entries.

Rules of this file:
- A file is opened when its content is complete. An error before that leaves no file.
- Its size is that of its content: the store is asked once, to compare.

Source:
    PyIceberg 0.12.0 ``pyiceberg.avro.file.AvroOutputFile``, whose files these equal.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache, lru_cache
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, CODEC_MAPPING_ICEBERG_TO_AVRO
from pyiceberg.avro.encoder import BinaryEncoder
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
T = TypeVar("T")

_DATA_FILE_ID = 2
_PARTITION_ID = 102
_EQUALITY_IDS_ID = 135
_EQUALITY_ID_ID = 136
_SCHEMA_KEY = "avro.schema"
_BITS: Final = 0x7F
_MORE: Final = 0x80
_SMALL_MAX: Final = 1_024
_LISTED_MAX: Final = 4_096  # manifests that stay encoded, with about 2 KB each


@dataclass(frozen=True, slots=True, eq=False)
class Same(Generic[T]):
    """An object as a key by its identity: to compare schemas takes longer than to use them."""

    it: T

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.it is self.it


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


class MemoryEncoder(BinaryEncoder):
    """Encodes to memory.

    Attributes:
        content: what was encoded.
    """

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, b: bytes) -> None:
        """Append bytes."""
        self.content += b

    def write_int(self, integer: int) -> None:
        """Append a number in Avro's form, which has seven bits in each byte."""
        content = self.content
        if 0 <= integer < _SMALL_MAX:  # most numbers are field ids, counts and lengths
            content += _SMALL[integer]
            return
        left = (integer << 1) ^ (integer >> 63)
        while left > _BITS:
            content.append((left & _BITS) | _MORE)
            left >>= 7
        content.append(left)

    def write_bytes(self, b: bytes) -> None:
        """Append bytes after their number."""
        self.write_int(len(b))
        self.content += b


def _encoded(integer: int) -> bytes:
    left = integer << 1
    return bytes([left]) if left <= _BITS else bytes([(left & _BITS) | _MORE, left >> 7])


_SMALL: Final = [_encoded(integer) for integer in range(_SMALL_MAX)]


class WrittenFile:
    """A file that was written, with the size of its content.

    Args:
        location: of the file.
        size_bytes: of its content.
    """

    def __init__(self, location: str, size_bytes: int) -> None:
        self.location = location
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        """The size in bytes."""
        return self._size_bytes


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
        self.encoder = self._memory = MemoryEncoder()

    def __enter__(self) -> Self:
        """Begin the content; the file is not opened."""
        self._write_header()
        return self

    def __exit__(
        self,
        exctype: type[BaseException] | None,
        excinst: BaseException | None,
        exctb: TracebackType | None,
    ) -> None:
        """Write the file, unless an error has happened."""
        if exctype is None:
            with self.output_file.create(overwrite=True) as stream:
                stream.write(bytes(self._memory.content))

    def write_block(self, objects: list[D]) -> None:
        """Add a block of records."""
        block = MemoryEncoder()
        for each in objects:
            self.writer.write(block, each)
        self.write_encoded(bytes(block.content), len(objects))

    def write_encoded(self, content: bytes, count: int) -> None:
        """Add a block of records that are encoded already.

        Args:
            content: the records, one after the other.
            count: of the records.
        """
        if codec := self.compression_codec():
            content, _ = codec.compress(content)
        self._memory.write_int(count)
        self._memory.write_bytes(content)
        self._memory.write(self.sync_bytes)

    def tell(self) -> int:
        """Size of the content in bytes."""
        return len(self._memory.content)

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
        self._file = PreparedAvroFile[ManifestFile](self._output_file, form, self._meta)
        self._writer = self._file
        self._writer.__enter__()
        return self

    def add_manifests(self, manifest_files: list[ManifestFile]) -> ManifestListWriter:
        """Add a block of manifests with all their numbers; known ones are not encoded again.

        Args:
            manifest_files: must never change, for they are remembered by their identity.
        """
        version = self._format_version
        encoded = [_encoded_manifest(Same(manifest), version) for manifest in manifest_files]
        self._file.write_encoded(b"".join(encoded), len(encoded))
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


@lru_cache(maxsize=_LISTED_MAX)
def _encoded_manifest(manifest: Same[ManifestFile], version: TableVersion) -> bytes:
    """The record of a manifest in a list: most of a list is in the lists before, too."""
    encoder = MemoryEncoder()
    _list_form(version).writer.write(encoder, manifest.it)
    return bytes(encoder.content)


@cache
def _header_writer() -> Writer:
    return construct_writer(META_SCHEMA)
