"""One table's Parquet files: their location, their settings and their description."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    parquet_path_to_id_mapping,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID, SortOrder
from pyiceberg.types import NestedField

from connect import failpoints
from connect.config.table_formats import DELTA, ICEBERG, PARQUET
from connect.errors import RetriableError
from connect.gateways.catalog import table_properties
from connect.gateways.parquet.hive_paths import columns_in_folders, is_too_long, partition_path
from connect.gateways.parquet.parquet_commit import STAGED_SUFFIX
from connect.gateways.storage.file_metrics import FooterReader
from connect.gateways.storage.object_store import (
    is_refusal,
    open_storage,
    store_error_text,
    verify_written,
)
from connect.gateways.storage.variant_footer import VariantFooter
from connect.model.partition_text import PartitionFolder
from connect.model.table_types import arrow_schema, variant_paths
from control_schemas.events import ContentFile, FileContent
from worker.batch.error_rows import NOT_WRITABLE, STORE_UNAVAILABLE
from worker.batch.pipeline_spec import TablePlan
from worker.write.partitions import Partitioner, PartitionKey
from worker.write.row_order import RowOrder, SortedGroups

FileNames = Callable[[], str]

_TARGET_BYTES: Final = 512 * 2**20
_GROUP_BYTES: Final = 128 * 2**20
_PAGE_BYTES: Final = 2**20
_DICTIONARY_BYTES: Final = 2 * 2**20
_DICTIONARY_SAMPLE: Final = 20_000
_DICTIONARY_SAMPLE_BYTES: Final = 4 * _DICTIONARY_BYTES
_ZSTD_LEVEL: Final = 1  # as small as 3 on payments and logs, for a fifth less CPU


@dataclass(frozen=True, slots=True)
class _Shape:
    """Values derived from a schema and its metrics properties; tables often share both.

    Attributes:
        schema: the table's.
        arrow_schema: of the rows, names as Iceberg stores them.
        file_schema: of the Parquet files.
        row_schema: as ``arrow_schema``, with the schema's own names.
        columns_key: tables with equal keys take the same converted columns.
        footers: reads the metrics that the tables keep.
        variants: paths of the variants in files.
    """

    schema: Schema
    arrow_schema: pa.Schema
    file_schema: pa.Schema
    row_schema: pa.Schema
    columns_key: tuple[str, ...]
    footers: FooterReader
    variants: frozenset[tuple[str, ...]]


_partition_spec = lru_cache(maxsize=1024)(PartitionSpec.model_validate_json)


@lru_cache(maxsize=1024)
def _shape(
    schema_json: str,
    metrics: tuple[tuple[str, str], ...],
    in_folders: frozenset[str] = frozenset(),
    *,
    is_iceberg: bool,
) -> _Shape:
    """Derive a shape; columns ``in_folders`` are in the names of folders and not in files.

    Columns of type unknown, which are always null, are in no file, as the specification says.
    """
    schema = Schema.model_validate_json(schema_json)
    # Iceberg finds a column by its id and stores names that Avro allows; others find it by its name
    stored = sanitize_column_names(schema) if is_iceberg else schema
    stored_columns = arrow_schema(stored)
    not_in_files = in_folders.union(f.name for f in stored_columns if pa.types.is_null(f.type))
    return _Shape(
        schema=schema,
        arrow_schema=stored_columns,
        file_schema=pa.schema([f for f in stored_columns if f.name not in not_in_files])
        if not_in_files
        else stored_columns,
        row_schema=arrow_schema(schema),
        columns_key=tuple(map(_column_key, schema.fields)),
        footers=FooterReader(
            compute_statistics_plan(schema, dict(metrics)), parquet_path_to_id_mapping(stored)
        ),
        variants=variant_paths(stored),
    )


def _column_key(field: NestedField) -> str:
    """Return what the values of a column depend on."""
    text = f"{field.name}\0{field.required}\0{field.field_type}"
    whole = repr(field)
    return f"{text}\0{whole}" if "write_default=" in whole else text


@dataclass(frozen=True, slots=True)
class _FileSettings:
    """Settings of a table's Parquet files, from its properties.

    Attributes:
        target_bytes: size at which a file ends.
        group_bytes: size of a row group, in Arrow bytes.
        options: of the Parquet writer.
    """

    target_bytes: int
    group_bytes: int
    options: Mapping[str, Any]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> _FileSettings:
        """Read a table's properties."""
        size = table_properties.size
        codec, level = table_properties.codec(properties), table_properties.level(properties)
        options = {
            "compression": codec,
            "compression_level": _ZSTD_LEVEL if level is None and codec == "zstd" else level,
            "data_page_size": size(properties, table_properties.PAGE_BYTES, _PAGE_BYTES),
            "dictionary_pagesize_limit": size(
                properties, table_properties.DICTIONARY_BYTES, _DICTIONARY_BYTES
            ),
            "store_schema": False,
            "store_decimal_as_integer": True,
            "version": "2.6",
        }
        return cls(
            size(properties, table_properties.TARGET_BYTES, _TARGET_BYTES),
            size(properties, table_properties.GROUP_BYTES, _GROUP_BYTES),
            options,
        )


