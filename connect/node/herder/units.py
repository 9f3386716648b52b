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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from connect.model.layout import Layout
from connect.node.herder_api import State
from connect.processes.backoff import Backoff, BackoffPolicy
from connect.state.connector_state import StoredConnector
from connect.state.status_state import Running
from connect.state.topic_records import task_base_config

ROUNDS_KEPT = 50
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

    Attributes:
        generation: number of its last start; 0 before the first.
        sequence: of the last report of that generation that counted.
        handed_at_ms: when it was started last.
        is_handed: its child has the start command, and has not died since.
        has_ended: that start has ended; nothing of it counts any more.
        is_trying: it has failed, and its child continues to try.
    """

    task: int | None
    backoff: Backoff
    phase: Phase = "IDLE"
    trace: str | None = None
    code: str | None = None
    restart_at_ms: int | None = None
    generation: int = 0
    sequence: int = 0
    handed_at_ms: int = 0
    is_handed: bool = False
    has_ended: bool = False
    is_trying: bool = False
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
        self.is_trying = False

    def is_failing(self, code: str, trace: str) -> None:
        """Go to FAILED although its child continues to try: the node starts nothing."""
        self.phase, self.code, self.trace = "FAILED", code, trace
        self.restart_at_ms, self.is_trying = None, True

    def failed(self, now_ms: int, *, code: str, trace: str, is_retriable: bool) -> None:
        """Go to FAILED, with or without a restart to come: its start has ended."""
        self.phase, self.code, self.trace = "FAILED", code, trace
        self.is_trying = False
        self.stopped.set()  # whoever has just begun to wait for its end
        pause_ms = self.backoff.failed(now_ms) if is_retriable else None
        self.restart_at_ms = None if pause_ms is None else now_ms + pause_ms

    @property
    def has_failed_for_good(self) -> bool:
        """Whether only an operator, or a new layout, starts it again."""
        return self.phase == "FAILED" and self.restart_at_ms is None and not self.is_trying

    @property
    def displayed(self) -> State:
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to run of a connector on one node.

    Attributes:
        layout: None when nothing is to run anywhere.
        config: the configuration that the layout was made from.
        tasks: of the layout, those placed here.
        has_coordinator: whether the coordinator is placed here.
    """

    layout: Layout | None = None
    config: Mapping[str, str] | None = None
    tasks: frozenset[int] = frozenset()
    has_coordinator: bool = False

    @classmethod
    def of(cls, state: StoredConnector, node: str) -> Wanted | None:
        """From what the config topic says; None while a layout is being made ready."""
        if state.config is None or state.target != "STARTED" or state.layout is None:
            return cls()
        if not state.is_ready or state.places is None or not state.task_configs:
            return None
        here = state.places.tasks_of(node)
        return cls(
            state.layout,
            task_base_config(state.task_configs[0]),
            frozenset(task for task in here if task < len(state.layout.tasks)),
            has_coordinator=state.places.coordinator == node,
        )


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
        has_coordinator: whether the coordinator is placed on this node.
        tasks: units per task id of ``layout``, of those placed on this node.
        is_busy: a job converges it; ``is_dirty``: it must be converged again after that.
        is_held: something stands against starting it: the last job failed, or the leader's did.
        seen: what the last job looked at (``signature``); the same again needs no job.
        retry_at_ms: when to converge again after a job that failed and may succeed later.
        restarted: the last restart asked for that was done.
        rounds: last rounds its coordinator told of.
        last_outcomes: what the last round of each table came to.
        failed_tables: tables whose files wait, as its coordinator last told.
        retention_text: its coordinator's alarm about the control topic's retention; None when none.
        stalls: restarts of its coordinator for want of progress since the last round.
        stall_text: the last of them, until a round ends.
    """

    name: str
    policy: BackoffPolicy
    coordinator: Unit
    backoff: Backoff
    layout: Layout | None = None
    rested: Layout | None = None
    config: Mapping[str, str] | None = None
    has_coordinator: bool = False
    tasks: Mapping[int, Unit] = field(default_factory=dict)
    is_busy: bool = False
    is_dirty: bool = False
    is_held: bool = False
    seen: object = None
    retry_at_ms: int | None = None
    restarted: str | None = None
    failed_tables: tuple[Mapping[str, Any], ...] = ()
    retention_text: str | None = None
    stalls: int = 0
    stall_text: str | None = None
    last_outcomes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rounds: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT))

    @classmethod
    def of(cls, name: str, policy: BackoffPolicy) -> Run:
        """A run that has done nothing yet."""
        unlimited = BackoffPolicy(policy.first_ms, policy.longest_ms, policy.stable_ms)
        return cls(name, policy, Unit(None, Backoff(policy)), Backoff(unlimited))

    def units(self) -> list[Unit]:
        """Tasks in order, then the coordinator, of what is placed on this node."""
        tasks = [self.tasks[task] for task in sorted(self.tasks)]
        return [*tasks, self.coordinator] if self.has_coordinator else tasks

    def take(self, wanted: Wanted) -> None:
        """Go to a layout: tasks that go on keep their count of restarts."""
        kept = self.tasks
        self.layout, self.config, self.rested = wanted.layout, wanted.config, None
        self.has_coordinator = wanted.has_coordinator
        self.tasks = {
            task: kept.get(task) or Unit(task, Backoff(self.policy))
            for task in sorted(wanted.tasks)
        }

    def running(self, gone: Collection[Unit] = ()) -> Running | None:
        """What runs here, or is about to, without the units that are gone."""
        out = {id(unit) for unit in gone}
        tasks = frozenset(
            t for t, u in self.tasks.items() if id(u) not in out and not u.has_failed_for_good
        )
        has_coordinator = self.has_coordinator and id(self.coordinator) not in out
        if self.layout is None or not (tasks or has_coordinator):
            return None
        return Running(self.layout.number, tasks, coordinator=has_coordinator)

    def received_round(self, event: Mapping[str, Any], now_ms: int) -> None:
        """Its coordinator told of an ended round; ``now_ms`` is wall clock."""
        ended = {k: v for k, v in event.items() if k not in {"event", "connector"}}
        ended["ended_ms"] = now_ms
        self.rounds.append(ended)
        self.stalls, self.stall_text = 0, None
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
        self.has_coordinator = False
        self.failed_tables = ()
        self.retention_text = None
        self.stalls, self.stall_text = 0, None


def signature(state: StoredConnector) -> object:
    """Everything a job depends on; metadata of the cluster aside."""
    layout = state.layout
    config = None if state.config is None else tuple(sorted(state.config.items()))
    number = layout.number if layout else None
    wish = state.target, state.is_stopped
    return config, wish, number, state.ready, state.places, state.restart
