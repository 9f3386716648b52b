"""Tables that are loaded before their announcements arrive: fewer waits, the same decisions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType
from structlog.testing import capture_logs

from connect.errors import (
    CommitRefused,
    Fenced,
    IcefloeError,
    InvariantViolation,
    RetriableError,
)
from connect.gateways.catalog.catalog import CatalogGateway, LoadedAhead, open_catalog
from coordinator.commit.iceberg.committer import Committer
from coordinator.commit.iceberg.table_memory import LoadedTable
from coordinator.commit.load_ahead import AGE_MS_MAX, PAUSED_ROUNDS, AheadTables
from coordinator.commit.multi_table_commit import JointCommitter, RoundCommitter
from coordinator.kernel.effects import (
    CommitOutcome,
    CoordinatorFenced,
    TableCommit,
    TableCommitted,
    TableFailed,
)
from tests.support.fakes.rest_catalog import MemoryCatalogServer
from tests.support.pauses import growing_pauses
from tests.support.sql_statements import statements_of
from tests.support.stack import S3Server, unique_name
from tests.support.table_harness import SCHEMA, TableHarness, paths_of, stale_numbers
from tests.support.tables import announced, connector, made_up_file, reference, table_commit

BACKENDS = (
    *("sqlite", "rest"),
    *(pytest.param(kind, marks=pytest.mark.matrix) for kind in ("postgres", "s3", "glue")),
)


class Noted(CatalogGateway):
    """A gateway that notes its requests; loads ahead may fail."""

    is_away = False

    def __init__(self, properties: dict[str, str]) -> None:
        plain = open_catalog("iceberg", properties)
        self.requests: list[str] = []
        self.sent: list[tuple[list[str], bool]] = []
        super().__init__(
            "iceberg", plain.config, observe=lambda kind, *_: self.requests.append(kind)
        )
        plain.close()

    def _note(self, operation: str, *_: object) -> None:
        self.requests.append(operation)

    def load_ahead(self, identifier: Sequence[str], *, with_history: bool) -> LoadedAhead:
        """Load, or fail."""
        if self.is_away:
            self.requests.append("load")
            raise RetriableError("away", code="catalog_unavailable")
        return super().load_ahead(identifier, with_history=with_history)

    def commit(
        self, table: Table, requirements: Any, updates: Any, *, as_loaded: bool = False, **more: Any
    ) -> Table:
        """Note the requirements, and commit."""
        kinds = [each.type for each in requirements if not isinstance(each, AssertTableUUID)]
        self.sent.append((kinds, as_loaded))
        return super().commit(table, requirements, updates, as_loaded=as_loaded, **more)

    def taken(self) -> list[str]:
        """The requests since the last call."""
        out = list(self.requests)
        self.requests.clear()
        return out


@pytest.fixture(params=BACKENDS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Noted]:
    """A gateway to each kind of catalog."""
    kind = request.param
    properties = request.getfixturevalue("sql_catalog_properties")
    if kind == "rest":
        properties = request.getfixturevalue("rest_catalog").properties
    elif kind == "postgres":
        properties = {**properties, "uri": request.getfixturevalue("postgres")}
    elif kind in {"s3", "glue"}:
        server: S3Server = request.getfixturevalue("s3_server")
        place = {**server.properties, "warehouse": f"{server.warehouse}/{tmp_path.name}"}
        properties = {**properties, **place}
        if kind == "glue":
            keys = {"access-key-id": "x", "secret-access-key": "x", "region": "us-east-1"}
            own = {f"glue.{key}": text for key, text in keys.items()}
            properties = {**place, **own, "type": "glue", "glue.endpoint": server.endpoint}
    gateway = Noted(properties)
    yield gateway
    gateway.close()


class Rounds:
    """A table that its coordinator commits to since more than a minute, round by round."""

    def __init__(self, catalog: CatalogGateway) -> None:
        self.catalog = catalog
        identifier = ("db", unique_name(f"a-{uuid4().hex[:8]}"))
        self.harness = TableHarness(catalog, catalog.create(identifier, SCHEMA))
        self.committer: Committer = self.harness.committer()
        self.announced: list[str] = []
        self.offset = 0
        for _ in range(3):
            assert isinstance(self.commit(), TableCommitted)
            held = self.memory.held_files
            held.own.since_ms, held._foreign_ms = 0, -1  # long ago

    @property
    def memory(self) -> Any:
        """What the coordinator knows of the table."""
        return self.committer._memories[self.harness.table.name()]

    def round(self, **file: Any) -> TableCommit:
        """Announce one new file."""
        self.offset += 1
        new = made_up_file(self.harness.table, **file)
        self.announced.append(new.file_path)
        return table_commit([announced(reference(self.harness.table), [new], offset=self.offset)])

    def commit(self, commit: TableCommit | None = None) -> CommitOutcome:
        """Commit a round."""
        return self.committer.commit(commit or self.round())

    def load_ahead(self) -> None:
        """Load the table in another thread than that of the commit."""
        thread = threading.Thread(
            target=self.committer.load_ahead, args=(self.harness.table.name(),)
        )
        thread.start()
        thread.join()

    def check(self, *foreign: str) -> None:
        """Each announced file is in the table once, and the numbers are right."""
        table = self.harness.reloaded()
        assert Counter(paths_of(table)) == Counter([*self.announced, *foreign])
        assert not stale_numbers(table)


@pytest.fixture
def rounds(catalog: Noted) -> Rounds:
    """A table that is known for long."""
    made = Rounds(catalog)
    catalog.taken()
    return made


def test_a_round_loads_the_table_once_and_before_its_commit(catalog: Noted, rounds: Rounds) -> None:
    """The commit begins with it. A repeated StartCommit loads nothing."""
    tables = RoundCommitter(
        rounds.committer, None, threads=3, name="c", ahead=AheadTables(interval_ms=1_000)
    )
    pauses = growing_pauses()
    for number in range(4):
        for _ in range(2):
            tables.round_started(UUID(int=number + 1))
        while number and (not catalog.requests or rounds.memory.lock.locked()):
            next(pauses)
        assert catalog.taken() == (["load"] if number else [])
        tables.start([rounds.round()])
        outcomes: list[CommitOutcome] = []
        while not outcomes:
            outcomes += tables.outcomes()
            next(pauses)
        assert isinstance(outcomes[0], TableCommitted), outcomes
        assert catalog.taken() == (["commit"] if number else ["load", "commit"])
    tables.close()
    rounds.check()


def test_a_sql_catalog_is_asked_as_often_as_before(sql_catalog_properties: dict[str, str]) -> None:
    """One SELECT for the load and one UPDATE, though two threads do it."""
    catalog = Noted(sql_catalog_properties)
    rounds = Rounds(catalog)
    client = catalog._client()
    assert statements_of(client, rounds.load_ahead) == ["SELECT"]
    assert statements_of(client, rounds.commit) == ["UPDATE"]
    rounds.check()
    catalog.close()


def append(rounds: Rounds) -> list[str]:
    """Another connector commits a file."""
    other = TableHarness(rounds.catalog, rounds.harness.table, "d")
    commit: Any = other.round(0)
    assert isinstance(other.committer().commit(commit), TableCommitted)
    return [commit.announcements[0].event.payload.data_files[0].file_path]


def set_property(rounds: Rounds) -> list[str]:
    """Another client sets a property."""
    rounds.harness.change(SetPropertiesUpdate(updates={"owner": "another client"}))
    return []


def add_column(rounds: Rounds) -> list[str]:
    """A task adds a column to the table, for the rows that it is about to write."""
    with rounds.harness.reloaded().update_schema() as schema:
        schema.add_column(f"c{rounds.offset}", StringType())
    return []


@pytest.mark.parametrize("act", [append, set_property, add_column])
def test_others_change_the_table_after_the_load(
    rounds: Rounds, act: Callable[[Rounds], list[str]]
) -> None:
    """Nothing of theirs is lost, and each file is in the table once."""
    rounds.load_ahead()
    foreign = act(rounds)
    before = rounds.harness.reloaded().metadata
    assert isinstance(rounds.commit(), TableCommitted)
    rounds.check(*foreign)
    after = rounds.harness.reloaded().metadata
    assert after.properties.get("owner") == before.properties.get("owner")
    head = after.current_snapshot()
    assert head is not None
    assert head.schema_id == before.current_schema_id == after.current_schema_id


def test_a_file_has_a_partition_spec_that_is_newer_than_the_load(rounds: Rounds) -> None:
    """The table is loaded again; the file is committed in the same round."""
    rounds.load_ahead()
    with rounds.harness.reloaded().update_spec() as spec:
        spec.add_field("name", IdentityTransform(), "by_name")
    commit = rounds.round(spec_id=rounds.harness.reloaded().spec().spec_id)
    assert isinstance(rounds.commit(commit), TableCommitted)
    rounds.check()


def test_retention_that_is_set_after_the_load(catalog: Noted, rounds: Rounds) -> None:
    """A commit writes the retention of the branch. Only with REST nothing can refuse an old one."""
    rounds.load_ahead()
    table = rounds.harness.reloaded()
    head = table.metadata.refs["main"].snapshot_id
    kept = {"ref-name": "main", "type": "branch", "snapshot-id": head, "min-snapshots-to-keep": 7}
    rounds.harness.change(SetSnapshotRefUpdate.model_validate(kept))
    assert isinstance(rounds.commit(), TableCommitted)
    rounds.check()
    if catalog.commits_as_loaded:
        assert rounds.harness.reloaded().metadata.refs["main"].min_snapshots_to_keep == 7


@pytest.mark.parametrize("is_created_again", [False, True])
def test_the_table_is_dropped_after_the_load(rounds: Rounds, *, is_created_again: bool) -> None:
    """The round fails as without a load ahead; a new table of that name gets no file."""
    name = rounds.harness.table.name()
    rounds.load_ahead()
    rounds.catalog.drop(name)
    if is_created_again:
        rounds.catalog.create(name, SCHEMA)
    outcome = rounds.commit()
    assert isinstance(outcome, TableFailed)
    assert outcome.code == ("table_replaced" if is_created_again else "table_missing")
    if is_created_again:
        assert rounds.harness.reloaded().current_snapshot() is None


def test_another_coordinator_commits_after_the_load(rounds: Rounds) -> None:
    """It is noticed, and nothing is committed twice."""
    rounds.load_ahead()
    commit = rounds.round()
    other = rounds.harness.committer()
    assert isinstance(other.commit(commit), TableCommitted)
    assert not isinstance(rounds.commit(commit), TableCommitted | TableFailed)
    rounds.check()


def test_a_failed_load_is_ignored(catalog: Noted, rounds: Rounds) -> None:
    """The commit loads the table itself."""
    catalog.is_away = True
    rounds.load_ahead()
    assert isinstance(rounds.commit(), TableCommitted)
    assert catalog.taken() == ["load", "load", "commit"]
    rounds.check()


class Failing(Committer):
    """A committer that cannot begin with a table that was loaded ahead.

    Attributes:
        error: raised then.
    """

    error: IcefloeError | None = None

    def _ready(self, commit: Any, memory: Any, loaded: LoadedTable, *more: Any) -> Any:
        """Fail, or begin."""
        if loaded.is_ahead and self.error is not None:
            raise self.error
        return super()._ready(commit, memory, loaded, *more)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (CommitRefused("an old floor", code="table_rolled_back"), TableCommitted),
        (RetriableError("an old file", code="storage_unavailable"), TableCommitted),
        (InvariantViolation("a bug"), TableFailed),
        (Fenced("another coordinator"), CoordinatorFenced),
    ],
)
def test_only_errors_that_an_old_load_explains_are_ignored(
    sqlite: Noted, error: IcefloeError, outcome: type
) -> None:
    """They are logged, and the table is loaded again. All others are the outcome."""
    rounds = Rounds(sqlite)
    rounds.committer.__class__ = Failing
    rounds.load_ahead()
    rounds.committer.error = error  # type: ignore[attr-defined] # of Failing
    with capture_logs() as logged:
        ended = rounds.commit()
    assert isinstance(ended, outcome), ended
    ignored = [e["code"] for e in logged if e["event"] == "table loaded ahead is not used"]
    assert ignored == ([error.code] if outcome is TableCommitted else [])


@pytest.fixture
def sqlite(sql_catalog_properties: dict[str, str]) -> Iterator[Noted]:
    """SQLite."""
    gateway = Noted(sql_catalog_properties)
    yield gateway
    gateway.close()


def test_wasted_loads_are_rare(sqlite: Noted) -> None:
    """After a load that no commit used, ten rounds load nothing ahead."""
    rounds = Rounds(sqlite)
    rounds.load_ahead()
    sqlite.taken()
    for _ in range(PAUSED_ROUNDS):  # the first finds the unused load
        rounds.load_ahead()
        assert isinstance(rounds.commit(), TableCommitted)
    assert Counter(sqlite.taken()) == {"load": PAUSED_ROUNDS, "commit": PAUSED_ROUNDS}
    rounds.load_ahead()
    assert sqlite.taken() == ["load"]
    assert isinstance(rounds.commit(), TableCommitted)
    assert sqlite.taken() == ["commit"]
    rounds.check()


def test_an_old_load_is_not_used(sqlite: Noted) -> None:
    """Two seconds after it, the table is loaded again."""
    rounds = Rounds(sqlite)
    rounds.load_ahead()
    rounds.committer.clock.slept_ms.append(AGE_MS_MAX + 1)  # type: ignore[attr-defined] # of the test
    sqlite.taken()
    assert isinstance(rounds.commit(), TableCommitted)
    assert sqlite.taken() == ["load", "commit"]


def test_the_first_minute(sqlite: Noted) -> None:
    """With its history a table is loaded ahead only if every change of it is a conflict."""
    rounds = Rounds(sqlite)
    rounds.memory.held_files.own.since_ms = rounds.committer.clock.now_ms()
    sqlite.taken()
    rounds.load_ahead()
    assert isinstance(rounds.commit(), TableCommitted)
    assert sqlite.taken() == ["load", "commit"]
    rounds.memory.ahead.snapshots = 501
    rounds.load_ahead()
    assert sqlite.taken() == []


def test_the_first_minute_with_rest(tmp_path: Path) -> None:
    """Nothing is loaded ahead: what expires is chosen from the history, and others may name it."""
    server = MemoryCatalogServer(f"file://{tmp_path}/warehouse")
    server.start()
    catalog = Noted(server.properties)
    rounds = Rounds(catalog)
    rounds.memory.held_files.own.since_ms = rounds.committer.clock.now_ms()
    catalog.taken()
    rounds.load_ahead()
    assert catalog.taken() == []
    catalog.close()
    server.close()


class Pool:
    """Does the work of a pool in this thread."""

    map = staticmethod(map)


def test_one_request_for_several_tables(tmp_path: Path) -> None:
    """One of them has changed since its load: both are committed once."""
    server = MemoryCatalogServer(f"file://{tmp_path}/warehouse")
    server.start()
    catalog = Noted(server.properties)
    one, two = Rounds(catalog), Rounds(catalog)
    committer = Committer(
        catalog,
        connector("c", [".".join(each.harness.table.name()) for each in (one, two)]),
        one.committer.clock,
    )
    committer._memories.update({e.harness.table.name(): e.memory for e in (one, two)})
    for each in (one, two):
        each.committer = committer
        each.load_ahead()
    foreign = append(two)
    catalog.taken()
    pool: Any = Pool()
    outcomes = JointCommitter(committer, catalog).commit_together([one.round(), two.round()], pool)
    assert all(isinstance(outcome, TableCommitted) for outcome in outcomes), outcomes
    assert catalog.taken()[0] == "commit_together"
    one.check()
    two.check(*foreign)
    catalog.close()
    server.close()


def test_requirements_of_an_attempt(sqlite: Noted) -> None:
    """Schema and partition spec must not have changed since the load; later attempts need not."""
    rounds = Rounds(sqlite)
    rounds.load_ahead()
    set_property(rounds)
    sqlite.sent.clear()
    assert isinstance(rounds.commit(), TableCommitted)
    ref, fitting = "assert-ref-snapshot-id", ["assert-current-schema-id", "assert-default-spec-id"]
    assert sqlite.sent == [([ref, *fitting], True), ([ref], False)]
