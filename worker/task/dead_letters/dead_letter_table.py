"""Writes dead letters as rows of an Iceberg table, in the round of their batch.

Rules of this file:
- The driver has the dead letters, so it writes their file. The file is announced with its batch:
  both are committed together.
- Rows are always appended, without a key and without deletes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import structlog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, ConfigError
from connect.gateways.catalog.catalog import CatalogGateway
from connect.gateways.storage.guarded_io import table_storage
from connect.gateways.storage.object_store import storage_errors
from connect.records.tables.table_location import location_for
from worker.batch.descriptors import DeadLetter
from worker.batch.pipeline_spec import PipelineLimits, TablePlan
from worker.task.read_ledger import TableFiles
from worker.write.parquet_writer import Writers
from worker.write.table_writer import TableWriter, by_position

KEY: Final = "errors.deadletterqueue.table"
REFRESH_MS: Final = 60_000

log = structlog.get_logger("worker.dead_letters")

_HEADER: Final = StructType(
    NestedField(15, "name", StringType(), required=True),
    NestedField(16, "value", BinaryType(), required=False),
)
SCHEMA: Final = Schema(
    NestedField(1, "topic", StringType(), required=True),
    NestedField(2, "partition", IntegerType(), required=True),
    NestedField(3, "offset", LongType(), required=True),
    NestedField(4, "timestamp", TimestamptzType(), required=False),
    NestedField(5, "key", BinaryType(), required=False),
    NestedField(6, "value", BinaryType(), required=False),
    NestedField(7, "headers", ListType(14, _HEADER, element_required=True), required=False),
    NestedField(8, "stage", StringType(), required=False),
    NestedField(9, "code", StringType(), required=False),
    NestedField(10, "message", StringType(), required=False),
    NestedField(11, "table", StringType(), required=False),
    NestedField(12, "connector", StringType(), required=False),
    NestedField(13, "task", IntegerType(), required=False),
)
_PROPERTIES: Final = {  # bounds of binary columns serve no query and would contain parts of records
    "write.metadata.metrics.column.key": "counts",
    "write.metadata.metrics.column.value": "counts",
    "write.metadata.metrics.column.headers.element.value": "counts",
}
_TIME_MS_END: Final = 2**63 // 1_000  # the column holds microseconds


@dataclass(slots=True)
class DeadLetterTable:
    """The dead letter table of one task.

    Args:
        config: the connector, placeholders resolved; names the table.
        catalog: loads and creates the table; the caller closes it.
        clock: for the age of the loaded table, and for file names.
        task: number of the task.
    """

    config: ConnectorConfig
    catalog: CatalogGateway
    clock: Clock
    task: int
    _writer: TableWriter | None = field(default=None, init=False)
    _loaded_ms: int = field(default=0, init=False)

    def write(self, dead_letters: Sequence[DeadLetter]) -> TableFiles:
        """Write dead letters; do nothing without dead letters or without a configured table.

        Raises:
            CommitRefused: the catalog does not allow to read or create the table.
            ConfigError: the columns of the table do not fit dead letters.
            RetriableError: the catalog or the store does not answer.
        """
        name = self.config.errors.dead_letter_table
        if not dead_letters or name is None:
            return ()
        table = self._known(name)
        rows = pa.Table.from_pylist(
            [self._row(dead_letter) for dead_letter in dead_letters], schema=table.row_schema
        )
        writers = Writers(PipelineLimits())
        with storage_errors(f"writing dead letters of table {name}"):
            try:
                writers.add(table, by_position(rows))
                files = tuple(file for _, file in writers.finish())
            except BaseException:
                writers.abort()
                raise
        return ((table.plan.reference, files),)

    def _known(self, name: str) -> TableWriter:
        now_ms = self.clock.monotonic_ms()
        if self._writer is None or now_ms - self._loaded_ms >= REFRESH_MS:
            table = self._loaded(name)
            self._check(name, table)
            plan = TablePlan.of(
                table,
                name=name,
                catalog=self.config.catalog_name,
                io_properties=table_storage(table, self.config.write_properties),
                write_properties=self.config.write_properties,
            )
            self._writer = TableWriter(plan, lambda: f"{self.clock.new_timed_uuid()}.parquet")
            self._loaded_ms = now_ms
        return self._writer

    def _loaded(self, name: str) -> Table:
        try:
            return self.catalog.load(name.split("."))
        except CommitRefused as e:
            if e.code != "table_missing":
                raise e.at(connector=self.config.name) from e
        own = self.config.table(name)
        table = self.catalog.create(
            name.split("."),
            SCHEMA,
            properties={**_PROPERTIES, **self.config.auto_create_properties},
            location=location_for(own.location, own.identifier) if own.location else None,
        )
        log.info("table created", connector=self.config.name, table=name)
        return table

    def _check(self, name: str, table: Table) -> None:
        """Check the columns of an existing table; it may have more columns and a partition spec."""
        existing = {each.name: each for each in table.schema().fields}
        required = {each.name: each for each in SCHEMA.fields}
        wrong = [
            f"{column} is not of type {required_field.field_type}"
            for column, required_field in required.items()
            if column not in existing
            or _form(existing[column].field_type) != _form(required_field.field_type)
        ]
        wrong += [
            f"{column} is required"
            for column, each in existing.items()
            if each.required and not (column in required and required[column].required)
        ]
        if wrong:
            raise ConfigError(
                f"dead letters do not fit the table of {KEY}: {'; '.join(wrong)}; name a table "
                "that does not exist, it will be created",
                code="dead_letter_table",
                connector=self.config.name,
                table=name,
            )

    def _row(self, dead_letter: DeadLetter) -> dict[str, Any]:
        record, error = dead_letter.record, dead_letter.error
        table = error.coordinates.get("table")
        time_ms = record.timestamp_ms if record.timestamp_type >= 0 else None
        has_time = time_ms is not None and abs(time_ms) < _TIME_MS_END
        return {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": (time_ms or 0) * 1_000 if has_time else None,
            "key": record.key,
            "value": record.value,
            "headers": [{"name": _utf8(name), "value": value} for name, value in record.headers],
            "stage": error.stage,
            "code": error.code,
            "message": _utf8(error.message),
            "table": None if table is None else _utf8(str(table)),
            "connector": self.config.name,
            "task": self.task,
        }


def _form(kind: IcebergType) -> Any:
    """Return a type for comparison, without field ids and nullability."""
    if isinstance(kind, ListType):
        return [_form(kind.element_type)]
    if isinstance(kind, StructType):
        return {each.name: _form(each.field_type) for each in kind.fields}
    return str(kind)


def _utf8(text: str) -> str:
    """Return text without lone surrogates, which JSON may contain and Parquet may not."""
    return text.encode("utf-8", "backslashreplace").decode()
