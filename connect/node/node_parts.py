"""The parts of one node, and how they are connected."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, Final, TypeAlias

from prometheus_client import ProcessCollector

from connect.backoff import BackoffPolicy
from connect.clock import Clock
from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError
from connect.gateways.kafka.group_membership import GroupMember
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import client_properties
from connect.metrics.process_metrics import Exposition
from connect.node.herder.child_processes.maintenance_runs import MaintenanceSettings
from connect.node.herder.child_requests import ChildRequests
from connect.node.herder.cluster.cluster import ClusterView, is_placed
from connect.node.herder.cluster.cluster_members import ClusterMembers, member_ids
from connect.node.herder.cluster.leader import ClusterLeader
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.deployment.bounded_runs import BoundedRuns
from connect.node.herder.deployment.deployer import Deployer
from connect.node.herder.deployment.layout_planner import LayoutPlanner
from connect.node.herder.herder import Herder
from connect.node.herder.requests.stopped_connectors import StoppedConnectors
from connect.node.herder.requests.stored_connectors import StoredConnectors
from connect.node.herder.requests.views import OrphanAges, TableDecisions, Views
from connect.node.lineage.lineage_reporter import LineageReporter
from connect.node.lineage.lineage_runs import ConnectorFacts, connector_facts
from connect.node.metrics.node_metrics import NodeMetrics
from connect.node.metrics.otel_reporter import OtelReporter
from connect.node.metrics.statsd_reporter import StatsdReporter
from connect.node.node_start import NodeStart, child_spec
from connect.node.notifications.notifier import NodeView, Notifier
from connect.node.rest.dependencies import RequestHandlers
from connect.node.rest.log_levels import LEVELS, LogLevels
from connect.operations.connector_clients import opened
from connect.processes.supervisor import OnEvent, SupervisedChild
from connect.state.config_store import ConfigStore, StoreSettings
from connect.state.status_state import NodeStatus
from connect.state.status_store import StatusStore
from connect.validation.providers import Providers
from connect.validation.secret_renewal import LiveProperties

OnFatal: TypeAlias = Callable[[BaseException], None]

MAINTENANCE: Final = "maintenance"
MAINTENANCE_COMMAND: Final = (sys.executable, "-P", "-m", "worker.maintenance")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What the parts are made from.

    Attributes:
        started: the node's configuration, socket and child processes.
        worker_id: ``host:port`` of this node.
        url: base URL of its REST API.
        log_levels: levels of the process's loggers.
    """

    started: NodeStart
    worker_id: str
    url: str
    providers: Providers
    log_levels: LogLevels

    @property
    def config(self) -> NodeConfig:
        """The node's configuration."""
        return self.started.config

    @property
    def clock(self) -> Clock:
        """Time and identities."""
        return self.started.clock

    @property
    def resource(self) -> Mapping[str, str]:
        """The node, by attributes of OpenTelemetry."""
        return {
            "service.name": "icefloe",
            "service.namespace": self.config.group_id,
            "service.instance.id": self.worker_id,
            "service.version": version("icefloe"),
        }

    def client_properties(self, prefix: str) -> LiveProperties:
        """Return properties of the node's own clients, with the secrets of when one is opened."""
        return LiveProperties(
            lambda: client_properties(
                self.providers.resolve_all(self.config.properties), prefix=prefix
            )
        )


@dataclass(frozen=True, slots=True)
class _Exports:
    """What sends reports of the child processes to other systems.

    Attributes:
        otel: metrics and spans; None while they are not exported.
        lineage: lineage events; None while they are not sent.
    """

    otel: OtelReporter | None
    lineage: LineageReporter | None


