"""Delta tables of tests: connectors, schemas, and independent readers."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog.log_stores import open_delta_tables
from connect.gateways.delta.delta_model import DeltaStore
from connect.validation.parse import parse
from coordinator.commit.table_logs.log_committer import LogCommitter
from coordinator.kernel.effects import CommitOutcome, TableCommit
from tests.support.tables import announced, reference, table_commit, written_file

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)
TABLE = "db.events"


def delta_connector(location: str, raw: Mapping[str, str] | None = None) -> ConnectorConfig:
    """A connector of Delta tables, with more keys."""
    given = {
        "name": "c",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "source",
        "iceberg.tables": TABLE,
        "icefloe.format": "delta",
        "icefloe.delta.location": location,
        **(raw or {}),
    }
    return parse(given)


class DeltaRig:
    """One Delta table of a connector, announcements for it, and what it holds.

    Args:
        location: of the connector's tables.
        options: of the object store, for the reader.
        raw: more keys of the connector.
    """

    def __init__(
        self,
        location: str,
        *,
        options: Mapping[str, str] | None = None,
        schema: Schema = SCHEMA,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        raw: Mapping[str, str] | None = None,
    ) -> None:
        self.config = delta_connector(location, raw)
        self.options = dict(options or {})
        self.catalog: CatalogGateway = open_catalog("delta", self.config.catalog_properties)
        self.table: Table = self.catalog.create(TABLE.split("."), schema, spec)
        self.location = self.table.location()
        self._next_id = 0

    def store(self) -> DeltaStore:
        """The tables as a coordinator opens them."""
        config = self.config
        return open_delta_tables(config.catalog_properties, config.locations, lambda *_: None)

    def round(
        self, *offsets: int, rows: int = 2, valid_through_us: int | None = None
    ) -> TableCommit:
        """A round that announces one file at each control offset."""
        envelopes = []
        for offset in offsets:
            first, self._next_id = self._next_id, self._next_id + rows
            made = [{"id": n, "name": f"n{n}"} for n in range(first, first + rows)]
            file = written_file(self.table, made)
            envelopes.append(announced(reference(self.table), [file], offset=offset))
        return table_commit(envelopes, valid_through_us=valid_through_us)

    def timed_round(self, offset: int) -> TableCommit:
        """As ``round``, of one file of a local table whose name has its time, as a worker's has."""
        (envelope,) = self.round(offset).announcements
        (file,) = envelope.event.payload.data_files
        name = f"{SystemClock().new_timed_uuid()}-00001.parquet"
        path = Path(file.file_path.removeprefix("file://")).rename(
            Path(self.location.removeprefix("file://"), "data", name)
        )
        payload = replace(
            envelope.event.payload, data_files=(replace(file, file_path=f"file://{path}"),)
        )
        return table_commit([replace(envelope, event=replace(envelope.event, payload=payload))])

    def now(self) -> DeltaTable:
        """The table as delta-rs reads it."""
        return DeltaTable(self.location, storage_options=self.options)

    def ids(self) -> list[int]:
        """Ids of all rows, in order."""
        return sorted(self.now().to_pyarrow_table().column("id").to_pylist())

    def log(self, version: int) -> list[dict[str, Any]]:
        """Actions of a version of a local table."""
        path = Path(self.location.removeprefix("file://"), "_delta_log", f"{version:020}.json")
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@contextmanager
def delta_duckdb() -> Iterator[Any]:
    """DuckDB with the Delta extension of its package; nothing is downloaded."""
    connection = duckdb.connect(
        config={"allow_unsigned_extensions": True, "autoinstall_known_extensions": False}
    )
    spec = importlib.util.find_spec("duckdb_extension_delta")
    assert spec is not None
    assert spec.origin is not None
    (path,) = Path(spec.origin).parent.glob("**/*.duckdb_extension")
    connection.execute(f"load '{path}'")
    connection.execute("set TimeZone = 'UTC'")
    try:
        yield connection
    finally:
        connection.close()


def together(workers: Sequence[LogCommitter], commit: TableCommit) -> list[CommitOutcome]:
    """Let several coordinators commit a round at the same moment; return their outcomes."""
    barrier = threading.Barrier(len(workers))

    def run(worker: LogCommitter) -> CommitOutcome:
        barrier.wait()
        return worker.commit(commit)

    with ThreadPoolExecutor(len(workers)) as pool:
        return list(pool.map(run, workers))
