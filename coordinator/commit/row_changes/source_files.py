"""Iceberg data files as sources of deleted rows, and what is written for them.

Rules of this file:
- Bounds and partitions exclude a file, or a manifest, only if it certainly has none of the keys.
- A column is found by its field id, or by the table's name mapping.

Source:
    Iceberg specification, "Scan Planning", "Column Projection".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connect.clock import Clock
from connect.gateways.catalog import table_properties
from connect.gateways.storage.object_store import storage_errors, verify_written
from connect.model.partition_text import PartitionFolder, partition_folder
from coordinator.commit.metadata.row_lineage import writer_version
from coordinator.commit.row_changes.copied_columns import metrics_of, with_field_ids
from coordinator.commit.rules.announced_files import missing_file, verify_present
from coordinator.row_deletes.deleted_keys import DeletedKeys, KeyResult, KnownValues
from coordinator.row_deletes.file_copies import FileCopy
from coordinator.row_deletes.limits import FORM, NotResolved
from coordinator.row_deletes.parquet_rows import KeyColumns, storage_type
from coordinator.row_deletes.round_deletes import (
    EVERYWHERE,
    DeleteFile,
    RoundDeletes,
    SourceFile,
)

_WHOLE: Final = (IntegerType, LongType, DateType, TimeType, TimestampType, TimestamptzType)
_COMPARED: Final = (*_WHOLE, StringType)
"""Types of partitions whose bounds in manifest lists are compared with keys."""
_CERTAIN: Final = (
    IdentityTransform,
    BucketTransform,
    TruncateTransform,
    YearTransform,
    MonthTransform,
    DayTransform,
    HourTransform,
)
"""Transforms whose results for a key are known."""
_INSTANT: Final = (TimestampType, TimestamptzType)
_INSTANT_BYTES: Final = 8
_LEAST: Final = (-(2**31), -(2**63))
_FIELD_ID: Final = b"PARQUET:field_id"


class FilePartition(NamedTuple):
    """A partition of a spec, as the reach of deletes."""

    spec_id: int
    values: tuple[Any, ...]


class TableFiles:
    """The files of a table.

    Args:
        table: as it was loaded.
        announced: paths of the round.
        clock: names new files.
    """

    def __init__(self, table: Table, announced: frozenset[str], clock: Clock) -> None:
        self._table = table
        self._specs = table.specs()
        self._schema = table.schema()
        self._announced = announced
        self._clock = clock
        self._version = writer_version(table.metadata)
        self._places = table_properties.location_provider(table.location(), table.properties)

    def source(self, data_file: DataFile, step: int) -> SourceFile:
        """A data file as a source."""
        spec = self._specs[data_file.spec_id]
        return SourceFile(
            data_file.file_path,
            data_file.file_size_in_bytes,
            partition_of(data_file),
            step,
            self.names_of,
            _constants(spec, data_file),
            lambda columns, keys: self._may_have(data_file, spec, columns, keys),
            data_file.column_sizes or {},
            with_ids=self.with_ids,
        )

    def may_list(self, manifest: ManifestFile, deletes: RoundDeletes) -> bool:
        """Return whether a manifest may list files with deleted rows, by its partitions."""
        spec = self._specs.get(manifest.partition_spec_id)
        if spec is None or len(manifest.partitions or ()) != len(spec.fields):
            return True
        return any(
            self._may_list(manifest, spec, columns, keys)
            for reach, of_reach in deletes.keys().items()
            if not isinstance(reach, FilePartition) or reach.spec_id == spec.spec_id
            for columns, keys in of_reach
        )

    def _may_list(
        self,
        manifest: ManifestFile,
        spec: PartitionSpec,
        columns: KeyColumns,
        keys: DeletedKeys,
    ) -> bool:
        for part, summary in zip(spec.fields, manifest.partitions or (), strict=True):
            if part.source_id not in columns.field_ids:
                continue
            at = columns.field_ids.index(part.source_id)
            kind = self._key_field(part.source_id).field_type
            low, high = summary.lower_bound, summary.upper_bound
            known = KnownValues()
            if isinstance(result := part.transform.result_type(kind), _COMPARED):
                has_null = summary.contains_null
                is_null = has_null and low is None and high is None
                known = KnownValues(_bound(result, low), _bound(result, high), has_null, is_null)
            if not _may_be_in(keys, at, known, part, kind):
                return False
        return True

    def deletes(self, data_file: DataFile, step: int) -> DeleteFile:
        """A delete file.

        Raises:
            NotResolved: its deletes are not by key.
        """
        if data_file.content != DataFileContent.EQUALITY_DELETES or not data_file.equality_ids:
            raise NotResolved("position_deletes", "the round has position deletes")
        spec = self._specs[data_file.spec_id]
        fields = [self._key_field(field_id) for field_id in data_file.equality_ids]
        kinds = tuple(storage_type(schema_to_pyarrow(f.field_type)) for f in fields)
        is_global = all(isinstance(f.transform, VoidTransform) for f in spec.fields)
        return DeleteFile(
            data_file.file_path,
            data_file.record_count,
            KeyColumns(tuple(f.field_id for f in fields), kinds),
            EVERYWHERE if is_global else partition_of(data_file),
            step,
        )

    def names_of(self, schema: pa.Schema) -> Mapping[int, str]:
        """Return the name of each top-level column of a file by its field id."""
        ids = {
            int(f.metadata[_FIELD_ID]): f.name for f in schema if _FIELD_ID in (f.metadata or {})
        }
        if ids:
            return ids
        mapping = self._mapping()
        names = set(schema.names)
        return {
            mapped.field_id: name
            for mapped in mapping.root
            for name in mapped.names
            if name in names and mapped.field_id is not None
        }

    def with_ids(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of a file without field ids, with those of the name mapping."""
        return with_field_ids(schema, self._mapping())

    def _mapping(self) -> NameMapping:
        mapping = self._table.name_mapping()
        if mapping is None:
            raise NotResolved(FORM, "a data file has no field ids, and the table no name mapping")
        return mapping

    def open_input(self, path: str) -> Any:
        """Open a file for reading.

        Raises:
            CommitRefused: ``announced_file_missing``. NotResolved: a file of the table is missing.
        """
        try:
            return self._table.io.new_input(path).open()
        except FileNotFoundError as error:
            if path in self._announced:
                raise missing_file(path) from error
            raise NotResolved("file_missing", f"{path} of the table is missing") from error

    def verify(self, path: str) -> None:
        """Check that an announced file is in the store."""
        verify_present(self._table.io, (path,))

    def create(self, source: SourceFile) -> tuple[str, Any]:
        """Create a copy of a source; return its path and a stream."""
        partition = cast("FilePartition", source.partition)
        spec = self._specs[partition.spec_id]
        name = f"{self._clock.new_timed_uuid()}-00000.parquet"
        folder = None
        if spec.fields:
            folder = PartitionFolder(partition_folder(spec, self._schema, partition.values))
        path = self._places.new_data_location(name, folder)  # type: ignore[arg-type] # as PartitionFolder
        return path, self._table.io.new_output(path).create(overwrite=True)

    def new_vector_path(self) -> str:
        """Return the path of a new Puffin file."""
        name = f"{self._clock.new_timed_uuid()}-00000-deletes.puffin"
        return self._places.new_data_location(name)

    def write(self, path: str, content: bytes) -> None:
        """Write a file."""
        with storage_errors(f"writing {path}"):
            with self._table.io.new_output(path).create(overwrite=True) as stream:
                stream.write(content)
            verify_written(self._table.io, {path: len(content)})

    def read_part(self, path: str, offset: int, size_bytes: int) -> bytes:
        """Read a part of a file.

        Raises:
            NotResolved: the file is missing.
        """
        with storage_errors(f"reading {path}"), self.open_input(path) as stream:
            stream.seek(offset)
            return bytes(stream.read(size_bytes))

    def described(self, source: DataFile, copy: FileCopy) -> DataFile | None:
        """Return a copy as manifests hold it; None if no row is left."""
        if copy.path is None:
            return None
        properties = table_properties.metrics(self._table.properties)
        mapping = self._table.name_mapping()
        metrics = metrics_of(copy, self._schema, mapping, properties, self._version)
        out = DataFile.from_args(
            self._version,
            content=DataFileContent.DATA,
            file_path=copy.path,
            file_format=FileFormat.PARQUET,
            partition=source.partition,
            record_count=copy.footer.num_rows,
            file_size_in_bytes=copy.size_bytes,
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            nan_value_counts={},
            lower_bounds=metrics.lower_bounds,
            upper_bounds=metrics.upper_bounds,
            key_metadata=None,
            split_offsets=metrics.split_offsets,
            equality_ids=None,
            sort_order_id=source.sort_order_id,
        )
        out.spec_id = source.spec_id
        return out

    def _key_field(self, field_id: int) -> NestedField:
        for schema in (self._schema, *self._table.schemas().values()):
            for each in schema.fields:
                if each.field_id == field_id:
                    is_plain = isinstance(each.field_type, PrimitiveType)
                    if each.initial_default is not None:
                        raise NotResolved(
                            "key_columns", f"older files lack column {each.name}, with its default"
                        )
                    if is_plain and not isinstance(each.field_type, FloatType | DoubleType):
                        return each
        raise NotResolved("key_columns", f"field {field_id} is no top-level column of plain type")

    def _may_have(
        self, file: DataFile, spec: PartitionSpec, columns: KeyColumns, keys: DeletedKeys
    ) -> bool:
        """Whether a file may have rows with a key, by its bounds and its partition."""
        for at, field_id in enumerate(columns.field_ids):
            kind = self._key_field(field_id).field_type
            if not keys.may_be_in(at, _values(file, field_id, kind)):
                return False
            for place, part in enumerate(spec.fields):
                value = file.partition[place]
                known = KnownValues(value, value, value is None, value is None)
                if part.source_id == field_id and not _may_be_in(keys, at, known, part, kind):
                    return False
        if file.file_format != FileFormat.PARQUET or file.key_metadata:
            raise NotResolved(FORM, f"{file.file_path} is no plain Parquet file")
        return True


