"""The herder as the REST API uses it: ``connect.node.herder_api.HerderApi`` over the stores.

Rules of this file:
- A change is written to its topic, and read back, before the request is answered. This node makes
  one change at a time, so concurrent requests have one order.
- Reading sends no request to the broker, except for offsets and the cluster id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.metrics.process_metrics import Exposition, gauge
from connect.node.herder.cluster.cluster import ClusterView
from connect.node.herder.herder import Herder
from connect.node.herder.offsets.rewind import may_become
from connect.node.herder.request_errors import reachable
from connect.node.herder.requests.stopped_connectors import Ask, StoppedConnectors
from connect.node.herder.requests.stored_connectors import StoredConnectors
from connect.node.herder.requests.views import Views
from connect.node.herder_api import (
    ConflictError,
    ConnectorDefinition,
    Health,
    OffsetPlan,
    Offsets,
    ReportedStatus,
    State,
    TargetState,
    UnknownTaskError,
    View,
)
from connect.node.metrics.connect_metrics import ConnectMetrics
from connect.protocol.offset_plan import OffsetTarget
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.status_store import StatusStore
from connect.state.visible_tasks import (
    layout_task_of,
    visible_task_configs,
    visible_task_count,
)

_STATES: tuple[State, ...] = (
    "UNASSIGNED",
    "RUNNING",
    "PAUSED",
    "STOPPED",
    "FAILED",
    "RESTARTING",
    "COMPLETED",
)

_UNDECIDED: Final = {
    "not_running": "Connector {name} does not run",
    "not_failed": "Table {table} has no failed commit",
    "busy": "Table {table} is being committed now; try again in a moment",
}
_UNMAINTAINED: Final = {
    "DISABLED": "Connector {name} does not run, or no iceberg.maintenance key enables the "
    "maintenance process for it",
    "NOT_ALLOWED": "The node's property icefloe.maintenance.enabled does not allow maintenance",
}


def all_restarting(now: ReportedStatus) -> ReportedStatus:
    """Return the status with the connector and all its tasks RESTARTING."""
    tasks = tuple(replace(task, state="RESTARTING") for task in now.tasks)
    return replace(now, state="RESTARTING", tasks=tasks)


class NodeHerder:
    """Implements ``HerderApi`` for a node.

    Args:
        herder: what runs.
        connectors: access to the stored connectors.
        stopped: changes of stopped connectors.
        store: configurations.
        statuses: active topics.
        admin: the cluster's id.
        exposition: metrics.
        ask: sends a command to a child and returns its answer.
        views: Icefloe's own views of a connector.
        cluster: leader, nodes and placements.
        new_request: returns the identity of a request for a restart.
    """

    def __init__(
        self,
        *,
        herder: Herder,
        connectors: StoredConnectors,
        stopped: StoppedConnectors,
        store: ConfigStore,
        statuses: StatusStore,
        admin: KafkaAdmin,
        exposition: Exposition,
        ask: Ask,
        views: Views,
        cluster: ClusterView,
        new_request: Callable[[], str],
    ) -> None:
        self._herder = herder
        self._connectors = connectors
        self._stopped = stopped
        self._store = store
        self._statuses = statuses
        self._admin = admin
        self._exposition = exposition
        exposition.also(ConnectMetrics(exposition.samples, self.statuses))
        self._new_request = new_request
        self._ask = ask
        self._views = views
        self._cluster = cluster
        self._cluster_id: str | None = None

    def set_health(self, health: Health) -> None:
        """Set the health of this node."""
        self._connectors.health = health

    def health(self) -> Health:
        """Return the health of this node."""
        return self._connectors.health

    def cluster_id(self) -> str:
        """Return Kafka's cluster id."""
        if self._cluster_id is None:
            with reachable():
                self._cluster_id = self._admin.cluster_id()
        return self._cluster_id

    def cluster(self) -> Mapping[str, Any]:
        """Return nodes, leader and placements of the cluster."""
        return self._cluster.view()

    def nodes(self) -> Mapping[str, str | None]:
        """Return the base URL of each node; None for this one."""
        return self._cluster.urls()

    def node_to_ask(self, role: Literal["leader", "coordinator"], name: str | None) -> str | None:
        """Return the base URL of the other node that has to answer, if any."""
        self._connectors.check_started()
        if role == "coordinator":
            return self._cluster.coordinator_of(name or "")
        return None if self._herder.election.is_leading else self._cluster.leader()

    def position(self) -> int:
        """Return the offset up to which the config topic is read."""
        return self._store.position()

    def await_position(self, offset: int, timeout_s: float) -> bool:
        """Wait until the config topic is read up to an offset."""
        return self._store.await_position(offset, timeout_s)

    def publish_log_level(self, namespace: str, level: str) -> None:
        """Set a logger's level in every node and its children."""
        with self._connectors.change():
            self._store.put_logger(namespace, level)

    def metrics_text(self) -> str:
        """Return all metrics of node, worker and coordinator."""
        statuses = self.statuses()
        tasks = Counter(task.state for status in statuses for task in status.tasks)
        for state in _STATES:
            gauge("connectors", state=state).set(sum(s.state == state for s in statuses))
            gauge("tasks", state=state).set(tasks[state])
        gauge("rewinds_unfinished").set(self._stopped.unfinished_rewinds())
        return self._exposition.text()

    def metric_sums(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Return sums of these metrics by connector and metric."""
        return self._exposition.sums(metrics)

    def coordinator_process(self, name: str) -> str | None:
        """Return the process of this node that runs a connector's coordinator."""
        run = self._herder.run_of(name)
        return run.coordinator.child if run is not None and run.has_coordinator else None

    def statuses(self) -> list[ReportedStatus]:
        """Return the status of every connector."""
        return [self._herder.status(name) for name in self._store.names()]

    def connectors(self) -> Sequence[str]:
        """Return the names of all connectors."""
        self._connectors.check_started()
        return self._store.names()

    def connector(self, name: str) -> ConnectorDefinition:
        """Return the definition of one connector."""
        state = self._connectors.get(name)
        return ConnectorDefinition(name, dict(state.config or {}), self._tasks(state))

    def status(self, name: str) -> ReportedStatus:
        """Return the state of a connector and its tasks."""
        self._connectors.get(name)
        return self._herder.status(name)

    def task_configs(self, name: str) -> Mapping[int, Mapping[str, str]]:
        """Return the task configuration by task id."""
        return visible_task_configs(self._connectors.get(name))

    def active_topics(self, name: str) -> Sequence[str]:
        """Return the topics read since creation or the last reset."""
        return sorted(self._statuses.topics(name))

    def create_connector(
        self, name: str, config: Mapping[str, str], *, initial_state: TargetState | None = None
    ) -> ConnectorDefinition:
        """Store a new connector."""
        with self._connectors.change():
            if self._store.get(name).config is not None:
                raise ConflictError(f"Connector {name} already exists", connector=name)
            self._store.put_connector(name, config, initial_state)
        return ConnectorDefinition(name, dict(config), ())

    def put_connector(
        self, name: str, config: Mapping[str, str]
    ) -> tuple[bool, ConnectorDefinition]:
        """Create or replace; an equal configuration is not written again."""
        with self._connectors.change():
            before = self._store.get(name)
            if before.config != dict(config):
                self._store.put_connector(name, config)
            tasks = self._tasks(before) if before.config is not None else ()
            return before.config is None, ConnectorDefinition(name, dict(config), tasks)

    def delete_connector(self, name: str) -> None:
        """Delete the connector and stop its tasks."""
        with self._connectors.change():
            self._connectors.get(name)
            self._store.delete_connector(name)

    def set_target_state(self, name: str, state: TargetState) -> None:
        """Pause, resume or stop."""
        with self._connectors.change():
            if may_become(self._connectors.get(name), state).target != state:
                self._store.put_target(name, state)

    def restart_connector(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> ReportedStatus:
        """Restart the connector, its tasks, or the failed ones; a completed run starts again."""
        now = self.status(name)
        if not only_failed and self._connectors.run_again(name):
            return all_restarting(now)
        is_own = now.state == "FAILED" or not only_failed
        tasks_asked = now.tasks if include_tasks else ()
        chosen = [t.id for t in tasks_asked if t.state == "FAILED" or not only_failed]
        run_alone = [t.id for t in tasks_asked if t.id in chosen and t.runs_in is None]
        tasks = tuple(
            replace(task, state="RESTARTING", trace=None) if task.id in chosen else task
            for task in now.tasks
        )
        with self._connectors.change():
            self._store.put_restart(self._new_request(), name, coordinator=is_own, tasks=run_alone)
        shown = replace(now, tasks=tasks)
        return replace(shown, state="RESTARTING", trace=None) if is_own else shown

    def restart_task(self, name: str, task: int) -> None:
        """Restart one task and those that run in it, or all if their bounded run is complete."""
        state = self._connectors.get(name)
        if state.layout is None or task not in self._tasks(state):
            raise UnknownTaskError("no such task", connector=name, task=task)
        if not self._connectors.run_again(name):
            with self._connectors.change():
                tasks = [layout_task_of(task, state.layout)]
                self._store.put_restart(self._new_request(), name, coordinator=False, tasks=tasks)

    def reset_active_topics(self, name: str) -> None:
        """Empty the set of active topics."""
        self._statuses.forget_topics(name)

    def offsets(self, name: str) -> Offsets:
        """Return the committed source offsets of the connector's group."""
        return self._stopped.offsets(name)

    def plan_offsets(self, name: str, target: OffsetTarget) -> OffsetPlan:
        """Return where the source offsets of a connector would be moved."""
        return self._stopped.plan_offsets(name, target)

    def alter_offsets(self, name: str, offsets: Offsets) -> None:
        """Change committed source offsets."""
        self._stopped.alter_offsets(name, offsets)

    def reset_offsets(self, name: str) -> None:
        """Reset all committed source offsets."""
        self._stopped.reset_offsets(name)

    def rebase(self, name: str, tables: Sequence[str], *, is_applied: bool) -> Mapping[str, Any]:
        """Let a stopped connector continue without what its control topic lost."""
        return self._stopped.rebase(name, tables, is_applied=is_applied)

    def reset_valid_through(
        self, name: str, tables: Sequence[str], reason: str, *, is_applied: bool
    ) -> Mapping[str, Any]:
        """Withdraw the valid-through time that a stopped connector claimed."""
        return self._stopped.reset_valid_through(name, tables, reason, is_applied=is_applied)

    def rewind(self, name: str, body: Mapping[str, Any], *, is_applied: bool) -> Mapping[str, Any]:
        """Show, or apply, the way back to an earlier commit."""
        return self._stopped.rewind(name, body, is_applied=is_applied)

    def connector_view(self, name: str, view: View) -> Mapping[str, Any]:
        """Return one of Icefloe's own views of a connector."""
        return self._views.show(self._connectors.get(name), view)

    def decide_table(
        self, name: str, table: str, action: Literal["retry", "skip"]
    ) -> Mapping[str, Any]:
        """Retry or skip the commits of a table that failed."""
        self._connectors.get(name)
        command = {"op": "decide", "connector": name, "table": table, "action": action}
        answer = self._ask("coordinator", command)
        _refuse(_UNDECIDED.get(answer["state"]), name=name, table=table)
        return {k: v for k, v in answer.items() if k not in {"event", "request", "state"}}

    def request_maintenance(self, name: str, *, is_run: bool) -> Mapping[str, Any]:
        """Run the maintenance of a connector's tables now, or stop it."""
        view = self._views.show(self._connectors.get(name), "maintenance")
        _refuse(_UNMAINTAINED.get(view["state"]), name=name)
        self._herder.request_maintenance(name, is_run=is_run)
        return view

    def _tasks(self, state: StoredConnector) -> tuple[int, ...]:
        return tuple(range(visible_task_count(state)))


def _refuse(why: str | None, **names: str) -> None:
    if why is not None:
        raise ConflictError(why.format(**names))