class _TableStorage:
    """The object store of one table's files.

    Args:
        plan: the table.
        schema: of the plan.
        spec: of the plan.
        file_names: returns a unique name on each call.
    """

    def __init__(
        self, plan: TablePlan, schema: Schema, spec: PartitionSpec, file_names: FileNames
    ) -> None:
        self._table = plan.name
        self._is_staged = plan.table_format == PARQUET
        self._schema, self._spec, self._location = schema, spec, plan.location
        self._file_names = file_names
        self._io: FileIO = open_storage(plan.io_properties, plan.location)
        self._locations: LocationProvider = table_properties.location_provider(
            plan.location, plan.properties
        )

    def create(self, key: PartitionKey) -> tuple[str, Any]:
        """Create a file of one partition; return its path and an output stream."""
        name = self._file_names()
        has_folder = bool(key.path) and not self._is_staged
        if self._is_staged:
            self._check_published_path(key, name)
            name += STAGED_SUFFIX
        elif is_too_long(self._locations.data_path, key.path, name):
            has_folder = False  # the metadata has the partition: readers do not parse paths
        folder = cast("Any", PartitionFolder(key.path)) if has_folder else None
        path = self._locations.new_data_location(name, folder)
        try:
            with self.guarded():
                # the name is unique; a check whether the file exists would cost two requests
                return path, self._io.new_output(path).create(overwrite=True)
        except ValueError as error:  # no client for the location's scheme, or a bad file name
            raise self._not_writable(error) from error

    def verify(self, path: str, size: int) -> None:
        """Check that a file is in the store, complete."""
        with self.guarded():
            verify_written(self._io, {path: size})

    def delete(self, path: str) -> None:
        """Delete a file that is not announced; if the store refuses, the file is an orphan."""
        try:
            self._io.delete(path)
        except OSError:
            return

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Name the table and its store in an error.

        Raises:
            RetriableError: ``table_not_writable`` where the store refuses files;
                ``storage_unavailable``.
        """
        try:
            yield
        except (OSError, RetriableError) as error:
            if isinstance(error, RetriableError):
                error.at(table=self._table)
            for cause in (error, error.__cause__):  # ``verify_written`` wraps the store's error
                if cause and is_refusal(cause):
                    raise self._not_writable(cause) from error
            if isinstance(error, RetriableError):
                raise
            raise RetriableError(
                f"the object store of the table's files: {store_error_text(error)}",
                code=STORE_UNAVAILABLE,
                table=self._table,
            ) from error

    def _check_published_path(self, key: PartitionKey, name: str) -> None:
        """Check that the coordinator can publish the file: its name has the partition's values."""
        values = {field.field_id: field.value for field in key.fields}
        folder = partition_path(self._schema, self._spec, values)
        if is_too_long(self._location, folder, name):
            raise RetriableError(
                "a value of a partition column is too long for the name of a folder",
                code=NOT_WRITABLE,
                table=self._table,
            )

    def _not_writable(self, error: BaseException) -> RetriableError:
        text = store_error_text(error)
        return RetriableError(
            f"the store refuses the table's files: {text}", code=NOT_WRITABLE, table=self._table
        )


