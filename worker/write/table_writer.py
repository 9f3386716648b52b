"""One table's Parquet files: where they go, how they are written, how they are described."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    StatisticsCollector,
    compute_statistics_plan,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table.locations import LocationProvider

from connect import failpoints
from connect.errors import RetriableError
from connect.gateways.catalog import table_properties
from connect.gateways.storage.object_store import open_storage, verify_written
from control_schemas.events import ContentFile, FileContent
from worker.batch.error_rows import NOT_WRITABLE
from worker.batch.pipeline_spec import TablePlan
from worker.write.file_metrics import file_metrics
from worker.write.partitions import Partitioner, PartitionKey

FileNames = Callable[[], str]

_TARGET_BYTES: Final = 512 * 2**20
_GROUP_BYTES: Final = 128 * 2**20
_PAGE_BYTES: Final = 2**20
_DICTIONARY_BYTES: Final = 2 * 2**20
_DICTIONARY_SAMPLE: Final = 20_000
_MESSAGE_CHARACTERS_MAX: Final = 500
_REFUSED: Final = re.compile(
    r"ACCESS_DENIED|AccessDenied|HTTP status 403|NO_SUCH_BUCKET|KeyTooLong|File name too long"
)
_ZSTD_LEVEL: Final = 1  # as small as 3 on payments and logs, for a fifth less CPU


@dataclass(frozen=True, slots=True)
class _Shape:
    """What follows from a schema and its metrics properties; tables often share both.

    Attributes:
        schema: the table's.
        arrow_schema: of the Parquet files, names as Iceberg stores them.
        row_schema: the same with the schema's own names.
        columns_key: tables with equal keys take the same converted columns.
        ids: field ids by Parquet path.
        metrics: which metrics to keep, by field id.
    """

    schema: Schema
    arrow_schema: pa.Schema
    row_schema: pa.Schema
    columns_key: tuple[str, ...]
    ids: dict[str, int]
    metrics: dict[int, StatisticsCollector]


@lru_cache(maxsize=1024)
def _shape(schema_json: str, metrics: tuple[tuple[str, str], ...]) -> _Shape:
    schema = Schema.model_validate_json(schema_json)
    stored = sanitize_column_names(schema)
    return _Shape(
        schema=schema,
        arrow_schema=schema_to_pyarrow(stored),
        row_schema=schema_to_pyarrow(schema),
        columns_key=tuple(f"{f.name}\0{f.required}\0{f.field_type}" for f in schema.fields),
        ids=parquet_path_to_id_mapping(stored),
        metrics=compute_statistics_plan(schema, dict(metrics)),
    )


class TableWriter:
    """What all files of one table share.

    Args:
        plan: the table.
        file_names: gives names that nobody else gives.
        equality_ids: for equality deletes the key columns, which the plan's schema then holds.
    """

    def __init__(
        self, plan: TablePlan, file_names: FileNames, equality_ids: tuple[int, ...] = ()
    ) -> None:
        self.plan = plan
        self._equality_ids = equality_ids
        self.spec = plan.spec
        metrics = table_properties.metrics(plan.properties)
        self._shape = _shape(plan.schema_json, tuple(sorted(metrics.items())))
        self.schema = self._shape.schema
        self.arrow_schema = self._shape.arrow_schema
        self.row_schema = self._shape.row_schema
        self.columns_key = self._shape.columns_key
        self.partitioner = Partitioner(self.spec, self.schema)
        given = plan.properties
        self.target_bytes = table_properties.size(
            given, table_properties.TARGET_BYTES, _TARGET_BYTES
        )
        self.group_bytes = table_properties.size(given, table_properties.GROUP_BYTES, _GROUP_BYTES)
        self._file_names = file_names
        self._io: FileIO = open_storage(plan.io_properties, plan.location)
        self._locations: LocationProvider = table_properties.location_provider(plan.location, given)
        self._options = _parquet_options(plan)

    def open(self, key: PartitionKey, dictionaries: list[str]) -> OpenFile:
        """Begin a file of one partition, with dictionaries for some Parquet columns."""
        name = self._file_names()
        folder = _Folder(key.path) if key.path else None
        path = self._locations.new_data_location(name, cast("Any", folder))
        try:
            with self.storing():
                # nobody else has the name; asking whether it is there would cost two requests
                stream: Any = self._io.new_output(path).create(overwrite=True)
        except ValueError as error:  # no client for the location's scheme, or no name of a file
            raise self._not_writable(error) from error
        writer = pq.ParquetWriter(
            stream,
            self.arrow_schema,
            use_dictionary=dictionaries or False,
            **self._options,
        )
        return OpenFile(path, key, stream, writer)

    def finish(self, file: OpenFile) -> ContentFile:
        """End a file and describe it."""
        with self.storing():
            file.writer.close()
            size = file.stream.tell()
            file.stream.close()
        with self.storing():
            verify_written(self._io, {file.path: size})
        failpoints.hit("W3")
        footer = file.writer.writer.metadata
        metrics = file_metrics(footer, self._shape.metrics, self._shape.ids)
        return ContentFile(
            content=FileContent.EQUALITY_DELETES if self._equality_ids else FileContent.DATA,
            file_path=file.path,
            file_format="PARQUET",
            spec_id=self.spec.spec_id,
            partition=file.key.fields,
            record_count=footer.num_rows,
            file_size_in_bytes=size,
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            nan_value_counts={},
            lower_bounds=metrics.lower_bounds,
            upper_bounds=metrics.upper_bounds,
            split_offsets=tuple(metrics.split_offsets),
            equality_ids=self._equality_ids or None,
            sort_order_id=0,
        )

    @contextlib.contextmanager
    def storing(self) -> Iterator[None]:
        """Name the table where its store refuses a file for good; outages stay what they are.

        Raises:
            RetriableError: ``table_not_writable``.
        """
        try:
            yield
        except (OSError, RetriableError) as error:
            for said in (error, error.__cause__):  # ``verify_written`` wraps what the store said
                if isinstance(said, PermissionError) or (said and _REFUSED.search(str(said))):
                    raise self._not_writable(said) from error
            raise

    def _not_writable(self, error: BaseException) -> RetriableError:
        text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS_MAX]
        return RetriableError(
            f"the store refuses the table's files: {text}", code=NOT_WRITABLE, table=self.plan.name
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


def _parquet_options(plan: TablePlan) -> dict[str, Any]:
    given = plan.properties
    codec, level = table_properties.codec(given), table_properties.level(given)
    return {
        "compression": codec,
        "compression_level": _ZSTD_LEVEL if level is None and codec == "zstd" else level,
        "data_page_size": table_properties.size(given, table_properties.PAGE_BYTES, _PAGE_BYTES),
        "dictionary_pagesize_limit": table_properties.size(
            given, table_properties.DICTIONARY_BYTES, _DICTIONARY_BYTES
        ),
        "store_schema": False,
        "store_decimal_as_integer": True,
        "version": "2.6",
    }
