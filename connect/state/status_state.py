"""The status topic, folded: pure.

Rules of this file:
- No client, no clock, no thread: records in, state out.
- What records look like is said in ``records``. What cannot be understood is skipped.
- What a node says of itself is worth as much as the node: whether it is alive is Kafka's group's
  to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connect.state.topic_records import (
    NODE,
    PROBLEM,
    RUNNING,
    STATUS_CONNECTOR,
    STATUS_TASK,
    STATUS_TOPIC,
    number_of,
)


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
    """What a node says of itself.

    Attributes:
        worker_id: ``host:port``.
        url: where it answers.
        children: child processes that take work now.
        is_ready: all its children have been ready once.
        is_draining: it is about to end and wants to be given nothing.
        misses: how often one of its tasks has missed a topic since it started.
        version: this product's.
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
    """What a node runs of a connector.

    Attributes:
        layout: number of the layout of its tasks.
        tasks: task ids.
        coordinator: whether it runs the coordinator.
    """

    layout: int
    tasks: frozenset[int] = frozenset()
    coordinator: bool = False

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        return {
            "layout": self.layout,
            "tasks": sorted(self.tasks),
            "coordinator": self.coordinator,
        }


class StatusState:
    """The status topic, folded. Not safe for threads: its owner locks."""

    def __init__(self) -> None:
        self._statuses: dict[str, Status] = {}
        self._topics: dict[str, set[str]] = {}
        self._problems: dict[str, str] = {}
        self._nodes: dict[str, NodeStatus] = {}
        self._running: dict[str, dict[str, Running]] = {}

    def connector(self, name: str) -> Status | None:
        """The connector's last status."""
        return self._statuses.get(STATUS_CONNECTOR + name)

    def tasks(self, name: str) -> dict[int, Status]:
        """Task id -> last status."""
        prefix = f"{STATUS_TASK}{name}-"
        return {
            int(key.removeprefix(prefix)): status
            for key, status in sorted(self._statuses.items())
            if key.startswith(prefix) and key.removeprefix(prefix).isdigit()
        }

    def topics(self, name: str) -> frozenset[str]:
        """Topics from which the connector has read a record since the last reset."""
        return frozenset(self._topics.get(name, ()))

    def problem(self, name: str) -> str | None:
        """Why the leader cannot lay the connector out; None when it can."""
        return self._problems.get(name)

    def nodes(self) -> dict[str, NodeStatus]:
        """Node id -> what it last said of itself."""
        return dict(self._nodes)

    def running(self, name: str) -> dict[str, Running]:
        """Node id -> what it last said that it runs of the connector."""
        return dict(self._running.get(name, {}))

    def ran_by(self, node: str) -> list[str]:
        """Connectors of which a node last said that it runs something."""
        return sorted(name for name, by_node in self._running.items() if node in by_node)

    def apply(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Fold one record in."""
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
            known = self._topics.setdefault(connector, set())
            if value is None:
                known.discard(topic)
            else:
                known.add(topic)
            return
        if not key.startswith((STATUS_CONNECTOR, STATUS_TASK)):
            return
        if value is None:
            self._statuses.pop(key, None)
        elif isinstance(value.get("state"), str):
            self._statuses[key] = Status(
                state=value["state"],
                trace=value.get("trace"),
                worker_id=str(value.get("worker_id", "")),
                generation=number_of(value.get("generation")) or 0,
                version=str(value.get("version") or ""),
            )

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
            )
        if not by_node:
            del self._running[connector]
