"""Ending units that end by themselves meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from connect.clock import SystemClock
from connect.model.layout import TopicPartition, spread
from connect.node.herder.child_assignments import Handover
from connect.node.herder.units import Run, Unit, Wanted
from connect.processes.backoff import BackoffPolicy

GRACE_MS = 600_000  # a test that waits for it fails by its own limit
LAYOUT = spread("c", 1, [TopicPartition("t", 0)], tasks=1)


class Silent:
    """A child that takes commands and never says that anything has stopped."""

    def send(self, message: Mapping[str, Any]) -> bool:
        """Take a command."""
        del message
        return True


class Told(threading.Event):
    """Something happens in the moment in which it is cleared, or just before it is waited for."""

    def __init__(self, on: str, act: Callable[[], None]) -> None:
        super().__init__()
        self._on = on
        self._act = act

    def clear(self) -> None:
        """As always, and then."""
        super().clear()
        if self._on == "clear":
            self._act()

    def wait(self, timeout: float | None = None) -> bool:
        """At first, and then as always."""
        if self._on == "wait":
            self._act()
        return super().wait(timeout)


def fail(unit: Unit) -> None:
    unit.failed(0, code="broker_unavailable", trace="away", is_retriable=True)


def stopping(on: str) -> Unit:
    """A running task that fails at such a moment of its stop."""
    run = Run.of("c", BackoffPolicy())
    run.take(Wanted(LAYOUT, {}, frozenset({0}), has_coordinator=False))
    unit = run.tasks[0]
    unit.to("RUNNING")
    unit.is_handed = True
    unit.stopped = Told(on, lambda: fail(unit))
    Handover({unit.child: Silent()}, SystemClock(), GRACE_MS).stop(run, [unit])
    return unit


def test_a_unit_that_fails_as_it_is_stopped_is_not_waited_for() -> None:
    """It says so once, perhaps before anybody listens; nothing more comes from it."""
    assert stopping("clear").phase == "IDLE"
    assert stopping("wait").phase == "IDLE"
