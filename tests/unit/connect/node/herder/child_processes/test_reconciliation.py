"""Units that a child process runs and the node does not want."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from structlog.testing import capture_logs

from connect.backoff import Backoff, BackoffPolicy
from connect.clock import SystemClock
from connect.metrics.process_metrics import Exposition
from connect.node.herder.child_processes.child_assignments import ChildAssignments
from connect.node.herder.child_processes.reconciliation import UNWANTED_LOG_MS, Reconciliation
from connect.node.herder.units.units import ConnectorRun, Unit, UnitStart
from connect.processes.unit_reports import Inventory, UnitReport

INVENTORY_MS = 2_000


class RecordingChild:
    """A child that records commands and stops nothing."""

    def __init__(self) -> None:
        self.commands: list[Mapping[str, Any]] = []

    def send(self, message: Mapping[str, Any], *, wait_s: float = 0.0) -> bool:
        """Take a command."""
        del wait_s
        self.commands.append(message)
        return True


def inventory(*generations: int) -> Inventory:
    """What the child runs: a task of each generation, of a connector that was deleted."""
    return Inventory(9, tuple(UnitReport("unwanted", 0, number) for number in generations))


def test_a_unit_that_stops_slowly_is_logged_seldom() -> None:
    """The stop is requested with each inventory; it is logged once per unit, then once a minute."""
    child = RecordingChild()
    assignments = ChildAssignments({"worker": child}, SystemClock(), 0)
    reconciliation = Reconciliation(
        {}, assignments, restart=lambda *_: None, on_changed=lambda _: None
    )
    with capture_logs() as logged:
        for now_ms in range(0, UNWANTED_LOG_MS, INVENTORY_MS):
            reconciliation.on_inventory("worker", inventory(1, 2), now_ms)
        assert [entry["generation"] for entry in logged] == [1, 2]
        assert len(child.commands) == 2 * (UNWANTED_LOG_MS // INVENTORY_MS)
        reconciliation.on_inventory("worker", inventory(1), UNWANTED_LOG_MS)
        assert [entry["generation"] for entry in logged] == [1, 2, 1]
        reconciliation.on_inventory("coordinator", inventory(), UNWANTED_LOG_MS)
        reconciliation.on_inventory("worker", inventory(1), UNWANTED_LOG_MS + 1)
        assert len(logged) == 3
        reconciliation.on_inventory("worker", inventory(), UNWANTED_LOG_MS + 2)
        reconciliation.on_inventory("worker", inventory(3), UNWANTED_LOG_MS + 3)
        assert [entry["generation"] for entry in logged] == [1, 2, 1, 3]
    counted = Exposition(lambda: 0).total(
        "inventory_differences", connector="unwanted", code="unexpected"
    )
    assert counted == 3


def test_restarts_of_a_coordinator_are_counted_from_zero() -> None:
    """Prometheus sees no increase when a counter begins with 1: no alert would tell of it."""
    assignments = ChildAssignments({}, SystemClock(), 0)
    reconciliation = Reconciliation(
        {}, assignments, restart=lambda *_: None, on_changed=lambda _: None
    )
    run = ConnectorRun.of("counted-from-zero", BackoffPolicy(1_000, 1_000))
    counts = []
    for idle_ms in (0, 11):
        item = UnitReport(run.name, None, 1, idle_ms=idle_ms, idle_ms_max=10)
        reconciliation._restart_if_stalled(run, run.coordinator, item, 0)
        counts.append(Exposition(lambda: 0).total("coordinator_stalls", connector=run.name))
    assert counts == [0, 1]


def test_a_task_without_progress_is_started_again() -> None:
    """Once for each start; the pause doubles, and the trace names the reason."""
    assignments = ChildAssignments({}, SystemClock(), 0)
    reconciliation = Reconciliation(
        {}, assignments, restart=lambda *_: None, on_changed=lambda _: None
    )
    run = ConnectorRun.of("stalled-task", BackoffPolicy(1_000, 60_000))
    unit = Unit(1, Backoff(run.policy), "worker")
    item = UnitReport(run.name, 1, 7, sequence=1, layout=1, state="RUNNING")
    counts, restarts = [], []
    for start in range(3):
        unit.start = UnitStart(generation=7, sent_at_ms=0, is_sent=True)
        for idle_ms in (1_019, 1_021, 9_000):
            reported = replace(item, idle_ms=idle_ms, idle_ms_max=1_020)
            reconciliation._compare(run, unit, reported, start * 10_000)
            counts.append(Exposition(lambda: 0).total("task_stalls", connector=run.name))
        assert unit.start.has_ended
        assert unit.restart_at_ms is not None
        restarts.append(unit.restart_at_ms - start * 10_000)
    assert counts == [0, 1, 1, 1, 2, 2, 2, 3, 3]
    assert restarts == [1_000, 2_000, 4_000]
    assert unit.trace is not None
    assert unit.trace.startswith("task_stalled: task 1 of stalled-task made no progress for 1 s")
