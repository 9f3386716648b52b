"""Units that wait for their child, and units that fail while they are being stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from connect.backoff import BackoffPolicy
from connect.clock import SystemClock
from connect.model.layout import TopicPartition, spread
from connect.node.herder.child_processes.child_assignments import ChildAssignments
from connect.node.herder.units.units import ConnectorRun, TargetUnits, Unit

GRACE_MS = 600_000  # a test that waits for it fails by its own limit
LAYOUT = spread("c", 1, [TopicPartition("t", 0)], tasks=1)


class SilentChild:
    """A child that takes commands and never reports that a unit has stopped."""

    def send(self, message: Mapping[str, Any]) -> bool:
        """Take a command."""
        del message
        return True


class RecordingChild:
    """A child that records commands."""

    def __init__(self) -> None:
        self.commands: list[Mapping[str, Any]] = []

    def send(self, message: Mapping[str, Any]) -> bool:
        """Take a command."""
        self.commands.append(message)
        return True


class InterruptedEvent(threading.Event):
    """Calls a function when it is cleared, or just before it is waited for."""

    def __init__(self, on: str, act: Callable[[], None]) -> None:
        super().__init__()
        self._on = on
        self._act = act

    def clear(self) -> None:
        """Clear, then act."""
        super().clear()
        if self._on == "clear":
            self._act()

    def wait(self, timeout: float | None = None) -> bool:
        """Act, then wait."""
        if self._on == "wait":
            self._act()
        return super().wait(timeout)


def fail(unit: Unit) -> None:
    unit.failed(0, trace="away", is_retriable=True)


def stopping(on: str) -> Unit:
    """Return a running task that fails at this moment of its stop."""
    run = ConnectorRun.of("c", BackoffPolicy())
    run.take(TargetUnits(LAYOUT, {}, frozenset({0}), has_coordinator=False))
    unit = run.tasks[0]
    unit.to("RUNNING")
    unit.start.is_sent = True
    unit.stopped = InterruptedEvent(on, lambda: fail(unit))
    ChildAssignments({unit.child: SilentChild()}, SystemClock(), GRACE_MS).stop(run, [unit])
    return unit


def test_a_unit_that_fails_during_a_stop_is_not_waited_for() -> None:
    """The report may arrive before the wait starts; no further report follows."""
    assert stopping("clear").phase == "IDLE"
    assert stopping("wait").phase == "IDLE"


def test_units_are_sent_to_a_child_before_it_is_ready() -> None:
    """A worker that takes commands starts tasks while Spark starts; others do not count it yet."""
    run = ConnectorRun.of("c", BackoffPolicy())
    run.take(TargetUnits(LAYOUT, {}, frozenset({0}), has_coordinator=False))
    unit, child = run.tasks[0], RecordingChild()
    assignments = ChildAssignments({unit.child: child}, SystemClock(), GRACE_MS)
    assignments.start(run, unit)
    assert (unit.phase, child.commands) == ("WAITING", [])
    assignments.set_taking_commands(unit.child)
    assignments.start(run, unit)
    assert unit.phase == "STARTING"
    assert [message["op"] for message in child.commands] == ["start"]
    assert not assignments.is_ready(unit.child)
    assignments.set_gone(unit.child)
    assignments.start(run, unit)
    assert (unit.phase, len(child.commands)) == ("WAITING", 1)
