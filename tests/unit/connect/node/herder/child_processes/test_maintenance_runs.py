"""The life of the maintenance process, with a small process that only reports."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from connect.backoff import BackoffPolicy
from connect.clock import SystemClock
from connect.config.connector import MaintenanceConfig
from connect.metrics.process_metrics import Exposition
from connect.node.herder.child_processes.maintenance_runs import (
    MaintenanceRuns,
    MaintenanceSettings,
)
from connect.node.herder.herder_thread import HerderThread
from connect.node.herder.units.units import ConnectorRun, TargetUnits
from connect.processes.supervisor import ChildSpec, OnEvent, SupervisedChild
from connect.state.status_state import Running

STUB = """
import json, os, socket, sys
pipe = socket.socket(fileno=int(os.environ["ICEFLOE_IPC_FD"]))
def send(event, **more):
    pipe.sendall(json.dumps({"event": event, "connector": "c", **more}).encode() + b"\\n")
for line in pipe.makefile():
    message = json.loads(line)
    if message["op"] == "configure":
        send("ready", version=message["version"])
    elif message["op"] == "maintain":
        print(line, flush=True)
        if sys.argv[1] == "die early":
            os._exit(9)
        for job in message["jobs"]:
            for work in job["work"]:
                send("maintenance", table=job["table"], work=work, state="RUNNING")
                if sys.argv[1] == "die":
                    os._exit(9)
                if sys.argv[1] == "hang":
                    break
                done = {"state": "DONE", "rewritten_bytes": 7, "duration_ms": 1}
                send("maintenance", table=job["table"], work=work, **done)
        if sys.argv[1] == "work":
            send("maintenance_ended")
    elif message["op"] == "shutdown":
        break
"""
POLICY = BackoffPolicy(30_000, 30_000)


class CountingChild(SupervisedChild):
    """A child that counts how often its log was bounded."""

    trims = 0

    def trim_log(self) -> None:
        """Bound the log."""
        self.trims += 1
        super().trim_log()


class MaintenanceHarness:
    """One connector whose coordinator runs, and the maintenance of its node.

    Args:
        folder: of the log.
        kind: what the process does: ``work``, ``die``, ``die early`` (before it begins any work)
            or ``hang``.
        is_allowed: by the node's properties.
        has_remote: whether another node maintains the tables.
        has_age: whether the age of orphan files is known.
    """

    def __init__(
        self,
        folder: Path,
        kind: str = "work",
        *,
        is_allowed: bool = True,
        has_remote: bool = False,
        has_age: bool = True,
    ) -> None:
        self.log = folder / "maintenance.log"
        self._kind = kind
        self.children: list[CountingChild] = []
        self.connectors: dict[str, ConnectorRun] = {}
        self.run = self.connector("c", orphan_age_ms=5 * 86_400_000)
        self.thread = HerderThread(self._tick, self._failed)
        age_ms = 3 * 86_400_000 if has_age else None
        settings = MaintenanceSettings(self._child, lambda _: age_ms, is_allowed=is_allowed)
        self.has_remote = has_remote
        self.published: list[Running | None] = []
        self.runs = MaintenanceRuns(
            self.connectors,
            settings,
            self.thread,
            SystemClock(),
            has_remote=lambda _: self.has_remote,
            publish=lambda run: self.published.append(run.running()),
        )
        self.errors: list[BaseException] = []
        self.before_tick: Callable[[], None] = lambda: None

    def connector(self, name: str, **limits: int) -> ConnectorRun:
        """Add a connector whose coordinator has just begun."""
        run = ConnectorRun.of(name, POLICY)
        run.target, run.has_coordinator = TargetUnits(config={"name": name}), True
        run.coordinator.phase = "RUNNING"
        config = asdict(MaintenanceConfig(min_input_files=2, **limits))
        run.maintenance.opened({**config, "tables": ["db.a"]}, 0)
        self.connectors[name] = run
        return run

    def _tick(self) -> None:
        self.before_tick()
        self.runs.tick()

    def _failed(self, error: BaseException) -> None:
        self.errors.append(error)

    def _child(self, on_event: OnEvent) -> SupervisedChild:
        spec = ChildSpec(
            "maintenance", (sys.executable, "-c", STUB, self._kind), self.log, {}, dict(os.environ)
        )
        self.children.append(CountingChild(spec, on_event, SystemClock(), POLICY))
        return self.children[-1]

    def results(self) -> list[tuple[str, str, str | None]]:
        """Work, state and code of the last reports."""
        results = self.runs.view("c")["results"]
        return [(r["work"], r["state"], r.get("code")) for r in results]

    def wait_until(self, is_so: Callable[[], Any]) -> None:
        """Wait for it."""
        for _ in range(15_000):
            if is_so():
                return
            threading.Event().wait(0.01)
        pytest.fail(f"{self.runs.view('c')} {self.errors}")

    def has_ended(self) -> bool:
        """Whether no process is left, and the next could begin."""
        return self.runs.view("c")["state"] != "RUNNING" and all(
            child.pid is None for child in self.children
        )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., MaintenanceHarness]]:
    """Starts harnesses, and ends them after the test."""
    started: list[MaintenanceHarness] = []

    def start_one(*kind: str, **options: bool) -> MaintenanceHarness:
        started.append(MaintenanceHarness(tmp_path, *kind, **options))
        started[-1].thread.start()
        return started[-1]

    yield start_one
    for harness in started:
        harness.thread.stop()
        harness.thread.cancel_jobs()
        harness.runs.close()
        assert not harness.errors


def test_the_process_lives_as_long_as_its_work(start: Callable[..., MaintenanceHarness]) -> None:
    """It gets the jobs with the age of orphan files, reports, and is ended; once for all work."""
    harness = start()
    harness.wait_until(lambda: ("orphan-files", "DONE", None) in harness.results())
    harness.wait_until(harness.has_ended)
    assert len(harness.children) == 1
    assert '"older_than_ms":1' in harness.log.read_text()
    assert "configure" not in harness.log.read_text()
    harness.run.maintenance.reported("db.a", {"small-files": 3})
    harness.wait_until(lambda: ("small-files", "DONE", None) in harness.results())
    harness.wait_until(harness.has_ended)
    assert len(harness.children) == 2
    assert harness.runs.view("c")["bytes_last_hour"] == 14


@pytest.mark.parametrize("kind", ["die", "die early"])
def test_a_process_that_dies_has_failed(
    start: Callable[..., MaintenanceHarness], kind: str
) -> None:
    """Its work is reported and counted as failed, and begins again after its interval."""
    before = _died()
    harness = start(kind)
    harness.wait_until(lambda: ("orphan-files", "FAILED", "maintenance_died") in harness.results())
    harness.wait_until(harness.has_ended)
    assert len(harness.children) == 1
    assert _died() == before + 1


def _died() -> float:
    where = {"connector": "c", "table": "db.a", "work": "orphan-files"}
    labels = {**where, "outcome": "maintenance_died"}
    return Exposition(lambda: 0).total("maintenance_work", **labels) or 0


@pytest.mark.parametrize("how", ["pause", "change", "operator"])
def test_it_ends_with_the_coordinator_or_by_request(
    start: Callable[..., MaintenanceHarness], how: str
) -> None:
    """A pause, a new configuration, or an operator's stop end the process with its work."""
    harness = start("hang")
    harness.wait_until(lambda: ("orphan-files", "RUNNING", None) in harness.results())
    if how == "pause":
        harness.thread.post(lambda: harness.run.rest(is_paused=True))
    elif how == "change":
        harness.run.target = TargetUnits(config={"name": "c", "tasks.max": "2"})
    else:
        harness.thread.post(lambda: harness.runs.request("c", is_run=False))
    harness.wait_until(
        lambda: ("orphan-files", "FAILED", "maintenance_stopped") in harness.results()
    )
    harness.wait_until(harness.has_ended)
    if how == "operator":
        assert harness.runs.view("c")["state"] == "STOPPED"


