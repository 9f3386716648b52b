"""Tables with a long history: committed by a request that is answered without their metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from requests import Response

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog.catalog_clients import GuardedRest
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import CommitOutcome, TableCommit, TableCommitted, TableFailed
from tests.support.faulty_http import FaultyProxy
from tests.support.stack import RestCatalog, unique_name
from tests.support.table_harness import SCHEMA, TableHarness, paths_of
from tests.support.table_histories import with_history
from tests.support.tables import announced, reference, table_commit

UNKNOWN = ("500", "502", "503", "504", "507", "408", "cut", "garbage", "empty")
AGAIN = ("401", "419", "409", "429")  # the client itself, or we, send it once more
NOT_OFFERED = ("400", "403", "404", "405", "422", "501")
UNREADABLE = ("500", "403", "404", "cut", "garbage", "empty")
SNAPSHOTS_MANY = 5_000


class LongTable:
    """A table that a coordinator alone has committed to for long, and what was announced for it."""

    def __init__(self, catalog: CatalogGateway, proxy: FaultyProxy) -> None:
        self.catalog = catalog
        self.proxy = proxy
        table = catalog.create(("db", unique_name(f"l-{uuid4().hex[:8]}")), SCHEMA)
        self.harness = TableHarness(catalog, table)
        self.committer: Committer = self.harness.committer()
        self.announced: list[str] = []
        self._offset = 0
        client = catalog._client()
        assert isinstance(client, GuardedRest)
        self.client = client
        self.settle()

    def settle(self) -> None:
        """Commit until the coordinator knows that it is alone, and that the history is long."""
        self.client.history_bytes_min = -1  # a short history is as a long one
        for _ in range(3):
            self.commit()
            held = self.committer._memories[self.harness.table.name()].held_files
            held.own.since_ms = held._foreign_ms = 0  # long ago
        self.client._sends_transactions = True
        self.proxy.commits = self.proxy.transactions = self.proxy.loads = self.proxy.applied = 0

    def round(self) -> TableCommit:
        """The commit of one new file."""
        files = self.harness.files(1)
        self.announced += [file.file_path for file in files]
        self._offset += 1
        event = announced(reference(self.harness.table), files, offset=self._offset)
        return table_commit([event])

    def commit(self, commit: TableCommit | None = None) -> CommitOutcome:
        """Commit one new file, or what could not be committed before."""
        return self.committer.commit(commit or self.round())

    def check(self, *more: str) -> None:
        """Each announced file is in the table once."""
        assert Counter(paths_of(self.harness.reloaded())) == Counter([*self.announced, *more])

    @property
    def requests(self) -> tuple[int, int, int]:
        """Transactions, other commits, and loads since the coordinator knows the table."""
        proxy = self.proxy
        return proxy.transactions, proxy.commits - proxy.transactions, proxy.loads


@pytest.fixture(scope="module")
def proxy(rest_catalog: RestCatalog) -> Iterator[FaultyProxy]:
    """A proxy before Iceberg's REST catalog."""
    running = FaultyProxy(rest_catalog.uri)
    yield running
    running.close()


@pytest.fixture
def catalog(proxy: FaultyProxy, rest_catalog: RestCatalog) -> Iterator[CatalogGateway]:
    """A gateway through the proxy."""
    gateway = open_catalog("iceberg", {**rest_catalog.properties, "uri": proxy.uri})
    yield gateway
    gateway.close()
    assert not proxy.faults
    assert not proxy.load_faults


@pytest.fixture
def long_table(catalog: CatalogGateway, proxy: FaultyProxy) -> LongTable:
    """A table with what counts as a long history."""
    return LongTable(catalog, proxy)


def after_response(long_table: LongTable, path: str, action: Callable[[], Any]) -> None:
    """Let another client act once, after the catalog answered to a request of this path."""
    hooks = long_table.client._session.hooks["response"]

    def act(response: Response, **_: Any) -> None:
        if path in (response.request.path_url or ""):
            hooks.remove(act)
            action()

    hooks.append(act)


def test_the_snapshot_is_confirmed_after_a_transaction(long_table: LongTable) -> None:
    """One load before it, one after it; the next commit adds its file to both."""
    for count in range(1, 4):
        outcome = long_table.commit()
        assert isinstance(outcome, TableCommitted)
        assert long_table.requests == (count, 0, 2 * count)
        head = long_table.harness.reloaded().current_snapshot()
        long_table.proxy.loads -= 1
        assert head is not None
        assert head.snapshot_id == outcome.snapshot_id
    long_table.check()


@pytest.mark.parametrize("where", ["applied", "refused"])
def test_any_answer_to_a_transaction_adds_its_file_once(long_table: LongTable, where: str) -> None:
    """Also a success of a server that did not apply it: only a missing file is committed again."""
    for what in (*UNKNOWN, *AGAIN, "204"):
        long_table.settle()
        long_table.proxy.faults.append(f"{where}:{what}")
        assert isinstance(long_table.commit(), TableCommitted), what
        is_sent_again = where == "refused" or what in {"401", "419"}
        transactions, others, _ = long_table.requests
        assert (transactions, others) == (1 + is_sent_again, 0), what
        assert long_table.proxy.applied == 1, what
    long_table.check()


@pytest.mark.parametrize("where", ["applied", "refused"])
def test_a_catalog_that_takes_no_transaction_of_one_table(
    long_table: LongTable, where: str
) -> None:
    """The table is committed in the same round without one, and so are all later rounds."""
    for what in NOT_OFFERED:
        long_table.settle()
        long_table.proxy.faults.append(f"{where}:{what}")
        assert isinstance(long_table.commit(), TableCommitted), what
        assert isinstance(long_table.commit(), TableCommitted), what
        assert long_table.requests[:2] == (1, 2), what
        assert long_table.proxy.applied == 2, what
    long_table.check()


