"""The cluster as this node knows it: leader, nodes, their URLs, and placements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connect.node.herder_api import ConflictError, UnavailableError
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.placement import Places
from connect.state.status_store import StatusStore
from connect.state.visible_tasks import layout_task_of, visible_task_count

NO_LEADER = (
    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance "
    "was underway."
)


class ClusterView:
    """Reads the cluster's state from the two topics.

    Args:
        store: leader and placements.
        statuses: statuses that nodes publish about themselves.
        worker_id: this node.
        group_id: ``group.id`` of the cluster.
    """

    def __init__(
        self, store: ConfigStore, statuses: StatusStore, worker_id: str, group_id: str
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._worker_id = worker_id
        self._group_id = group_id

    def view(self) -> Mapping[str, Any]:
        """Return nodes, leader and placements as a JSON object."""
        leader = self._store.leader()
        placements = {}
        for name in self._store.names():
            state = self._store.get(name)
            if state.places is not None:
                tasks = _task_nodes(state, state.places)
                placements[name] = {"coordinator": state.places.coordinator, "tasks": tasks}
        nodes = [
            {
                "worker_id": status.worker_id,
                "url": status.url,
                "ready": list(status.children),
                "draining": status.is_draining,
                "version": status.version,
            }
            for _, status in sorted(self._statuses.nodes().items())
        ]
        return {
            "group_id": self._group_id,
            "leader": None if leader is None else leader.worker_id,
            "nodes": nodes,
            "placements": placements,
        }

    def urls(self) -> dict[str, str | None]:
        """Return the base URL by node id; None for this node."""
        others = {n: status.url for n, status in self._statuses.nodes().items()}
        return {**others, self._worker_id: None}

    def leader(self) -> str:
        """Return the base URL of the leader, which is another node.

        Raises:
            ConflictError: the leader is not known now.
        """
        leader = self._store.leader()
        if leader is None or leader.worker_id == self._worker_id:
            raise ConflictError(NO_LEADER)
        return leader.url

    def coordinator_of(self, name: str) -> str | None:
        """Return the base URL of the node with a connector's coordinator.

        Returns:
            None when this node has it, or no node.

        Raises:
            UnavailableError: that node has left the cluster.
        """
        places = self._store.get(name).places
        if places is None or places.coordinator == self._worker_id:
            return None
        status = self._statuses.nodes().get(places.coordinator)
        if status is None:
            raise UnavailableError(f"the node {places.coordinator} has left the cluster")
        return status.url


def _task_nodes(state: StoredConnector, places: Places) -> list[str]:
    """Return the node of each task of the API; none while the placement is an earlier layout's."""
    layout = state.layout
    if layout is None or len(places.tasks) < len(layout.tasks):
        return []
    tasks = range(visible_task_count(state))
    return [places.tasks[layout_task_of(task, layout)] for task in tasks]


def is_placed(store: ConfigStore, worker_id: str, name: str, task: str | None) -> bool:
    """Return whether a task of a connector, or (None) its coordinator, is placed on a node.

    A connector without a placement counts as placed, and so does a task of unknown name.
    """
    state = store.get(name)
    if state.places is None:
        return True
    if task is None:
        return state.places.coordinator == worker_id
    count = len(state.layout.tasks) if state.layout is not None else 0
    placed = state.places.tasks[:count]
    if not task.isdecimal():
        return True
    return int(task) < len(placed) and placed[int(task)] == worker_id
