"""Failed commits: what the committer keeps, reports and deletes."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from pyiceberg.table import Table

from connect import failpoints
from connect.errors import CommitConflict, CommitRefused, CommitStateUnknown, RetriableError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import CoordinatorFenced, TableCommit, TableCommitted, TableFailed
from tests.support.faulty_http import FaultyProxy
from tests.support.stack import RestCatalog, unique_name
from tests.support.table_harness import SCHEMA
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    made_up_file,
    metadata_files,
    reference,
    table_commit,
)

UNKNOWN = ["500", "502", "503", "504", "507", "408", "cut", "garbage", "empty", "hang"]
REFUSED = ["400", "403", "404", "422"]


@pytest.fixture
def proxy(rest_catalog: RestCatalog) -> Iterator[FaultyProxy]:
    """A proxy before the REST catalog."""
    running = FaultyProxy(rest_catalog.uri)
    yield running
    running.close()


@pytest.fixture
def catalog(proxy: FaultyProxy, rest_catalog: RestCatalog) -> Iterator[CatalogGateway]:
    """A gateway through the proxy."""
    gateway = open_catalog("iceberg", {**rest_catalog.properties, "uri": proxy.uri})
    yield gateway
    gateway.close()


@pytest.fixture
def impatient(proxy: FaultyProxy, rest_catalog: RestCatalog) -> Iterator[CatalogGateway]:
    """The same with a time limit of two seconds."""
    limits = {"rest.client.socket-timeout-ms": "2000"}
    gateway = open_catalog("iceberg", {**rest_catalog.properties, "uri": proxy.uri, **limits})
    yield gateway
    gateway.close()


@pytest.fixture
def table(catalog: CatalogGateway) -> Table:
    """A fresh table."""
    return catalog.create(("db", unique_name(f"f-{uuid4().hex[:8]}")), SCHEMA)


def _committer(catalog: CatalogGateway, table: Table) -> Committer:
    return Committer(catalog, connector("c", [".".join(table.name())]), QuickClock())


def _round(table: Table, offset: int) -> TableCommit:
    return table_commit([announced(reference(table), [made_up_file(table)], offset=offset)])


def _files(catalog: CatalogGateway, table: Table) -> list[str]:
    head = catalog.load(table.name()).current_snapshot()
    return (
        []
        if head is None
        else [
            entry.data_file.file_path
            for manifest in head.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io)
        ]
    )


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_is_reported_and_leaves_no_files(
    proxy: FaultyProxy, catalog: CatalogGateway, table: Table, what: str
) -> None:
    """The table fails with the catalog's message; a closed committer deletes its manifests."""
    committer = _committer(catalog, table)
    proxy.faults.append(f"refused:{what}")
    commit = _round(table, 0)
    outcome = committer.commit(commit)
    assert isinstance(outcome, TableFailed)
    assert "injected" in outcome.message
    assert outcome.is_retriable == (what == "403")
    assert len(metadata_files(table)) == 1
    committer.close()
    assert not metadata_files(table)
    assert isinstance(committer.commit(commit), TableCommitted)


@pytest.mark.parametrize("where", ["refused", "applied"])
def test_a_throttled_commit_is_repeated_after_the_requested_time(
    proxy: FaultyProxy, catalog: CatalogGateway, table: Table, where: str
) -> None:
    """A commit that was applied is recognised."""
    committer = _committer(catalog, table)
    proxy.retry_after = "7"
    proxy.faults.extend([f"{where}:429", f"{where}:429"])
    assert isinstance(committer.commit(_round(table, 0)), TableCommitted)
    assert isinstance(committer.clock, QuickClock)
    waits = [ms for ms in committer.clock.slept_ms if ms >= 7_000]
    assert len(waits) == (2 if where == "refused" else 0)
    assert len(_files(catalog, table)) == 1


