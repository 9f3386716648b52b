"""What this node believes of what runs: one ``Run`` per connector, one ``Unit`` per task.

Rules of this file:
- Belief, not truth: truth is in the topics, and safety rests on transactional ids. A wrong belief
  here costs a restart, never a record.
- A run is changed by the herder's thread and, while its job runs, by that job; others only read.
  Collections are replaced, never changed in place, so readers need no lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from connect.herder.backoff import Backoff, BackoffPolicy
from connect.herder.state import ConnectorState, Status
from connect.layout import Layout
from connect.rest.herder_api import ConnectorStatus, State, TaskStatus

ROUNDS_KEPT = 50
TABLES_SHOWN_MAX = 20
TABLES_KEPT = 10_000

Phase: TypeAlias = Literal[
    "IDLE",  # not handed to a child
    "WAITING",  # to be handed over as soon as its child is ready
    "RESTARTING",  # it ran before, and has not said yet that it runs again
    "STARTING",  # handed over
    "RUNNING",
    "STOPPING",
    "FAILED",
]


@dataclass(slots=True)
class Unit:
    """One task, or (``task`` None) the coordinator of a connector.

    ``is_handed``: its child has been told to run it, and has not died since.
    """

    task: int | None
    backoff: Backoff
    phase: Phase = "IDLE"
    trace: str | None = None
    code: str | None = None
    restart_at_ms: int | None = None
    is_handed: bool = False
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def child(self) -> str:
        """Name of the child process that runs it."""
        return "coordinator" if self.task is None else "worker"

    @property
    def is_to_start(self) -> bool:
        """Whether it runs nowhere and nothing stands against starting it."""
        return not self.is_handed and self.phase in {"IDLE", "WAITING", "RESTARTING"}

    def to(self, phase: Phase) -> None:
        """Go to a phase that is no failure."""
        self.phase = phase
        self.trace = self.code = self.restart_at_ms = None

    def failed(self, now_ms: int, *, code: str, trace: str, is_retriable: bool) -> None:
        """Go to FAILED, with or without a restart to come."""
        self.phase, self.code, self.trace = "FAILED", code, trace
        pause_ms = self.backoff.failed(now_ms) if is_retriable else None
        self.restart_at_ms = None if pause_ms is None else now_ms + pause_ms

    @property
    def has_failed_for_good(self) -> bool:
        """Whether only an operator, or a new layout, starts it again."""
        return self.phase == "FAILED" and self.restart_at_ms is None

    @property
    def shown(self) -> State:
        """The state as Kafka Connect's API names it.

        A unit that was handed to a child that is ready counts as running, as in Kafka, where a
        task runs before its consumer has seen a partition.
        """
        match self.phase:
            case "FAILED":
                return "FAILED"
            case "RESTARTING":
                return "RESTARTING"
            case "WAITING":
                return "UNASSIGNED"
            case _:
                return "RUNNING"


@dataclass(slots=True)
class Run:
    """One connector on this node.

    Attributes:
        name: connector name.
        policy: back-off of its units.
        layout: what was handed to the children; None when nothing was.
        rested: the layout that was taken back by a pause; None when none was.
        config: the configuration handed over with it.
        coordinator: the coordinator's unit.
        tasks: units per task id of ``layout``.
        is_busy: a job converges it; ``is_dirty``: it must be converged again after that.
        seen: what the last job looked at (``signature``); the same again needs no job.
        trace: why the connector itself cannot run; None when it can.
        retry_at_ms: when to converge again after a job that failed and may succeed later.
        later: what was asked for while a job ran, to be done after it.
        rounds: last rounds its coordinator told of.
        last_outcomes: what the last round of each table came to.
        failed_tables: tables whose files wait, as its coordinator last told.
    """

    name: str
    policy: BackoffPolicy
    coordinator: Unit
    backoff: Backoff
    layout: Layout | None = None
    rested: Layout | None = None
    config: Mapping[str, str] | None = None
    tasks: Mapping[int, Unit] = field(default_factory=dict)
    is_busy: bool = False
    is_dirty: bool = False
    seen: object = None
    trace: str | None = None
    retry_at_ms: int | None = None
    later: list[Callable[[], None]] = field(default_factory=list)
    failed_tables: tuple[Mapping[str, Any], ...] = ()
    last_outcomes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rounds: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT))

    @classmethod
    def of(cls, name: str, policy: BackoffPolicy) -> Run:
        """A run that has done nothing yet."""
        unlimited = BackoffPolicy(policy.first_ms, policy.longest_ms, policy.stable_ms)
        return cls(name, policy, Unit(None, Backoff(policy)), Backoff(unlimited))

    def units(self) -> list[Unit]:
        """Tasks in order, then the coordinator."""
        return [*(self.tasks[task] for task in sorted(self.tasks)), self.coordinator]

    def take(self, layout: Layout, config: Mapping[str, str] | None) -> None:
        """Go to a layout: tasks that go on keep their count of restarts."""
        kept = self.tasks
        self.layout, self.config, self.rested = layout, config, None
        self.tasks = {
            task: kept.get(task) or Unit(task, Backoff(self.policy))
            for task in range(len(layout.tasks))
        }

    def heard_round(self, event: Mapping[str, Any], now_ms: int) -> None:
        """Its coordinator told of an ended round; ``now_ms`` is wall clock."""
        ended = {k: v for k, v in event.items() if k not in {"event", "connector"}}
        ended["ended_ms"] = now_ms
        self.rounds.append(ended)
        last = dict(self.last_outcomes)
        for table in ended.get("tables", ()):
            last.pop(table["table"], None)  # the one heard of longest ago comes first
            last[table["table"]] = {
                **table,
                "state": "FAILED" if "code" in table else "COMMITTED",
                "commit_id": ended.get("commit_id"),
                "ended_ms": now_ms,
            }
        while len(last) > TABLES_KEPT:
            last.pop(next(iter(last)))
        self.last_outcomes = last

    def tables(self) -> list[Mapping[str, Any]]:
        """Each table's last outcome since this node has run the connector, and every failed one."""
        found = dict(self.last_outcomes)
        for table in self.failed_tables:
            found[table["table"]] = {**table, "state": "FAILED"}
        return [found[name] for name in sorted(found)]

    def rest(self, *, is_paused: bool) -> None:
        """Nothing runs any more; a pause, and a resume after it, leave failures as they are."""
        if not is_paused:
            self.rested, self.tasks = None, {}
        elif self.layout is not None:
            self.rested = self.layout
            self.tasks = {t: unit for t, unit in self.tasks.items() if unit.has_failed_for_good}
        self.layout = self.config = None
        self.failed_tables = ()


