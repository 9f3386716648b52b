"""Maintenance of tables through the whole product: begun by the node when work is due."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.running_stack import RunningStack, duckdb_rows, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
KEYED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    identifier_field_ids=[1],
)
KEYS = 20
DELETE_FILES = 3  # so many make work due
PREFIX = "iceberg__maintenance__"
SETTINGS = {
    f"{PREFIX}rewrite_data_files__enabled": "true",
    f"{PREFIX}rewrite_data_files__min_delete_files": str(DELETE_FILES),
    f"{PREFIX}min_interval_ms": "0",
    f"{PREFIX}expire_snapshots__enabled": "true",
    f"{PREFIX}expire_snapshots__max_age_ms": "0",
    "iceberg__tables__upsert_mode_enabled": "true",
    "iceberg__tables__default_id_columns": "id",
}


class UpsertConnector:
    """A connector with upserts, and the rows that its table must have."""

    def __init__(self, running: RunningStack) -> None:
        self.running = running
        self.name = unique_name("maintained")
        self.topic = running.topic("source")
        self.table = f"kept.{self.name.replace('-', '_')}"
        self.rows: list[tuple[int, str]] = []
        running.table(self.table, schema=KEYED)
        config = running.connector(topics=self.topic, iceberg__tables=self.table, **SETTINGS)
        config["iceberg.control.topic"] = running.topic("control")
        running.create(self.name, config)

    def produce(self, turn: int) -> None:
        """Write every key again, and wait until that is in the table."""
        rows = [{"id": key, "name": f"turn {turn}"} for key in range(KEYS)]
        self.running.produce(self.topic, *rows)
        self.rows = [(key, f"turn {turn}") for key in range(KEYS)]
        self.running.wait_until(
            lambda: self.read() == self.rows, lambda: f"turn {turn}: {self.view()}"
        )

    def read(self) -> list[tuple[Any, ...]]:
        """The rows as DuckDB reads them."""
        table = self.running.catalog.load_table(self.table)
        return duckdb_rows(table, "id", "name") if table.current_snapshot() else []

    def view(self) -> dict[str, Any]:
        """What the node says of the maintenance."""
        path = f"/icefloe/v1/connectors/{self.name}/maintenance"
        view: dict[str, Any] = self.running.api.get(path).json()
        return view

    def delete_files(self) -> int:
        """Delete files of the newest snapshot."""
        snapshot = self.running.catalog.load_table(self.table).current_snapshot()
        if snapshot is None:
            return 0
        assert snapshot.summary is not None
        return int(snapshot.summary["total-delete-files"] or 0)

    def removed(self) -> int:
        """Delete files that maintenance has removed."""
        return self.running.counts(self.name)["maintenance_delete_files_removed"]

    def maintained(self) -> None:
        """Wait until no delete file is left and no work runs."""
        self.running.wait_until(
            lambda: self.delete_files() == 0 and self.view()["state"] == "IDLE",
            lambda: f"maintenance: {self.view()}",
        )


def test_delete_files_are_applied_while_the_connector_runs(running: RunningStack) -> None:
    """The node starts and ends the process, and every row stays; REST and CLI show it."""
    upserts = UpsertConnector(running)
    turn = 0
    # no commit follows the one that makes work due: its delete file would wait for two more
    while upserts.delete_files() < DELETE_FILES and not upserts.removed():
        upserts.produce(turn)
        turn += 1
    upserts.maintained()
    assert upserts.read() == upserts.rows
    # PyIceberg refuses tables with equality deletes
    rows = running.catalog.load_table(upserts.table).scan().to_arrow().to_pylist()
    assert pick(rows, "id", "name") == upserts.rows
    status, output = running.icefloe("maintenance", "status", upserts.name)
    assert status == 0
    assert "delete-files  DONE" in output
    assert upserts.removed() >= DELETE_FILES
    running.wait_until(
        lambda: not [a for _, a in running.processes() if "worker.maintenance" in a],
        lambda: "the end of the process",
    )
    stop_while_work_is_due(upserts, turn)
    running.delete(upserts.name)


def stop_while_work_is_due(upserts: UpsertConnector, turn: int) -> None:
    """Stop maintenance, and write every key some times: the delete files stay."""
    upserts.maintained()
    assert upserts.running.icefloe("maintenance", "stop", upserts.name)[0] == 0
    for later in range(turn, turn + 4):
        upserts.produce(later)
    assert upserts.view()["state"] == "STOPPED"
    assert upserts.delete_files() >= DELETE_FILES


@pytest.mark.matrix
def test_stopped_maintenance_runs_on_request(running: RunningStack) -> None:
    """Of a connector whose maintenance was stopped before any work was due."""
    upserts = UpsertConnector(running)
    stop_while_work_is_due(upserts, 0)
    assert running.icefloe("maintenance", "run", upserts.name)[0] == 0
    upserts.maintained()
    assert upserts.read() == upserts.rows
    running.delete(upserts.name)


def test_without_its_keys_a_connector_has_no_maintenance(running: RunningStack) -> None:
    """The view says so, and a request for a run is refused."""
    name, topic = unique_name("unmaintained"), running.topic("source")
    table = f"kept.{name.replace('-', '_')}"
    running.table(table)
    running.create(name, running.connector(topics=topic, iceberg__tables=table))
    path = f"/icefloe/v1/connectors/{name}/maintenance"
    running.wait_until(
        lambda: running.api.get(path).json()["state"] == "DISABLED", lambda: "a view"
    )
    assert running.api.post(f"{path}/run").status_code == 409
    assert running.api.get(path.replace(name, "none")).status_code == 404
    running.delete(name)
