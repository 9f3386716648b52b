"""``icefloe audit`` of a connector that ran: a sound history passes, a tampered one is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from pyiceberg.table import Table
from typer.testing import CliRunner

from connect.cli.audit_command import audit
from tests.support.running_stack import RunningStack
from tests.support.stack import unique_name

AUDIT = typer.Typer()
AUDIT.command()(audit)
pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@dataclass(frozen=True, slots=True)
class AuditedConnector:
    """A connector with two commits, and how to audit it."""

    running: RunningStack
    name: str
    table_name: str
    file: Path

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self.running.catalog.load_table(self.table_name)

    def audit(self, *options: str) -> tuple[int, dict[str, Any]]:
        """Exit status and findings, asked of the node."""
        where = ["--server", self.running.stack.rest_url, "-o", "json"]
        done = CliRunner().invoke(AUDIT, [self.name, *where, *options])
        assert done.exit_code in {0, 1}, done.exception
        assert done.stdout, done.exception
        report: dict[str, Any] = json.loads(done.stdout)
        return done.exit_code, report


@contextmanager
def two_commits(running: RunningStack, folder: Path) -> Iterator[AuditedConnector]:
    """Two commits of records in two partitions, one dead letter, one record dropped."""
    name = unique_name("audited")
    table = f"audits.{name.replace('-', '_')}"
    running.table(table)
    topic = running.topic("audited", partitions=2)
    config = running.connector(
        topics=topic,
        iceberg__tables=table,
        errors__tolerance="all",
        errors__deadletterqueue__topic__name=f"dead-{name}",
        errors__deadletterqueue__topic__replication__factor="1",
    )
    file = folder / "connector.json"
    file.write_text(json.dumps({"name": name, "config": config}))
    for partition in (0, 1):
        running.produce(topic, *({"id": n, "name": "a"} for n in range(10)), partition=partition)
    running.create(name, config)
    running.rows(table, 20, name)
    running.produce(topic, {"id": 10, "name": "b"}, b"{not json", {"id": 11, "name": "b"})
    running.rows(table, 22, name)
    running.stop(name)  # so that tampering meets no commit
    yield AuditedConnector(running, name, table, file)
    running.delete(name)


@pytest.fixture(scope="module")
def history(
    running: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AuditedConnector]:
    """An audited connector whose rows the last test deletes."""
    with two_commits(running, tmp_path_factory.mktemp("audited")) as made:
        yield made


@pytest.fixture
def tampered(running: RunningStack, tmp_path: Path) -> Iterator[AuditedConnector]:
    """An audited connector of one test, which may damage its history."""
    with two_commits(running, tmp_path) as made:
        yield made


def test_an_audit_of_an_intact_history_passes(history: AuditedConnector) -> None:
    """By the node, and directly by broker and catalog: every record is accounted for."""
    status, report = history.audit()
    assert (status, report["sound"], report["mismatches"]) == (0, True, [])
    assert [s["read"] for s in report["sources"]] == [13, 10]
    assert [s["written"] for s in report["sources"]] == [12, 10]
    assert sum(s["dead_lettered"] for s in report["sources"]) == 1
    (table,) = report["tables"]
    assert (table["announced"], table["committed"], table["now"]) == (22, 22, 22)
    assert (table["waiting"], table["unproved"], table["others"]) == (0, 0, 0)
    where = ["--bootstrap-server", history.running.stack.bootstrap_servers]
    arguments = [history.name, "-f", str(history.file), *where]
    done = CliRunner().invoke(AUDIT, [*arguments, "-o", "json"])
    assert {"connector": history.name, **json.loads(done.stdout)} == report
    displayed = CliRunner().invoke(AUDIT, arguments).stdout.splitlines()
    assert displayed[-1] == "everything that can be proved adds up"


def delete_rows(table: Table) -> None:
    """Delete rows."""
    table.delete("id < 3")


def list_a_file_twice(table: Table) -> None:
    """Add a file that the table already has."""
    path = next(iter(table.scan().plan_files())).file.file_path
    table.add_files([path], check_duplicate_files=False)


def roll_back(table: Table) -> None:
    """Roll the table back by one snapshot."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.parent_snapshot_id is not None
    table.manage_snapshots().set_current_snapshot(snapshot.parent_snapshot_id).commit()


@pytest.mark.parametrize(
    ("tamper", "code"),
    [(list_a_file_twice, "file_twice"), (roll_back, "announcement_lost")],
)
def test_an_audit_names_the_first_mismatch(
    tampered: AuditedConnector, tamper: Callable[[Table], None], code: str
) -> None:
    """The exit status is 1."""
    tamper(tampered.table)
    status, report = tampered.audit()
    assert (status, report["sound"]) == (1, False)
    first = report["mismatches"][0]
    assert first["code"] == code
    assert first["where"]["table"] == tampered.table_name
    if code == "announcement_lost":
        assert "has passed 2 announced rows" in first["text"]
        assert (first["where"]["partition"], first["where"]["start_offset"]) == (0, 10)


def test_deleted_rows_are_named(history: AuditedConnector) -> None:
    """Other writers may delete rows: they are named with the count; optionally a mismatch."""
    delete_rows(history.table)
    status, report = history.audit()
    assert (status, report["changed_by_others"]) == (0, True)
    (table,) = report["tables"]
    assert (table["committed"], table["others"], table["now"]) == (22, -6, 16)
    head = history.table.current_snapshot()
    assert head is not None
    assert any(str(head.snapshot_id) in note for note in report["notes"])
    assert history.audit("--strict")[0] == 1
