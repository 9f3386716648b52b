"""The coordinator's side of commit processes: routing, losses, time limits, the end."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError, RetriableError
from connect.metrics import process_metrics
from control_schemas.events import TableReference
from coordinator.commit.multi_table_commit import RoundCommitter
from coordinator.commit.table_committers import CommitterSettings
from coordinator.commit_processes.commit_process import CommitProcessSetup
from coordinator.commit_processes.commit_processes import (
    CommitProcesses,
    process_count,
    process_of,
)
from coordinator.commit_processes.messages import outcome_message, outcome_of
from coordinator.control_log_check import ControlLogCheck
from coordinator.kernel.effects import (
    CommitOutcome,
    CoordinatorFenced,
    TableCommit,
    TableCommitted,
    TableFailed,
)
from tests.support.tables import connector

STUB = Path(__file__).parents[4] / "tests" / "support" / "stub_commit_process.py"
QUICK = {"poll_ms": 20, "silence_ms_max": 60_000, "finish_ms_max": 20_000}
WAIT_S = 30


def commit_of(table: str) -> TableCommit:
    return TableCommit(TableReference("", ("db",), table), UUID(int=1), (), {0: 1}, None, "c-0")


@contextlib.contextmanager
def processes(
    mode: str,
    count: int = 2,
    *,
    reports: list[Mapping[str, Any]] | None = None,
    unanswered_ms_max: int = 60_000,
    **limits: Any,
) -> Iterator[CommitProcesses]:
    """Stubs of this mode, started and closed."""
    config = connector("c", ["db.a", "db.b"])
    setup = CommitProcessSetup(count, {}, command=(sys.executable, str(STUB), mode))
    made = CommitProcesses(
        CommitterSettings(config, ControlLogCheck(None, config.control_topic)),
        None,
        replace(setup, **{**QUICK, **limits}),
        count,
        lambda _, where: (reports if reports is not None else []).append(where),
        unanswered_ms_max=unanswered_ms_max,
    )
    try:
        made.start()
        yield made
    finally:
        pids = made.pids
        made.close()
        assert not [pid for pid in pids if psutil.pid_exists(pid)]


def table_of(index: int, prefix: str = "t") -> str:
    """A table that belongs to this process of two."""
    names = (f"{prefix}{n}" for n in range(1000))
    return next(name for name in names if process_of(("db", name), 2) == index)


def committed(outcome: CommitOutcome) -> TableCommitted:
    assert isinstance(outcome, TableCommitted), outcome
    return outcome


def test_a_table_belongs_to_one_process_and_all_processes_have_some() -> None:
    """The same in every Python process, in which hashes of texts differ."""
    assert [process_of(("db", f"t{n}"), 3) for n in range(8)] == [1, 0, 2, 1, 0, 2, 2, 0]
    counts = defaultdict(int)
    for n in range(1000):
        counts[process_of(("db", f"table_{n}"), 4)] += 1
    assert all(200 < counts[index] < 300 for index in range(4))


def test_commits_go_to_the_process_of_their_table() -> None:
    """Many at a time, round after round; each outcome is that of its commit."""
    tables = [f"t{n}" for n in range(20)]
    reports: list[Mapping[str, Any]] = []
    with processes("answer", reports=reports) as made, ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            outcomes = list(pool.map(lambda t: made.commit(commit_of(t)), tables))
            assert [str(outcome.table) for outcome in outcomes] == [f"db.{t}" for t in tables]
        pids = made.pids
    taken = defaultdict(set)
    for report in reports:
        taken[report["table"]].add(report["pid"])
    assert len(reports) == 60
    expected = {f"db.{t}": {pids[process_of(("db", t), 2)]} for t in tables}
    assert dict(taken) == expected
    assert len(set(pids)) == 2


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 4),
        ({"tables": ["db.a"]}, 0),
        ({"tables": ["db.a", "db.b"]}, 2),
        ({"tables": ["db.a"], "errors__deadletterqueue__table": "x"}, 0),
        ({"tables": [], "iceberg__tables__dynamic_enabled": "true"}, 4),
        ({"iceberg__catalog__multi_table_commit": "true"}, 0),
        ({"icefloe__format": "delta", "icefloe__delta__location": "file:///lake"}, 4),
        ({"icefloe__format": "parquet", "icefloe__parquet__location": "file:///lake"}, 4),
    ],
)
def test_the_number_of_processes_of_a_connector(settings: dict[str, Any], count: int) -> None:
    """Never more than tables; none for one table, or for tables that are committed together."""
    tables = settings.pop("tables", [f"db.t{n}" for n in range(5)])
    more = {k: v for k, v in settings.items() if "deadletterqueue" not in k}
    if more.get("iceberg__tables__dynamic_enabled"):
        more["iceberg__tables__route_field"] = "name"
    config = connector("c", tables, **more)
    assert process_count(config, CommitProcessSetup(4, {})) == count
    assert process_count(config, None) == 0


def running() -> float:
    """How many processes the metric of the connector has."""
    name = "commit_processes_running"
    (number,) = (s[2] for s in process_metrics.PROCESS.snapshot()[1] if s[0] == name)
    return number


def test_the_running_processes_are_counted() -> None:
    """Operators see them until they end, or until one of them is lost."""
    with processes("answer", 3):
        assert running() == 3
    assert running() == 0
    with processes("dies") as made:
        assert running() == 2
        with pytest.raises(RetriableError, match="ended with status 3"):
            made.commit(commit_of("bad"))
        assert running() == 0


def test_a_lost_process_ends_the_commits_of_all() -> None:
    """As when the whole coordinator is killed: every commit under way has an unknown outcome."""
    with processes("dies") as made, ThreadPoolExecutor(2) as pool:
        assert committed(made.commit(commit_of(table_of(1)))).files == 1
        other = psutil.Process(made.pids[1 - process_of(("db", "bad"), 2)])
        other.suspend()
        waiting = pool.submit(made.commit, commit_of(table_of(1 - process_of(("db", "bad"), 2))))
        with pytest.raises(RetriableError, match="ended with status 3") as lost:
            made.commit(commit_of("bad"))
        assert lost.value.code == "commit_process_lost"
        with pytest.raises(RetriableError, match="ended with status 3"):
            waiting.result(WAIT_S)
        for index in (0, 1):
            with pytest.raises(RetriableError, match="starts again and reads the tables"):
                made.commit(commit_of(table_of(index)))


def test_an_idle_process_that_is_killed_ends_the_session() -> None:
    """It is reported at once; a commit fails, in any process."""
    with processes("answer") as made:
        rounds = RoundCommitter(made, None, threads=2, name="c")
        made._on_lost = rounds.fail
        assert list(rounds.outcomes()) == []
        victim = psutil.Process(made.pids[0])
        victim.kill()
        _wait_until_gone(made.pids[1])
        for index in (0, 1):
            with pytest.raises(RetriableError, match="ended with status -9"):
                made.commit(commit_of(table_of(index)))
        with pytest.raises(RetriableError, match="ended with status -9"):
            _wait_for_an_error(rounds)
        rounds.close()


@pytest.mark.parametrize(
    "mode",
    [
        "no json",
        "no object",
        "unknown event",
        "unknown number",
        "no kind",
        "text for a count",
        "half a line",
    ],
)
def test_a_process_that_sends_what_is_no_message_is_lost(mode: str) -> None:
    """It is killed, and so is the other one; the commit gets no outcome."""
    with processes(mode) as made:
        with pytest.raises(RetriableError) as lost:
            made.commit(commit_of("bad"))
        assert lost.value.code == "commit_process_lost"
        for pid in made.pids:
            _wait_until_gone(pid)


def test_a_second_outcome_of_a_commit_is_no_message() -> None:
    """The first one counts; the session ends."""
    with processes("twice") as made:
        assert committed(made.commit(commit_of("bad"))).snapshot_id == 1
        for pid in made.pids:
            _wait_until_gone(pid)
        with pytest.raises(RetriableError, match="sent what is no message"):
            made.commit(commit_of("t"))


def test_a_process_that_opens_no_catalog_is_lost() -> None:
    """The error names the reason and its code."""
    with (
        processes("not opened") as made,
        pytest.raises(RetriableError, match=r"could not open the catalog: none \(library_missing"),
    ):
        made.commit(commit_of("t"))


def test_a_commit_that_hangs_past_its_deadline_loses_its_process() -> None:
    """Although the process still sends its signs of life."""
    with processes("hangs") as made:
        assert committed(made.commit(commit_of("t"))).files == 1
        made._unanswered_ms_max = 400  # only now: a busy machine may need longer for the first one
        with pytest.raises(RetriableError, match=r"has ended no commit for \d+ ms"):
            made.commit(commit_of("bad"))


def test_an_idle_process_has_no_deadline() -> None:
    """Only time in which a commit waits is counted."""
    with processes("hangs", unanswered_ms_max=1_000) as made:
        assert committed(made.commit(commit_of("t"))).files == 1
        threading.Event().wait(1.5)
        assert committed(made.commit(commit_of("t"))).files == 1


def test_a_frozen_process_is_lost() -> None:
    """It sends nothing. A commit whose bytes it does not take any more ends, too."""
    with processes("answer") as made:
        assert committed(made.commit(commit_of("t"))).files == 1
        made._setup = replace(made._setup, silence_ms_max=500)
        for pid in made.pids:
            psutil.Process(pid).suspend()
        large = replace(commit_of("t"), task_id="x" * 10_000_000)
        with pytest.raises(RetriableError, match=r"has sent nothing for \d+ ms"):
            made.commit(large)


def test_a_process_that_does_not_begin_is_lost() -> None:
    """The start returns, although the process does not take the bytes that it is sent."""
    config = connector("c", ["db.a", "db.b"])
    setup = CommitProcessSetup(2, {}, command=(sys.executable, str(STUB), "does not read"))
    setup = replace(setup, poll_ms=20, silence_ms_max=500)
    settings = CommitterSettings(config, ControlLogCheck(None, config.control_topic))
    made = CommitProcesses(settings, None, setup, 2, lambda *_: None, unanswered_ms_max=60_000)
    made._opening = replace(made._opening, secrets={"x" * 5_000_000: "y"})
    with pytest.raises(RetriableError, match="has sent nothing for"):
        made.start()
    made.close()
    assert not [pid for pid in made.pids if psutil.pid_exists(pid)]


def test_the_end_of_a_session_limits_the_time_of_its_commits() -> None:
    """A successor must find no commit of this session under way."""
    with processes("hangs", stop_ms_max=300) as made:
        rounds = RoundCommitter(made, None, threads=2, name="c")
        rounds.start([commit_of("bad")])
        made.stop()
        rounds.close()
        with pytest.raises(RetriableError, match="did not end within 300 ms after the stop"):
            list(rounds.outcomes())


def test_a_process_that_does_not_end_is_killed() -> None:
    """``close`` returns when it has ended; ``processes`` checks that."""
    with processes("does not end", finish_ms_max=300) as made:
        assert committed(made.commit(commit_of("t"))).files == 1


def test_no_commit_is_sent_after_the_end() -> None:
    """The processes have ended."""
    with processes("answer") as made:
        made.close()
        with pytest.raises(RetriableError, match="was closed"):
            made.commit(commit_of("t"))


def test_processes_end_with_the_thread_that_started_them() -> None:
    """Also when it does not close them, as when the coordinator process is killed."""
    config = connector("c", ["db.a", "db.b"])
    setup = CommitProcessSetup(2, {}, command=(sys.executable, str(STUB), "does not end"))
    settings = CommitterSettings(config, ControlLogCheck(None, config.control_topic))
    made = CommitProcesses(settings, None, setup, 2, lambda *_: None, unanswered_ms_max=60_000)

    def session() -> None:
        made.start()
        made.commit(commit_of("t"))

    thread = threading.Thread(target=session)
    thread.start()
    thread.join(WAIT_S)
    for pid in made.pids:
        _wait_until_gone(pid)
    made.close()


def test_a_program_that_does_not_run_is_a_lost_process(tmp_path: Path) -> None:
    """The session is tried again."""
    with (
        processes("answer", command=(str(tmp_path / "missing"),)) as made,
        pytest.raises(RetriableError, match="ended with status"),
    ):
        made.commit(commit_of("t"))


@pytest.mark.parametrize(
    "outcome",
    [
        TableCommitted(TableReference("", ("db",), "t"), UUID(int=1), 2**62, 1, 2, 3, 4),
        TableCommitted(TableReference("", ("db",), "t"), UUID(int=1), None),
        TableFailed(
            TableReference("", ("db",), "t"),
            UUID(int=1),
            "forbidden",
            "no",
            is_retriable=True,
            present_uuid=UUID(int=7),
        ),
        TableFailed(
            TableReference("", ("db",), "t"), UUID(int=1), "gone", "no\udc80", is_retriable=False
        ),
        CoordinatorFenced(TableReference("", ("db",), "t"), UUID(int=1), "moved"),
    ],
)
def test_every_outcome_is_sent_whole(outcome: CommitOutcome) -> None:
    """As JSON, with names that are those of the commit."""
    assert outcome_of(commit_of("t"), outcome_message(7, outcome)) == outcome


@pytest.mark.parametrize(
    "change",
    [
        {"snapshot_id": "1"},
        {"files": True},
        {"kind": "lost"},
        {"records": None},
    ],
)
def test_an_outcome_with_another_form_is_refused(change: dict[str, Any]) -> None:
    """No outcome is guessed."""
    whole = outcome_message(1, TableCommitted(commit_of("t").table, UUID(int=1), 5))
    with pytest.raises(ValueError, match="outcome"):
        outcome_of(commit_of("t"), {**whole, **change})


@pytest.mark.parametrize("value", ["-1", "65", "two"])
def test_the_number_of_processes_is_checked(value: str) -> None:
    """A node with a wrong value does not start; the error names the key."""
    properties = {"bootstrap.servers": "127.0.0.1:1", "icefloe.coordinator.commit.processes": value}
    with pytest.raises(ConfigError, match=r"icefloe\.coordinator\.commit\.processes"):
        NodeConfig.from_properties(properties)


def _wait_for_an_error(rounds: RoundCommitter) -> None:
    for _ in range(WAIT_S * 50):
        assert list(rounds.outcomes()) == []
        threading.Event().wait(0.02)


def _wait_until_gone(pid: int) -> None:
    """Wait until a process has ended; a zombie has."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        deadline = threading.Event()
        for _ in range(WAIT_S * 50):
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                return
            deadline.wait(0.02)
        pytest.fail(f"process {pid} has not ended")
