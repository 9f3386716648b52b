"""Commits by real processes: as in the coordinator's process, and once after kills."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
from pyiceberg.table import Table

from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.errors import RetriableError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.metrics import process_metrics
from connect.redaction.secret_values import KNOWN
from coordinator.commit.multi_table_commit import RoundCommitter
from coordinator.commit.rules.commit_rules import TableCommitter
from coordinator.commit.table_committers import CommitterSettings, open_committer
from coordinator.commit_processes.commit_process import CommitProcessSetup
from coordinator.commit_processes.commit_processes import CommitProcesses
from coordinator.control_log_check import ControlLogCheck
from coordinator.kernel.effects import CommitOutcome, TableCommit, TableCommitted, TableFailed
from tests.support.delta_tables import DeltaRig
from tests.support.parquet_folders import ParquetRig, written_files
from tests.support.pauses import growing_pauses
from tests.support.table_harness import SCHEMA, paths_of
from tests.support.tables import (
    NODE_PROPERTIES,
    announced,
    connector,
    made_up_file,
    reference,
    table_commit,
    written_file,
)

SECRET = "a-password-of-the-catalog"
OWN = {"kafka.connect.commit-id", "added-files-size", "total-files-size"}
Event = tuple[str, Mapping[str, Any]]


@dataclass
class Tables:
    """Tables of one connector, and commits of rounds to them."""

    config: ConnectorConfig
    catalog: CatalogGateway
    tables: Sequence[Table]

    @classmethod
    def made(cls, properties: Mapping[str, str], namespace: str, count: int = 6) -> Tables:
        catalog = open_catalog("iceberg", properties)
        names = [f"{namespace}.t{n}" for n in range(count)]
        tables = [catalog.create(tuple(name.split(".")), SCHEMA) for name in names]
        work = {
            "iceberg__maintenance__rewrite_data_files__enabled": "true",
            "iceberg__maintenance__rewrite_data_files__min_input_files": "2",
        }
        config = replace(connector("c", names, **work), catalog_properties=properties)
        return cls(config, catalog, tables)

    def commits(self, offset: int, files: int = 2) -> list[TableCommit]:
        """A round: files for each table, announced at this control offset."""
        return [
            table_commit(
                [
                    announced(
                        reference(table), [made_up_file(table) for _ in range(files)], offset=offset
                    )
                ],
                valid_through_us=1_767_323_045_678_999 + offset * 1_000_000,
                commit_id=UUID(int=offset + 1),
            )
            for table in self.tables
        ]

    def reloaded(self) -> list[Table]:
        return [self.catalog.load(table.name()) for table in self.tables]

    def settings(self) -> CommitterSettings:
        control = ControlLogCheck(None, self.config.control_topic)
        return CommitterSettings(self.config, control, "topic-1", describes_tables=True)


@contextlib.contextmanager
def in_processes(
    settings: CommitterSettings, events: list[Event] | None = None, *, count: int = 2, **more: Any
) -> Iterator[CommitProcesses]:
    """Processes, closed at the end."""
    made = CommitProcesses(
        settings,
        None,
        CommitProcessSetup(count, NODE_PROPERTIES, **more),
        count,
        lambda kind, where: None if events is None else events.append((kind, where)),
        unanswered_ms_max=120_000,
    )
    try:
        made.start()
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def in_this_process(
    settings: CommitterSettings, events: list[Event] | None = None
) -> Iterator[TableCommitter]:
    """The committer as without commit processes."""
    sink = events if events is not None else []
    with contextlib.ExitStack() as closing:
        committer, _ = open_committer(
            settings, SystemClock(), lambda *event: sink.append(event), closing
        )
        yield committer
        committer.close()


def committed(committer: TableCommitter, commits: Sequence[TableCommit]) -> list[CommitOutcome]:
    """The outcomes of a round, in the order of the tables."""
    rounds = RoundCommitter(_Open(committer), None, threads=4, name="c")
    rounds.start(commits)
    outcomes: list[CommitOutcome] = []
    pauses = growing_pauses()
    try:
        while len(outcomes) < len(commits):
            outcomes += rounds.outcomes()
            next(pauses)
    finally:
        rounds.close()
    return sorted(outcomes, key=lambda outcome: outcome.table.identifier)


class _Open:
    """A committer that stays open after a round."""

    def __init__(self, inner: TableCommitter) -> None:
        self.commit = inner.commit

    def close(self) -> None:
        """Do nothing."""


def described(table: Table) -> dict[str, Any]:
    """What commits left in a table, without ids and times."""
    snapshots = sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0)
    return {
        "summaries": [
            {k: v for k, v in s.summary.model_dump(mode="json").items() if k not in OWN}
            if s.summary
            else None
            for s in snapshots
        ],
        "properties": table.properties,
        "refs": sorted(table.metadata.refs),
        "files": len(paths_of(table)),
        "sequence": table.metadata.last_sequence_number,
    }


def of_tables(events: Sequence[Event], kind: str) -> list[Any]:
    """The reports of a kind, without what names the namespace."""
    texts = [json.dumps(where, sort_keys=True) for event, where in events if event == kind]
    return sorted(
        text.replace("one.", "").replace("two.", "").replace("/one/", "/").replace("/two/", "/")
        for text in texts
    )


def test_a_round_of_two_processes_is_that_of_one(sql_catalog_properties: dict[str, str]) -> None:
    """Snapshot summaries, floors, VTTS, tags, events and counts, over several rounds."""
    results, reports, outcomes, counts = [], [], [], []
    for namespace, opened in (("one", in_this_process), ("two", in_processes)):
        tables = Tables.made(sql_catalog_properties, namespace)
        events: list[Event] = []
        before = catalog_requests()
        with opened(tables.settings(), events) as committer:
            outcomes += [
                [
                    (type(o), o.table.name, o.commit_id, getattr(o, "files", None))
                    for o in committed(committer, tables.commits(offset))
                ]
                for offset in range(3)
            ]
        with in_this_process(tables.settings()) as committer:  # the next session reads the tables
            again = committed(committer, tables.commits(1))
        assert {getattr(outcome, "snapshot_id", 0) for outcome in again} == {None}
        results.append([described(table) for table in tables.reloaded()])
        reports.append([of_tables(events, k) for k in ("maintenance_due", "table_described")])
        counts.append(catalog_requests() - before)
        tables.catalog.close()
    assert results[0] == results[1]
    assert outcomes[:3] == outcomes[3:]
    assert reports[0] == reports[1]
    assert [len(each) for each in reports[0]] == [18, 6]
    assert counts == [18, 18]
    last = results[1][0]
    assert last["properties"]["icefloe.offsets.control-iceberg.connect-c"] == '{"0":3}'
    assert last["summaries"][-1]["kafka.connect.valid-through-ts"] == "2026-01-02T03:04:07.678Z"
    assert last["files"] == 6


def catalog_requests(operation: str = "commit") -> float:
    """Requests that this process has counted, its commit processes included."""
    _, samples = process_metrics.PROCESS.snapshot()
    return sum(
        number
        for name, labels, number in samples
        if name == "catalog_request_duration_seconds"
        and labels["operation"] == operation
        and labels["le"] != "sum"
    )


def test_tables_are_loaded_ahead_in_their_processes(
    sql_catalog_properties: dict[str, str],
) -> None:
    """Each process loads its tables once more, and the next commit uses that load."""
    tables = Tables.made(sql_catalog_properties, "db", count=4)
    before = catalog_requests("load")
    with in_processes(tables.settings(), count=1) as committer:
        committed(committer, tables.commits(0))
        for table in tables.tables:
            committer.load_ahead(table.name())
    assert catalog_requests("load") - before == 8
    before = catalog_requests("load")
    with in_processes(tables.settings()) as committer:
        committed(committer, tables.commits(1))
        for table in tables.tables:
            committer.load_ahead(table.name())
        outcomes = committed(committer, tables.commits(2))
    assert all(isinstance(outcome, TableCommitted) for outcome in outcomes)
    assert catalog_requests("load") - before == 8


def test_a_failed_table_fails_alone(
    sql_catalog_properties: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Its code and message are those of the committer; the others are committed.

    Secrets are in no argument, variable or log line of the processes: they are sent over the pipe,
    and masked in what a process logs.
    """
    KNOWN.add(SECRET)
    tables = Tables.made(sql_catalog_properties, "db", count=4)
    config = replace(
        tables.config, catalog_properties={**sql_catalog_properties, "password": SECRET}
    )
    settings = replace(tables.settings(), config=config)
    victim = tables.tables[1]
    commits = tables.commits(0)
    other = replace(commits[1].table, table_uuid=UUID(int=9))
    commits[1] = replace(commits[1], table=other)
    with in_processes(settings, process="coordinator-2") as committer:
        outcomes = committed(committer, commits)
        for pid in committer.pids:
            process = psutil.Process(pid)
            assert SECRET not in " ".join(process.cmdline())
            assert SECRET not in json.dumps(process.environ())
    assert SECRET not in capfd.readouterr().err
    assert [type(outcome) for outcome in outcomes] == [
        TableCommitted,
        TableFailed,
        TableCommitted,
        TableCommitted,
    ]
    failure = outcomes[1]
    assert isinstance(failure, TableFailed)
    assert (failure.code, failure.is_retriable) == ("table_replaced", False)
    assert failure.present_uuid == victim.metadata.table_uuid
    tables.catalog.close()


