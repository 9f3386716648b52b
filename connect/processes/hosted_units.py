"""The units that a child process runs: one thread for each start, and the inventory of them all.

Rules of this file:
- Each start has a generation, a number that the node gives out once. Each report carries it, and a
  sequence number within it: the node ignores reports of other generations and older reports.
- A unit begins after every earlier unit of its connector and task has ended, because they share a
  transactional id. After ``predecessor_wait_ms`` it begins anyway and fences the earlier units.
- A report with ``ended`` is the last one of its generation. Without it, ``FAILED`` means that the
  unit continues to retry.
- The inventory lists every live thread and every failure that the node has not cleared, and what a
  unit waits for. A wait that lasts is logged again and again, so that no log is silent meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import structlog

from connect.clock import Clock
from connect.errors import IcefloeError
from connect.processes.child_main import Child, error_fields
from connect.processes.unit_reports import Inventory, UnitReport

PREDECESSOR_WAIT_MS = 60_000  # longer than a stop, and than taking over a transactional id
INVENTORY_INTERVAL_S = 2.0
INVENTORY_TRACE_CHARACTERS_MAX = 500
WAIT_LOGGED_MS = 2_000
WAIT_LOGGED_AGAIN_MS = 10_000

Key: TypeAlias = tuple[str, int | None]
"""Connector, and task or None for its coordinator."""

log = structlog.get_logger("hosted")


class Work(Protocol):
    """The work of a unit in its thread."""

    def run(self) -> None:
        """Work until stopped, or raise a final error."""
        ...

    def stop(self) -> None:
        """End soon; may be called from any thread."""
        ...


class ProgressingWork(Protocol):
    """Work that reports for how long it has made no progress."""

    def idle_ms(self) -> int:
        """Return the milliseconds since it last made progress."""
        ...

    @property
    def idle_ms_max(self) -> int:
        """The time without progress after which it is stalled."""
        ...


@dataclass(slots=True)
class UnitWait:
    """What a unit waits for.

    Attributes:
        reason: completes the sentence "waiting for ...".
        since_ms: when the wait began, monotonic clock.
        log_at_ms: when it is logged next.
    """

    reason: str
    since_ms: int
    log_at_ms: int


@dataclass(slots=True, eq=False)
class HostedUnit:
    """One start of a task or coordinator.

    Attributes:
        key: connector and task.
        generation: number of this start.
        layout: number of its layout.
        work: None until it is created, and when it could not be created.
        predecessors: earlier units of the key that had not ended when this one was started.
        state: as last reported.
        error: as last reported.
        sequence: number of its last report.
        is_stopping: it was requested to stop.
        wait: what it waits for; None while it works.
        ended: set when its thread has ended.
    """

    key: Key
    generation: int
    layout: int
    work: Work | None = None
    progress: ProgressingWork | None = None
    predecessors: tuple[HostedUnit, ...] = ()
    state: str = "STARTING"
    error: BaseException | None = None
    sequence: int = 0
    is_stopping: bool = False
    wait: UnitWait | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def reported(self, *, trace_characters_max: int | None = None) -> UnitReport:
        """Return the report of the unit's state."""
        connector, task = self.key
        error = error_fields(self.error, trace_characters_max)
        return UnitReport(
            connector,
            task,
            self.generation,
            self.sequence,
            self.layout,
            self.state,
            has_ended=self.ended.is_set(),
            code=error["code"],
            trace=error["trace"],
            is_retriable=error["retriable"],
        )


