"""Rows of tables into Parquet files with their metrics.

Rules of this file:
- Arrow bytes waiting for their row group are bounded over all tables together; the largest wait
  ends first, so that few rows of many tables do not make small row groups of all of them.
- Waiting rows do not keep the blocks alive they were cut from: they are copied when the blocks
  that they hold weigh more than the bound.
- A file is described only when it is closed; what fails or is given up is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table.locations import LocationProvider, load_location_provider

from connect.errors import ConfigError
from connect.gateways.storage import open_storage
from control_schemas.events import ContentFile, FileContent
from worker.partitions import Partitioner, PartitionKey
from worker.plan import PipelineLimits, TablePlan

FileNames = Callable[[], str]

_TARGET_BYTES: Final = 512 * 2**20
_GROUP_BYTES: Final = 128 * 2**20
_PAGE_BYTES: Final = 2**20
_DICTIONARY_BYTES: Final = 2 * 2**20
_DICTIONARY_SAMPLE: Final = 20_000
_COPY_BYTES: Final = 64 * 2**20
_CODECS: Final = {"uncompressed": "none", "none": "none"} | {
    c: c for c in ("zstd", "gzip", "snappy", "lz4", "brotli")
}


class TableWriter:
    """What all files of one table share.

    Args:
        plan: the table.
        file_names: gives names that nobody else gives.

    Raises:
        ConfigError: a table property has a value that cannot be followed.
    """

    def __init__(self, plan: TablePlan, file_names: FileNames) -> None:
        self.plan = plan
        self.schema: Schema = plan.schema
        self.spec = plan.spec
        stored = sanitize_column_names(self.schema)
        self.arrow_schema: pa.Schema = schema_to_pyarrow(stored)
        self.row_schema: pa.Schema = schema_to_pyarrow(self.schema)
        # tables with equal keys take the same converted columns
        self.columns_key = tuple(f"{f.name}\0{f.required}\0{f.field_type}" for f in self.schema.fields)
        self.partitioner = Partitioner(self.spec, self.schema)
        self.target_bytes = _integer(plan, "write.target-file-size-bytes", _TARGET_BYTES)
        self.group_bytes = _integer(plan, "write.parquet.row-group-size-bytes", _GROUP_BYTES)
        self._file_names = file_names
        self._ids = parquet_path_to_id_mapping(stored)
        self._metrics = compute_statistics_plan(self.schema, dict(plan.properties))
        self._io: FileIO = open_storage(plan.io_properties, plan.location)
        self._locations: LocationProvider = load_location_provider(
            plan.location,
            {k: v for k, v in plan.properties.items() if k != "write.py-location-provider.impl"},
        )
        self._options = _parquet_options(plan)
        self._dictionaries: list[str] | None = None

    def open(self, key: PartitionKey, sample: pa.Table) -> OpenFile:
        """Begin a file of one partition; the sample tells which columns repeat themselves."""
        if self._dictionaries is None:
            self._dictionaries = repeating_columns(sample)
        name = self._file_names()
        folder = _Folder(key.path) if key.path else None
        path = self._locations.new_data_location(name, cast("Any", folder))
        stream: Any = self._io.new_output(path).create()
        writer = pq.ParquetWriter(
            stream,
            self.arrow_schema,
            use_dictionary=self._dictionaries or False,
            **self._options,
        )
        return OpenFile(path, key, stream, writer)

    def finish(self, file: OpenFile) -> ContentFile:
        """End a file and describe it."""
        file.writer.close()
        size = file.stream.tell()
        file.stream.close()
        metrics = data_file_statistics_from_parquet_metadata(
            file.writer.writer.metadata, self._metrics, self._ids
        ).to_serialized_dict()
        return ContentFile(
            content=FileContent.DATA,
            file_path=file.path,
            file_format="PARQUET",
            spec_id=self.spec.spec_id,
            partition=file.key.fields,
            record_count=metrics["record_count"],
            file_size_in_bytes=size,
            column_sizes=metrics["column_sizes"],
            value_counts=metrics["value_counts"],
            null_value_counts=metrics["null_value_counts"],
            nan_value_counts=metrics["nan_value_counts"],
            lower_bounds=metrics["lower_bounds"],
            upper_bounds=metrics["upper_bounds"],
            split_offsets=tuple(metrics["split_offsets"]),
            sort_order_id=0,
        )

    def discard(self, path: str) -> None:
        """Delete a file that nobody will hear of; one that stays is an orphan."""
        try:
            self._io.delete(path)
        except OSError:
            return


@dataclass(frozen=True, slots=True)
class _Folder:
    """What a location provider wants to know of a partition."""

    path: str

    def to_path(self) -> str:
        """The partition's folder."""
        return self.path


@dataclass(slots=True)
class OpenFile:
    """A file being written."""

    path: str
    key: PartitionKey
    stream: Any
    writer: pq.ParquetWriter


@dataclass(slots=True)
class _Partition:
    """Waiting rows and the open file of one partition of one table."""

    table: TableWriter
    key: PartitionKey
    waiting: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    file: OpenFile | None = None