class NodeParts:
    """Every part of a node except its REST server.

    Args:
        settings: what the parts are made from.
        on_fatal: called when the node must stop.
        on_refused: called with a reason when the group does not accept this node.

    Attributes:
        children: child processes by name.
        handlers: do what clients of the REST API request.
        member: membership in the group of nodes.
    """

    def __init__(
        self,
        settings: NodeSettings,
        *,
        on_fatal: OnFatal,
        on_refused: Callable[[str], None],
    ) -> None:
        config, clock, self._settings = settings.config, settings.clock, settings
        stores = StoreSettings.of(
            config,
            settings.worker_id,
            reader_properties=settings.client_properties("consumer."),
            producer_properties=settings.client_properties("producer."),
        )
        self.admin = KafkaAdmin(settings.client_properties("admin."))
        self.store = ConfigStore(
            stores,
            self.admin,
            clock,
            self._changed,
            self._set_log_level,
            on_newer=on_fatal,
        )
        self.statuses = StatusStore(stores, self.admin, clock)
        self.children = settings.started.children
        configs = ConnectorConfigs(config, settings.providers, self.store)
        leader = _leader(settings, self.admin, self.store, self.statuses)
        deployer = Deployer(
            configs,
            LayoutPlanner(
                configs, self.store, self.admin, clock, nodes=leader.members.count_for_layout
            ),
            self.store,
            self.admin,
            clock,
            bounded_runs=BoundedRuns(self.store, self.statuses, self.admin),
            places_for=leader.placements.place,
            failed_tasks=self.statuses.failed_tasks,
        )
        exposition = Exposition(
            clock.now_ms,
            is_known=self.store.has,
            is_local=partial(is_placed, self.store, settings.worker_id),
        )
        ages = OrphanAges(self.store, configs, self.admin, stores.reader_properties, clock)
        values = config.values
        self.herder = Herder(
            store=self.store,
            statuses=self.statuses,
            deployer=deployer,
            leader=leader,
            children=self.children,
            clock=clock,
            node=NodeStatus(settings.worker_id, settings.url, version=version("icefloe")),
            policy=_restarts(config),
            refresh_ms=values["icefloe.metadata.refresh.ms"],
            grace_ms=config.drain_grace_ms,
            on_fatal=on_fatal,
            on_metrics=exposition.received,
            maintenance=self._maintenance(on_fatal, ages),
        )
        self._requests = ChildRequests(self.children, clock, self.herder.coordinator_process)
        self.handlers = self._new_handlers(configs, deployer, exposition, ages)
        lineage = _lineage(settings, self.store, self.herder)
        self._exports = _Exports(_otel(settings, exposition), lineage)
        self._reporters = self._made_reporters(exposition)
        self.member = self._member(stores.reader_properties, on_refused)

    def receive_events(self, on_fatal: OnFatal) -> None:
        """Take what the children have sent since they were started, and what they will send."""
        self._settings.started.child_events.deliver_to(partial(self._received, on_fatal))

    def _member(
        self, reader_properties: Mapping[str, str], on_refused: Callable[[str], None]
    ) -> GroupMember | SoleMember:
        settings, config = self._settings, self._settings.config
        on_membership = self.herder.election.received
        if config.is_state_in_files:
            return SoleMember(on_membership)
        return GroupMember(
            reader_properties,
            group_id=config.group_id,
            topic=config.config_topic,
            name=settings.url,
            session_timeout_ms=config.values["session.timeout.ms"],
            heartbeat_ms=config.values["heartbeat.interval.ms"],
            on_membership=on_membership,
            on_refused=on_refused,
        )

    def _made_reporters(
        self, exposition: Exposition
    ) -> list[StatsdReporter | Notifier | OtelReporter | LineageReporter]:
        config, clock = self._settings.config, self._settings.clock
        resolved = self._settings.providers.resolve_all(config.properties)
        exposition.also(ProcessCollector(registry=None))
        view = NodeView(
            self._settings.worker_id,
            config.group_id,
            self.handlers.connectors.statuses,
            exposition.samples,
        )
        reporters = (
            StatsdReporter.of(config, exposition),
            Notifier.of(config, resolved, view, clock),
            self._exports.otel,
            self._exports.lineage,
        )
        return [reporter for reporter in reporters if reporter is not None]

    def start_reporters(self) -> None:
        """Start what sends metrics, notifications and lineage to other systems."""
        for reporter in self._reporters:
            reporter.start()

    def stop_reporters(self) -> None:
        """Stop it."""
        for reporter in self._reporters:
            reporter.stop()

    def close_exports(self) -> None:
        """Send what the children sent last, for a short time; called when they have ended."""
        for export in (self._exports.otel, self._exports.lineage):
            if export is not None:
                export.close()

    def _new_handlers(
        self,
        configs: ConnectorConfigs,
        deployer: Deployer,
        exposition: Exposition,
        ages: OrphanAges,
    ) -> RequestHandlers:
        settings, clock, herder = self._settings, self._settings.clock, self.herder
        connectors = StoredConnectors(self.store, self.statuses, herder, clock)
        views = Views(
            connectors,
            herder,
            configs,
            self.admin,
            reader_properties=settings.client_properties("consumer."),
            opened=partial(
                opened, node=settings.config.properties, environ=settings.started.environ
            ),
            ages=ages,
            exposition=exposition,
            clock=clock,
        )
        return RequestHandlers(
            connectors,
            StoppedConnectors(
                connectors,
                self.store,
                self.admin,
                deployer.offset_events,
                configs,
                requests=self._requests,
                clock=clock,
            ),
            views,
            TableDecisions(connectors, views, herder, self._requests),
            ClusterView(
                self.store,
                self.statuses,
                self.admin,
                herder.election,
                worker_id=settings.worker_id,
                group_id=settings.config.group_id,
            ),
            NodeMetrics(exposition, connectors, herder, self.store),
            self.store,
        )

    def _maintenance(self, on_fatal: OnFatal, ages: OrphanAges) -> MaintenanceSettings:
        return MaintenanceSettings(
            new_child=partial(self._maintenance_child, on_fatal),
            orphan_age_ms=ages.safe_age_ms,
            is_allowed=self._settings.config.is_maintenance_allowed,
        )

    def _maintenance_child(self, on_fatal: OnFatal, on_event: OnEvent) -> SupervisedChild:
        """Return a maintenance process that is not started; a dead one is replaced."""
        settings, config = self._settings, self._settings.config

        def received(name: str, event: dict[str, Any]) -> None:
            if event.get("event") == "refused":
                self._received(on_fatal, name, event)
            else:
                on_event(name, event)

        return SupervisedChild(
            child_spec(MAINTENANCE, MAINTENANCE_COMMAND, config, settings.started.environ),
            on_event=received,
            clock=settings.clock,
            silence_ms_max=config.values["icefloe.child.silence.max.ms"],
            policy=BackoffPolicy(first_ms=30_000, longest_ms=30_000),
        )

    def _changed(self, name: str) -> None:
        self._settings.providers.learn(self.store.get(name).config or {})
        self.herder.changed(name)

    def _received(self, on_fatal: OnFatal, child: str, event: Mapping[str, Any]) -> None:
        match event.get("event"):
            case "refused":
                on_fatal(ConfigError(event["message"], code="ipc_version"))
            case "answer":
                self._requests.answered(event)
            case "spans":
                if self._exports.otel is not None:
                    self._exports.otel.received(event["spans"])
            case kind:
                if kind == "exited":
                    self._requests.exited(child)
                if self._exports.lineage is not None:
                    self._exports.lineage.received(child, event)
                self.herder.received(child, event)

    def _set_log_level(self, namespace: str, level: str) -> None:
        if level not in LEVELS:  # the topic may be written by other clients
            return
        self._settings.log_levels.set(namespace, level)
        for child in self.children.values():
            child.send({"op": "log-level", "logger": namespace, "level": LEVELS[level]})


