"""Units given to child processes and taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from connect.clock import Clock
from connect.herder.runs import Run, Unit
from connect.herder.supervisor import Child
from connect.logs import logger

_log = logger("herder")


class Handover:
    """The children as the herder uses them.

    Args:
        children: ``worker`` and ``coordinator``.
        clock: for the grace.
        grace_ms: how long units may take to end.
    """

    def __init__(self, children: Mapping[str, Child], clock: Clock, grace_ms: int) -> None:
        self._children = children
        self._clock = clock
        self._grace_ms = grace_ms
        self._ready: frozenset[str] = frozenset()

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
        if run.layout is None or run.config is None:
            return
        if unit.task is not None and not run.layout.tasks[unit.task]:
            unit.to("RUNNING")  # nothing to read: nothing to run
            return
        message: dict[str, Any] = {
            "op": "start",
            "connector": run.name,
            "config": dict(run.config),
            "layout": run.layout.to_json(),
        }
        unit.is_handed = self.is_ready(unit.child) and self._send(unit, message)
        if is_again:
            unit.to("RESTARTING")
        else:
            unit.to("STARTING" if unit.is_handed else "WAITING")

    def tell_layout(self, run: Run) -> None:
        """Give the coordinator that runs the layout that is ready now."""
        if run.layout is not None and run.coordinator.is_handed:
            layout = run.layout.to_json()
            self._send(run.coordinator, {"op": "layout", "connector": run.name, "layout": layout})

    def stop(self, run: Run, units: Sequence[Unit]) -> None:
        """End units.

        Returns when they have ended or the grace is over; who has not ended then is fenced by
        what comes next. Called by the run's job.
        """
        waiting = []
        for unit in units:
            unit.stopped.clear()  # before the look: it may fail at any moment
            # one that failed has no thread to end; stopping it is harmless
            is_awaited = unit.is_handed and unit.phase != "FAILED"
            if not unit.has_failed_for_good:
                unit.to("STOPPING")
            is_sent = unit.is_handed and self._send(unit, {"op": "stop", "connector": run.name})
            if is_awaited and is_sent:
                waiting.append(unit)
        deadline_ms = self._clock.monotonic_ms() + self._grace_ms
        for unit in waiting:
            left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            if not unit.stopped.wait(left_ms / 1000):
                _log.warning(
                    "did not end within its grace; it will be fenced",
                    connector=run.name,
                    task=unit.task,
                )
        for unit in units:
            unit.is_handed = False
            if not unit.has_failed_for_good:
                unit.to("IDLE")

    def _send(self, unit: Unit, message: dict[str, Any]) -> bool:
        if unit.task is not None:
            message = {**message, "task": unit.task}
        return self._children[unit.child].send(message)
