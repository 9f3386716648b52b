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

from connect.config.connector import ConnectorConfig
from connect.config.node.node_config import NodeConfig
from connect.config.table_formats import FORMAT_NAMES, UNSUPPORTED
from connect.errors import ConfigError, IcefloeError
from connect.gateways.catalog.catalog import open_catalog
from connect.gateways.kafka.kafka_clients import client_properties
from connect.gateways.kafka.shared_admins import SharedAdmins
from connect.metrics import process_metrics
from connect.model.layout import Layout
from connect.processes.child_main import Child
from connect.processes.hosted_units import HostedUnit, HostedUnits
from connect.protocol.source_end import end_offsets
from connect.validation.parse import parse
from connect.validation.providers import Providers, resolve
from connect.validation.secret_renewal import SecretRenewal
from control_schemas.events import TableReference
from coordinator.commit.commit_attempt import WaitingClock
from coordinator.commit.floor_rebase import restore_floors
from coordinator.commit.valid_through_reset import reset_claims
from coordinator.commit_processes.commit_process import CommitProcessSetup
from coordinator.coordinator import ConnectorCoordinator
from coordinator.coordinator_context import CoordinatorContext, coordinator_feeds
from coordinator.kernel.effects import RoundEnded, TableCommitted, TableDecision, TableFailed
from coordinator.rewind.rewind_answers import rewind_answer

