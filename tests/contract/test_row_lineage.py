"""Row ids of tables of format version 3, on catalogs of both kinds, as the specification has them.

``lineage_of`` reads the metadata and the Avro files with fastavro, not with the code under test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from uuid import uuid4

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import UpgradeFormatVersionUpdate

from connect.errors import CommitConflict, CommitRefused, CommitStateUnknown, IcefloeError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from control_schemas.events import FileContent
from coordinator.commit.operator_changes.valid_through_reset import reset_claims
from coordinator.kernel.effects import TableCommit, TableCommitted, TableFailed
from tests.support.row_lineage import lineage_of, next_row_id
from tests.support.stack import RestCatalog, unique_name
from tests.support.table_harness import SCHEMA, Racing, TableHarness, stale_numbers
from tests.support.tables import QuickClock, announced, connector, reference, table_commit

V3 = {"format-version": "3"}
MERGE_SOON = {**V3, "commit.manifest.min-count-to-merge": "2"}


@pytest.fixture(params=["sqlite", "rest"])
def catalog(request: pytest.FixtureRequest) -> Iterator[CatalogGateway]:
    """A catalog whose client writes metadata, and one whose server does."""
    if request.param == "rest":
        rest: RestCatalog = request.getfixturevalue("rest_catalog")
        properties = rest.properties
    else:
        properties = request.getfixturevalue("sql_catalog_properties")
    gateway = open_catalog("iceberg", properties)
    yield gateway
    gateway.close()


def _harness(catalog: CatalogGateway, properties: dict[str, str] = V3) -> TableHarness:
    name = unique_name(f"v3-{uuid4().hex[:8]}")
    return TableHarness(catalog, catalog.create(("db", name), SCHEMA, properties=properties))


@pytest.fixture
def harness(catalog: CatalogGateway) -> TableHarness:
    """A fresh table."""
    return _harness(catalog)


def _deletes(harness: TableHarness, offset: int, batch: int | None = None) -> TableCommit:
    deletes = harness.files(content=FileContent.EQUALITY_DELETES, equality_ids=(1,), records=3)
    files = harness.files(2, records=7)
    given = announced(reference(harness.table), files, deletes, offset=offset, batch=batch)
    return table_commit([given])


def test_appends_assign_consecutive_row_ids(harness: TableHarness) -> None:
    """Each snapshot begins where the last one ended; the table's next id is above all of them."""
    committer = harness.committer()
    for offset, files in enumerate((1, 3, 2)):
        assert isinstance(committer.commit(harness.round(offset, files)), TableCommitted)
    table = harness.reloaded()
    assert table.metadata.format_version == 3
    snapshots = sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0)
    assert [(s.first_row_id, s.added_rows) for s in snapshots] == [(0, 10), (10, 30), (40, 20)]
    assert next_row_id(table) == 60
    assert sorted(lineage_of(table).values()) == [(n * 10, 10) for n in range(6)]
    assert not stale_numbers(table)


def test_merged_manifests_keep_the_row_ids_of_their_files(catalog: CatalogGateway) -> None:
    """No file changes its ids in any snapshot, and no id is given twice."""
    harness = _harness(catalog, MERGE_SOON)
    committer = harness.committer()
    seen: dict[str, tuple[int, int]] = {}
    for offset in range(6):
        assert isinstance(committer.commit(harness.round(offset, 2)), TableCommitted)
        now = lineage_of(harness.reloaded())
        assert len(now) == 2 * (offset + 1)
        assert {path: now[path] for path in seen} == seen
        seen = now
    head = harness.reloaded().current_snapshot()
    assert len(head.manifests(harness.table.io)) == 1
    # a coordinator that has no manifests in memory reads them
    assert isinstance(harness.committer().commit(harness.round(9)), TableCommitted)
    now = lineage_of(harness.reloaded())
    assert {path: now[path] for path in seen} == seen
    assert len(now) == 13


