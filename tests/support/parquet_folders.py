"""Parquet folders of tests: connectors, files as the worker writes them, independent readers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DateType, LongType, NestedField, StringType

from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog_properties import client_config
from connect.gateways.parquet.parquet_log import CHECKPOINT_COMMITS
from connect.gateways.parquet.parquet_tables import CompletedTables, ParquetTables
from connect.gateways.storage.guarded_io import table_storage
from connect.validation.parse import parse
from control_schemas.events import ContentFile
from coordinator.commit.table_logs.log_committer import LogCommitter
from coordinator.commit.table_logs.parquet_files import parquet_file
from coordinator.kernel.effects import TableCommit
from tests.support.tables import QuickClock, announced, reference, table_commit
from worker.batch.pipeline_spec import PipelineLimits, TablePlan
from worker.write.parquet_writer import Writers
from worker.write.table_writer import TableWriter

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "dt", DateType(), required=False),
)
TABLE = "db.events"
_numbers = itertools.count(1)


def parquet_connector(location: str, raw: Mapping[str, str] | None = None) -> ConnectorConfig:
    """A connector of Parquet folders, with more keys."""
    given = {
        "name": "c",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "source",
        "iceberg.tables": TABLE,
        "icefloe.format": "parquet",
        "icefloe.parquet.location": location,
        **(raw or {}),
    }
    return parse(given)


def file_name() -> str:
    """A name as a worker gives it."""
    return f"{SystemClock().new_timed_uuid()}-{next(_numbers):05d}.parquet"


def written_files(table: Table, rows: Sequence[Mapping[str, Any]]) -> list[ContentFile]:
    """Write rows as the worker does, a file for each partition."""
    plan = TablePlan.of(
        table, name=TABLE, catalog="iceberg", io_properties=table_storage(table, {})
    )
    writer = TableWriter(plan, file_name)
    writers = Writers(PipelineLimits())
    writers.add(writer, pa.Table.from_pylist([dict(r) for r in rows], schema=writer.arrow_schema))
    return [file for _, file in writers.finish()]


class ParquetRig:
    """One Parquet folder of a connector, announcements for it, and what readers see.

    Args:
        location: of the connector's tables.
        raw: more keys of the connector.
    """

    def __init__(
        self,
        location: str,
        *,
        schema: Schema = SCHEMA,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        raw: Mapping[str, str] | None = None,
    ) -> None:
        self.config = parquet_connector(location, raw)
        self.catalog: CatalogGateway = open_catalog("parquet", self.config.catalog_properties)
        self.table: Table = self.catalog.create(TABLE.split("."), schema, spec)
        self.location = self.table.location()
        self.checkpoint_commits = CHECKPOINT_COMMITS
        self._next_id = 0

    @property
    def folder(self) -> Path:
        """The folder, of a local table."""
        return Path(self.location.removeprefix("file://"))

    def tables(self) -> ParquetTables:
        """The tables as any process opens them."""
        properties = client_config(self.config.catalog_properties).properties
        return ParquetTables(properties, checkpoint_commits=self.checkpoint_commits)

    def committer(self, tables: ParquetTables | None = None, **more: Any) -> LogCommitter[Any]:
        """A coordinator's committer, as after its start."""
        completed = CompletedTables(tables or self.tables())
        return LogCommitter(completed, parquet_file, self.config, QuickClock(), **more)

    def round(
        self, *offsets: int, rows: int = 2, valid_through_us: int | None = None
    ) -> TableCommit:
        """A round that announces one file at each control offset."""
        envelopes = []
        for offset in offsets:
            first, self._next_id = self._next_id, self._next_id + rows
            made = [{"id": n, "name": f"n{n}"} for n in range(first, first + rows)]
            envelopes.append(self.announcement(made, offset))
        return table_commit(envelopes, valid_through_us=valid_through_us)

    def announcement(self, rows: Sequence[Mapping[str, Any]], offset: int) -> Any:
        """Files with rows, announced at a control offset."""
        return announced(reference(self.table), written_files(self.table, rows), offset=offset)

    def published(self) -> list[str]:
        """Data files of a local table that a glob finds, below the folder."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*.parquet"))

    def staged(self) -> list[str]:
        """Names of staged files of a local table."""
        folder = self.folder / "_icefloe/staged"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def ids(self, filesystem: FileSystem | None = None) -> list[int]:
        """Ids of all rows as PyArrow's dataset reads them, in order."""
        path = self.location.partition("://")[2]
        found = ds.dataset(path, filesystem=filesystem, format="parquet", partitioning="hive")
        return (
            sorted(found.to_table(columns=["id"]).column("id").to_pylist()) if found.files else []
        )


def of_duckdb(folder: Path, columns: str) -> list[Any]:
    """Rows as DuckDB reads them with a glob, sorted by their text."""
    with duckdb.connect() as connection:
        glob = f"read_parquet('{folder}/**/*.parquet', hive_partitioning=true, union_by_name=true)"
        return sorted(connection.execute(f"select {columns} from {glob}").fetchall(), key=repr)