TABLES_LOGGED_MAX = 20
PREDECESSOR_WAIT_MS = 60_000  # longer than taking over a transactional id may take
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
        commit_processes: how processes that commit tables are started; None starts none.
    """

    def __init__(
        self,
        child: Child,
        node: NodeConfig,
        providers: Providers,
        clock: WaitingClock,
        commit_processes: CommitProcessSetup | None = None,
    ) -> None:
        self._child = child
        self._node = node
        self._commit_processes = commit_processes
        self._providers = providers
        self._clock = clock
        self._admins = SharedAdmins()
        self._control = coordinator_feeds()
        self.units = HostedUnits(child, clock, predecessor_wait_ms=PREDECESSOR_WAIT_MS)

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
            case "rebase":
                work = threading.Thread(target=self._rebase, args=(command,), daemon=True)
                work.start()  # a catalog that hangs must not keep other commands waiting
            case "reset_valid_through":
                work = threading.Thread(target=self._reset, args=(command,), daemon=True)
                work.start()
            case "rewind":
                work = threading.Thread(target=self._rewind, args=(command,), daemon=True)
                work.start()
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
        renewal = SecretRenewal(
            command["config"],
            self._node.properties,
            self._providers,
            self._clock,
            interval_ms=self._node.values["icefloe.secrets.refresh.ms"],
        )
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
            commit_processes=self._commit_processes,
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

    def _rebase(self, command: Mapping[str, Any]) -> None:
        name = command["connector"]
        answer: dict[str, Any]
        try:
            config = _iceberg_connector(command["config"], self._providers, self._node)
            catalog = open_catalog(config.catalog_name, config.catalog_properties, config.locations)
            try:
                tables = sorted({*config.tables, *command["tables"]})
                offsets = {int(p): offset for p, offset in command["offsets"].items()}
                is_applied = command["apply"]
                results = restore_floors(catalog, config, tables, offsets, is_applied=is_applied)
                answer = {"tables": results}
            finally:
                catalog.close()
        except IcefloeError as e:
            answer = {"tables": [], "error": str(e)}
        reported = {"event": "answer", "connector": name, "request": command["request"], **answer}
        self._child.channel.send(reported)

    def _reset(self, command: Mapping[str, Any]) -> None:
        name = command["connector"]
        answer: dict[str, Any] = {"tables": [], "error": None}
        try:
            config = _iceberg_connector(command["config"], self._providers, self._node)
            catalog = open_catalog(config.catalog_name, config.catalog_properties, config.locations)
            try:
                answer["tables"] = reset_claims(
                    catalog,
                    config,
                    command["tables"],
                    command["reason"],
                    self._clock,
                    control_ends={int(p): end for p, end in command["control_ends"].items()},
                    is_applied=command["apply"],
                )
            finally:
                catalog.close()
        except IcefloeError as e:
            answer["error"] = str(e)
        reported = {"event": "answer", "connector": name, "request": command["request"], **answer}
        self._child.channel.send(reported)

    def _rewind(self, command: Mapping[str, Any]) -> None:
        name = command["connector"]
        try:
            config = _iceberg_connector(command["config"], self._providers, self._node)
            node = self._providers.resolve_all(self._node.properties)
            kafka = client_properties(node, config.kafka_overrides)
            answer = rewind_answer(config, kafka, self._clock, command)
        except IcefloeError as e:
            answer = {"error": str(e), "code": e.code}
        reported = {"event": "answer", "connector": name, "request": command["request"], **answer}
        self._child.channel.send(reported)

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
        duration_ms = ended.ended_ms - ended.started_ms
        process_metrics.counter("rounds", connector=connector).inc()
        if ended.is_partial:
            process_metrics.counter("rounds_partial", connector=connector).inc()
        for outcome in ended.outcomes:
            _count(connector, outcome)
        if ended.valid_through_us is not None:
            process_metrics.gauge("valid_through_timestamp_seconds", connector=connector).set(
                ended.valid_through_us / 1e6
            )
        process_metrics.gauge("round_duration_ms", connector=connector).set(duration_ms)
        process_metrics.durations("round_duration_seconds", connector=connector).observe(
            duration_ms / 1000
        )
        _log_round(connector, ended, duration_ms)
        read: dict[str, int] = {}
        for part in ended.ranges:
            if part.records_read:
                read[part.topic] = read.get(part.topic, 0) + part.records_read
        self._child.channel.send(
            {
                "event": "round",
                "connector": connector,
                "commit_id": str(ended.commit_id),
                "partial": ended.is_partial,
                "valid_through_us": ended.valid_through_us,
                "duration_ms": duration_ms,
                "records": sum(read.values()),
                "topics": sorted(read),
                "topic_records": read,
                "tables": [_displayed(outcome) for outcome in ended.outcomes],
            }
        )


def _iceberg_connector(
    config: Mapping[str, str], providers: Providers, node: NodeConfig
) -> ConnectorConfig:
    connector = resolve(parse(config), providers, node=node.properties)
    if not connector.is_iceberg:
        raise ConfigError(
            "this operation needs Iceberg's snapshots; "
            f"{FORMAT_NAMES[connector.table_format]} have none",
            code=UNSUPPORTED[connector.table_format],
        )
    return connector


def _log_round(connector: str, ended: RoundEnded, duration_ms: int) -> None:
    """Log a round; one without files at DEBUG, because idle connectors end many of those."""
    written = [o for o in ended.outcomes if isinstance(o, TableCommitted) and o.files]
    failed = [o for o in ended.outcomes if isinstance(o, TableFailed)]
    write = log.info if written or failed or ended.is_partial else log.debug
    write(
        "round committed",
        connector=connector,
        commit_id=str(ended.commit_id),
        tables=len(written),
        tables_failed=len(failed),
        rows=sum(outcome.records for outcome in written),
        files=sum(outcome.files for outcome in written),
        duration_ms=duration_ms,
        partial=ended.is_partial,
        table_names=[str(outcome.table) for outcome in written[:TABLES_LOGGED_MAX]],
    )


def _count(connector: str, outcome: TableCommitted | TableFailed) -> None:
    where = {"connector": connector, "table": str(outcome.table)}
    code = "committed" if isinstance(outcome, TableCommitted) else outcome.code
    process_metrics.counter("table_commits", outcome=code, **where).inc()
    if isinstance(outcome, TableCommitted) and outcome.snapshot_id is not None:
        process_metrics.counter("records_committed", **where).inc(outcome.records)
        process_metrics.counter("files_committed", **where).inc(outcome.files)
        process_metrics.gauge("commit_duration_ms", **where).set(outcome.duration_ms)
        process_metrics.durations("commit_duration_seconds", connector=connector).observe(
            outcome.duration_ms / 1000
        )


def _count_skipped(connector: str, answer: Mapping[str, Any]) -> None:
    given_up = {"connector": connector, "table": answer["table"]}
    for name, amount in (
        ("announcements_skipped", "announcements"),
        ("files_skipped", "files"),
        ("records_skipped", "records"),
    ):
        if answer["skipped"][amount]:
            process_metrics.counter(name, **given_up).inc(answer["skipped"][amount])


def _displayed(outcome: TableCommitted | TableFailed) -> dict[str, Any]:
    table = str(outcome.table)
    if isinstance(outcome, TableFailed):
        return {"table": table, "code": outcome.code, "message": outcome.message}
    return {
        "table": table,
        "snapshot_id": outcome.snapshot_id,
        "files": outcome.files,
        "records": outcome.records,
        "bytes": outcome.size_bytes,
        "duration_ms": outcome.duration_ms,
    }
