"""Every answer of a catalog, before and after it applied, for one table and for many.

Nothing is lost, nothing is added twice, and no file is deleted that a snapshot refers to.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from uuid import uuid4

import pytest
from pyiceberg.table import Table

from connect import failpoints
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from coordinator.commit.iceberg.committer import Committer
from coordinator.commit.multi_table_commit import JointCommitter, RoundCommitter
from coordinator.kernel.effects import CommitOutcome, TableCommit, TableCommitted, TableFailed
from tests.support.faulty_http import FaultyProxy
from tests.support.stack import RestCatalog, unique_name
from tests.support.table_harness import SCHEMA
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    made_up_file,
    reference,
    table_commit,
)

UNKNOWN = ("500", "502", "503", "504", "507", "408", "cut", "garbage", "empty")
REFUSED = ("400", "403", "404", "422")
AGAIN = ("401", "419", "409", "429")  # the client itself, or we, send it once more
ANSWERS = (*UNKNOWN, *REFUSED, *AGAIN)
ROUNDS_MAX = 4
MANY = 3
IMPATIENT_MS = 2_000  # what the catalog answers must not take so long on a busy machine


class Tables:
    """Tables of one catalog, what was announced for each, and what they hold."""

    def __init__(self, catalog: CatalogGateway, count: int, *, together: bool) -> None:
        self.catalog = catalog
        base = unique_name(f"o-{uuid4().hex[:8]}")
        self.tables = [catalog.create(("db", f"{base}-{n}"), SCHEMA) for n in range(count)]
        names = [".".join(t.name()) for t in self.tables]
        self.committer = Committer(catalog, connector("c", names), QuickClock())
        self.joint = JointCommitter(self.committer, catalog)
        self.round_committer = RoundCommitter(
            self.committer,
            self.joint if together else None,
            threads=count,
            name="test",
        )
        self.announced: dict[tuple[str, ...], list[str]] = {t.name(): [] for t in self.tables}
        self._offset = 0

    def round(self) -> list[TableCommit]:
        """A file for each table; the next round's commits."""
        commits = []
        for table in self.tables:
            file = made_up_file(table)
            self.announced[table.name()].append(file.file_path)
            commits.append(table_commit([announced(reference(table), [file], offset=self._offset)]))
        self._offset += 1
        return commits

    def commit(self, commits: Sequence[TableCommit]) -> dict[tuple[str, ...], CommitOutcome]:
        """One round of the fan-out; waits for all outcomes."""
        self.round_committer.start(commits)
        outcomes: list[CommitOutcome] = []
        while len(outcomes) < len(commits):  # the test's timeout bounds it
            outcomes += self.round_committer.outcomes()
            time.sleep(0.005)
        return {o.table.identifier: o for o in outcomes}

    def commit_all(self, commits: Sequence[TableCommit]) -> int:
        """Commit until every table has taken its share, as rounds would; how many it took."""
        for count in range(1, ROUNDS_MAX + 1):
            outcomes = self.commit(commits)
            commits = [
                c for c in commits if not isinstance(outcomes[c.table.identifier], TableCommitted)
            ]
            if not commits:
                return count
        raise AssertionError(outcomes)

    def check(self, *, snapshots: int) -> None:
        """Each announced file is in its table once; every snapshot can still be read."""
        for table in self.tables:
            now = self.catalog.load(table.name())
            assert len(now.metadata.snapshots) == snapshots
            assert Counter(_paths(now)) == Counter(self.announced[table.name()])


def _paths(table: Table) -> list[str]:
    """The current snapshot's files; reads every manifest of every snapshot once on the way."""
    read: dict[str, list[str]] = {}
    found: list[str] = []
    for snapshot in table.metadata.snapshots:
        found = []
        for manifest in snapshot.manifests(table.io):
            path = manifest.manifest_path
            if path not in read:
                entries = manifest.fetch_manifest_entry(table.io)
                read[path] = [entry.data_file.file_path for entry in entries]
            found += read[path]
    return found