@pytest.mark.parametrize(
    ("point", "action"),
    [
        ("C8", "hang"),
        pytest.param("C9", "crash", marks=pytest.mark.matrix),
        ("C11", "crash"),
    ],
)
def test_a_killed_process_loses_and_repeats_no_file(
    sql_catalog_properties: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    action: str,
) -> None:
    """Before and after the request: the next session reads what was committed.

    With ``hang`` any of the processes is killed while a commit hangs.
    """
    armed = tmp_path / "armed"
    armed.mkdir()
    monkeypatch.setenv("ICEFLOE_FAILPOINTS_DIR", str(armed))
    tables = Tables.made(sql_catalog_properties, "db")
    first, second = tables.commits(0), tables.commits(1)
    with in_processes(tables.settings()) as committer:
        committed(committer, first)
        (armed / point).write_text(action)
        rounds = RoundCommitter(_Open(committer), None, threads=4, name="c")
        rounds.start(second)
        _wait_until(lambda: not (armed / point).exists())
        if action == "hang":
            psutil.Process(committer.pids[0]).kill()
        with pytest.raises(RetriableError) as killed:
            _wait_until(lambda: list(rounds.outcomes()) is None)
        assert killed.value.code == "commit_process_lost"
        rounds.close()
        pids = committer.pids
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    with in_this_process(tables.settings()) as committer:
        committed(committer, second)
    for table in tables.reloaded():
        paths = paths_of(table)
        assert len(paths) == len(set(paths)) == 4
    tables.catalog.close()


