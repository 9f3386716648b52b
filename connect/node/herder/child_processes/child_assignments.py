"""Requests to the child processes: start a unit, stop it, change its layout.

Rules of this file:
- Each start has a generation, a number that rises. The child's reports carry it.
- A unit is started by the herder's thread and stopped by its run's job. Each of them, and every
  report, changes a unit with ``lock`` held. Nothing is started while it is being stopped.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from connect.clock import Clock
from connect.logs import logger
from connect.node.herder.units.units import ConnectorRun, Unit, UnitStart
from connect.processes.supervisor import SupervisedChild
from connect.protocol.source_end import end_lists

_log = logger("herder")


class ChildAssignments:
    """Assigns units to the child processes.

    Args:
        children: ``worker`` and ``coordinator``.
        grace_ms: how long units may take to stop.
    """

    def __init__(
        self, children: Mapping[str, SupervisedChild], clock: Clock, grace_ms: int
    ) -> None:
        self._children = children
        self._clock = clock
        self._grace_ms = grace_ms
        self._ready: frozenset[str] = frozenset()
        self._taking_commands: frozenset[str] = frozenset()
        self._generations = itertools.count(1)
        self.lock = threading.RLock()

    def set_taking_commands(self, child: str) -> None:
        """Note that the child takes commands, ready or not."""
        self._taking_commands |= {child}

    def set_ready(self, child: str) -> None:
        """Note that the child does its work."""
        self._ready |= {child}

    def set_gone(self, child: str) -> None:
        """Note that the child has ended."""
        self._ready -= {child}
        self._taking_commands -= {child}

    def is_ready(self, child: str) -> bool:
        """Return whether the child does its work, as other nodes and readiness checks see it."""
        return child in self._ready

    def takes_commands(self, child: str) -> bool:
        """Return whether units can be sent to the child."""
        return child in self._taking_commands

    def start(self, run: ConnectorRun, unit: Unit, *, is_restart: bool = False) -> None:
        """Send a unit to its child, which first stops an earlier start of it.

        While the child takes no commands, the unit waits. With ``is_restart`` it is shown as
        RESTARTING until it reports RUNNING.
        """
        with self.lock:
            if run.layout is None or run.config is None or unit.phase == "STOPPING":
                return
            if unit.task is not None and not run.layout.tasks[unit.task]:
                unit.to("RUNNING")  # a task without partitions needs no process
                return
            start = UnitStart(next(self._generations), sent_at_ms=self._clock.monotonic_ms())
            unit.start = start
            message: dict[str, Any] = {
                "op": "start",
                "connector": run.name,
                "config": dict(run.config),
                "layout": run.layout.to_json(),
                "generation": start.generation,
            }
            if run.ends is not None:
                message["ends"] = end_lists(run.ends)
            start.is_sent = self.takes_commands(unit.child) and self._send(unit, message)
            if is_restart:
                unit.to("RESTARTING")
            else:
                unit.to("STARTING" if start.is_sent else "WAITING")

    def send_layout(self, run: ConnectorRun) -> None:
        """Send the layout that is ready now to the running coordinator."""
        if run.layout is not None and run.coordinator.start.is_sent:
            layout = run.layout.to_json()
            self._send(run.coordinator, {"op": "layout", "connector": run.name, "layout": layout})

    def stop(self, run: ConnectorRun, units: Sequence[Unit]) -> None:
        """Stop units; return when they have ended or the grace is over.

        The caller's next step fences a unit that has not ended by then. Called by the run's job.
        """
        waiting = self.request_stop(run, units)
        deadline_ms = self._clock.monotonic_ms() + self._grace_ms
        for unit in waiting:
            left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            if not unit.stopped.wait(left_ms / 1000):
                _log.warning(
                    "task or coordinator did not stop within its grace period; it will be fenced",
                    connector=run.name,
                    task=unit.task,
                )
        self.set_idle(units)

    def request_stop(self, run: ConnectorRun, units: Sequence[Unit]) -> list[Unit]:
        """Request that units stop; return those whose end has to be awaited."""
        waiting = []
        for unit in units:
            with self.lock:
                unit.stopped.clear()  # before the phase is read: the unit may fail at any moment
                # a failed unit has no thread that ends; to stop it changes nothing
                is_awaited = unit.start.is_sent and (unit.phase != "FAILED" or unit.is_retrying)
                if not unit.has_failed_for_good:
                    unit.to("STOPPING")
                is_requested = unit.start.is_sent and self.stop_again(run, unit)
                if is_awaited and is_requested and not unit.start.has_ended:
                    waiting.append(unit)
        return waiting

    def set_idle(self, units: Sequence[Unit]) -> None:
        """Mark units that were requested to stop as ended."""
        with self.lock:
            for unit in units:
                unit.start.is_sent = False
                if not unit.has_failed_for_good:
                    unit.to("IDLE")

    def stop_again(self, run: ConnectorRun, unit: Unit) -> bool:
        """Send the stop request of a unit, perhaps repeatedly; return False without a child."""
        return self.stop_generation(unit.child, run.name, unit.task, unit.start.generation)

    def stop_generation(self, child: str, name: str, task: int | None, generation: int) -> bool:
        """Send the stop request of one generation; return False without a child."""
        message: dict[str, Any] = {"op": "stop", "connector": name, "generation": generation}
        return self._children[child].send(message if task is None else {**message, "task": task})

    def _send(self, unit: Unit, message: dict[str, Any]) -> bool:
        if unit.task is not None:
            message = {**message, "task": unit.task}
        return self._children[unit.child].send(message)