def _values(file: DataFile, field_id: int, kind: Any) -> KnownValues:
    """What a manifest says of the values of a column."""
    nulls = (file.null_value_counts or {}).get(field_id)
    low = (file.lower_bounds or {}).get(field_id)
    high = (file.upper_bounds or {}).get(field_id)
    is_null = nulls is not None and nulls == file.record_count
    # without bounds all values may be null, or the column is missing, which is null, too
    return KnownValues(_bound(kind, low), _bound(kind, high), nulls != 0, is_null)


def _bound(kind: Any, value: bytes | None) -> Any:
    """Return a bound in internal form; None if there is none, or it cannot be compared.

    A bound of an older file may have a narrower type; that of a former date is another unit.
    """
    if value is None or isinstance(kind, UUIDType):
        return None
    if isinstance(kind, _INSTANT) and len(value) != _INSTANT_BYTES:  # of a former date
        return None
    if isinstance(kind, _WHOLE):
        return int.from_bytes(value, "little", signed=True)
    try:
        return from_bytes(kind, value)
    except UnicodeDecodeError:  # a text that another writer cut within a character
        return None


def _may_be_in(
    keys: DeletedKeys, at: int, known: KnownValues, part: PartitionField, kind: Any
) -> bool:
    """Whether a key may be in partitions of which this is known; the field is of its column.

    A field that was dropped from a spec of format version 1 stays there without values, as void.
    """
    transform = part.transform
    if not isinstance(transform, _CERTAIN) or isinstance(kind, UUIDType):
        return True
    if isinstance(transform, IdentityTransform):
        return keys.may_be_in(at, known)
    of = transform.transform(kind)
    if isinstance(transform, TruncateTransform) and isinstance(kind, IntegerType | LongType):
        of = partial(_truncated, of)
    return keys.may_be_in(at, known, KeyResult(str(transform), of))


def _truncated(of: Callable[[Any], Any], value: int) -> int | None:
    """Truncate a number; None where the result exceeds a type that the column may have had.

    Java's arithmetic then returns a number at the other end of the type.
    """
    result: int = of(value)
    return None if any(result < least <= value for least in _LEAST) else result


def partition_of(file: DataFile) -> FilePartition:
    """Return the partition of a file."""
    values = file.partition
    return FilePartition(file.spec_id, tuple(values[i] for i in range(len(values))))


def _constants(spec: PartitionSpec, file: DataFile) -> dict[int, Any]:
    return {
        part.source_id: file.partition[place]
        for place, part in enumerate(spec.fields)
        if isinstance(part.transform, IdentityTransform)
    }
