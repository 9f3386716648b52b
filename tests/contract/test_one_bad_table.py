"""A fault of one of a connector's three tables does not stop the commits of the other two."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import Table

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog.catalog_errors import request_error
from coordinator.commit.iceberg.committer import Committer
from coordinator.commit.multi_table_commit import JointCommitter, RoundCommitter
from coordinator.kernel.effects import CommitOutcome, TableCommit, TableCommitted, TableFailed
from tests.support.table_harness import SCHEMA, TableHarness, paths_of
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    metadata_files,
    reference,
    table_commit,
)

BAD = ("db", "bad")
NAMES = (BAD, ("db", "good1"), ("db", "good2"))


class RefusingCatalog(CatalogGateway):
    """Refuses to load one table, or raises an error after it has committed one."""

    refused: Sequence[str] = ()
    breaks_after: Sequence[str] = ()

    def load(self, identifier: Sequence[str], *, with_history: bool = True) -> Table:
        """Load, or refuse."""
        if tuple(identifier) == tuple(self.refused):
            raise request_error(ForbiddenError("Forbidden: no grant"))
        return super().load(identifier, with_history=with_history)

    def commit(
        self,
        table: Table,
        requirements: Sequence,
        updates: Sequence,
        **options: bool,
    ) -> Table:
        """Commit; for the chosen table raise an unexpected error afterwards."""
        after = super().commit(table, requirements, updates, **options)
        if tuple(table.name()) == tuple(self.breaks_after):
            self.breaks_after = ()
            raise KeyError("the answer is not what a client expects")
        return after


@dataclass
class ThreeTables:
    """The tables, one committer, and what is announced."""

    catalog: RefusingCatalog
    harnesses: dict[tuple[str, ...], TableHarness]
    committer: Committer

    def commits(self, offset: int) -> list[TableCommit]:
        """A round with a file for each table."""
        return [self.harnesses[name].round(offset) for name in NAMES]

    def run(self, commits: Sequence[TableCommit], *, is_atomic: bool) -> dict[str, CommitOutcome]:
        """What became of a round, by table."""
        round_committer = RoundCommitter(
            self.committer,
            JointCommitter(self.committer, self.catalog) if is_atomic else None,
            threads=2,
            name="c",
        )
        outcomes: dict[str, CommitOutcome] = {}
        round_committer.start(commits)
        try:
            while len(outcomes) < len(commits):
                outcomes |= {o.table.identifier[-1]: o for o in round_committer.outcomes()}
                time.sleep(0.01)
        finally:
            round_committer.close()
        return outcomes


@pytest.fixture
def three(sql_catalog_properties: dict[str, str]) -> Iterator[ThreeTables]:
    """SQLite and a local folder; each table has one snapshot of ours."""
    opened = open_catalog("iceberg", sql_catalog_properties)
    catalog = RefusingCatalog("iceberg", opened.config)
    opened.close()
    harnesses = {name: TableHarness(catalog, catalog.create(name, SCHEMA)) for name in NAMES}
    config = connector("c", [".".join(name) for name in NAMES])
    three = ThreeTables(catalog, harnesses, Committer(catalog, config, QuickClock()))
    for outcome in three.run(three.commits(0), is_atomic=False).values():
        assert isinstance(outcome, TableCommitted)
    three.committer = Committer(catalog, config, QuickClock())  # knows no manifests
    yield three
    catalog.close()


def set_property(three: ThreeTables, key: str, value: str) -> None:
    """Another program sets a property of the bad table."""
    path = Path(three.harnesses[BAD].reloaded().metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["properties"][key] = value
    path.write_text(json.dumps(metadata))


def spoil_manifest_list(three: ThreeTables) -> None:
    """The snapshot's list of manifests is no Avro."""
    head = three.harnesses[BAD].reloaded().current_snapshot()
    assert head is not None
    Path(head.manifest_list.removeprefix("file://")).write_bytes(b"Obj\x01 spoiled")


def spoil_metadata(three: ThreeTables) -> None:
    """The table's metadata is no JSON."""
    path = three.harnesses[BAD].reloaded().metadata_location
    Path(path.removeprefix("file://")).write_text('{"format-version": 2, "table-uuid"')


def refuse(three: ThreeTables) -> None:
    """The catalog answers 403 for the table."""
    three.catalog.refused = BAD


def no_such_store(three: ThreeTables) -> None:
    """The table's metadata folder is in a store that no client exists for."""
    set_property(three, "write.metadata.path", "nosuch://bucket/metadata")


FAULTS: dict[str, tuple[Callable[[ThreeTables], None], str]] = {
    "manifest list": (spoil_manifest_list, "manifest_invalid"),
    "metadata": (spoil_metadata, "metadata_unreadable"),
    "403": (refuse, "forbidden"),
    "store": (no_such_store, "unexpected"),
}


NO_STORE = pytest.mark.filterwarnings("ignore:No preferred file implementation")


@NO_STORE
@pytest.mark.parametrize("is_atomic", [False, True])
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_of_one_table_affects_no_other(
    three: ThreeTables, kind: str, *, is_atomic: bool
) -> None:
    """The bad table fails with a retriable code; the others commit in the same round."""
    spoil, code = FAULTS[kind]
    spoil(three)
    outcomes = three.run(three.commits(5), is_atomic=is_atomic)
    bad = outcomes.pop("bad")
    assert isinstance(bad, TableFailed)
    assert (bad.code, bad.is_retriable) == (code, True)
    assert set(outcomes) == {"good1", "good2"}
    for name, outcome in outcomes.items():
        assert isinstance(outcome, TableCommitted)
        assert len(paths_of(three.harnesses["db", name].reloaded())) == 2


def test_an_invalid_boolean_property_is_false_as_in_java(three: ThreeTables) -> None:
    """``maybe`` is not true."""
    set_property(three, "write.object-storage.enabled", "maybe")
    outcomes = three.run(three.commits(5), is_atomic=False)
    assert all(isinstance(o, TableCommitted) for o in outcomes.values())


@NO_STORE
@pytest.mark.parametrize("kind", ["file", "store"])
def test_an_unexpected_error_leaves_no_files(three: ThreeTables, kind: str) -> None:
    """An error before the commit is sent deletes the metadata files written for it."""
    harness = three.harnesses[BAD]
    before = metadata_files(harness.table)
    if kind == "store":
        no_such_store(three)
    [commit] = [c for c in three.commits(5) if c.table.identifier == BAD]
    if kind == "file":
        [file] = harness.files(lower_bounds={1: "text where bytes belong"})
        commit = table_commit([announced(reference(harness.table), [file], offset=5)])
    outcome = three.committer.commit(commit)
    assert isinstance(outcome, TableFailed)
    assert metadata_files(harness.table) == before


def test_an_unexpected_answer_is_an_unknown_outcome(three: ThreeTables) -> None:
    """The commit was applied: its files stay, and the next round finds its snapshot."""
    three.catalog.breaks_after = BAD
    [commit] = [c for c in three.commits(5) if c.table.identifier == BAD]
    first = three.committer.commit(commit)
    assert isinstance(first, TableFailed)
    assert (first.code, first.is_retriable) == ("unexpected", True)
    harness = three.harnesses[BAD]
    assert len(paths_of(harness.reloaded())) == 2
    again = three.committer.commit(commit)
    assert again == TableCommitted(again.table, again.commit_id, None)
    assert len(paths_of(harness.reloaded())) == 2
