"""Statuses of connectors, tasks and nodes, computed from the records of the status topic.

Rules of this file:
- No client, no clock, no thread: the same records give the same state.
- ``topic_records`` describes the format of the records. A record that cannot be parsed is skipped.
- A stored node status does not mean that the node is alive; the Kafka group knows that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from connect.state.topic_records import (
    NODE,
    PROBLEM,
    RUNNING,
    STATUS_CONNECTOR,
    STATUS_TASK,
    STATUS_TOPIC,
    number_of,
)

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Status:
    """One value of the status topic: Kafka Connect's fields."""

    state: str
    trace: str | None = None
    worker_id: str = ""
    generation: int = 0
    version: str = ""

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        return {
            "state": self.state,
            "trace": self.trace,
            "worker_id": self.worker_id,
            "generation": self.generation,
            "version": self.version,
        }


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The status that a node publishes about itself.

    Attributes:
        worker_id: ``host:port``.
        url: base URL of its REST API.
        children: child processes that take work now.
        is_ready: all its children have been ready once.
        is_draining: it is about to stop and takes no more work.
        misses: how often one of its tasks did not find a topic since the node started.
    """

    worker_id: str
    url: str
    children: tuple[str, ...] = ()
    is_ready: bool = False
    is_draining: bool = False
    misses: int = 0
    version: str = ""

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        return {
            "worker_id": self.worker_id,
            "url": self.url,
            "children": list(self.children),
            "ready": self.is_ready,
            "draining": self.is_draining,
            "misses": self.misses,
            "version": self.version,
        }


@dataclass(frozen=True, slots=True)
class Running:
    """The units of a connector that a node runs.

    Attributes:
        layout: number of the layout of its tasks.
        coordinator: whether it runs the coordinator.
        is_completed: the coordinator has reported that the bounded run is complete.
        is_maintaining: a process of the node maintains the connector's tables.
    """

    layout: int
    tasks: frozenset[int] = frozenset()
    coordinator: bool = False
    is_completed: bool = False
    is_maintaining: bool = False

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        value = {
            "layout": self.layout,
            "tasks": sorted(self.tasks),
            "coordinator": self.coordinator,
        }
        more = {"completed": self.is_completed, "maintaining": self.is_maintaining}
        return value | {key: True for key, is_so in more.items() if is_so}


class StatusState:
    """Every status of the topic. Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self._connectors: dict[str, Status] = {}
        self._tasks: dict[str, dict[int, Status]] = {}
        self._topics: dict[str, set[str]] = {}
        self._problems: dict[str, str] = {}
        self._nodes: dict[str, NodeStatus] = {}
        self._running: dict[str, dict[str, Running]] = {}

    def connector(self, name: str) -> Status | None:
        """Return the connector's last status."""
        return self._connectors.get(name)

    def tasks(self, name: str) -> dict[int, Status]:
        """Return the last status by task id."""
        return dict(self._tasks.get(name, {}))

    def topics(self, name: str) -> frozenset[str]:
        """Return the topics from which the connector has read a record since the last reset."""
        return frozenset(self._topics.get(name, ()))

    def problem(self, name: str) -> str | None:
        """Return why the leader cannot lay the connector out; None when it can."""
        return self._problems.get(name)

    def nodes(self) -> dict[str, NodeStatus]:
        """Return the last status by node id."""
        return dict(self._nodes)

    def running(self, name: str) -> dict[str, Running]:
        """Return the units of the connector that each node last reported, by node id."""
        return dict(self._running.get(name, {}))

    def ran_by(self, node: str) -> list[str]:
        """Return the connectors of which a node last reported running units."""
        return sorted(name for name, by_node in self._running.items() if node in by_node)

    def apply(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Apply one record."""
        if key.startswith(NODE):
            self._node(key.removeprefix(NODE), value)
            return
        if key.startswith(RUNNING):
            node, _, connector = key.removeprefix(RUNNING).partition("/")
            self._runs(node, connector, value)
            return
        if key.startswith(PROBLEM):
            name = key.removeprefix(PROBLEM)
            self._problems.pop(name, None)
            if value is not None:
                self._problems[name] = str(value.get("trace"))
            return
        if key.startswith(STATUS_TOPIC):
            topic, _, connector = key.removeprefix(STATUS_TOPIC).partition(":connector-")
            topics = self._topics.setdefault(connector, set())
            if value is None:
                topics.discard(topic)
            else:
                topics.add(topic)
            return
        if key.startswith(STATUS_CONNECTOR):
            _set_status(self._connectors, key.removeprefix(STATUS_CONNECTOR), value)
        elif key.startswith(STATUS_TASK):
            self._task(key.removeprefix(STATUS_TASK), value)

    def _task(self, key: str, value: Mapping[str, Any] | None) -> None:
        name, _, task = key.rpartition("-")
        if name and task.isdecimal():
            by_task = self._tasks.setdefault(name, {})
            _set_status(by_task, int(task), value)
            if not by_task:
                del self._tasks[name]

    def _node(self, node: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self._nodes.pop(node, None)
            return
        children = value.get("children")
        self._nodes[node] = NodeStatus(
            node,
            str(value.get("url")),
            tuple(map(str, children)) if isinstance(children, list) else (),
            is_ready=value.get("ready") is True,
            is_draining=value.get("draining") is True,
            misses=number_of(value.get("misses")) or 0,
            version=str(value.get("version") or ""),
        )

    def _runs(self, node: str, connector: str, value: Mapping[str, Any] | None) -> None:
        by_node = self._running.setdefault(connector, {})
        by_node.pop(node, None)
        tasks = (value or {}).get("tasks", ())
        if value is not None and isinstance(tasks, list):
            by_node[node] = Running(
                number_of(value.get("layout")) or 0,
                frozenset(task for task in tasks if isinstance(task, int)),
                coordinator=value.get("coordinator") is True,
                is_completed=value.get("completed") is True,
                is_maintaining=value.get("maintaining") is True,
            )
        if not by_node:
            del self._running[connector]


def _set_status(statuses: dict[Key, Status], key: Key, value: Mapping[str, Any] | None) -> None:
    """Set or remove one status; a value that cannot be parsed changes nothing."""
    if value is None:
        statuses.pop(key, None)
    elif isinstance(value.get("state"), str):
        statuses[key] = Status(
            state=value["state"],
            trace=value.get("trace"),
            worker_id=str(value.get("worker_id", "")),
            generation=number_of(value.get("generation")) or 0,
            version=str(value.get("version") or ""),
        )