@pytest.fixture(scope="module")
def proxy(rest_catalog: RestCatalog) -> Iterator[FaultyProxy]:
    """A proxy before the REST catalog, for all tests of this module."""
    running = FaultyProxy(rest_catalog.uri)
    yield running
    running.close()


@pytest.fixture(scope="module")
def patient(proxy: FaultyProxy, rest_catalog: RestCatalog) -> Iterator[CatalogGateway]:
    """A gateway through the proxy."""
    gateway = open_catalog("iceberg", {**rest_catalog.properties, "uri": proxy.uri})
    yield gateway
    gateway.close()


@pytest.fixture(scope="module")
def impatient(proxy: FaultyProxy, rest_catalog: RestCatalog) -> Iterator[CatalogGateway]:
    """The same with a time limit that a hanging request exceeds."""
    limits = {"rest.client.socket-timeout-ms": str(IMPATIENT_MS)}
    gateway = open_catalog("iceberg", {**rest_catalog.properties, "uri": proxy.uri, **limits})
    yield gateway
    gateway.close()


@pytest.fixture(autouse=True)
def no_faults_left(proxy: FaultyProxy) -> Iterator[None]:
    """Every test begins and ends with a proxy that only forwards."""
    proxy.faults.clear()
    proxy.load_faults.clear()
    proxy.commits = proxy.transactions = proxy.applied = 0
    yield
    assert not proxy.faults
    assert not proxy.load_faults


def _after_a_round(catalog: CatalogGateway, count: int, *, together: bool) -> Tables:
    tables = Tables(catalog, count, together=together)
    tables.commit_all(tables.round())
    return tables


@pytest.mark.parametrize("where", ["applied", "refused"])
def test_any_answer_to_a_single_commit_adds_its_files_once(
    proxy: FaultyProxy, patient: CatalogGateway, where: str
) -> None:
    """After the answer the table is read: only missing files are committed again."""
    tables = _after_a_round(patient, 1, together=False)
    for what in ANSWERS:
        proxy.commits = proxy.applied = 0
        proxy.faults.append(f"{where}:{what}")
        rounds = tables.commit_all(tables.round())
        assert rounds == (2 if where == "refused" and what in REFUSED else 1), what
        is_sent_again = where == "refused" or what in {"401", "419"}
        assert (proxy.commits, proxy.applied) == (1 + is_sent_again, 1), what
    tables.round_committer.close()
    tables.check(snapshots=1 + len(ANSWERS))


@pytest.mark.parametrize("where", ["applied", "refused"])
def test_any_answer_to_many_single_commits_adds_all_files_once(
    proxy: FaultyProxy, patient: CatalogGateway, where: str
) -> None:
    """All tables meet the fault at the same time, and each is resolved separately."""
    tables = _after_a_round(patient, MANY, together=False)
    for what in ANSWERS:
        proxy.faults.extend([f"{where}:{what}"] * MANY)
        tables.commit_all(tables.round())
        proxy.faults.clear()  # a client that sends again takes two of them
    tables.round_committer.close()
    tables.check(snapshots=1 + len(ANSWERS))


@pytest.mark.parametrize(("where", "left"), [("applied", 0), ("refused", MANY), ("some", 2)])
def test_any_answer_to_a_common_commit_adds_all_files_once(
    proxy: FaultyProxy, patient: CatalogGateway, where: str, left: int
) -> None:
    """Each table is read; tables without the commit are committed one by one."""
    tables = _after_a_round(patient, MANY, together=True)
    answers = [*ANSWERS, ""] if where == "some" else ANSWERS  # a success that is none
    for what in answers:
        proxy.commits = proxy.transactions = 0
        proxy.faults.append(f"{where}:{what}")
        assert tables.commit_all(tables.round()) == 1, what
        requests = 1 + (what == "429")  # after 429 the request is sent again
        alone = 0 if (where, what) == ("refused", "429") else left
        assert (proxy.transactions, proxy.commits) == (requests, requests + alone), what
    tables.round_committer.close()
    tables.check(snapshots=1 + len(answers))