@pytest.mark.parametrize("kind", ["append", "row-level"])
@pytest.mark.parametrize("branch", ["main", "other"])
def test_writers_that_commit_first_take_their_row_ids(
    catalog: CatalogGateway, kind: str, branch: str
) -> None:
    """Each attempt assigns ids above those of the commits that it lost against."""
    harness = _harness(catalog, MERGE_SOON)
    first = harness.committer()
    assert isinstance(first.commit(harness.round(0)), TableCommitted)
    settings = {} if branch == "main" else {"iceberg__tables__default_commit_branch": branch}
    theirs = TableHarness(catalog, harness.table, "d").committer(settings=settings)
    other = TableHarness(catalog, harness.table, "d")
    offsets = iter(range(100))
    racing = Racing(catalog, [lambda: theirs.commit(_deletes(other, next(offsets)))] * 2)
    ours = replace(harness, catalog=racing).committer()
    commit = harness.round(1) if kind == "append" else _deletes(harness, 1, batch=7)
    outcome = ours.commit(commit)
    assert isinstance(outcome, TableCommitted), outcome
    table = harness.reloaded()
    assert not stale_numbers(table)
    everything = lineage_of(table) | lineage_of(table, branch)
    assert len(everything) == (1 + 2 * 2 + (1 if kind == "append" else 2))
    starts = sorted(everything.values())
    assert all(a + n <= b for (a, n), (b, _) in pairwise(starts)), starts
    assert starts[-1][0] + starts[-1][1] <= next_row_id(table)


class Lossy(CatalogGateway):
    """A catalog whose answers to commits are lost while there is an answer to give."""

    answer: Callable[[], IcefloeError] | None = None
    is_applied = False

    def commit(self, *change: object, **options: bool) -> Table:
        """Apply or not, and fail as asked."""
        if self.answer is None:
            return super().commit(*change, **options)
        error = self.answer()
        self.answer = None
        if self.is_applied:
            super().commit(*change, **options)
        raise error


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("error", [CommitStateUnknown, CommitConflict])
def test_unknown_outcomes_give_no_row_an_id_twice(
    catalog: CatalogGateway, error: type[IcefloeError], *, is_applied: bool
) -> None:
    """The files are once in the table, with ids, after any outcome of the attempt."""
    lossy = Lossy("iceberg", catalog.config)
    harness = _harness(lossy)
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(0)), TableCommitted)
    lossy.answer, lossy.is_applied = (lambda: error("lost")), is_applied
    outcome = committer.commit(harness.round(1, 2))
    assert isinstance(outcome, TableCommitted), outcome
    assert isinstance(committer.commit(harness.round(2, 3)), TableCommitted)
    table = harness.reloaded()
    assert sorted(lineage_of(table).values()) == [(n * 10, 10) for n in range(6)]
    assert next_row_id(table) == 60
    lossy.close()


def test_row_level_commits_have_row_ids_for_data_only(harness: TableHarness) -> None:
    """Steps have sequence numbers of their own; delete manifests have no row ids."""
    committer = harness.committer()
    events = []
    for batch in (1, 2, 3):
        deletes = harness.files(content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
        events.append(
            announced(reference(harness.table), harness.files(), deletes, offset=batch, batch=batch)
        )
    assert isinstance(committer.commit(table_commit(events)), TableCommitted)
    table = harness.reloaded()
    assert sorted(lineage_of(table).values()) == [(0, 10), (10, 10), (20, 10)]
    assert next_row_id(table) == 30
    assert table.current_snapshot().sequence_number == 3
    assert not stale_numbers(table)


def test_a_snapshot_without_files_assigns_no_row_ids(harness: TableHarness) -> None:
    """An operator resets a valid-through time; row ids continue with the next files."""
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(0, 2, valid_through_us=1)), TableCommitted)
    name = ".".join(harness.table.name())
    [report] = reset_claims(
        harness.catalog,
        connector("c", [name]),
        [name],
        "a wrong date",
        QuickClock(),
        control_ends={0: 1},
        is_applied=True,
    )
    assert report["code"] is None
    assert report["snapshot_id"] is not None
    head = harness.reloaded().current_snapshot()
    assert head is not None
    assert (head.snapshot_id, head.first_row_id, head.added_rows) == (report["snapshot_id"], 20, 0)
    assert isinstance(harness.committer().commit(harness.round(5)), TableCommitted)
    table = harness.reloaded()
    assert sorted(lineage_of(table).values()) == [(0, 10), (10, 10), (20, 10)]
    assert next_row_id(table) == 30