def signature(state: ConnectorState) -> object:
    """Everything a job depends on; metadata of the cluster aside."""
    layout = state.layout
    config = None if state.config is None else tuple(sorted(state.config.items()))
    return config, state.target, layout.number if layout else None, state.ready


def _failed_tables_text(tables: Sequence[Mapping[str, Any]]) -> str | None:
    """One line for each table that is not committed: the connector runs, they need somebody."""
    if not tables:
        return None
    lines = [
        f"{t['table']}: {t['code']}: {t['message']}; "
        f"{t['files']} files with {t['records']} records wait"
        for t in tables[:TABLES_SHOWN_MAX]
    ]
    if len(tables) > TABLES_SHOWN_MAX:
        lines.append(f"and {len(tables) - TABLES_SHOWN_MAX} more")
    return "\n".join([f"{len(tables)} of the connector's tables cannot be committed:", *lines])


def shown_status(
    state: ConnectorState, run: Run | None, worker_id: str, *, has_worker: bool
) -> ConnectorStatus:
    """The connector's status: the operator's wish at once, belief about the rest.

    A task about to be handed to a worker that is there counts as running, so that a resumed
    connector shows it at once.
    """
    if state.target == "STOPPED":
        return ConnectorStatus(state.name, "STOPPED", worker_id)
    count = len(state.layout.tasks) if state.layout else 0
    if state.target == "PAUSED":
        paused = tuple(_paused(task, run, worker_id) for task in range(count))
        return ConnectorStatus(state.name, "PAUSED", worker_id, paused)
    units = run.tasks if run is not None else {}
    tasks = []
    for task in range(count):
        unit = units.get(task)
        if unit is not None:
            is_waiting = unit.phase == "IDLE" and run is not None and run.retry_at_ms is not None
            shown: State = "UNASSIGNED" if is_waiting else unit.shown
            tasks.append(TaskStatus(task, shown, worker_id, unit.trace))
        elif state.is_ready:
            tasks.append(TaskStatus(task, "RUNNING" if has_worker else "UNASSIGNED", worker_id))
    if run is None:
        return ConnectorStatus(state.name, "UNASSIGNED", worker_id, tuple(tasks))
    own: State = "RUNNING" if run.coordinator.phase == "WAITING" else run.coordinator.shown
    trace = run.coordinator.trace or _failed_tables_text(run.failed_tables)
    if run.trace is not None:
        own, trace = "FAILED", run.trace
    return ConnectorStatus(state.name, own, worker_id, tuple(tasks), trace)


def _paused(task: int, run: Run | None, worker_id: str) -> TaskStatus:
    unit = run.tasks.get(task) if run is not None else None
    if unit is not None and unit.has_failed_for_good:
        return TaskStatus(task, "FAILED", worker_id, unit.trace)
    return TaskStatus(task, "PAUSED", worker_id)


def stored_statuses(
    shown: ConnectorStatus, generation: int, version: str
) -> tuple[Status, dict[int, Status]]:
    """A status as the status topic keeps it: the connector's own, and each task's.

    Args:
        shown: the connector's status.
        generation: number of its layout.
        version: this product's.
    """

    def stored(part: ConnectorStatus | TaskStatus) -> Status:
        return Status(part.state, part.trace, part.worker_id, generation, version)

    return stored(shown), {task.id: stored(task) for task in shown.tasks}