def test_a_throttling_catalog_gets_no_additional_requests(
    proxy: FaultyProxy, patient: CatalogGateway
) -> None:
    """At the end of the wait all tables wait for the next round; none is committed alone."""
    tables = _after_a_round(patient, MANY, together=True)
    proxy.commits = proxy.transactions = 0
    proxy.faults.extend(["refused:429"] * 50)
    commits = tables.round()
    outcomes = tables.commit(commits)
    assert {o.code for o in outcomes.values() if isinstance(o, TableFailed)} == {
        "catalog_throttled"
    }
    assert len(outcomes) == MANY
    assert 1 < proxy.transactions == proxy.commits < 20
    proxy.faults.clear()
    proxy.commits = proxy.transactions = 0
    assert tables.commit_all(commits) == 1
    assert (proxy.transactions, proxy.commits) == (1, 1)
    tables.round_committer.close()
    tables.check(snapshots=2)


@pytest.mark.parametrize(
    ("where", "count", "together"),
    [
        ("applied", 1, False),
        ("refused", MANY, False),
        ("applied", MANY, True),
        ("refused", MANY, True),
        ("some", MANY, True),
    ],
)
def test_a_request_to_a_hanging_catalog_ends(
    proxy: FaultyProxy, impatient: CatalogGateway, where: str, count: int, *, together: bool
) -> None:
    """By our own time limit; the outcome is then unknown."""
    tables = _after_a_round(impatient, count, together=together)
    proxy.faults.extend([f"{where}:hang"] * (1 if together else count))
    tables.commit_all(tables.round())
    tables.commit_all(tables.round())
    tables.round_committer.close()
    tables.check(snapshots=3)


def test_faults_in_single_commits_after_a_common_fault_are_resolved(
    proxy: FaultyProxy, patient: CatalogGateway
) -> None:
    """All files are in the tables once in the end."""
    tables = _after_a_round(patient, MANY, together=True)
    firsts = ("refused:504", "some:500", "some:", "some:409")
    seconds = ("applied:503", "refused:cut", "refused:409", "applied:garbage")
    for first, second in itertools.product(firsts, seconds):
        proxy.faults.extend([first, second])
        tables.commit_all(tables.round())
        assert not proxy.faults
    tables.round_committer.close()
    tables.check(snapshots=1 + len(firsts) * len(seconds))


@pytest.mark.parametrize("point", ["C7", "C8", "C9", "C10", "C11", "C12"])
def test_an_error_at_any_point_of_a_common_commit_delays_one_table(
    patient: CatalogGateway, point: str
) -> None:
    """That table catches up, and the others do not wait."""
    tables = Tables(patient, MANY, together=True)
    commits = tables.round()
    failpoints.configure(f"{point}=raise@1")
    try:
        outcomes = tables.commit(commits)
    finally:
        failpoints.configure("")
    failed = [o for o in outcomes.values() if isinstance(o, TableFailed)]
    assert len(failed) == (point in {"C7", "C8", "C9", "C12"})
    tables.commit_all(commits)
    tables.round_committer.close()
    tables.check(snapshots=1)


def test_one_broken_table_does_not_delay_the_others(
    proxy: FaultyProxy, patient: CatalogGateway
) -> None:
    """A dropped table keeps its announcements; the others commit in one request."""
    tables = _after_a_round(patient, MANY, together=True)
    dropped = tables.tables[1]
    patient.drop(dropped.name())
    proxy.transactions = proxy.commits = 0
    outcomes = tables.commit(tables.round())
    broken = outcomes.pop(dropped.name())
    assert isinstance(broken, TableFailed)
    assert (broken.code, broken.is_retriable) == ("table_missing", False)
    assert all(isinstance(o, TableCommitted) for o in outcomes.values())
    assert (proxy.transactions, proxy.commits) == (1, 1)
    tables.round_committer.close()
    tables.tables.remove(dropped)
    tables.check(snapshots=2)


