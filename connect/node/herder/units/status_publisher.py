"""Publishes the statuses of this node, and of the units that run on it, in the status topic.

Rules of this file:
- Each status has one node that writes it. A task's status belongs to the node that the task is
  placed on, the connector's to the node of its coordinator. Without a placement the leader writes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from connect.node.herder.units.connector_status import (
    LocalNode,
    StoredStatuses,
    connector_status,
    status_value,
)
from connect.node.herder.units.units import ConnectorRun
from connect.node.node_requests import ReportedStatus
from connect.state.config_store import ConfigStore
from connect.state.status_state import NodeStatus
from connect.state.status_store import StatusStore


class StatusPublisher:
    """Writes what this node has to publish.

    Args:
        store: the target state.
        statuses: the status topic.
        node: the first status of this node.
    """

    def __init__(self, store: ConfigStore, statuses: StatusStore, node: NodeStatus) -> None:
        self._store = store
        self._statuses = statuses
        self._node = node

    def publish_node(
        self, children: Collection[str] | None = None, *, count: int = 0, is_draining: bool = False
    ) -> None:
        """Publish the status of this node.

        Args:
            children: the children that take work, if that has changed.
            count: number of children.
            is_draining: the node is about to stop.
        """
        if children is not None:
            is_ready = self._node.is_ready or len(children) == count
            self._node = replace(self._node, children=tuple(children), is_ready=is_ready)
        if is_draining:
            self._node = replace(self._node, is_draining=True)
        self._statuses.put_node(self._node)

    def topic_missing(self) -> None:
        """Publish that a task of this node did not find a topic; the leader reads the metadata."""
        self._node = replace(self._node, misses=self._node.misses + 1)
        self._statuses.put_node(self._node)

    def has_successor(self) -> bool:
        """Return whether another node takes work."""
        others = [s for n, s in self._statuses.nodes().items() if n != self._node.worker_id]
        return any(status.is_ready and not status.is_draining for status in others)

    def status(self, name: str, run: ConnectorRun | None) -> ReportedStatus:
        """Return the present status of a connector."""
        stored = StoredStatuses(
            self._statuses.connector(name),
            self._statuses.tasks(name),
            self._statuses.problem(name),
        )
        local = LocalNode(self._node.worker_id, has_worker="worker" in self._node.children)
        return connector_status(self._store.get(name), run, stored, local)

    def publish(self, run: ConnectorRun, *, is_leading: bool) -> None:
        """Publish the statuses of a connector that this node has to write."""
        name, state = run.name, self._store.get(run.name)
        if state.config is None:
            return
        worker_id = self._node.worker_id
        status = self.status(name, run)
        value = partial(
            status_value,
            generation=state.layout.number if state.layout is not None else 0,
            version=self._node.version,
        )
        if status.worker_id == worker_id and (is_leading or state.places is not None):
            self._statuses.put_connector(name, value(status))
        own = {task.id: value(task) for task in status.tasks if task.worker_id == worker_id}
        self._statuses.put_tasks(name, own)
        if is_leading:
            self._statuses.forget_tasks(name, above=len(status.tasks))

    def publish_running(self, run: ConnectorRun) -> None:
        """Publish which units of a connector run on this node."""
        self._statuses.put_running(self._node.worker_id, run.name, run.running())

    def forget(self, name: str) -> None:
        """Remove the statuses of a deleted connector; called on the leader."""
        self._statuses.put_connector(name, None)
        self._statuses.put_problem(name, None)
        self._statuses.forget_tasks(name)
        self._statuses.forget_topics(name)