def _wait_until(poll: Callable[[], bool]) -> None:
    pauses = growing_pauses()
    while not poll():
        next(pauses)


def test_delta_tables_are_committed_by_processes(tmp_path: Path) -> None:
    """With the same floor; announcements below it are not added again.

    By one process: which tables a process takes does not depend on their format.
    """
    rig = DeltaRig(str(tmp_path / "lake"))
    more = rig.catalog.create(("db", "more"), rig.table.schema())
    tables = [rig.table, more]

    def commits(offset: int) -> list[TableCommit]:
        return [
            table_commit(
                [
                    announced(
                        reference(table), [written_file(table, [{"id": offset}])], offset=offset
                    )
                ]
            )
            for table in tables
        ]

    settings = _of_two_tables(rig.config)
    rounds = [commits(0), commits(1)]
    with in_processes(settings, count=1) as committer:
        outcomes = [committed(committer, each) for each in rounds]
    assert [[getattr(o, "records", o) for o in each] for each in outcomes] == [[1, 1], [1, 1]]
    with in_this_process(settings) as committer:
        again = committed(committer, rounds[1])
    assert [getattr(o, "snapshot_id", o) for o in again] == [None, None]
    assert rig.now().version() == 2


def test_parquet_folders_are_committed_by_processes(tmp_path: Path) -> None:
    """With the same floor; announcements below it are not added again.

    By one process: which tables a process takes does not depend on their format.
    """
    rig = ParquetRig(str(tmp_path / "lake"))
    more = rig.catalog.create(("db", "more"), rig.table.schema())
    rounds = [
        [
            table_commit([announced(reference(table), written_files(table, [{"id": n}]), offset=n)])
            for table in (rig.table, more)
        ]
        for n in range(2)
    ]
    settings = _of_two_tables(rig.config)
    with in_processes(settings, count=1) as committer:
        outcomes = [committed(committer, each) for each in rounds]
    assert [[getattr(o, "records", o) for o in each] for each in outcomes] == [[1, 1], [1, 1]]
    with in_this_process(settings) as committer:
        again = committed(committer, rounds[1])
    assert [getattr(o, "snapshot_id", o) for o in again] == [None, None]


def _of_two_tables(config: ConnectorConfig) -> CommitterSettings:
    config = replace(config, tables=(*config.tables, "db.more"))
    return CommitterSettings(config, ControlLogCheck(None, config.control_topic))
