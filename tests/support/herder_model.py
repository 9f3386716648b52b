"""A node's herder and its coordinator processes as a model: messages may be late, lost or repeated.

``Reconciliation``, ``ChildAssignments``, ``ConnectorRun`` and ``Unit`` of the herder and
``HostedUnits`` of the child are the real ones. The model simulates threads, pipe, broker and clock,
by a seed. A session of a unit takes over the connector's transactional id and then ends rounds, as
long as the broker answers.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from connect.backoff import BackoffPolicy
from connect.errors import Fenced, RetriableError
from connect.model.layout import TopicPartition, spread
from connect.node.herder.child_processes.child_assignments import ChildAssignments
from connect.node.herder.child_processes.local_units import CoordinatorProcesses
from connect.node.herder.child_processes.reconciliation import Reconciliation
from connect.node.herder.units.units import ConnectorRun, TargetUnits, Unit
from connect.processes.child_main import Child
from connect.processes.coordinator_names import coordinator_names
from connect.processes.hosted_units import INVENTORY_INTERVAL_S, HostedUnit, HostedUnits
from connect.processes.unit_reports import Inventory, UnitReport

CONNECTORS = ("a", "b", "c")
STEP_MS = 100
DELAYS_MS = (0, 0, 100, 500, 3_000, 15_000)
ACT_EVERY_MS = 5_000
INTERVAL_MS = 1_000
INIT_TIMEOUT_MS = 30_000
FAILING_MS = 30_000
PREDECESSOR_WAIT_MS = 60_000
IDLE_MS_MAX = 90_000
CHAOS_MS = 200_000
HEALED_MS = 900_000
STOPPED_TIMEOUT_MS = 30_000
ACTS = ("kill", "freeze", "hang", "restart", "layout", "rest", "leave")
TARGET = TargetUnits(spread("x", 1, [TopicPartition("t", 0)], tasks=1), {}, has_coordinator=True)


@dataclass(slots=True)
class ModelClock:
    """The model's clock."""

    ms: int = 0

    def monotonic_ms(self) -> int:
        """Now."""
        return self.ms


class UnitSession:
    """One unit's thread: waits for its predecessors, takes over, ends rounds."""

    def __init__(self, world: HerderModel, process: ModelProcess, unit: HostedUnit) -> None:
        self._world = world
        self._process = process
        self.unit = unit
        self._wait_until_ms = world.time.ms + world.predecessor_wait_ms
        self._at_ms = 0
        self._attempt_ms: int | None = None
        self._failing_since_ms: int | None = None
        self._owns = self._has_opened = False
        self._progress_at_ms = world.time.ms
        self._is_stopping = False
        self.is_hung = False

    def run(self) -> None:
        """Not called: ``step`` does the work."""

    def stop(self) -> None:
        """End at the next step that is not blocked."""
        self._is_stopping = True

    def idle_ms(self) -> int:
        """Return the time since the last round or attempt."""
        return self._world.time.ms - self._progress_at_ms

    @property
    def idle_ms_max(self) -> int:
        """Return the limit of the idle time."""
        return IDLE_MS_MAX

    def step(self) -> None:
        """Do the next step of the thread, if it is due."""
        now_ms = self._world.time.ms
        if self.is_hung or self.unit.ended.is_set() or now_ms < self._at_ms:
            return
        is_blocked = any(not other.ended.is_set() for other in self.unit.predecessors)
        if is_blocked and now_ms < self._wait_until_ms:
            return
        if self._owns:
            self._work(now_ms)
        elif self._attempt_ms is None:
            self._begin(now_ms)
        else:
            self._take_over(now_ms)

    def _begin(self, now_ms: int) -> None:
        if self._is_stopping:
            self._process.units.end(self.unit, None)
            return
        self._progress_at_ms = self._attempt_ms = now_ms
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        self._at_ms = now_ms + self._world.chance.randint(10, 2_000)

    def _take_over(self, now_ms: int) -> None:
        """Block until the broker answers or the timeout ends; commands do not interrupt it."""
        assert self._attempt_ms is not None
        if self._world.is_broker_away:
            if now_ms - self._attempt_ms >= INIT_TIMEOUT_MS:
                self._fail(now_ms)
            else:
                self._at_ms = now_ms + self._world.chance.randint(100, 1_500)
            return
        self._world.owner[self.unit.key[0]] = self
        self._owns, self._has_opened = True, False
        self._at_ms = now_ms + self._world.chance.randint(100, 1_500)

    def _work(self, now_ms: int) -> None:
        name = self.unit.key[0]
        if self._is_stopping and self._has_opened:
            self._process.units.end(self.unit, None)
        elif self._world.is_broker_away:
            if now_ms - self._progress_at_ms >= INIT_TIMEOUT_MS:
                self._fail(now_ms)
        elif not self._has_opened:
            self._has_opened = True
            self._process.units.report(self.unit, "RUNNING")
        elif self._world.owner[name] is not self:
            self._process.units.end(self.unit, Fenced("fenced by a newer instance"))
        else:
            self._failing_since_ms = None
            self._progress_at_ms = now_ms
            self._world.rounds[name] = now_ms
            self._world.to_node(self._process.name, {"event": "round", "connector": name})
            self._at_ms = now_ms + INTERVAL_MS

    def _fail(self, now_ms: int) -> None:
        self._owns, self._attempt_ms = False, None
        self._at_ms = now_ms + self._world.chance.randint(100, 1_000)
        since_ms = now_ms if self._failing_since_ms is None else self._failing_since_ms
        self._failing_since_ms = since_ms
        if now_ms - since_ms >= FAILING_MS:
            error = RetriableError("timed out", code="broker_unavailable")
            self._process.units.report(self.unit, "FAILED", error)


