"""Hosts the coordinators of many connectors: a thread each, started and stopped by commands.

Rules of this file:
- One connector's failure never touches another: every thread ends at its own boundary.
- No command waits for a coordinator: a successor waits for its predecessor in its own thread.
- Placeholders are resolved in the process that needs them, and go no further.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from connect.config.node.node_config import NodeConfig
from connect.gateways.kafka.kafka_clients import client_properties
from connect.gateways.kafka.shared_admins import SharedAdmins
from connect.metrics import process_metrics
from connect.model.layout import Layout
from connect.processes.child_main import Child
from connect.processes.hosted_units import HostedUnit, HostedUnits
from connect.protocol.source_end import end_offsets
from connect.validation.providers import Providers
from connect.validation.secret_renewal import SecretRenewal
from control_schemas.events import TableReference
from coordinator.commit.commit_retries import WaitingClock
from coordinator.coordinator import ConnectorCoordinator
from coordinator.coordinator_context import CoordinatorContext, coordinator_feeds
from coordinator.kernel.effects import RoundEnded, TableDecision
from coordinator.operator_requests import OPERATIONS, OperatorRequests
from coordinator.round_report import count_round, log_round, round_event

_STATES: Final[Mapping[str, str]] = {"opened": "RUNNING", "failing": "FAILED"}

log = structlog.get_logger("coordinator")


class IdleCoordinator:
    """The coordinator of a connector whose task needs no commits: it waits for its stop.

    Args:
        running: called when it begins.
    """

    def __init__(self, running: Callable[[], None]) -> None:
        self._running = running
        self._stopping = threading.Event()

    def run(self) -> None:
        """Wait for the stop request."""
        self._running()
        self._stopping.wait()

    def stop(self) -> None:
        """End soon."""
        self._stopping.set()


class CoordinatorHost:
    """Every coordinator of this process; commands come from one thread.

    Args:
        child: the pipe to the node.
        node: the node's configuration.
        providers: resolves placeholders.
        clock: time and identities.
    """

    def __init__(
        self, child: Child, node: NodeConfig, providers: Providers, clock: WaitingClock
    ) -> None:
        self._child = child
        self._node = node
        self._providers = providers
        self._clock = clock
        self._admins = SharedAdmins()
        self._control = coordinator_feeds()
        self._requests = OperatorRequests(child, node, providers, clock)
        self.units = HostedUnits(child, clock)

    def handle(self, command: Mapping[str, Any]) -> None:
        """One command of the node."""
        name = command["connector"]
        match command["op"]:
            case "start":
                self.units.start(command, lambda unit: self._coordinator(unit, command))
            case "layout":
                self._set_layout(name, Layout.from_json(command["layout"]))
            case "decide" if (running := self._running(name)) is not None:
                *namespace, table = command["table"].split(".")
                reference = TableReference("", tuple(namespace), table)
                decision = TableDecision(reference, command["action"], command["request"])
                running.decide(decision)
            case "decide":
                refused = {"request": command["request"], "state": "not_running"}
                self._child.channel.send({"event": "answer", "connector": name, **refused})
            case operation if operation in OPERATIONS:
                self._requests.start(command)
            case "stop":
                self.units.stop(command)
            case _:
                log.warning("command ignored", op=command["op"], connector=name)

    def shutdown(self, grace_ms: int) -> None:
        """Stop every coordinator; those still at work after the grace are left to the exit."""
        self.units.shutdown(grace_ms)

    def _coordinator(
        self, unit: HostedUnit, command: Mapping[str, Any]
    ) -> ConnectorCoordinator | IdleCoordinator:
        name = unit.key[0]
        renewal = SecretRenewal.of(command["config"], self._node, self._providers, self._clock)
        resolved = renewal.latest()
        parsed = resolved.config
        if parsed.aggregation is not None:
            return IdleCoordinator(lambda: self.units.report(unit, "RUNNING", None))
        context = CoordinatorContext(
            kafka=client_properties(resolved.node, parsed.kafka_overrides),
            secrets=renewal,
            node_group_id=self._node.group_id,
            clock=self._clock,
            on_round=lambda ended: self._on_round(name, ended),
            on_event=lambda kind, where: self._on_event(unit, kind, where),
            admins=self._admins,
            control=self._control,
            waits_for=lambda reason: self.units.waits_for(unit, reason),
            on_spans=self._child.spans if self._node.values["icefloe.otel.enabled"] else None,
            ends=end_offsets(command["ends"]) if "ends" in command else None,
            describes_tables=self._node.values["icefloe.lineage.enabled"] and parsed.has_lineage,
        )
        layout = Layout.from_json(command["layout"])
        unit.progress = coordinator = ConnectorCoordinator(parsed, layout, context)
        return coordinator

    def _running(self, name: str) -> ConnectorCoordinator | None:
        unit = self.units.current(name)
        work = unit.work if unit is not None else None
        return work if isinstance(work, ConnectorCoordinator) else None

    def _set_layout(self, name: str, layout: Layout) -> None:
        unit, running = self.units.current(name), self._running(name)
        if unit is not None and running is not None and unit.layout != layout.number:
            unit.layout = layout.number
            running.set_layout(layout)

    def _on_event(self, unit: HostedUnit, kind: str, where: Mapping[str, Any]) -> None:
        connector = unit.key[0]
        match kind:
            case "malformed":
                process_metrics.counter("control_events_malformed", connector=connector).inc()
            case "restart":
                process_metrics.counter(
                    "coordinator_restarts", connector=connector, code=str(where["code"])
                ).inc()
            case "opened" | "failing":
                self.units.report(unit, _STATES[kind], where.get("error"))
            case "kept":
                process_metrics.gauge("records_uncommitted", connector=connector).set(
                    where["records"]
                )
                process_metrics.gauge("announcements_bytes", connector=connector).set(
                    where["bytes"]
                )
            case "stalled":
                process_metrics.gauge("control_lso_stalled", connector=connector).set(
                    where["partitions"]
                )
            case (
                "completed"
                | "failed_tables"
                | "retention"
                | "maintenance_limits"
                | "maintenance_due"
                | "table_described"
            ):
                self._report(connector, kind, where)
            case "decided":
                _count_skipped(connector, where)
                self._child.channel.send({"event": "answer", "connector": connector, **where})

    def _report(self, connector: str, kind: str, where: Mapping[str, Any]) -> None:
        """Send an event to the node, which shows it in the connector's status."""
        if kind == "failed_tables":
            gauge = process_metrics.gauge("tables_failed", connector=connector)
            gauge.set(len(where["tables"]))
        elif kind == "retention":
            left_s, where = where["left_s"], {"message": where["message"]}
            gauge = process_metrics.gauge("control_retention_left_seconds", connector=connector)
            gauge.set(-1 if left_s is None else left_s)
        self._child.channel.send({"event": kind, "connector": connector, **where})

    def _on_round(self, connector: str, ended: RoundEnded) -> None:
        count_round(connector, ended)
        log_round(connector, ended)
        self._child.channel.send(round_event(connector, ended))


def _count_skipped(connector: str, answer: Mapping[str, Any]) -> None:
    given_up = {"connector": connector, "table": answer["table"]}
    for name, amount in (
        ("announcements_skipped", "announcements"),
        ("files_skipped", "files"),
        ("records_skipped", "records"),
    ):
        if answer["skipped"][amount]:
            process_metrics.counter(name, **given_up).inc(answer["skipped"][amount])
