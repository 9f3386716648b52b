"""The cluster as this node knows it: leader, nodes, their URLs, and placements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.node.herder.cluster.election import Election
from connect.node.node_requests import ConflictError, UnavailableError, reachable
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
        admin: the id of the Kafka cluster.
        election: whether this node leads.
        group_id: ``group.id`` of the cluster.
    """

    def __init__(
        self,
        store: ConfigStore,
        statuses: StatusStore,
        admin: KafkaAdmin,
        election: Election,
        *,
        worker_id: str,
        group_id: str,
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._admin = admin
        self._election = election
        self._worker_id = worker_id
        self._group_id = group_id
        self._kafka_id: str | None = None

    def kafka_id(self) -> str:
        """Return the id of the Kafka cluster.

        Raises:
            NotAllowedError: the broker refuses.
            UnavailableError: the broker cannot be reached.
        """
        if self._kafka_id is None:
            with reachable():
                self._kafka_id = self._admin.cluster_id()
        return self._kafka_id

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

    def nodes(self) -> Mapping[str, str | None]:
        """Return the base URL by node id; None for this node."""
        others = {n: status.url for n, status in self._statuses.nodes().items()}
        return {**others, self._worker_id: None}

    def node_to_ask(self, role: Literal["leader", "coordinator"], name: str | None) -> str | None:
        """Return the other node that has to answer a request.

        Args:
            role: the leader, or the node that runs a connector's coordinator.
            name: connector.

        Returns:
            Its base URL; None when this node answers, or when no node runs the coordinator.

        Raises:
            ConflictError: the leader is not known now.
            UnavailableError: the node of the coordinator has left the cluster.
        """
        if role == "coordinator":
            return self._coordinator_of(name or "")
        if self._election.is_leading:
            return None
        leader = self._store.leader()
        if leader is None or leader.worker_id == self._worker_id:
            raise ConflictError(NO_LEADER)
        return leader.url

    def _coordinator_of(self, name: str) -> str | None:
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
