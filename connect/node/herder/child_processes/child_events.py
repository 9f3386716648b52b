"""Events of the child processes, applied to the observed state of this node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from connect.clock import Clock
from connect.metrics.process_metrics import counter, gauge
from connect.node.herder.child_processes.child_assignments import ChildAssignments
from connect.node.herder.child_processes.reconciliation import Reconciliation
from connect.node.herder.units.status_publisher import StatusPublisher
from connect.node.herder.units.units import ConnectorRun, Unit
from connect.processes.unit_reports import Inventory, UnitReport
from connect.state.status_store import StatusStore


class ChildEvents:
    """Handles events on the herder's thread.

    Args:
        children: names of all child processes.
        assignments: requests to the children.
        reconciliation: handles reports about units.
        publisher: publishes the status of this node.
        statuses: active topics.
        on_metrics: called with a child's name and its samples.
        on_changed: called with a run when its status may have changed.
        on_completed: called with a run when its bounded run is complete.
    """

    def __init__(
        self,
        children: frozenset[str],
        runs: Mapping[str, ConnectorRun],
        *,
        assignments: ChildAssignments,
        reconciliation: Reconciliation,
        publisher: StatusPublisher,
        statuses: StatusStore,
        clock: Clock,
        on_metrics: Callable[[str, Any], None],
        on_changed: Callable[[ConnectorRun], None],
        on_completed: Callable[[ConnectorRun], None],
    ) -> None:
        self._children = children
        self._runs = runs
        self._assignments = assignments
        self._reconciliation = reconciliation
        self._publisher = publisher
        self._statuses = statuses
        self._clock = clock
        self._on_metrics = on_metrics
        self._on_changed = on_changed
        self._on_completed = on_completed

    def handle(self, child: str, event: Mapping[str, Any]) -> None:
        """Apply one event."""
        match event.get("event"):
            case "takes_commands" | "ready" as stage:
                self._on_started(child, is_ready=stage == "ready")
            case "exited":
                self._assignments.set_gone(child)
                self._publish_children()
                gauge("child_up", process=child).set(0)
                counter("child_restarts", process=child).inc()
                self._each_unit(child, self._reconciliation.child_is_gone)
            case "state":
                report = UnitReport.from_json(event)
                self._reconciliation.on_state(child, report, self._clock.monotonic_ms())
            case "inventory":
                inventory = Inventory.from_json(event)
                self._reconciliation.on_inventory(child, inventory, self._clock.monotonic_ms())
            case "metrics":
                self._on_metrics(child, event["samples"])
            case "topic_missing":
                self._publisher.topic_missing()
            case _ if (run := self._runs.get(event.get("connector", ""))) is not None:
                self._on_report(run, event)

    def _on_started(self, child: str, *, is_ready: bool) -> None:
        """Send the units that wait for the child; publish it once it is ready."""
        counter("child_restarts", process=child)  # 0 before the first, for alerts
        self._assignments.set_taking_commands(child)
        if is_ready:
            self._assignments.set_ready(child)
            self._publish_children()
            gauge("child_up", process=child).set(1)
        self._each_unit(child, self._reconciliation.child_takes_commands)

    def _on_report(self, run: ConnectorRun, event: Mapping[str, Any]) -> None:
        """Apply a report of a connector's coordinator."""
        match event.get("event"):
            case "round":
                self._on_round(run, event)
            case "completed":
                run.reports.completed_layout = event["layout"]
                self._publisher.publish_running(run)
                self._on_completed(run)
                self._on_changed(run)
            case "retention":
                run.reports.retention_text = event["message"]
                self._on_changed(run)
            case "failed_tables":
                run.reports.failed_tables = tuple(event["tables"])
                self._on_changed(run)
            case "maintenance_limits":
                run.maintenance.opened(event["limits"], self._clock.now_ms())
            case "maintenance_due":
                run.maintenance.reported(event["table"], event["work"])

    def _publish_children(self) -> None:
        ready = [name for name in sorted(self._children) if self._assignments.is_ready(name)]
        self._publisher.publish_node(ready, count=len(self._children))

    def _each_unit(self, child: str, act: Callable[[ConnectorRun, Unit], None]) -> None:
        for run in list(self._runs.values()):
            for unit in run.units():
                if unit.child == child:
                    act(run, unit)
            self._on_changed(run)

    def _on_round(self, run: ConnectorRun, event: Mapping[str, Any]) -> None:
        now_ms = self._clock.now_ms()
        run.reports.received_round(event, now_ms)
        # an earlier start of the coordinator ends before the present one is RUNNING
        if not event.get("partial") and run.coordinator.phase == "RUNNING":
            run.reports.is_answered = True
        for topic in sorted({*event.get("topics", ())} - self._statuses.topics(run.name)):
            self._statuses.put_topic(run.name, topic, task=0, now_ms=now_ms)