class Writers:
    """All files of one Spark task.

    Args:
        limits: bounds.
    """

    def __init__(self, limits: PipelineLimits) -> None:
        self._limits = limits
        self._partitions: dict[tuple[str, tuple[Any, ...]], _Partition] = {}
        self._open: dict[int, _Partition] = {}  # by identity, least recently used first
        self._waiting_bytes = 0
        self._pinned_bytes = 0
        self._files: list[tuple[TableWriter, ContentFile]] = []

    def add(self, table: TableWriter, rows: pa.Table) -> None:
        """Take rows of a table's Arrow schema."""
        for key, part in table.partitioner.split(rows):
            name = (table.plan.name, key.values, key.path)
            partition = self._partitions.get(name)
            if partition is None:
                partition = self._partitions[name] = _Partition(table, key)
            size = part.nbytes
            partition.waiting.append(part)
            partition.rows += part.num_rows
            partition.bytes += size
            self._waiting_bytes += size
            if partition.rows >= self._limits.group_rows or partition.bytes >= table.group_bytes:
                self._flush(partition)
        while self._waiting_bytes > self._limits.buffered_bytes_max:
            self._flush(max(self._partitions.values(), key=lambda p: p.bytes))

    def pin(self, block_bytes: int) -> None:
        """Account for a block that added rows were cut from."""
        self._pinned_bytes += block_bytes
        if self._pinned_bytes > self._waiting_bytes + _COPY_BYTES:
            for partition in self._partitions.values():
                if partition.waiting:
                    partition.waiting = [copied(partition.waiting)]
            self._pinned_bytes = self._waiting_bytes

    def finish(self) -> Iterator[tuple[str, ContentFile]]:
        """Write what waits, end all files and give every file's table name and description."""
        for partition in self._partitions.values():
            self._flush(partition)
            self._roll(partition)
        self._partitions.clear()
        for table, file in self._files:
            yield table.plan.name, file
        self._files = []

    def abort(self) -> None:
        """Give up: delete every file of this task."""
        for partition in self._partitions.values():
            file, partition.file = partition.file, None
            if file is not None:
                file.stream.close()
                partition.table.discard(file.path)
        for table, described in self._files:
            table.discard(described.file_path)
        self._partitions.clear()
        self._open.clear()
        self._files = []
        self._waiting_bytes = 0

    def _flush(self, partition: _Partition) -> None:
        if not partition.rows:
            return
        rows = pa.concat_tables(partition.waiting)
        self._waiting_bytes -= partition.bytes
        partition.waiting, partition.rows, partition.bytes = [], 0, 0
        if partition.file is None:
            if len(self._open) >= self._limits.open_files_max:
                self._roll(next(iter(self._open.values())))
            partition.file = partition.table.open(partition.key, rows)
        self._open.pop(id(partition), None)
        self._open[id(partition)] = partition
        partition.file.writer.write_table(rows, row_group_size=rows.num_rows)
        if partition.file.stream.tell() >= partition.table.target_bytes:
            self._roll(partition)

    def _roll(self, partition: _Partition) -> None:
        self._open.pop(id(partition), None)
        file, partition.file = partition.file, None
        if file is not None:
            self._files.append((partition.table, partition.table.finish(file)))


def copied(tables: list[pa.Table]) -> pa.Table:
    """The rows in memory of their own."""
    joined = pa.concat_tables(tables)
    if len(tables) > 1:
        return joined.combine_chunks()
    return joined.take(pa.array(range(joined.num_rows)))


def repeating_columns(sample: pa.Table) -> list[str]:
    """Parquet paths of the columns whose values repeat enough for a dictionary to pay."""
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
    distinct = len(column.unique())
    return [path] if distinct * 2 < len(column) else []


def _integer(plan: TablePlan, key: str, default: int) -> int:
    text = plan.properties.get(key)
    try:
        return default if text is None else int(text)
    except ValueError:
        raise ConfigError(
            f"table property {key} is no number: {text!r}",
            code="table_property",
            table=plan.name,
        ) from None


def _parquet_options(plan: TablePlan) -> dict[str, Any]:
    name = plan.properties.get("write.parquet.compression-codec", "zstd").lower()
    codec = _CODECS.get(name)
    if codec is None:
        raise ConfigError(
            f"unknown compression codec {name!r}", code="table_property", table=plan.name
        )
    level = plan.properties.get("write.parquet.compression-level")
    has_level = codec in ("zstd", "gzip", "brotli") and level not in (None, "null")
    if has_level:
        _integer(plan, "write.parquet.compression-level", 0)
    return {
        "compression": codec,
        "compression_level": int(level or 0) if has_level else (3 if codec == "zstd" else None),
        "data_page_size": _integer(plan, "write.parquet.page-size-bytes", _PAGE_BYTES),
        "dictionary_pagesize_limit": _integer(
            plan, "write.parquet.dict-size-bytes", _DICTIONARY_BYTES
        ),
        "store_schema": False,
        "store_decimal_as_integer": True,
        "version": "2.6",
    }