def test_a_table_dropped_before_the_request_fails_alone(
    proxy: FaultyProxy, patient: CatalogGateway, rest_catalog: RestCatalog
) -> None:
    """The common request is refused; then each table gets its own answer."""
    tables = _after_a_round(patient, MANY, together=True)
    direct = open_catalog("iceberg", rest_catalog.properties)
    dropped = tables.tables[2]

    def drop() -> None:
        proxy.before_commit.clear()
        direct.drop(dropped.name())

    proxy.before_commit.append(drop)
    outcomes = tables.commit(tables.round())
    direct.close()
    broken = outcomes.pop(dropped.name())
    assert isinstance(broken, TableFailed)
    assert broken.code == "table_missing"
    assert all(isinstance(o, TableCommitted) for o in outcomes.values())
    tables.round_committer.close()
    tables.tables.remove(dropped)
    tables.check(snapshots=2)


def test_a_failed_table_is_committed_alone_until_it_succeeds(
    proxy: FaultyProxy, patient: CatalogGateway
) -> None:
    """It makes one common request fail, not every one."""
    tables = _after_a_round(patient, MANY, together=True)
    first = tables.round()
    proxy.faults.extend(["refused:403", "refused:403"])
    outcomes = tables.commit(first)
    [broken] = [o for o in outcomes.values() if isinstance(o, TableFailed)]
    assert broken.is_retriable
    waiting = next(c for c in first if c.table == broken.table)
    second = [c for c in tables.round() if c.table != broken.table]
    late = tables.announced[broken.table.identifier].pop()
    assert late not in tables.announced[broken.table.identifier]
    proxy.transactions = proxy.commits = 0
    tables.commit([waiting, *second])
    assert (proxy.transactions, proxy.commits) == (1, 2)
    proxy.transactions = proxy.commits = 0
    tables.commit_all(tables.round())
    assert (proxy.transactions, proxy.commits) == (1, 1)
    tables.round_committer.close()
    for table in tables.tables:
        files = _paths(tables.catalog.load(table.name()))
        assert Counter(files) == Counter(tables.announced[table.name()])


def test_a_concurrent_writer_loses_no_row(
    proxy: FaultyProxy, patient: CatalogGateway, rest_catalog: RestCatalog
) -> None:
    """The branch of one table moved: the common request fails, each table is committed."""
    tables = _after_a_round(patient, MANY, together=True)
    direct = open_catalog("iceberg", rest_catalog.properties)
    victim = tables.tables[0]
    foreign = Committer(direct, connector("d", [".".join(victim.name())]), QuickClock())
    file = made_up_file(victim)
    theirs = table_commit([announced(reference(victim), [file], offset=7)])

    def race() -> None:
        proxy.before_commit.clear()
        assert isinstance(foreign.commit(theirs), TableCommitted)

    proxy.before_commit.append(race)
    outcomes = tables.commit(tables.round())
    direct.close()
    assert all(isinstance(o, TableCommitted) for o in outcomes.values())
    tables.round_committer.close()
    tables.announced[victim.name()].append(file.file_path)
    for table in tables.tables:
        now = tables.catalog.load(table.name())
        assert Counter(_paths(now)) == Counter(tables.announced[table.name()])


def test_a_table_with_two_names_is_sent_once_per_request(
    proxy: FaultyProxy, patient: CatalogGateway
) -> None:
    """Iceberg's server drops the second change of a table; ours has a separate request."""
    tables = _after_a_round(patient, 2, together=True)
    double = tables.tables[0].name()
    prepared = [tables.joint._prepare(c) for c in tables.round()]
    assert all(isinstance(p, tuple) for p in prepared)
    joint, single = tables.joint._chosen([*prepared, prepared[0]])
    assert [p[1].table.name() for p in single] == [double]
    assert len(joint) == 2
    tables.round_committer.close()
    assert proxy.commits == 1


def test_a_catalog_without_transactions_gets_one_common_request(
    sql_catalog_properties: dict[str, str],
) -> None:
    """Tables are then committed one by one."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    tables = Tables(gateway, MANY, together=True)
    for _ in range(2):
        assert tables.commit_all(tables.round()) == 1
    assert not tables.joint.is_atomic
    tables.round_committer.close()
    tables.check(snapshots=2)
    gateway.close()
