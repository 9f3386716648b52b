"""Units given to child processes and taken back.

Rules of this file:
- Each start has a generation of its own, which rises; the child's reports carry it.
- A unit is started by the herder's thread and stopped by its run's job. ``lock`` is held wherever
  either of them, or a report, changes a unit; nothing is started while it is being stopped.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from connect.clock import Clock
from connect.logs import logger
from connect.node.herder.units import Run, Unit
from connect.processes.supervisor import SupervisedChild

_log = logger("herder")


class Handover:
    """The children as the herder uses them.

    Args:
        children: ``worker`` and ``coordinator``.
        clock: for the grace.
        grace_ms: how long units may take to end.
    """

    def __init__(
        self, children: Mapping[str, SupervisedChild], clock: Clock, grace_ms: int
    ) -> None:
        self._children = children
        self._clock = clock
        self._grace_ms = grace_ms
        self._ready: frozenset[str] = frozenset()
        self._generations = itertools.count(1)
        self.lock = threading.RLock()

    def ready(self, child: str) -> None:
        """The child takes work."""
        self._ready |= {child}

    def gone(self, child: str) -> None:
        """The child has ended."""
        self._ready -= {child}

    def is_ready(self, child: str) -> bool:
        """Whether the child takes work."""
        return child in self._ready

    def start(self, run: Run, unit: Unit, *, is_again: bool = False) -> None:
        """Hand a unit to its child, which ends an earlier one of the same name first.

        While the child is not ready the unit waits; ``is_again`` shows it as restarting until it
        says that it runs.
        """
        with self.lock:
            if run.layout is None or run.config is None or unit.phase == "STOPPING":
                return
            if unit.task is not None and not run.layout.tasks[unit.task]:
                unit.to("RUNNING")  # nothing to read: nothing to run
                return
            unit.generation = next(self._generations)
            unit.sequence, unit.has_ended = 0, False
            unit.handed_at_ms = self._clock.monotonic_ms()
            message: dict[str, Any] = {
                "op": "start",
                "connector": run.name,
                "config": dict(run.config),
                "layout": run.layout.to_json(),
                "generation": unit.generation,
            }
            unit.is_handed = self.is_ready(unit.child) and self._send(unit, message)
            if is_again:
                unit.to("RESTARTING")
            else:
                unit.to("STARTING" if unit.is_handed else "WAITING")

    def send_layout(self, run: Run) -> None:
        """Give the coordinator that runs the layout that is ready now."""
        if run.layout is not None and run.coordinator.is_handed:
            layout = run.layout.to_json()
            self._send(run.coordinator, {"op": "layout", "connector": run.name, "layout": layout})

    def stop(self, run: Run, units: Sequence[Unit]) -> None:
        """End units.

        Returns when they have ended or the grace is over; who has not ended then is fenced by
        what comes next. Called by the run's job.
        """
        waiting = self.ask_to_stop(run, units)
        deadline_ms = self._clock.monotonic_ms() + self._grace_ms
        for unit in waiting:
            left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            if not unit.stopped.wait(left_ms / 1000):
                _log.warning(
                    "did not end within its grace; it will be fenced",
                    connector=run.name,
                    task=unit.task,
                )
        self.set_idle(units)

    def ask_to_stop(self, run: Run, units: Sequence[Unit]) -> list[Unit]:
        """Ask units to end; those that are to be waited for."""
        waiting = []
        for unit in units:
            with self.lock:
                unit.stopped.clear()  # before the look: it may fail at any moment
                # one that failed has no thread to end; stopping it is harmless
                is_awaited = unit.is_handed and (unit.phase != "FAILED" or unit.is_trying)
                if not unit.has_failed_for_good:
                    unit.to("STOPPING")
                is_sent = unit.is_handed and self.stop_again(run, unit)
                if is_awaited and is_sent and not unit.has_ended:
                    waiting.append(unit)
        return waiting

    def set_idle(self, units: Sequence[Unit]) -> None:
        """Units that were asked to stop count as ended from now on."""
        with self.lock:
            for unit in units:
                unit.is_handed = False
                if not unit.has_failed_for_good:
                    unit.to("IDLE")

    def stop_again(self, run: Run, unit: Unit) -> bool:
        """Ask a unit's child to end it, perhaps once more; False when there is no child."""
        return self.stop_generation(unit.child, run.name, unit.task, unit.generation)

    def stop_generation(self, child: str, name: str, task: int | None, generation: int) -> bool:
        """Ask a child to end, or to forget, one start of a unit; False when there is no child."""
        message: dict[str, Any] = {"op": "stop", "connector": name, "generation": generation}
        return self._children[child].send(message if task is None else {**message, "task": task})

    def _send(self, unit: Unit, message: dict[str, Any]) -> bool:
        if unit.task is not None:
            message = {**message, "task": unit.task}
        return self._children[unit.child].send(message)