def _leader(
    settings: NodeSettings, admin: KafkaAdmin, store: ConfigStore, statuses: StatusStore
) -> ClusterLeader:
    config = settings.config
    members = ClusterMembers(
        statuses,
        read_members=partial(frozenset, {settings.worker_id})
        if config.is_state_in_files
        else partial(member_ids, admin, config.group_id),
        worker_id=settings.worker_id,
        clock=settings.clock,
        shrink_delay_ms=config.values["scheduled.rebalance.max.delay.ms"],
    )
    return ClusterLeader(store, members, worker_id=settings.worker_id, url=settings.url)


def _otel(settings: NodeSettings, exposition: Exposition) -> OtelReporter | None:
    environ, resource = settings.started.environ, settings.resource
    return OtelReporter.of(settings.config, environ, exposition, settings.clock, resource=resource)


def _lineage(settings: NodeSettings, store: ConfigStore, herder: Herder) -> LineageReporter | None:
    providers, config = settings.providers, settings.config
    resolved = providers.resolve_all(config.properties)

    def facts(name: str) -> ConnectorFacts | None:
        run = herder.run_of(name)
        return connector_facts(store.get(name), run, resolved, providers.resolve)

    return LineageReporter.of(config, resolved, settings.started.environ, facts, settings.clock)


def _restarts(config: NodeConfig) -> BackoffPolicy:
    values = config.values
    return BackoffPolicy(
        first_ms=values["icefloe.task.restart.backoff.ms"],
        longest_ms=values["icefloe.task.restart.backoff.max.ms"],
        restarts_max=values["icefloe.task.restart.max"],
    )


class SoleMember:
    """Takes the place of ``GroupMember`` in a node with its state in files.

    Args:
        on_membership: called once, with True.
    """

    def __init__(self, on_membership: Callable[[bool], None]) -> None:
        self._on_membership = on_membership

    def start(self) -> None:
        """Lead. The lock of the state folder keeps a second node away."""
        self._on_membership(True)  # noqa: FBT003 - as the group calls it

    def leave(self) -> None:
        """Do nothing: there is no group."""