def test_a_node_may_forbid_it(start: Callable[..., MaintenanceHarness]) -> None:
    """No process is started, and the view says so."""
    harness = start(is_allowed=False)
    harness.wait_until(lambda: harness.runs.view("c")["state"] == "NOT_ALLOWED")
    assert not harness.children


def test_a_node_waits_until_another_one_maintains_no_more(
    start: Callable[..., MaintenanceHarness],
) -> None:
    """It reports its own process from the start to the end, also without the coordinator."""
    harness = start("hang", has_remote=True)
    harness.wait_until(lambda: harness.runs.view("c")["state"] == "WAITING")
    for _ in range(3):  # each post is handled after the ticks before it
        done = threading.Event()
        harness.thread.post(done.set)
        assert done.wait(60)
    assert not harness.children
    harness.has_remote = False
    harness.wait_until(lambda: ("orphan-files", "RUNNING", None) in harness.results())
    assert harness.published == [Running(0, is_maintaining=True)]
    harness.thread.post(lambda: harness.run.rest(is_paused=False))
    harness.wait_until(lambda: len(harness.published) == 2)
    assert harness.published[-1] is None
    assert all(child.pid is None for child in harness.children)


def test_an_unknown_age_of_orphan_files_is_a_failure(
    start: Callable[..., MaintenanceHarness],
) -> None:
    """It is reported, so the removal is repeated before the next interval; no process starts."""
    harness = start(has_age=False)
    failed = ("orphan-files", "FAILED", "maintenance_failed")
    harness.wait_until(lambda: failed in harness.results())
    harness.wait_until(harness.has_ended)
    assert [child.pid for child in harness.children] == [None]
    assert not harness.log.exists()


def test_connectors_take_turns(start: Callable[..., MaintenanceHarness]) -> None:
    """A connector whose tables are always due does not keep the others from their turn."""
    harness = start()

    def request_all() -> None:
        for run in harness.connectors.values():
            run.maintenance.is_requested = True

    def begin() -> None:
        for name in "de":
            harness.connector(name, orphan_age_ms=5 * 86_400_000)
        harness.before_tick = request_all

    def begun() -> list[str]:
        text = harness.log.read_text() if harness.log.exists() else ""
        lines = [line for line in text.split("\n")[:-1] if line.startswith("{")]
        return [json.loads(line)["connector"] for line in lines]

    harness.thread.post(begin)
    harness.wait_until(lambda: len(begun()) >= 5)
    turns = begun()[-4:]
    assert {*turns[:3]} == {"c", "d", "e"}
    assert turns[3] == turns[0]


def test_the_log_is_bounded_while_the_process_runs(
    start: Callable[..., MaintenanceHarness],
) -> None:
    """A run may last six hours, with a trace of Spark for each failure."""
    harness = start("hang")
    harness.wait_until(lambda: harness.children and harness.children[0].trims > 1)
    harness.wait_until(lambda: ("orphan-files", "RUNNING", None) in harness.results())
