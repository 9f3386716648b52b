"""Target and observed state of this node: which units it has to run, and what runs.

There is one ``ConnectorRun`` per connector and one ``Unit`` per task.

Rules of this file:
- The target is computed from the config topic alone, on every node in the same way.
- The observed state may be wrong for a while. Correctness rests on the topics and on transactional
  ids: a wrong state costs a restart, never a record.
- A run is changed by the herder's thread and, while its job runs, by that job; other threads only
  read. Collections are replaced, never changed in place, so readers need no lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from connect.backoff import Backoff, BackoffPolicy
from connect.model.layout import Layout, TopicPartition
from connect.node.herder.units.maintenance_plan import MaintenancePlan
from connect.node.node_requests import State
from connect.processes.coordinator_names import COORDINATOR
from connect.state.connector_state import StoredConnector
from connect.state.status_state import Running
from connect.state.topic_records import task_base_config


@dataclass(frozen=True, slots=True)
class TargetUnits:
    """The units of a connector that one node has to run.

    Attributes:
        layout: None when no node has to run anything of the connector.
        config: the configuration from which the layout was made.
        tasks: task ids of the layout that are placed on the node.
        has_coordinator: whether the coordinator is placed on the node.
        ends: end offsets of a bounded run; None when it is not bounded.
    """

    layout: Layout | None = None
    config: Mapping[str, str] | None = None
    tasks: frozenset[int] = frozenset()
    has_coordinator: bool = False
    ends: Mapping[TopicPartition, int] | None = None

    @classmethod
    def of(cls, state: StoredConnector, node: str) -> TargetUnits | None:
        """Return the units for a node; None while a layout is being made ready."""
        if not state.is_to_run or state.layout is None:
            return cls()
        if not state.is_ready or state.places is None or not state.task_configs:
            return None
        placed = state.places.tasks_of(node)
        return cls(
            state.layout,
            task_base_config(state.task_configs[0]),
            frozenset(task for task in placed if task < len(state.layout.tasks)),
            has_coordinator=state.places.coordinator == node,
            ends=None if state.end is None else state.end.offsets,
        )


def signature(state: StoredConnector) -> object:
    """Return every stored value that a convergence job depends on, for comparison."""
    layout = state.layout
    config = None if state.config is None else tuple(sorted(state.config.items()))
    number = layout.number if layout else None
    target = state.target, state.is_stopped
    return config, target, number, state.ready, state.places, state.restart, state.is_completed


Phase: TypeAlias = Literal[
    "IDLE",  # not assigned to a child
    "WAITING",  # will be sent to its child as soon as that is ready
    "RESTARTING",  # it ran before, and has not reported RUNNING again
    "STARTING",  # sent to its child
    "RUNNING",
    "STOPPING",
    "FAILED",
]
ROUNDS_KEPT = 50
TABLES_KEPT = 10_000


@dataclass(slots=True)
class UnitStart:
    """The last start of a unit.

    Attributes:
        generation: number of the start; 0 before the first.
        sequence: sequence number of its last report that was applied.
        sent_at_ms: when the start was made.
        is_sent: the child received the start command, and has not died since.
        has_ended: it has ended; later reports of it are ignored.
    """

    generation: int = 0
    sequence: int = 0
    sent_at_ms: int = 0
    is_sent: bool = False
    has_ended: bool = False


@dataclass(slots=True)
class CoordinatorReports:
    """Rounds, tables and alarms of one connector since this node has run its coordinator.

    Changed by the herder's thread; collections are replaced, so readers need no lock.

    Attributes:
        rounds: the last commit rounds.
        is_answered: every task has answered a round with the present layout and configuration.
        last_outcomes: the last outcome of each table.
        failed_tables: tables with files that are not committed, as last reported.
        retention_text: alarm about the retention of the control topic; None when there is none.
        stalls: restarts of the coordinator for lack of progress since the last round.
        completed_layout: number of the layout whose bounded run is complete; None while it is not.
        stall_text: description of the last of these restarts, until a round ends.
    """

    failed_tables: tuple[Mapping[str, Any], ...] = ()
    retention_text: str | None = None
    stalls: int = 0
    stall_text: str | None = None
    completed_layout: int | None = None
    is_answered: bool = False
    last_outcomes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rounds: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT))

    def received_round(self, event: Mapping[str, Any], now_ms: int) -> None:
        """Add an ended round; ``now_ms`` is wall clock."""
        ended = {k: v for k, v in event.items() if k not in {"event", "connector"}}
        ended["ended_ms"] = now_ms
        self.rounds.append(ended)
        self.stalls = 0
        self.stall_text = None
        last = dict(self.last_outcomes)
        for table in ended.get("tables", ()):
            last.pop(table["table"], None)  # the table with the oldest outcome stays first
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
        """Return the last outcome of each table, and every failed table."""
        outcomes = dict(self.last_outcomes)
        for table in self.failed_tables:
            outcomes[table["table"]] = {**table, "state": "FAILED"}
        return [outcomes[name] for name in sorted(outcomes)]

    def clear_alarms(self) -> None:
        """Remove alarms and failed tables: the coordinator runs no more."""
        self.failed_tables = ()
        self.retention_text = None
        self.stalls = 0
        self.stall_text = None
        self.completed_layout = None


@dataclass(slots=True)
class Unit:
    """One task, or (``task`` None) the coordinator of a connector.

    Attributes:
        child: name of the child process that runs it.
        restart_at_ms: when to start it again after a failure; None when that is not planned.
        is_retrying: it has failed, and its child continues to retry.
        waits_for: what it waits for, as its child reported last; None while it works.
        stopped: set when its last start has ended.
    """

    task: int | None
    backoff: Backoff
    child: str = "worker"
    phase: Phase = "IDLE"
    trace: str | None = None
    restart_at_ms: int | None = None
    is_retrying: bool = False
    waits_for: str | None = None
    start: UnitStart = field(default_factory=UnitStart)
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def is_to_start(self) -> bool:
        """Whether it runs in no child and may be started."""
        return not self.start.is_sent and self.phase in {"IDLE", "WAITING", "RESTARTING"}

    def to(self, phase: Phase) -> None:
        """Change to a phase other than FAILED."""
        self.phase = phase
        self.trace = None
        self.restart_at_ms = None
        self.is_retrying = False
        self.waits_for = None

    def is_failing(self, trace: str) -> None:
        """Change to FAILED while its child continues to retry: the node restarts nothing."""
        self.phase = "FAILED"
        self.trace = trace
        self.restart_at_ms = None
        self.is_retrying = True

    def failed(self, now_ms: int, *, trace: str, is_retriable: bool) -> None:
        """Change to FAILED because its start has ended; plan a restart if that may help."""
        self.phase = "FAILED"
        self.trace = trace
        self.is_retrying = False
        self.stopped.set()  # for a job that has just begun to wait for its end
        pause_ms = self.backoff.failed(now_ms) if is_retriable else None
        self.restart_at_ms = None if pause_ms is None else now_ms + pause_ms

    @property
    def wait_text(self) -> str | None:
        """What keeps it from working, as a sentence; None when nothing does."""
        if self.phase == "WAITING" or (self.phase == "RESTARTING" and not self.start.is_sent):
            return f"waiting for the {self.child} process to start"
        return None if self.waits_for is None else f"waiting for {self.waits_for}"

    @property
    def has_failed_for_good(self) -> bool:
        """Whether only an operator, or a new layout, starts it again."""
        return self.phase == "FAILED" and self.restart_at_ms is None and not self.is_retrying

    @property
    def connect_state(self) -> State:
        """The state as Kafka Connect's API names it.

        A unit that was sent to a child that is ready counts as running, as in Kafka, where a
        task runs before its consumer has a partition.
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
class JobState:
    """The convergence job of one connector.

    Attributes:
        backoff: pauses between failed jobs.
        is_busy: a job runs.
        is_dirty: the connector must be converged again after that job.
        is_held: the units must not be started: the last job failed, or that of the leader did.
        waits_for: what the job waits for; None while it does not wait.
        signature: stored values that the last job has read; equal values need no further job.
        retry_at_ms: when to converge again after a job that failed and may succeed later.
    """

    backoff: Backoff
    is_busy: bool = False
    is_dirty: bool = False
    is_held: bool = False
    waits_for: str | None = None
    signature: object = None
    retry_at_ms: int | None = None


