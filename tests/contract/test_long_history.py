"""Commits to a table with many snapshots: the history is read only if others may have committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import (
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
)
from requests import Response

from connect.clock import SystemClock
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog.catalog_clients import GuardedRest
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import TableCommitted, TableFailed
from tests.support.stack import unique_name
from tests.support.table_harness import EXPIRING, SCHEMA, Racing, TableHarness, paths_of
from tests.support.tables import announced, reference, table_commit

CLAIM = "kafka.connect.valid-through-ts"
NOON_US = 1_767_355_200_000_000


class NotedLoads(CatalogGateway):
    """Notes whether each load asked for the history."""

    loads: list[bool]

    def load(self, identifier: Sequence[str], *, with_history: bool = True) -> Table:
        """Load, and note how."""
        self.loads.append(with_history)
        return super().load(identifier, with_history=with_history)


@pytest.fixture
def noted(harness: TableHarness) -> TableHarness:
    """The table in a catalog that notes its loads."""
    catalog = NotedLoads(harness.catalog.name, harness.catalog.config)
    catalog.loads = []
    return TableHarness(catalog, harness.table)


def veteran(harness: TableHarness, **more: Any) -> Committer:
    """A committer that made its first commit long before the files of its next one were written."""
    committer = harness.committer(**more)
    commit(committer, harness, 0)
    committer._memories[harness.table.name()].held_files.own.since_ms = 0
    return committer


def commit(committer: Committer, harness: TableHarness, offset: int, **more: Any) -> TableCommitted:
    """Commit one new file, or the given ones."""
    files = more.pop("files", None) or harness.files(1)
    event = announced(reference(harness.table), files, offset=offset)
    outcome = committer.commit(table_commit([event], **more))
    assert isinstance(outcome, TableCommitted), outcome
    return outcome


def loads_of(noted: TableHarness, committer: Committer, offset: int, **more: Any) -> list[bool]:
    """How the table was loaded for one commit."""
    assert isinstance(noted.catalog, NotedLoads)
    noted.catalog.loads.clear()
    commit(committer, noted, offset, **more)
    return list(noted.catalog.loads)


def test_a_coordinator_that_is_alone_reads_no_history(noted: TableHarness) -> None:
    """After another writer's commit it reads the history again, for a minute."""
    committer = veteran(noted)
    how = [loads_of(noted, committer, offset) for offset in range(1, 5)]
    assert how == [[True], [False], [False], [False]]
    noted.reloaded().append(pa.table({"id": [1], "name": ["another writer's"]}))
    how = [loads_of(noted, committer, offset) for offset in range(5, 8)]
    assert how == [[False, True], [True], [True]]
    committer._memories[noted.table.name()].held_files._foreign_ms = 0
    assert loads_of(noted, committer, 8) == [False]
    table = noted.reloaded()
    assert len(paths_of(table)) == len(set(paths_of(table))) == 10
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary["total-data-files"] == "10"
    assert len(table.metadata.snapshots) == 10


def test_a_commit_between_load_and_commit_is_noticed(noted: TableHarness) -> None:
    """Another connector commits a file meanwhile, and this one announces the file later."""
    catalog, files = noted.catalog, noted.files(1)
    other = TableHarness(catalog, noted.table, "d")

    def overtake() -> None:
        commit(other.committer(), other, 0, files=files)
        noted.change(RemoveSnapshotRefUpdate(ref_name="icefloe-d"))

    committer = veteran(noted)
    commit(committer, noted, 1)
    racing: Any = Racing(catalog, [overtake])
    committer._catalog = racing
    commit(committer, noted, 2)
    committer._catalog = catalog
    assert commit(committer, noted, 3, files=files).snapshot_id is None
    paths = paths_of(noted.reloaded())
    assert len(paths) == len(set(paths)) == 4


def test_a_rollback_under_another_writers_commit_is_refused(noted: TableHarness) -> None:
    """The new head alone does not show it: it is younger than the connector's last commit."""
    committer = veteran(noted)
    first = noted.reloaded().metadata.current_snapshot_id
    commit(committer, noted, 1)
    to_first = {"ref-name": "main", "type": "branch", "snapshot-id": first}
    noted.change(SetSnapshotRefUpdate.model_validate(to_first))
    noted.reloaded().append(pa.table({"id": [1], "name": ["another writer's"]}))
    outcome = committer.commit(noted.round(2))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "table_rolled_back"


def test_the_claim_of_an_earlier_commit_is_remembered(noted: TableHarness) -> None:
    """A round without a claim follows, the mirror is lost, and no later round claims less."""
    committer = veteran(noted)
    commit(committer, noted, 1, valid_through_us=NOON_US)
    assert loads_of(noted, committer, 2) == [False]
    noted.change(
        RemovePropertiesUpdate(removals=["icefloe.valid-through.control-iceberg.connect-c"])
    )
    assert loads_of(noted, committer, 3, valid_through_us=NOON_US - 1) == [False]
    head = noted.reloaded().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert CLAIM not in head.summary.additional_properties
    assert loads_of(noted, committer, 4, valid_through_us=NOON_US) == [False]
    head = noted.reloaded().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert CLAIM in head.summary.additional_properties


def test_a_file_that_was_announced_long_ago_is_found(noted: TableHarness) -> None:
    """The history is loaded when the memory is not enough."""
    old = noted.files(1)
    other = TableHarness(noted.catalog, noted.table, "d")
    commit(other.committer(), other, 0, files=old)
    committer = veteran(noted)
    for offset in range(1, 5):
        commit(committer, noted, offset)
    held = committer._memories[noted.table.name()].held_files
    held.own.since_ms, held._foreign_ms = SystemClock().now_ms() - 70_000, 0
    assert loads_of(noted, committer, 5, files=[*old, *noted.files(1)]) == [False, True]
    paths = paths_of(noted.reloaded())
    assert len(paths) == len(set(paths)) == 7


def test_the_history_is_read_where_snapshots_expire(noted: TableHarness) -> None:
    """The commit itself removes them."""
    committer = veteran(noted, settings=EXPIRING)
    assert all(loads_of(noted, committer, offset) == [True] for offset in range(1, 5))


def test_a_rest_catalog_is_asked_for_references_only(rest_catalog: Any) -> None:
    """Its answer to a commit lists all snapshots, and is not parsed."""
    with_rest = open_catalog("iceberg", rest_catalog.properties)
    table = with_rest.create(("db", unique_name("history").replace("-", "_")), SCHEMA)
    harness = TableHarness(with_rest, table)
    client = with_rest._client()
    assert isinstance(client, GuardedRest)
    requests: list[tuple[str | None, str]] = []
    snapshots: list[int] = []

    def note(response: Response, **_: Any) -> None:
        query = (response.request.path_url or "").rpartition("?")[2]
        requests.append((response.request.method, query))
        snapshots.append(len(response.json()["metadata"]["snapshots"]))

    client._session.hooks["response"].append(note)
    committer = veteran(harness)
    for offset in range(1, 12):
        requests.clear()
        snapshots.clear()
        commit(committer, harness, offset)
    [(method, query), (sent, _)] = requests
    assert (method, query, sent) == ("GET", "snapshots=refs", "POST")
    assert snapshots == [1, 12]
    assert len(harness.reloaded().metadata.snapshots) == 12
    with_rest.close()
