"""The herder as the REST API uses it: ``connect.node.herder_api.HerderApi`` over the stores.

Rules of this file:
- Whatever changes something is written to its topic, and read back, before it is answered; one
  change at a time on this node, so concurrent requests have one order.
- Reading never asks the broker, except for offsets.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from connect.errors import Fenced, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.metrics.process_metrics import Exposition, gauge
from connect.model.layout import TopicPartition
from connect.node.herder.cluster import NO_LEADER, ClusterView
from connect.node.herder.herder import Herder
from connect.node.herder.offset_changes import OffsetChanges
from connect.node.herder.rebase import Rebase
from connect.node.herder.valid_through import ValidThroughReset
from connect.node.herder.views import Views, reachable
from connect.node.herder_api import (
    ConflictError,
    ConnectorDefinition,
    Health,
    NotAllowedError,
    Offsets,
    ReportedStatus,
    State,
    TargetState,
    TaskStatus,
    UnavailableError,
    UnknownConnectorError,
    UnknownTaskError,
    View,
)
from connect.node.metrics.connect_metrics import ConnectMetrics
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.status_store import StatusStore

STOP_FIRST = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be "
    "done for the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' "
    "endpoint"
)
HEALTHY = Health("healthy", "Worker has completed startup and is ready to handle requests.")
STARTING = Health("starting", "Worker is still starting up.")
CHANGE_WAIT_S = 60.0
STOP_PAUSE_S = 0.05
STOP_LOOKS = 600  # half a minute: the grace that tasks have by default
_STATES: tuple[State, ...] = (
    "UNASSIGNED",
    "RUNNING",
    "PAUSED",
    "STOPPED",
    "FAILED",
    "RESTARTING",
)


class NodeHerder:
    """Implements ``HerderApi`` for a node.

    Args:
        herder: what runs.
        store: configurations.
        statuses: active topics.
        admin: the cluster's id.
        exposition: metrics.
        offsets: committed source offsets.
        ask: sends a command to a child and returns its answer.
        views: Icefloe's own views of a connector.
        group_id: the node cluster's ``group.id``.
        new_request: identity of a request for a restart.
    """

    def __init__(
        self,
        *,
        herder: Herder,
        store: ConfigStore,
        statuses: StatusStore,
        admin: KafkaAdmin,
        exposition: Exposition,
        offsets: OffsetChanges,
        ask: Callable[[str, Mapping[str, Any]], Mapping[str, Any]],
        views: Views,
        group_id: str,
        new_request: Callable[[], str],
    ) -> None:
        self._herder = herder
        self._store = store
        self._statuses = statuses
        self._admin = admin
        self._exposition = exposition
        exposition.also(ConnectMetrics(exposition.samples, self._displayed))
        self._offsets = offsets
        self._new_request = new_request
        self._ask = ask
        self._rebase = Rebase(store, admin, ask)
        self._reset = ValidThroughReset(offsets.moves, ask)
        self._views = views
        self._cluster = ClusterView(store, statuses, herder.worker_id, group_id)
        self._changing = threading.Lock()
        self._health = STARTING
        self._cluster_id: str | None = None

    # ------------------------------------------------------------ the node

    def set_health(self, health: Health) -> None:
        """The node says how it is."""
        self._health = health

    def health(self) -> Health:
        """State of this node."""
        return self._health

    def cluster_id(self) -> str:
        """Kafka's cluster id."""
        if self._cluster_id is None:
            with reachable():
                self._cluster_id = self._admin.cluster_id()
        return self._cluster_id

    def cluster(self) -> Mapping[str, Any]:
        """Nodes of the cluster, who leads, and what runs where."""
        return self._cluster.view()

    def nodes(self) -> Mapping[str, str | None]:
        """Where each node answers; None for this one."""
        return self._cluster.urls()

    def where(self, what: Literal["leader", "coordinator"], name: str | None) -> str | None:
        """Which other node has to answer."""
        self._must_be_up()
        if what == "coordinator":
            return self._cluster.coordinator_of(name or "")
        return None if self._herder.leadership.is_leading else self._cluster.leader()

    def position(self) -> int:
        """How far the config topic is read."""
        return self._store.position()

    def await_position(self, offset: int, timeout_s: float) -> bool:
        """Wait until it is read so far."""
        return self._store.await_position(offset, timeout_s)

    def publish_log_level(self, namespace: str, level: str) -> None:
        """Set a logger's level in every node and its children."""
        with self._change():
            self._store.put_logger(namespace, level)

    def metrics_text(self) -> str:
        """All metrics of node, worker and coordinator."""
        displayed = self._displayed()
        connectors = Counter(status.state for status in displayed)
        tasks = Counter(task.state for status in displayed for task in status.tasks)
        for state in _STATES:
            gauge("connectors", state=state).set(connectors[state])
            gauge("tasks", state=state).set(tasks[state])
        return self._exposition.text()

    def _displayed(self) -> list[ReportedStatus]:
        return [self._herder.status(name) for name in self._store.names()]

    # ------------------------------------------------------------ reading

    def connectors(self) -> Sequence[str]:
        """Names of all connectors."""
        self._must_be_up()
        return self._store.names()

    def connector(self, name: str) -> ConnectorDefinition:
        """Info of one connector."""
        state = self._get(name)
        return ConnectorDefinition(name, dict(state.config or {}), self._tasks(state))

    def status(self, name: str) -> ReportedStatus:
        """State of a connector and its tasks."""
        self._get(name)
        return self._herder.status(name)

    def task_configs(self, name: str) -> Mapping[int, Mapping[str, str]]:
        """Task id to task configuration."""
        state = self._get(name)
        return {task: dict(state.task_configs[task]) for task in self._tasks(state)}

    def active_topics(self, name: str) -> Sequence[str]:
        """Topics read since creation or the last reset."""
        return sorted(self._statuses.topics(name))

    # ------------------------------------------------------------ changing

    def create_connector(
        self, name: str, config: Mapping[str, str], *, initial_state: TargetState | None = None
    ) -> ConnectorDefinition:
        """Store a new connector."""
        with self._change():
            if self._store.get(name).config is not None:
                raise ConflictError(f"Connector {name} already exists", connector=name)
            self._store.put_connector(name, config, initial_state)
        return ConnectorDefinition(name, dict(config), ())

    def put_connector(
        self, name: str, config: Mapping[str, str]
    ) -> tuple[bool, ConnectorDefinition]:
        """Create or replace; writing what is there already changes nothing."""
        with self._change():
            before = self._store.get(name)
            if before.config != dict(config):
                self._store.put_connector(name, config)
            tasks = self._tasks(before) if before.config is not None else ()
            return before.config is None, ConnectorDefinition(name, dict(config), tasks)

    def delete_connector(self, name: str) -> None:
        """Forget the connector and stop its tasks."""
        with self._change():
            self._get(name)
            self._store.delete_connector(name)

    def set_target_state(self, name: str, state: TargetState) -> None:
        """Pause, resume or stop."""
        with self._change():
            if self._get(name).target != state:
                self._store.put_target(name, state)

    def restart_connector(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> ReportedStatus:
        """Restart what the flags choose."""
        now = self.status(name)
        is_own = now.state == "FAILED" or not only_failed
        tasks: list[TaskStatus] = []
        chosen: set[int] = set()
        for task in now.tasks:
            if include_tasks and (task.state == "FAILED" or not only_failed):
                chosen.add(task.id)
                tasks.append(replace(task, state="RESTARTING", trace=None))
            else:
                tasks.append(task)
        with self._change():
            self._store.put_restart(
                self._new_request(), name, coordinator=is_own, tasks=sorted(chosen)
            )
        if is_own:
            return replace(now, state="RESTARTING", trace=None, tasks=tuple(tasks))
        return replace(now, tasks=tuple(tasks))

    def restart_task(self, name: str, task: int) -> None:
        """Restart one task."""
        if task not in self._tasks(self._get(name)):
            raise UnknownTaskError("no such task", connector=name, task=task)
        with self._change():
            self._store.put_restart(self._new_request(), name, coordinator=False, tasks=[task])

    def reset_active_topics(self, name: str) -> None:
        """Empty the set of active topics."""
        self._statuses.forget_topics(name)

    # ------------------------------------------------------------ offsets

    def offsets(self, name: str) -> Offsets:
        """Committed source offsets of the connector's group."""
        found = self._offsets.committed(self._get(name))
        return {(tp.topic, tp.partition): offset for tp, offset in found.items()}

    def alter_offsets(self, name: str, offsets: Offsets) -> None:
        """Move committed source offsets."""
        self._await_stopped(name)
        with self._change():
            self._must_be_stopped(name)
            self._offsets.alter(name, {TopicPartition(*at): to for at, to in offsets.items()})

    def reset_offsets(self, name: str) -> None:
        """Forget all committed source offsets."""
        self._await_stopped(name)
        with self._change():
            self._must_be_stopped(name)
            self._offsets.reset(name)

    def rebase(self, name: str, tables: Sequence[str], *, is_applied: bool) -> Mapping[str, Any]:
        """Go on after the control log lost what the connector needs of it."""
        with self._change():
            self._must_be_stopped(name)
            with reachable():
                self._offsets.settle(name)
                state = self._store.get(name)
                return self._rebase.run(state, self._offsets.parsed(state), tables, is_applied)

    def reset_valid_through(
        self, name: str, tables: Sequence[str], reason: str, *, is_applied: bool
    ) -> Mapping[str, Any]:
        """Take back what a stopped connector claimed of its VTTS."""
        with self._change():
            self._must_be_stopped(name)
            with reachable():
                state = self._store.get(name)
                config = self._offsets.parsed(state)
                return self._reset.run(state, config, tables, reason, is_applied)

    # ------------------------------------------------------------ extensions

    def measurements(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Sums of these metrics by connector and metric."""
        return self._exposition.sums(metrics)

    def extension(self, name: str, what: View) -> Mapping[str, Any]:
        """Icefloe's own view of a connector."""
        return self._views.show(self._get(name), what)

    def decide_table(
        self, name: str, table: str, action: Literal["retry", "skip"]
    ) -> Mapping[str, Any]:
        """The operator's word on a table that cannot be committed."""
        self._get(name)
        asked = {"op": "decide", "connector": name, "table": table, "action": action}
        answer = self._ask("coordinator", asked)
        match answer["state"]:
            case "not_running":
                raise ConflictError(f"Connector {name} does not run", connector=name)
            case "not_failed":
                raise ConflictError(f"Nothing of table {table} waits for a decision", table=table)
            case "busy":
                raise ConflictError(
                    f"Table {table} is being committed at this moment; look again", table=table
                )
        return {k: v for k, v in answer.items() if k not in {"event", "request", "state"}}

    # ------------------------------------------------------------ common

    def _tasks(self, state: StoredConnector) -> tuple[int, ...]:
        if state.is_stopped or state.layout is None:
            return ()
        return tuple(range(len(state.layout.tasks)))

    def _must_be_up(self) -> None:
        if self._health.status == "starting":
            raise UnavailableError(self._health.message)

    def _get(self, name: str) -> StoredConnector:
        self._must_be_up()
        state = self._store.get(name)
        if state.config is None:
            raise UnknownConnectorError("no such connector", connector=name)
        return state

    def _await_stopped(self, name: str) -> None:
        """Give a connector that was just told to stop the time it needs."""
        pause = threading.Event()
        for _ in range(STOP_LOOKS):
            state = self._get(name)
            if state.target != "STOPPED" or _has_ended(state):
                return
            pause.wait(STOP_PAUSE_S)

    def _must_be_stopped(self, name: str) -> None:
        state = self._get(name)
        if state.target != "STOPPED":
            raise NotAllowedError(STOP_FIRST.format(name=name))
        if not _has_ended(state):
            raise ConflictError(
                f"Connector {name} is still being stopped; try again in a moment", connector=name
            )

    @contextmanager
    def _change(self) -> Iterator[None]:
        """One change at a time, and only by a node that may write."""
        self._must_be_up()
        if not self._changing.acquire(timeout=CHANGE_WAIT_S):
            raise UnavailableError("an earlier change is still being written", code="busy")
        try:
            yield
        except Fenced as e:
            self._herder.lost(e)
            raise ConflictError(NO_LEADER) from e
        except RetriableError as e:
            raise UnavailableError(
                f"not acknowledged by Kafka in time: {e.message}", code=e.code
            ) from e
        finally:
            self._changing.release()


def _has_ended(state: StoredConnector) -> bool:
    """Whether no task of a stopped connector can write any more."""
    return state.layout is None or (not state.layout.tasks and state.is_ready)