class TableWriter:
    """Opens, writes and describes the files of one table.

    Args:
        plan: the table.
        file_names: returns a unique name on each call.
        equality_ids: for equality deletes the key columns, which the plan's schema then holds.

    Attributes:
        plan: the table.
        schema: the table's.
        arrow_schema: of the rows that ``append`` takes, names as files have them.
        row_schema: as ``arrow_schema``, with the schema's own names.
        columns_key: tables with equal keys take the same converted columns.
        partitioner: splits rows by partition.
        settings: of the files.
    """

    def __init__(
        self, plan: TablePlan, file_names: FileNames, equality_ids: tuple[int, ...] = ()
    ) -> None:
        self.plan = plan
        self._equality_ids = equality_ids
        metrics = tuple(sorted(table_properties.metrics(plan.properties).items()))
        self._spec = _partition_spec(plan.spec_json)
        self._shape = _shape(plan.schema_json, metrics, is_iceberg=plan.table_format == ICEBERG)
        if plan.table_format == PARQUET:
            in_folders = frozenset(columns_in_folders(self._shape.schema, self._spec))
            self._shape = _shape(plan.schema_json, metrics, in_folders, is_iceberg=False)
        self.schema = self._shape.schema
        self.arrow_schema = self._shape.arrow_schema
        self.row_schema = self._shape.row_schema
        self.columns_key = self._shape.columns_key
        self.partitioner = Partitioner(self._spec, self.schema)
        self.settings = _FileSettings.of(plan.properties)
        self._order = (
            None
            if plan.sort_json is None
            else RowOrder(SortOrder.model_validate_json(plan.sort_json), self.schema)
        )
        self._storage = _TableStorage(plan, self.schema, self._spec, file_names)

    @property
    def is_local(self) -> bool:
        """Whether the files are on a disk of this machine, and not behind requests."""
        return self.plan.location.startswith(("file:", "/"))

    def open(self, key: PartitionKey, dictionaries: list[str]) -> OpenFile:
        """Begin a file of one partition, with dictionaries for some Parquet columns."""
        path, stream = self._storage.create(key)
        footer = VariantFooter(stream, self._shape.variants) if self._shape.variants else None
        writer = pq.ParquetWriter(
            footer or stream,
            self._shape.file_schema,
            use_dictionary=dictionaries or False,
            write_page_index=self._order is not None,  # readers skip pages of sorted rows by it
            **self.settings.options,
        )
        groups = None if self._order is None else SortedGroups(self._order)
        return OpenFile(path, key, stream, writer, groups, footer)

    def append(self, file: OpenFile, rows: pa.Table) -> None:
        """Write a row group, sorted if the plan has a sort order.

        Args:
            file: open.
            rows: in the table's Arrow schema.
        """
        if file.groups is not None:
            rows = file.groups.add(rows)
        with self._storage.guarded():
            if self._shape.file_schema is not self.arrow_schema:
                rows = rows.select(self._shape.file_schema.names)
            if self.plan.table_format == DELTA:
                file.count_nan(rows)
            file.writer.write_table(rows, row_group_size=rows.num_rows)

    def named(self, rows: pa.Table) -> pa.Table:
        """Return rows, whose columns are in the table's order, in its Arrow schema."""
        return pa.Table.from_arrays(rows.columns, schema=self.arrow_schema)

    def finish(self, file: OpenFile) -> ContentFile:
        """End a file and describe it."""
        with self._storage.guarded():
            if file.footer is None:
                file.writer.close()
            else:
                file.footer.end(file.writer)
            size = file.stream.tell()
            file.stream.close()
        self._storage.verify(file.path, size)
        failpoints.hit("W3")
        footer = file.writer.writer.metadata
        metrics = self._shape.footers.read(footer)
        return ContentFile(
            content=FileContent.EQUALITY_DELETES if self._equality_ids else FileContent.DATA,
            file_path=file.path,
            file_format="PARQUET",
            spec_id=self._spec.spec_id,
            partition=file.key.fields,
            record_count=footer.num_rows,
            file_size_in_bytes=size,
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            nan_value_counts={
                self.schema.find_field(name).field_id: count
                for name, count in file.nan_counts.items()
            },
            lower_bounds=metrics.lower_bounds,
            upper_bounds=metrics.upper_bounds,
            split_offsets=tuple(metrics.split_offsets),
            equality_ids=self._equality_ids or None,
            sort_order_id=file.groups.sort_order_id if file.groups else UNSORTED_SORT_ORDER_ID,
        )

    def discard(self, path: str) -> None:
        """Delete a file that is not announced."""
        self._storage.delete(path)


def by_position(rows: pa.Table) -> pa.Table:
    """Return rows with numbers for names, so that tables with equal columns share a schema."""
    return pa.Table.from_arrays(rows.columns, names=[str(i) for i in range(rows.num_columns)])


@dataclass(slots=True)
class OpenFile:
    """A file being written.

    Attributes:
        groups: sorts its rows.
        footer: marks its variants.
        nan_counts: of its columns of floating-point numbers, where readers need them: Parquet
            leaves NaN out of its bounds.
    """

    path: str
    key: PartitionKey
    stream: Any
    writer: pq.ParquetWriter
    groups: SortedGroups | None = None
    footer: VariantFooter | None = None
    nan_counts: dict[str, int] = field(default_factory=dict)

    def count_nan(self, rows: pa.Table) -> None:
        """Count NaN in rows that are written."""
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            if pa.types.is_floating(column.type):
                count = pc.sum(pc.is_nan(column)).as_py() or 0
                self.nan_counts[name] = self.nan_counts.get(name, 0) + count


def repeating_columns(sample: pa.Table) -> list[str]:
    """Return Parquet paths of the columns whose values repeat enough for a dictionary."""
    sample = sample.slice(0, _DICTIONARY_SAMPLE)
    paths: list[str] = []
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        paths.extend(_repeating(name, column))
    return paths


def _repeating(path: str, column: Any) -> list[str]:
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], kind)
    if isinstance(column, pa.ExtensionArray):
        column, kind = column.storage, column.storage.type
    if pa.types.is_struct(kind):
        return [
            p for i, f in enumerate(kind) for p in _repeating(f"{path}.{f.name}", column.field(i))
        ]
    if pa.types.is_map(kind):
        inner = _repeating(f"{path}.key_value.key", column.keys)
        return inner + _repeating(f"{path}.key_value.value", column.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _repeating(f"{path}.list.element", column.values)
    if pa.types.is_boolean(kind) or not len(column):
        return []
    if (size := column.nbytes) > _DICTIONARY_SAMPLE_BYTES:
        column = column.slice(0, max(len(column) * _DICTIONARY_SAMPLE_BYTES // size, 2))
    distinct = len(column.unique())
    return [path] if distinct * 2 < len(column) else []