@dataclass(slots=True)
class ConnectorRun:
    """One connector on this node.

    Attributes:
        policy: back-off of its units.
        reports: reports of its coordinator.
        layout: the layout that was sent to the children; None when none was.
        paused_layout: the layout that a pause has stopped; None when none was.
        target: the units that the node took last, with what is sent to the children.
        has_coordinator: whether the coordinator is placed on this node.
        tasks: units per task id of ``layout``, of those placed on this node, in order.
        restarted: the last requested restart that was done.
        maintenance: of the connector's tables.
    """

    name: str
    policy: BackoffPolicy
    coordinator: Unit
    job: JobState
    reports: CoordinatorReports = field(default_factory=CoordinatorReports)
    layout: Layout | None = None
    paused_layout: Layout | None = None
    target: TargetUnits = field(default_factory=TargetUnits)
    has_coordinator: bool = False
    tasks: Mapping[int, Unit] = field(default_factory=dict)
    restarted: str | None = None
    maintenance: MaintenancePlan = field(default_factory=MaintenancePlan)

    @classmethod
    def of(cls, name: str, policy: BackoffPolicy) -> ConnectorRun:
        """Return a run without any layout."""
        unlimited = BackoffPolicy(policy.first_ms, policy.longest_ms, policy.stable_ms)
        coordinator = Unit(None, Backoff(policy), COORDINATOR)
        return cls(name, policy, coordinator, JobState(Backoff(unlimited)))

    @property
    def config(self) -> Mapping[str, str] | None:
        """The configuration that was sent with the layout."""
        return self.target.config

    @property
    def ends(self) -> Mapping[TopicPartition, int] | None:
        """The end offsets of a bounded run that were sent with the layout."""
        return self.target.ends

    def units(self) -> list[Unit]:
        """Return the units placed on this node: tasks in order, then the coordinator."""
        tasks = self.tasks.values()
        return [*tasks, self.coordinator] if self.has_coordinator else [*tasks]

    def take(self, target: TargetUnits) -> None:
        """Change to the units of a target; tasks that stay keep their number of restarts."""
        kept = self.tasks
        if (self.layout, self.config) != (target.layout, target.config):
            self.reports.is_answered = False
        self.layout = target.layout
        self.target = target
        self.paused_layout = None
        self.has_coordinator = target.has_coordinator
        self.tasks = {
            task: kept.get(task) or Unit(task, Backoff(self.policy))
            for task in sorted(target.tasks)
        }

    def running(self, stopped: Collection[Unit] = ()) -> Running | None:
        """Return the units that run on this node or are about to, without the stopped ones."""
        out = {id(unit) for unit in stopped}
        tasks = frozenset(
            t for t, u in self.tasks.items() if id(u) not in out and not u.has_failed_for_good
        )
        has_coordinator = self.has_coordinator and id(self.coordinator) not in out
        is_maintaining = self.maintenance.has_process
        if self.layout is None or not (tasks or has_coordinator):
            return Running(0, is_maintaining=True) if is_maintaining else None
        return Running(
            self.layout.number,
            tasks,
            coordinator=has_coordinator,
            is_completed=has_coordinator and self.reports.completed_layout == self.layout.number,
            is_maintaining=is_maintaining,
        )

    def rest(self, *, is_paused: bool) -> None:
        """Forget the layout after everything has stopped; failed tasks stay failed in a pause."""
        if not is_paused:
            self.paused_layout = None
            self.tasks = {}
        elif self.layout is not None:
            self.paused_layout = self.layout
            self.tasks = {t: unit for t, unit in self.tasks.items() if unit.has_failed_for_good}
        self.layout = None
        self.target = TargetUnits()
        self.has_coordinator = False
        self.reports.clear_alarms()
        self.maintenance.closed()