def test_a_refused_commit_after_a_refused_transaction_is_reported(long_table: LongTable) -> None:
    """The files stay announced, and the next round commits them."""
    long_table.proxy.faults.extend(["refused:403", "refused:403"])
    commit = long_table.round()
    outcome = long_table.commit(commit)
    assert isinstance(outcome, TableFailed)
    assert isinstance(long_table.commit(commit), TableCommitted)
    long_table.check()


@pytest.mark.parametrize("where", ["applied", "refused"])
@pytest.mark.parametrize("what", UNREADABLE)
def test_a_table_that_cannot_be_read_after_a_transaction_has_an_unknown_outcome(
    long_table: LongTable, where: str, what: str
) -> None:
    """The whole table is read until it answers, as after every unknown outcome."""
    long_table.proxy.faults.append(f"{where}:204")
    long_table.proxy.load_faults.extend(["", f"refused:{what}"])
    assert isinstance(long_table.commit(), TableCommitted)
    assert long_table.requests[:2] == (1 if where == "applied" else 2, 0)
    assert long_table.proxy.applied == 1
    long_table.settle()
    long_table.check()


def test_a_commit_of_another_client_before_the_transaction_is_noticed(
    long_table: LongTable,
) -> None:
    """The catalog refuses it, and both files are in the table."""
    direct = open_catalog("direct", {"type": "rest", "uri": long_table.proxy.target})
    theirs = TableHarness(direct, direct.load(long_table.harness.table.name()), "d")
    commit = theirs.round(0)
    [file] = commit.announcements[0].event.payload.data_files

    def overtake() -> None:
        long_table.proxy.before_commit.clear()
        assert isinstance(theirs.committer().commit(commit), TableCommitted)

    long_table.proxy.before_commit.append(overtake)
    assert isinstance(long_table.commit(), TableCommitted)
    assert long_table.requests[:2] == (2, 0)
    long_table.settle()
    long_table.check(file.file_path)
    direct.close()


def test_a_commit_before_the_second_load_is_noticed(
    long_table: LongTable,
) -> None:
    """The connector's tag names the snapshot; the next commit reads the history again."""
    direct = open_catalog("direct", {"type": "rest", "uri": long_table.proxy.target})
    table = direct.load(long_table.harness.table.name())
    rows = pa.table({"id": [1], "name": ["another client's"]})
    after_response(long_table, "transactions/commit", lambda: table.refresh().append(rows))
    assert isinstance(long_table.commit(), TableCommitted)
    assert long_table.requests == (1, 0, 2)
    assert isinstance(long_table.commit(), TableCommitted)
    paths = paths_of(long_table.harness.reloaded())
    assert len(paths) == len(set(paths)) == len(long_table.announced) + 1
    assert set(long_table.announced) < set(paths)
    direct.close()


def test_a_coordinator_may_end_before_the_second_load(
    long_table: LongTable,
) -> None:
    """Its successor reads the table, and takes the file as committed."""

    def end() -> None:
        raise SystemExit

    after_response(long_table, "transactions/commit", end)
    commit = long_table.round()
    with pytest.raises(SystemExit):
        long_table.commit(commit)
    assert long_table.proxy.applied == 1
    outcome = long_table.harness.committer().commit(commit)
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None
    assert long_table.proxy.applied == 1
    long_table.check()


def test_a_catalog_that_lists_no_transactions_gets_none(long_table: LongTable) -> None:
    """By the specification a server without a list has them; it is not asked for one."""
    listed = long_table.client._supported_endpoints
    listed -= {each for each in listed if "transactions" in str(each)}
    assert isinstance(long_table.commit(), TableCommitted)
    assert long_table.requests == (0, 1, 1)
    long_table.check()


def test_answers_to_a_commit_do_not_have_the_history(catalog: CatalogGateway) -> None:
    """With 5,000 snapshots: twice the log of snapshots. With 10: an answer with the metadata."""
    received: dict[int, list[tuple[str, int]]] = {}
    client: Any = catalog._client()
    for snapshots in (10, SNAPSHOTS_MANY):
        name = ("db", unique_name(f"h-{uuid4().hex[:8]}"))
        harness = TableHarness(catalog, catalog.create(name, SCHEMA))
        assert isinstance(harness.committer().commit(harness.round(0)), TableCommitted)
        log_bytes = len(with_history(catalog, harness.table, snapshots).metadata.snapshot_log) * 64
        committer = harness.committer()
        for offset in range(1, 4):
            assert isinstance(committer.commit(harness.round(offset)), TableCommitted)
            held = committer._memories[name].held_files
            held.own.since_ms = held._foreign_ms = 0  # long ago
        sizes = received[snapshots] = []

        def note(response: Response, *, sizes: list[Any] = sizes, **_: Any) -> None:
            sizes.append((str(response.request.method), len(response.content)))

        client._session.hooks["response"].append(note)
        assert isinstance(committer.commit(harness.round(4)), TableCommitted)
        client._session.hooks["response"].remove(note)
    assert [method for method, _ in received[10]] == ["GET", "POST"]
    assert [method for method, _ in received[SNAPSHOTS_MANY]] == ["GET", "POST", "GET"]
    load, answer, second_load = (size for _, size in received[SNAPSHOTS_MANY])
    assert answer == 0
    assert max(load, second_load) < log_bytes + 20_000
    assert len(harness.reloaded().metadata.snapshots) == SNAPSHOTS_MANY + 4
