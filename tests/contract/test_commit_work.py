"""What one commit does, counted: the work that decides how many commits a process can make."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyiceberg.manifest
import pytest
import requests.sessions
from pydantic import BaseModel
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog.catalog_clients import GuardedRest
from coordinator.commit.committer import Committer
from coordinator.kernel.effects import TableCommitted
from tests.support.fakes.rest_catalog import MemoryCatalogServer
from tests.support.table_harness import SCHEMA, TableHarness
from tests.support.tables import announced, reference, table_commit

KINDS = ("rest", "sql")


class Work(Counter[str]):
    """Counts calls of functions while ``during`` runs something."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._patch = patch
        self._thread = threading.get_ident()

    def count(self, owner: Any, name: str, label: str) -> None:
        """Count the calls of a function."""
        inner = getattr(owner, name)

        def counted(*args: Any, **options: Any) -> Any:
            if threading.get_ident() == self._thread:  # a catalog may answer in this process
                self[label] += 1
            return inner(*args, **options)

        self._patch.setattr(owner, name, counted)

    def during(self, work: Callable[[], object]) -> dict[str, int]:
        """What a call did."""
        self.clear()
        work()
        return dict(self)


@pytest.fixture
def memory_catalog(tmp_path: Path) -> Iterator[MemoryCatalogServer]:
    """A REST catalog without a latency."""
    server = MemoryCatalogServer(f"file://{tmp_path}/warehouse")
    server.start()
    yield server
    server.close()


@pytest.fixture(params=KINDS)
def gateway(request: pytest.FixtureRequest) -> Iterator[CatalogGateway]:
    """A gateway to each kind of catalog."""
    name = "memory_catalog" if request.param == "rest" else "sql_catalog_properties"
    given = request.getfixturevalue(name)
    opened = open_catalog("iceberg", given.properties if request.param == "rest" else given)
    yield opened
    opened.close()


def commit(committer: Committer, harness: TableHarness, offset: int) -> None:
    """Commit two new files."""
    event = announced(reference(harness.table), harness.files(2), offset=offset)
    outcome = committer.commit(table_commit([event]))
    assert isinstance(outcome, TableCommitted), outcome
    assert outcome.snapshot_id is not None


def test_a_commit_of_a_known_table(
    gateway: CatalogGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first minute, and when the coordinator knows that it is alone."""
    harness = TableHarness(gateway, gateway.create(("db", "t"), SCHEMA))
    committer = harness.committer()
    for offset in range(3):
        commit(committer, harness, offset)
    work = Work(monkeypatch)
    work.count(requests.sessions.Session, "send", "requests")
    work.count(requests.sessions, "get_environ_proxies", "reads of the environment")
    work.count(PyArrowFileIO, "new_output", "files written")
    work.count(pyiceberg.manifest, "read_manifest_list", "manifest lists read")
    work.count(copy, "deepcopy", "deep copies")
    work.count(BaseModel, "__deepcopy__", "deep copies")
    work.count(Schema, "__init__", "schemas made")
    expected = {"requests": 2, "files written": 2}  # a manifest and the list of manifests
    if not isinstance(gateway._client(), GuardedRest):
        expected = {"files written": 3}  # and the metadata, which the client writes
    assert work.during(lambda: commit(committer, harness, 3)) == expected
    committer._memories[harness.table.name()].held_files.since_ms = 0
    assert work.during(lambda: commit(committer, harness, 4)) == expected
    assert work.during(lambda: commit(committer, harness, 5)) == expected


def test_a_metadata_file_is_read_once_for_a_commit(
    sql_catalog_properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the load; the commit's own load finds the same file."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    harness = TableHarness(gateway, gateway.create(("db", "t"), SCHEMA))
    committer = harness.committer()
    commit(committer, harness, 0)
    work = Work(monkeypatch)
    work.count(PyArrowFileIO, "new_input", "opened")
    commit(committer, harness, 1)
    verified = 3  # each file that was written
    assert work["opened"] == verified + 1
    other = TableHarness(gateway, harness.table, "d")
    racing_before = work["opened"]
    load = gateway.load

    def load_then_lose(*args: Any, **options: Any) -> Any:
        table = load(*args, **options)
        monkeypatch.setattr(gateway, "load", load)
        commit(other.committer(), other, 0)
        return table

    monkeypatch.setattr(gateway, "load", load_then_lose)
    commit(committer, harness, 2)
    assert work["opened"] > racing_before + verified + 1
    assert len(harness.reloaded().metadata.snapshots) == 4
    gateway.close()


def test_snapshots_are_made_for_branches_and_tags_only(
    memory_catalog: MemoryCatalogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit to a table with 300 snapshots makes as many objects as one to a table with 5.

    This catalog answers every request with all snapshots.
    """
    made = {}
    gateway = open_catalog("iceberg", memory_catalog.properties)
    for snapshots in (5, 300):
        harness = TableHarness(gateway, gateway.create(("db", f"t{snapshots}"), SCHEMA))
        committer = harness.committer()
        for offset in range(3):
            commit(committer, harness, offset)
            committer._memories[harness.table.name()].held_files.since_ms = 0
        key = ("db", f"t{snapshots}")
        metadata = memory_catalog.catalog.tables[key]
        old = [
            metadata.snapshots[0].model_copy(update={"snapshot_id": n}) for n in range(1, snapshots)
        ]
        memory_catalog.catalog.tables[key] = metadata.model_copy(
            update={"snapshots": [*old, *metadata.snapshots]}
        )
        work = Work(monkeypatch)
        answers: list[int] = []
        load = GuardedRest.load_references

        def noted(*args: Any, load: Any = load, answers: list[int] = answers, **kw: Any) -> Any:
            table = load(*args, **kw)
            answers.append(len(table.metadata.snapshots))
            return table

        monkeypatch.setattr(GuardedRest, "load_references", noted)
        work.count(GuardedRest, "commit_table", "answers parsed")
        commit(committer, harness, 3)
        monkeypatch.undo()
        made[snapshots] = (answers, dict(work))
    assert made[5] == made[300] == ([1], {})
    gateway.close()