class ModelProcess:
    """One coordinator process, started again after each kill.

    Args:
        world: the model.
        name: of the process.
    """

    def __init__(self, world: HerderModel, name: str) -> None:
        self.name = name
        self._world = world
        self._incarnation = 0
        self.ready_at_ms: int | None = 0
        self.sessions: list[UnitSession] = []
        self.units: HostedUnits
        self.spawn()

    def spawn(self) -> None:
        """Start it, without any unit."""
        self._incarnation += 1
        incarnation, process, world = self._incarnation, self, self._world
        self.sessions, self.ready_at_ms = [], world.time.ms + 1_000

        class Pipe:
            """The end of the child's pipe, until the child is killed."""

            def send(self, message: Mapping[str, Any]) -> bool:
                """Send a message, if the child was not killed."""
                is_alive = incarnation == process._incarnation
                return is_alive and world.to_node(process.name, message)

        pipe: Any = Pipe()
        clock: Any = world.time
        self.units = HostedUnits(
            Child(pipe),
            clock,
            predecessor_wait_ms=world.predecessor_wait_ms,
            launch=lambda _name, _live: None,
        )

    def send(self, message: Mapping[str, Any]) -> bool:
        """The herder's end of the pipe."""
        self._world.post(f"to {self.name}: {message}", lambda: self._handle(message))
        return True

    def _handle(self, message: Mapping[str, Any]) -> None:
        if self.ready_at_ms is not None:
            return  # no process reads the pipe: messages to a dead child are lost
        match message["op"]:
            case "start":
                self.units.start(message, self._session)
            case "stop":
                self.units.stop(message)
            case "layout" if (unit := self.units.current(message["connector"])) is not None:
                unit.layout = message["layout"]["layout"]

    def _session(self, unit: HostedUnit) -> UnitSession:
        unit.progress = session = UnitSession(self._world, self, unit)
        self.sessions.append(session)
        return session


