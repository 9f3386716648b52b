"""A herder in memory: every change takes effect at once, tasks run without doing anything.

It takes the place of each part of a node that routes call, and is held to their contracts by the
same tests as a whole node. Failing is asked for by configuration: ``file`` in a folder that is not
there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connect.model.layout import TopicPartition
from connect.node.herder.cluster.cluster import ClusterView
from connect.node.herder.requests.stopped_connectors import StoppedConnectors
from connect.node.herder.requests.stored_connectors import HEALTHY, StoredConnectors
from connect.node.herder.requests.views import TableDecisions, Views
from connect.node.metrics.node_metrics import NodeMetrics
from connect.node.node_requests import (
    ConflictError,
    ConnectorDefinition,
    NotAllowedError,
    OffsetPlan,
    Offsets,
    ReportedStatus,
    TaskStatus,
    UnknownConnectorError,
    UnknownTaskError,
    View,
)
from connect.node.rest.dependencies import RequestHandlers
from connect.node.rest.log_levels import LogLevels
from connect.protocol.offset_plan import OffsetTarget, PartitionMove
from connect.state.config_store import ConfigStore
from connect.state.rewind_record import RewindChoice
from connect.state.topic_records import TargetState

WORKER_ID = "127.0.0.1:8083"
STOP_FIRST = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be "
    "done for the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' "
    "endpoint"
)


@dataclass
class _Connector:
    config: dict[str, str]
    target: TargetState
    tasks: int = 0
    topics: set[str] = field(default_factory=set)


class _FakeStore(ConfigStore):
    """The config topic, of which nothing is behind."""

    def __init__(self) -> None:
        """There is no topic."""

    def position(self) -> int:
        """Nothing is behind."""
        return 0

    def await_position(self, offset: int, timeout_s: float) -> bool:
        """Nothing is behind."""
        return offset <= 0 or timeout_s > 0


class FakeHerder(
    StoredConnectors, StoppedConnectors, Views, TableDecisions, ClusterView, NodeMetrics
):
    """Stands for all of them; what it does not override fails."""

    def __init__(
        self,
        log_levels: LogLevels,
        task_class: Callable[[Mapping[str, str]], str] = lambda _: "Task",
    ) -> None:
        self._levels = log_levels
        self._task_class = task_class
        self._lock = threading.RLock()
        self._stored: dict[str, _Connector] = {}
        self._committed: dict[str, dict[tuple[str, int], int]] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._partitions: dict[str, int] = {}
        self.foreign_groups: set[str] = set()
        self.health = HEALTHY

    @property
    def handlers(self) -> RequestHandlers:
        """What the API calls: this object, each time."""
        return RequestHandlers(self, self, self, self, self, self, _FakeStore())

    def check_started(self) -> None:
        """It has."""

    def kafka_id(self) -> str:
        """A constant of the right length."""
        return "fakefakefakefakefakefa"

    def node_to_ask(self, role: str, name: str | None) -> str | None:
        """This node answers all."""
        del role, name

    def nodes(self) -> Mapping[str, str | None]:
        """This node alone."""
        return {WORKER_ID: None}

    def names(self) -> Sequence[str]:
        """All names."""
        return sorted(self._stored)

    def _get(self, name: str) -> _Connector:
        try:
            return self._stored[name]
        except KeyError:
            raise UnknownConnectorError(f"no connector {name}", connector=name) from None

    def _settle(self, connector: _Connector) -> None:
        """What the leader does: tasks for a running connector, none for a stopped one."""
        if connector.target == "STOPPED":
            connector.tasks = 0
        elif connector.target == "STARTED":
            connector.tasks = int(connector.config.get("tasks.max", "1"))

    def definition(self, name: str) -> ConnectorDefinition:
        """The stored connector."""
        with self._lock:
            connector = self._get(name)
            return ConnectorDefinition(name, dict(connector.config), tuple(range(connector.tasks)))

    def status(self, name: str) -> ReportedStatus:
        """Every task in the connector's state, or failed."""
        with self._lock:
            connector = self._get(name)
            state = "RUNNING" if connector.target == "STARTED" else connector.target
            is_broken = "/no/" in f"/{connector.config.get('file', '')}"
            tasks = tuple(
                TaskStatus(task, "FAILED", WORKER_ID, "no such folder")
                if is_broken
                else TaskStatus(task, state, WORKER_ID)
                for task in range(connector.tasks)
            )
            return ReportedStatus(name, state, WORKER_ID, tasks)

    def task_configs(self, name: str) -> Mapping[int, Mapping[str, str]]:
        """The connector's configuration and the task's class."""
        with self._lock:
            connector = self._get(name)
            config = {**connector.config, "task.class": self._task_class(connector.config)}
            return dict.fromkeys(range(connector.tasks), config)

    def create(
        self, name: str, config: Mapping[str, str], *, initial_state: TargetState | None = None
    ) -> ConnectorDefinition:
        """Store the connector; its tasks exist at the next request."""
        with self._lock:
            if name in self._stored:
                raise ConflictError(f"Connector {name} already exists")
            created = _Connector(dict(config), initial_state or "STARTED")
            self._stored[name] = created
            self._settle(created)
            self._read_all(name, created)
            return ConnectorDefinition(name, dict(config), ())

    def put(self, name: str, config: Mapping[str, str]) -> tuple[bool, ConnectorDefinition]:
        """Create or replace."""
        with self._lock:
            if name not in self._stored:
                return True, self.create(name, config)
            self._stored[name].config = dict(config)
            self._settle(self._stored[name])
            return False, self.definition(name)

    def delete(self, name: str) -> None:
        """Forget it; the group keeps its offsets."""
        with self._lock:
            self._get(name)
            del self._stored[name]

    def set_target(self, name: str, state: TargetState) -> None:
        """Takes effect at once."""
        with self._lock:
            connector = self._get(name)
            connector.target = state
            self._settle(connector)
            self._read_all(name, connector)

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ReportedStatus:
        """Say what restarts; it runs again at once."""
        with self._lock:
            now = self.status(name)
            tasks = tuple(
                TaskStatus(t.id, "RESTARTING", t.worker_id)
                if include_tasks and (t.state == "FAILED" or not only_failed)
                else t
                for t in now.tasks
            )
            state = now.state if only_failed and now.state != "FAILED" else "RESTARTING"
            return ReportedStatus(name, state, now.worker_id, tasks)

    def restart_task(self, name: str, task: int) -> None:
        """Nothing but the checks."""
        with self._lock:
            if not 0 <= task < self._get(name).tasks:
                raise UnknownTaskError(f"no task {name}-{task}", connector=name)

    def active_topics(self, name: str) -> Sequence[str]:
        """Topics of ``produced`` since the last reset."""
        connector = self._stored.get(name)
        return sorted(connector.topics) if connector else []

    def reset_active_topics(self, name: str) -> None:
        """Empty the set."""
        if name in self._stored:
            self._stored[name].topics.clear()

    def created(self, topic: str, partitions: int) -> None:
        """A topic is there; offsets of its other partitions are refused from now on."""
        self._partitions[topic] = partitions

    def produced(self, topic: str, partition: int, count: int) -> None:
        """Records are there; running connectors have read them."""
        at = (topic, partition)
        self._ends[at] = self._ends.get(at, 0) + count
        for name, connector in self._stored.items():
            if topic in _topics(connector.config):
                connector.topics.add(topic)
                self._read_all(name, connector)

    def _read_all(self, name: str, connector: _Connector) -> None:
        if connector.target == "STARTED":
            group = self._committed.setdefault(name, {})
            for at, end in self._ends.items():
                if at[0] in _topics(connector.config):
                    group[at] = max(end, group.get(at, 0))

    def offsets(self, name: str) -> Offsets:
        """Committed offsets of the group."""
        self._get(name)
        return dict(self._committed.get(name, {}))

    def plan_offsets(self, name: str, target: OffsetTarget) -> OffsetPlan:
        """Every committed offset moves to the target's number."""
        state = self._get(name)
        moves = [
            PartitionMove(TopicPartition(*at), offset, target.number, (0, target.number))
            for at, offset in sorted(self._committed.get(name, {}).items())
        ]
        return OffsetPlan(moves, state.target == "STOPPED", is_row_level=False)

    def alter_offsets(self, name: str, offsets: Offsets) -> None:
        """Only while stopped."""
        with self._lock:
            self._require_stopped(name)
            for (topic, partition), offset in offsets.items():
                known = self._partitions.get(topic, 0) if self._partitions else partition + 1
                if offset is not None and partition >= known:
                    raise NotAllowedError(f"partition {partition} of {topic} does not exist")
            group = self._committed.setdefault(name, {})
            for at, offset in offsets.items():
                if offset is None:
                    group.pop(at, None)
                else:
                    group[at] = offset

    def reset_offsets(self, name: str) -> None:
        """Only while stopped."""
        with self._lock:
            self._require_stopped(name)
            self._committed.pop(name, None)

    def _require_stopped(self, name: str) -> None:
        if self._get(name).target != "STOPPED":
            raise NotAllowedError(STOP_FIRST.format(name=name))
        if f"connect-{name}" in self.foreign_groups:
            raise NotAllowedError(f"the consumer group connect-{name} has members")

    def publish_log_level(self, namespace: str, level: str) -> None:
        """This node is the cluster."""
        self._levels.set(namespace, level)

    def text(self) -> str:
        """One counter."""
        return "# TYPE icefloe_fake_total counter\nicefloe_fake_total 1.0\n"

    def sums(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Sixty of everything, for connectors that run."""
        running = [n for n, c in self._stored.items() if c.target == "STARTED"]
        return {name: dict.fromkeys(metrics, 60.0) for name in running}

    def coordinator_process(self, name: str) -> str | None:
        """The only one, for connectors that run."""
        connector = self._stored.get(name)
        return "coordinator" if connector is not None and connector.target == "STARTED" else None

    def show(self, name: str, view: View) -> Mapping[str, Any]:
        """Nothing has happened yet."""
        self._get(name)
        empty: dict[View, dict[str, Any]] = {
            "tables": {"tables": []},
            "rounds": {"rounds": [], "answered": False},
            "lag": {
                "not_in_files": 0,
                "in_files_not_committed": 0,
                "valid_through_ms": None,
                "partitions": [],
            },
            "maintenance": {
                "state": "DISABLED",
                "due": [],
                "results": [],
                "bytes_last_hour": 0,
                "bytes_per_hour": None,
            },
            "orphan-age": {"oldest_announcement_ms": None, "safe_age_ms": 259_200_000},
            "dead-letters": {"topic": None, "last": []},
            "audit": {
                "sound": True,
                "rows": {"made": 0, "superseded": 0, "deleted": 0},
                "changed_by_others": False,
                "sources": [],
                "tables": [],
                "mismatches": [],
                "notes": [],
            },
        }
        return {"connector": name, **empty[view]}

    def decide(self, name: str, table: str, action: str) -> Mapping[str, Any]:
        """Nothing ever waits."""
        self._get(name)
        raise ConflictError(f"Table {table} has no failed commit", action=action)

    def request_maintenance(self, name: str, *, is_run: bool) -> Mapping[str, Any]:
        """Nothing is ever enabled."""
        self._get(name)
        raise ConflictError(f"Connector {name} has no maintenance", is_run=is_run)

    def rebase(self, name: str, tables: Sequence[str], *, is_applied: bool) -> Mapping[str, Any]:
        """Echo."""
        self._require_stopped(name)
        results = [{"table": table, "code": None} for table in tables]
        reported = {"says": [], "control_offsets": [], "tables": results}
        return {"connector": name, "applied": is_applied, **reported}

    def reset_valid_through(
        self, name: str, tables: Sequence[str], reason: str, *, is_applied: bool
    ) -> Mapping[str, Any]:
        """Echo."""
        self._require_stopped(name)
        results = [{"table": table, "claims": []} for table in tables]
        reported = {"applied": is_applied, "reason": reason, "error": None, "tables": results}
        return {"connector": name, **reported}

    def rewind(self, name: str, choice: RewindChoice, *, is_applied: bool) -> Mapping[str, Any]:
        """A plan without changes."""
        self._get(name)
        problem = {
            "code": "records_gone",
            "message": "gone",
            "table": None,
            "acceptable": True,
            "accepted": "records_gone" in choice.accepted,
        }
        return {
            "connector": name,
            "applied": is_applied,
            "cancelled": False,
            "begun": False,
            "commit": None,
            "tables": [],
            "source_offsets": [["t", 0, None, 0]],
            "problems": [problem],
            "says": [],
            "results": [],
        }

    def view(self) -> Mapping[str, Any]:
        """One node."""
        return {"group_id": "g", "leader": WORKER_ID, "nodes": [], "placements": {}}


def _topics(config: Mapping[str, str]) -> list[str]:
    return [topic.strip() for topic in config.get("topics", "").split(",")]