class HostedUnits:
    """Every unit of this process. Thread-safe.

    Args:
        child: the pipe to the node.
        clock: time.
        predecessor_wait_ms: how long a unit waits for its predecessors.
        launch: runs a unit in a new thread.
    """

    def __init__(
        self,
        child: Child,
        clock: Clock,
        *,
        predecessor_wait_ms: int = PREDECESSOR_WAIT_MS,
        launch: Callable[[str, Callable[[], None]], None] | None = None,
    ) -> None:
        self._child = child
        self._clock = clock
        self._predecessor_wait_ms = predecessor_wait_ms
        self._launch = launch or _thread
        self._lock = threading.RLock()
        self._units: dict[int, HostedUnit] = {}
        self._generation_max = 0

    def start(
        self, command: Mapping[str, Any], make: Callable[[HostedUnit], Work]
    ) -> HostedUnit | None:
        """Start the unit of a ``start`` command, and stop earlier units of its key.

        Args:
            command: with connector, task, generation and layout.
            make: creates the work of the unit; its errors are reported as the unit's failure.

        Returns:
            The unit; None when a newer one has been started already.
        """
        key = _key(command)
        generation, layout = int(command["generation"]), int(command["layout"]["layout"])
        with self._lock:
            self._generation_max = max(self._generation_max, generation)
            earlier = [unit for unit in self._units.values() if unit.key == key]
            if any(unit.generation >= generation for unit in earlier):
                return None
            for unit in earlier:
                self._stop(unit)
            living = tuple(unit for unit in earlier if not unit.ended.is_set())
            unit = HostedUnit(key, generation, layout, predecessors=living)
            self._units[generation] = unit
            self.report(unit, "STARTING")
        made: list[Work] = []
        if (error := _failure(unit, lambda: made.append(make(unit)))) is not None:
            self.end(unit, error)
            return unit
        (work,) = made
        with self._lock:
            unit.work = work
            if unit.is_stopping:
                work.stop()
        self._launch(_thread_name(key), lambda: self._live(unit))
        return unit

    def stop(self, command: Mapping[str, Any]) -> None:
        """Stop the unit of the command's generation, or all units of its key."""
        key, generation = _key(command), command.get("generation")
        with self._lock:
            for unit in list(self._units.values()):
                if unit.key == key and generation in {None, unit.generation}:
                    self._stop(unit)

    def current(self, connector: str, task: int | None = None) -> HostedUnit | None:
        """Return the newest unit of a key; None when there is none, or when it has ended."""
        with self._lock:
            units = [unit for unit in self._units.values() if unit.key == (connector, task)]
            newest = max(units, key=lambda unit: unit.generation, default=None)
        return newest if newest is not None and not newest.ended.is_set() else None

    def living(self) -> list[HostedUnit]:
        """Return the units that have not ended."""
        with self._lock:
            return [unit for unit in self._units.values() if not unit.ended.is_set()]

    def report(self, unit: HostedUnit, state: str, error: BaseException | None = None) -> None:
        """Report the state of a running unit; does nothing once it has ended."""
        with self._lock:
            if unit.ended.is_set():
                return
            unit.state, unit.error = state, error
            self._send(unit)

    def waits_for(self, unit: HostedUnit, reason: str | None) -> None:
        """Note what a unit waits for from now on; None when it works again.

        Args:
            unit: the unit.
            reason: completes the sentence "waiting for ...". The same reason continues a wait.
        """
        if reason is None:
            unit.wait = None
        elif unit.wait is None or unit.wait.reason != reason:
            now_ms = self._clock.monotonic_ms()
            unit.wait = UnitWait(reason, now_ms, now_ms + WAIT_LOGGED_MS)

    def log_waits(self) -> None:
        """Log the waits that last, each every few seconds."""
        now_ms = self._clock.monotonic_ms()
        for unit in self.living():
            wait = unit.wait
            if wait is None or now_ms < wait.log_at_ms:
                continue
            wait.log_at_ms = now_ms + WAIT_LOGGED_AGAIN_MS
            connector, task = unit.key
            where = (
                {"connector": connector} if task is None else {"connector": connector, "task": task}
            )
            log.info("waiting", waits_for=wait.reason, waited_ms=now_ms - wait.since_ms, **where)

    def end(self, unit: HostedUnit, error: BaseException | None) -> None:
        """Send the last report of a unit that has ended."""
        with self._lock:
            unit.state, unit.error = "STOPPED" if error is None else "FAILED", error
            unit.predecessors = ()
            unit.wait = None
            unit.ended.set()
            self._send(unit)
            if unit.is_stopping:
                self._units.pop(unit.generation, None)

    def inventory(self) -> Inventory:
        """Return all units, for the node to compare with its own state."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            units = tuple(_item(unit, now_ms) for unit in self._units.values())
            return Inventory(self._generation_max, units)

    def start_inventory(self) -> None:
        """Send the inventory every few seconds until the node is gone."""

        def run() -> None:
            pause = threading.Event()
            while self._child.channel.send(self.inventory().to_json()):
                self.log_waits()
                pause.wait(INVENTORY_INTERVAL_S)

        threading.Thread(target=run, name="inventory", daemon=True).start()

    def shutdown(self, grace_ms: int) -> bool:
        """Stop all units; return whether all ended within the grace."""
        living = self.living()
        with self._lock:
            for unit in living:
                self._stop(unit)
        deadline_ms = self._clock.monotonic_ms() + grace_ms
        return all(self._has_ended_by(unit, deadline_ms) for unit in living)

    def _live(self, unit: HostedUnit) -> None:
        connector, task = unit.key
        structlog.contextvars.bind_contextvars(connector=connector)
        if task is not None:
            structlog.contextvars.bind_contextvars(task=task)
        deadline_ms = self._clock.monotonic_ms() + self._predecessor_wait_ms
        if unit.predecessors:
            self.waits_for(unit, "its predecessor in this process, which has not ended yet")
        for predecessor in unit.predecessors:
            self._has_ended_by(predecessor, deadline_ms)
        unit.predecessors = ()
        self.waits_for(unit, None)
        work = unit.work
        self.end(unit, None if work is None else _failure(unit, work.run))

    def _has_ended_by(self, unit: HostedUnit, deadline_ms: int) -> bool:
        left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        return unit.ended.wait(left_ms / 1000)

    def _stop(self, unit: HostedUnit) -> None:
        unit.is_stopping = True
        if unit.ended.is_set():
            self._units.pop(unit.generation, None)
        elif unit.work is not None:
            unit.work.stop()

    def _send(self, unit: HostedUnit) -> None:
        unit.sequence += 1
        self._child.channel.send({"event": "state", **unit.reported().to_json()})


def _failure(unit: HostedUnit, act: Callable[[], object]) -> BaseException | None:
    """Do a part of a unit's life; return the error that ended it.

    It must end neither the other units of the process nor the report of this one: a unit without a
    last report would be RUNNING for ever. A panic of a native library is no ``Exception``.
    """
    try:
        act()
    except BaseException as e:  # the boundary of a unit
        code = e.code if isinstance(e, IcefloeError) else "unexpected"
        log.exception("task or coordinator failed", code=code, generation=unit.generation)
        return e
    return None


def _item(unit: HostedUnit, now_ms: int) -> UnitReport:
    item = unit.reported(trace_characters_max=INVENTORY_TRACE_CHARACTERS_MAX)
    if (wait := unit.wait) is not None:
        item = replace(item, waits_for=wait.reason, waited_ms=now_ms - wait.since_ms)
    if unit.progress is None or unit.ended.is_set():
        return item
    progress = unit.progress
    return replace(item, idle_ms=progress.idle_ms(), idle_ms_max=progress.idle_ms_max)


def _key(command: Mapping[str, Any]) -> Key:
    task = command.get("task")
    return command["connector"], None if task is None else int(task)


def _thread_name(key: Key) -> str:
    connector, task = key
    return f"coordinator-{connector}" if task is None else f"task-{connector}-{task}"


def _thread(name: str, live: Callable[[], None]) -> None:
    threading.Thread(target=live, name=name, daemon=True).start()
