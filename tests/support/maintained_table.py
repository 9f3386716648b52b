"""Tables that a coordinator commits to and that Spark maintains."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from control_schemas.events import ContentFile
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import TableCommitted
from coordinator.maintenance.due_work import DueWork
from tests.support.readers import interpreted
from tests.support.running_stack import duckdb_rows
from tests.support.stack import RestCatalog
from tests.support.table_harness import SCHEMA
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    equality_delete,
    partition_of,
    reference,
    table_commit,
    written_file,
)
from worker.maintenance.java_catalog import JavaCatalog
from worker.maintenance.table_actions import TableActions
from worker.spark.session import Session

ALL_BYTES = 10**12
KEYS = 4
KEPT = 20
"""Snapshots: more than are made while the maintenance runs, which needs the one that it reads."""
MAINTAINED = {
    "iceberg__maintenance__rewrite_data_files__enabled": "true",
    "iceberg__maintenance__rewrite_data_files__min_delete_files": "10",
    "iceberg__maintenance__expire_snapshots__enabled": "true",
    "iceberg__maintenance__expire_snapshots__max_age_ms": "0",
    "iceberg__maintenance__expire_snapshots__min_snapshots_to_keep": str(KEPT),
}
Row = tuple[int, str]


class MaintainedTable:
    """A table that a coordinator commits to, and that Spark maintains.

    Args:
        session: Spark.
        catalog: where the table is.
        java: the same, for the Java client.
        table: the table.
    """

    def __init__(
        self,
        session: Session,
        catalog: CatalogGateway,
        java: JavaCatalog,
        table: Table,
    ) -> None:
        self._spark = interpreted(session.spark)
        self.catalog = catalog
        self._java = java
        self.name = table.name()
        self.committer = self.new_committer()
        self.end = 0

    def new_committer(
        self, report: Callable[[str, Mapping[str, int]], None] | None = None, **settings: str
    ) -> Committer:
        """A coordinator's committer, without memory of the others."""
        config = connector("c", [".".join(self.name)], **settings)
        due = None if report is None else DueWork(config, report)
        return Committer(self.catalog, config, QuickClock(), due=due)

    def reloaded(self) -> Table:
        """The table as the catalog has it at present."""
        return self.catalog.load(self.name)

    def commit(
        self, *rows: Row, is_upsert: bool = False, offset: int | None = None
    ) -> list[ContentFile]:
        """Commit a file for each row, and a delete of its key before it if it is an upsert."""
        table = self.reloaded()
        data, deletes = [], []
        for key, text in rows:
            row = {"id": key, "name": text}
            partition = partition_of(table, row)
            data.append(written_file(table, [row], partition=partition))
            if is_upsert:
                deletes.append(replace(equality_delete(table, key), partition=partition))
        offset = self.end if offset is None else offset
        self.announce(announced(reference(table), data, deletes, offset=offset))
        self.end = offset + 1
        return data

    def announce(self, event: Any, committer: Committer | None = None) -> TableCommitted:
        """Commit what is announced."""
        outcome = (committer or self.committer).commit(table_commit([event]))
        assert isinstance(outcome, TableCommitted), outcome
        return outcome

    def actions(self, target_bytes: int | None = None) -> TableActions:
        """Actions on the table as it is now, or was, if it changes before they are called."""
        return TableActions(
            self._spark,
            self._java.load(self._spark, self.name),
            branch="main",
            target_bytes=target_bytes,
            min_input_files=2,
        )

    def rows(self) -> list[Row]:
        """The rows, on which Spark and DuckDB agree."""
        of_duckdb = duckdb_rows(self.reloaded(), "id", "name")
        read = self._spark.read.format("iceberg").load(self.reloaded().metadata_location)
        of_spark = [(row.id, row.name) for row in read.collect()]
        assert sorted(of_spark) == of_duckdb
        return sorted(of_spark)

    def figures(self, queries: int) -> dict[str, int]:
        """Sizes that must not grow, and the shortest time of some queries."""
        table, summary = self.reloaded(), self.summary()
        snapshot = table.current_snapshot()
        assert snapshot is not None
        query_ns = []
        for _ in range(queries):
            started = time.monotonic_ns()
            duckdb_rows(table, "id", "name")
            query_ns.append(time.monotonic_ns() - started)
        return {
            "data files": int(summary["total-data-files"]),
            "delete files": int(summary["total-delete-files"]),
            "snapshots": len(table.metadata.snapshots),
            "manifests": len(snapshot.manifests(table.io)),
            "metadata kB": len(table.io.new_input(table.metadata_location)) // 1_000,
            "query ms": min(query_ns, default=0) // 10**6,
        }

    def summary(self) -> Mapping[str, str]:
        """Properties of the newest snapshot."""
        snapshot = self.reloaded().current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return snapshot.summary.additional_properties


@contextlib.contextmanager
def maintained_tables(
    rest_catalog: RestCatalog, session: Session, *, java_uri: str | None = None
) -> Iterator[Callable[..., MaintainedTable]]:
    """Make tables in the Java REST catalog, by their partition fields.

    Args:
        rest_catalog: the catalog.
        session: Spark.
        java_uri: where the maintenance reaches the catalog, if not at the catalog itself.
    """
    catalog = open_catalog("iceberg", rest_catalog.properties)
    uri = java_uri or rest_catalog.uri
    java = JavaCatalog.of("iceberg", {**rest_catalog.properties, "uri": uri})

    def made(*fields: SpecField) -> MaintainedTable:
        name = ("db", f"m_{uuid4().hex[:8]}")
        properties = {"write.delete.mode": "merge-on-read"}
        table = catalog.create(name, SCHEMA, PartitionSpec(*fields), properties)
        return MaintainedTable(session, catalog, java, table)

    yield made
    catalog.close()