class HerderModel:
    """Herder, child processes and the pipes between them.

    Args:
        seed: of all random choices.
        reconciliation: the herder's part under test; variants are planted bugs.
        has_inventory: whether the child sends inventories.
        predecessor_wait_ms: how long a unit waits for its predecessor.
        processes: number of coordinator processes.
    """

    def __init__(
        self,
        seed: int,
        reconciliation: type[Reconciliation] = Reconciliation,
        *,
        has_inventory: bool = True,
        predecessor_wait_ms: int = PREDECESSOR_WAIT_MS,
        processes: int = 1,
    ) -> None:
        self.chance = random.Random(seed)
        self.time = ModelClock()
        self._thaw_at_ms = 0
        self._is_pipe_bad = True
        self.predecessor_wait_ms = predecessor_wait_ms
        self.owner: dict[str, UnitSession] = {}
        self.rounds: dict[str, int] = dict.fromkeys(CONNECTORS, 0)
        self.trace: list[str] = []
        self._has_inventory = has_inventory
        self._messages: list[tuple[int, int, Callable[[], None], str]] = []
        self._numbers = itertools.count()
        self._stopping: dict[str, tuple[list[Unit], int, bool]] = {}
        policy = BackoffPolicy(first_ms=1_000, longest_ms=30_000)
        self.runs = {name: ConnectorRun.of(name, policy) for name in CONNECTORS}
        clock: Any = self.time
        names = coordinator_names(processes)
        self.processes = {name: ModelProcess(self, name) for name in names}
        children: Any = self.processes
        self.assignments = ChildAssignments(children, clock, 1)
        coordinators = CoordinatorProcesses(names, self.runs)
        self.reconciliation = reconciliation(
            self.runs,
            self.assignments,
            restart=lambda run, unit: self.assignments.start(run, unit, is_restart=True),
            on_changed=lambda _: None,
        )
        for run in self.runs.values():
            coordinators.place(run)
            run.take(TARGET)
            self.assignments.start(run, run.coordinator)

    @property
    def is_broker_away(self) -> bool:
        """Return whether the broker answers no client."""
        return self.time.ms < self._thaw_at_ms

    # ------------------------------------------------------------ between the two

    def to_node(self, child: str, event: Mapping[str, Any]) -> bool:
        """The child's end of the pipe."""
        displayed = {k: v for k, v in event.items() if k not in {"trace", "code", "retriable"}}
        self.post(f"to node: {displayed}", lambda: self._on_event(child, event))
        return True

    def post(self, text: str, deliver: Callable[[], None]) -> None:
        """Send a message through a pipe; while pipes are bad it may be lost, late or repeated."""
        copies = 1
        if self._is_pipe_bad:
            copies = self.chance.choices((1, 0, 2), weights=(75, 15, 10))[0]
        for _ in range(copies):
            delay_ms = self.chance.choice(DELAYS_MS) if self._is_pipe_bad else 0
            at_ms = self.time.ms + delay_ms
            heapq.heappush(self._messages, (at_ms, next(self._numbers), deliver, text))

    # ------------------------------------------------------------ the herder

    def _on_event(self, child: str, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "state":
                self.reconciliation.on_state(child, UnitReport.from_json(event), self.time.ms)
            case "inventory":
                inventory = Inventory.from_json(event)
                self.reconciliation.on_inventory(child, inventory, self.time.ms)
            case "round":
                self.runs[event["connector"]].reports.received_round(event, self.time.ms)

    def _each(self, child: str, act: Callable[[ConnectorRun, Unit], None]) -> None:
        for run in self.runs.values():
            for unit in run.units():
                if unit.child == child:
                    act(run, unit)

    def kill(self, child: str) -> None:
        """Kill a coordinator process; it is started again."""
        self.trace.append(f"{self.time.ms}: {child} killed")
        self.assignments.set_gone(child)
        self._each(child, self.reconciliation.child_is_gone)
        self.processes[child].spawn()

    def _act(self) -> None:
        """Do a random action of an operator, the leader or the machine."""
        name = self.chance.choice(CONNECTORS)
        run = self.runs[name]
        what = self.chance.choice(ACTS)
        self.trace.append(f"{self.time.ms}: {what} {name}")
        match what:
            case "kill":
                self.kill(run.coordinator.child)
            case "freeze":
                self._thaw_at_ms = self.time.ms + self.chance.randint(2, 70) * 1_000
            case "hang" if sessions := self._all_sessions():
                self.chance.choice(sessions).is_hung = True
            case "rest" | "leave" if run.layout is None:
                run.take(TARGET)
                self.assignments.start(run, run.coordinator)
            case "restart" if run.layout is not None and name not in self._stopping:
                self.assignments.start(run, run.coordinator, is_restart=True)
            case "layout" if run.layout is not None:
                run.layout = replace(run.layout, number=run.layout.number + 1)
                self.assignments.send_layout(run)
            case "rest" | "leave" if name not in self._stopping:
                waiting = self.assignments.request_stop(run, [run.coordinator])
                until_ms = self.time.ms + STOPPED_TIMEOUT_MS
                self._stopping[name] = waiting, until_ms, what == "leave"

    def _all_sessions(self) -> list[UnitSession]:
        return [session for process in self.processes.values() for session in process.sessions]

    def _hand_over_what_rested(self) -> None:
        for name, (waiting, until_ms, is_leaving) in list(self._stopping.items()):
            if all(unit.stopped.is_set() for unit in waiting) or self.time.ms >= until_ms:
                run = self.runs[name]
                del self._stopping[name]
                self.assignments.set_idle([run.coordinator])
                if is_leaving:
                    run.rest(is_paused=False)
                else:
                    self.assignments.start(run, run.coordinator)

    # ------------------------------------------------------------ time

    def _step(self) -> None:
        self.time.ms += STEP_MS
        while self._messages and self._messages[0][0] <= self.time.ms:
            _, _, deliver, text = heapq.heappop(self._messages)
            if "inventory" not in text and "round" not in text:
                self.trace.append(f"{self.time.ms}: {text}")
            deliver()
        for name, process in self.processes.items():
            if process.ready_at_ms is not None and self.time.ms >= process.ready_at_ms:
                process.ready_at_ms = None
                self.assignments.set_taking_commands(name)
                self.assignments.set_ready(name)
                self._each(name, self.reconciliation.child_takes_commands)
        for session in self._all_sessions():
            session.step()
        self._hand_over_what_rested()
        for run in self.runs.values():
            self.reconciliation.restart_due(run, self.time.ms)
        every_ms = int(INVENTORY_INTERVAL_S * 1_000)
        for name, process in self.processes.items():
            is_due = self._has_inventory and self.time.ms % every_ms == 0
            if is_due and process.ready_at_ms is None:
                self.to_node(name, process.units.inventory().to_json())

    def run(self) -> list[str]:
        """Run random faults, then none; return what is wrong at the end."""
        while self.time.ms < CHAOS_MS:
            if self.chance.random() < STEP_MS / ACT_EVERY_MS:
                self._act()
            self._step()
        self._is_pipe_bad, self._thaw_at_ms = False, 0
        self._run_until(CHAOS_MS + HEALED_MS)
        return self._all_wrong()

    def run_calm(self, until_ms: int) -> None:
        """Let time pass without faults."""
        self._is_pipe_bad = False
        self._run_until(until_ms)

    def run_frozen(self, frozen_ms: int) -> list[str]:
        """Freeze the broker and kill the child meanwhile; return what is wrong later."""
        self._is_pipe_bad = False
        self._run_until(20_000)
        self._thaw_at_ms = self.time.ms + frozen_ms
        self._run_until(21_000)
        for child in self.processes:
            self.kill(child)
        self._run_until(21_000 + frozen_ms + HEALED_MS // 4)
        return self._all_wrong()

    def _run_until(self, ms: int) -> None:
        while self.time.ms < ms:
            self._step()

    def _all_wrong(self) -> list[str]:
        return [text for run in self.runs.values() for text in self._wrong(run)]

    def _wrong(self, run: ConnectorRun) -> list[str]:
        """Return how the herder's observed state differs from what the child runs."""
        problems = []
        unit, name = run.coordinator, run.name
        all_living = [u for p in self.processes.values() for u in p.units.living()]
        living = [u for u in all_living if u.key == (name, None)]
        working = [u.generation for u in living if not self._is_hung(u)]
        if run.layout is None:
            return [f"{name} runs as {working}, wanted nowhere"] if working else []
        if self.time.ms - self.rounds[name] > 3 * INTERVAL_MS:
            problems.append(
                f"{name} is {unit.connect_state} and ended its last round at {self.rounds[name]}"
            )
        if unit.phase != "RUNNING":
            problems.append(f"{name} is {unit.phase}: {unit.trace}")
        if working != [unit.start.generation]:
            problems.append(f"{name} runs as {working}, recorded {unit.start.generation}")
        current = self.processes[unit.child].units.current(name)
        if current is not None and current.layout != run.layout.number:
            problems.append(f"{name} has layout {current.layout}, wanted {run.layout.number}")
        return problems

    def _is_hung(self, unit: HostedUnit) -> bool:
        return isinstance(unit.work, UnitSession) and unit.work.is_hung