@pytest.mark.parametrize("asked", [None, "20", "86400", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_the_wait_for_a_throttling_catalog_is_bounded(
    proxy: FaultyProxy, catalog: CatalogGateway, table: Table, asked: str | None
) -> None:
    """A wait of more than half a minute is left to the next round."""
    committer = _committer(catalog, table)
    proxy.retry_after = asked
    proxy.faults.extend(["refused:429"] * 100)
    commit = _round(table, 0)
    outcome = committer.commit(commit)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("catalog_throttled", True)
    assert isinstance(committer.clock, QuickClock)
    assert sum(committer.clock.slept_ms) <= 30_000
    assert len(metadata_files(table)) == 1  # the manifest, for the next round
    proxy.faults.clear()
    assert isinstance(committer.commit(commit), TableCommitted)


def test_throttled_reads_are_repeated(
    proxy: FaultyProxy, catalog: CatalogGateway, table: Table
) -> None:
    """A table is loaded in the end, also by workers and tools, or the error says why not."""
    proxy.retry_after = "0"
    proxy.load_faults.extend(["refused:429"] * 3)
    before = proxy.loads
    assert catalog.load(table.name()).name() == table.name()
    assert proxy.loads - before == 4
    proxy.load_faults.extend(["refused:429"] * 100)
    with pytest.raises(RetriableError) as raised:
        catalog.load(table.name())
    assert raised.value.code == "catalog_throttled"
    assert proxy.loads - before == 9


@pytest.mark.parametrize("what", ["401", "419"])
def test_a_commit_that_the_client_repeats_is_recognised(
    proxy: FaultyProxy, catalog: CatalogGateway, table: Table, what: str
) -> None:
    """PyIceberg refreshes its token and posts again: the conflict is with our own commit."""
    committer = _committer(catalog, table)
    proxy.faults.append(f"applied:{what}")
    assert isinstance(committer.commit(_round(table, 0)), TableCommitted)
    assert (proxy.commits, proxy.applied) == (2, 1)
    assert len(_files(catalog, table)) == 1


def test_an_unknown_outcome_is_resolved_in_the_next_round(
    proxy: FaultyProxy, catalog: CatalogGateway, table: Table
) -> None:
    """While the catalog is down the files are kept; they are not added twice."""
    committer = _committer(catalog, table)
    assert isinstance(committer.commit(_round(table, 0)), TableCommitted)
    proxy.faults.append("applied:cut")
    proxy.before_commit.append(lambda: proxy.load_faults.extend(["refused:503"] * 2000))
    commit = _round(table, 1)
    outcome = committer.commit(commit)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("commit_unknown", True)
    proxy.before_commit.clear()
    proxy.load_faults.clear()
    assert committer.commit(commit) == TableCommitted(commit.table, commit.commit_id, None)
    assert isinstance(committer.commit(_round(table, 2)), TableCommitted)
    files = _files(catalog, table)
    assert len(files) == len(set(files)) == 3


def test_an_attempt_that_is_applied_late_adds_its_files_once(
    proxy: FaultyProxy, catalog: CatalogGateway, table: Table, rest_catalog: RestCatalog
) -> None:
    """It is applied after the next round has started."""
    committer = _committer(catalog, table)
    assert isinstance(committer.commit(_round(table, 0)), TableCommitted)
    late: list[tuple[object, ...]] = []
    real_commit = catalog.commit

    def lost(*request: object, **_: bool) -> Table:
        late.append(request)
        proxy.load_faults.extend(["refused:503"] * 2000)
        raise CommitStateUnknown("lost on the way")

    first, second = _round(table, 1), _round(table, 2)
    catalog.commit = lost
    outcome = committer.commit(first)
    assert isinstance(outcome, TableFailed)
    proxy.load_faults.clear()
    catalog.commit = real_commit
    direct = open_catalog("iceberg", rest_catalog.properties)

    def land() -> None:
        proxy.before_commit.clear()
        direct.commit(*late[0])

    proxy.before_commit.append(land)
    both = table_commit([*first.announcements, *second.announcements])
    outcome = committer.commit(both)
    direct.close()
    assert isinstance(outcome, TableCommitted)
    assert outcome.files == 1
    files = _files(catalog, table)
    assert len(files) == len(set(files)) == 3


def test_a_conflict_leaves_no_files(
    proxy: FaultyProxy, catalog: CatalogGateway, table: Table, rest_catalog: RestCatalog
) -> None:
    """The manifest list of the lost attempt is deleted; the manifests are used again."""
    committer = _committer(catalog, table)
    assert isinstance(committer.commit(_round(table, 0)), TableCommitted)
    direct = open_catalog("iceberg", rest_catalog.properties)
    foreign = Committer(direct, connector("d", [".".join(table.name())]), QuickClock())

    def race() -> None:
        proxy.before_commit.clear()
        assert isinstance(foreign.commit(_round(table, 7)), TableCommitted)

    proxy.before_commit.append(race)
    assert isinstance(committer.commit(_round(table, 1)), TableCommitted)
    direct.close()
    assert len(metadata_files(table)) == 6  # three commits, a list and a manifest each
    assert len(_files(catalog, table)) == 3


def test_repeated_conflicts_fail_the_round(
    proxy: FaultyProxy, catalog: CatalogGateway, table: Table
) -> None:
    """The next round tries again."""
    proxy.faults.extend(["refused:409"] * 100)
    committer = _committer(catalog, table)
    outcome = committer.commit(_round(table, 0))
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("commit_conflict", True)
    assert proxy.commits == 10
    assert len(metadata_files(table)) == 1
    committer.close()
    assert not metadata_files(table)


def test_an_unavailable_catalog_is_retriable(
    proxy: FaultyProxy, catalog: CatalogGateway, table: Table
) -> None:
    """Nothing was attempted: the next round tries again."""
    proxy.load_faults.append("refused:503")
    outcome = _committer(catalog, table).commit(_round(table, 0))
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("catalog_unavailable", True)


@pytest.mark.parametrize("where", ["applied", "refused"])
def test_the_gateway_makes_one_attempt(
    proxy: FaultyProxy,
    catalog: CatalogGateway,
    impatient: CatalogGateway,
    table: Table,
    where: str,
) -> None:
    """Each fault becomes one of three errors, after one request."""
    for what in [*UNKNOWN, *REFUSED, "429", "409"]:
        proxy.commits = 0
        proxy.faults.append(f"{where}:{what}")
        gateway = impatient if what == "hang" else catalog
        with pytest.raises((CommitConflict, CommitRefused, CommitStateUnknown)) as raised:
            gateway.commit(catalog.load(table.name()), [], [])
        assert proxy.commits == 1
        expected = CommitStateUnknown if what in UNKNOWN else CommitRefused
        assert raised.type is (CommitConflict if what == "409" else expected)


@pytest.mark.parametrize("point", ["C7", "C8", "C9", "C10", "C11", "C12"])
def test_an_error_at_any_point_of_a_commit_adds_the_files_once(
    catalog: CatalogGateway, table: Table, point: str
) -> None:
    """At any point of failure, the files are in the table once in the end."""
    committer = _committer(catalog, table)
    commit = _round(table, 0)
    failpoints.configure(f"{point}=raise@1")
    try:
        first = committer.commit(commit)
    finally:
        failpoints.configure("")
    second = committer.commit(commit)
    assert not isinstance(first, CoordinatorFenced)
    assert isinstance(second, TableCommitted)
    assert len(_files(catalog, table)) == 1