@pytest.mark.parametrize("min_count", ["2", "100"])
def test_a_table_that_is_upgraded_gets_row_ids_with_the_next_commit(
    rest_catalog: RestCatalog, min_count: str
) -> None:
    """Also the files that were there before; manifests kept of the old version are not used."""
    gateway = open_catalog("iceberg", rest_catalog.properties)
    lossy = Lossy("iceberg", gateway.config)
    name = unique_name(f"v2-{uuid4().hex[:8]}")
    properties = {"commit.manifest.min-count-to-merge": min_count}
    harness = TableHarness(lossy, lossy.create(("db", name), SCHEMA, properties=properties))
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(0, 2)), TableCommitted)
    kept = harness.round(1)
    lossy.answer = lambda: CommitRefused("not for you", code="forbidden")
    assert isinstance(committer.commit(kept), TableFailed)
    harness.change(UpgradeFormatVersionUpdate(format_version=3))
    assert isinstance(committer.commit(kept), TableCommitted)
    table = harness.reloaded()
    assert table.metadata.format_version == 3
    lineage = lineage_of(table)
    assert sorted(lineage.values()) == [(0, 10), (10, 10), (20, 10)]
    assert next_row_id(table) == 30
    assert isinstance(committer.commit(harness.round(2)), TableCommitted)
    assert {path: lineage_of(harness.reloaded())[path] for path in lineage} == lineage
    lossy.close()
    gateway.close()


@pytest.mark.parametrize("seed", range(6))
def test_row_ids_are_unique_and_stable_under_any_faults(
    sql_catalog_properties: dict[str, str], seed: int
) -> None:
    """Conflicts, lost answers, other writers and branches, merges and new coordinators, by seed."""
    chance = random.Random(seed)
    gateway = open_catalog("iceberg", sql_catalog_properties)
    lossy = Lossy("iceberg", gateway.config)
    harness = _harness(lossy, MERGE_SOON | {"commit.manifest.min-count-to-merge": "4"})
    side = {"iceberg__tables__default_commit_branch": "side"}
    assert isinstance(harness.committer().commit(harness.round(0)), TableCommitted)
    others = {
        name: (TableHarness(gateway, harness.table, name), settings)
        for name, settings in (("d", {}), ("e", side))
    }
    committers = {name: h.committer(settings=more) for name, (h, more) in others.items()}
    committers["c"] = harness.committer()
    seen: dict[str, tuple[int, int]] = {}
    for offset in range(1, 16):
        name = chance.choice("cccde")
        its = harness if name == "c" else others[name][0]
        if chance.random() < 0.2:
            settings = {} if name == "c" else others[name][1]
            committers[name] = its.committer(settings=settings)
        if name == "c" and chance.random() < 0.5:
            error = chance.choice([CommitStateUnknown, CommitConflict])
            lossy.answer, lossy.is_applied = partial(error, "lost"), chance.random() < 0.5
        is_append = chance.random() < 0.6
        files = chance.randint(1, 3)
        commit = its.round(offset, files) if is_append else _deletes(its, offset)
        outcome = committers[name].commit(commit)
        assert isinstance(outcome, TableCommitted), outcome
        table = harness.reloaded()
        refs = [ref for ref in ("main", "side") if ref in table.metadata.refs]
        found = [lineage_of(table, ref) for ref in refs]
        now = {path: ids for some in found for path, ids in some.items()}
        assert all(some[path] == now[path] for some in found for path in some)
        assert {path: now[path] for path in seen} == seen
        ranges = sorted(now.values())
        assert all(a + count <= b for (a, count), (b, _) in pairwise(ranges)), ranges
        assert ranges[-1][0] + ranges[-1][1] <= (next_row_id(table) or 0)
        seen = now
    assert len(seen) > 15
    lossy.close()
    gateway.close()
