"""The cluster as this node sees it: who leads, who runs what, where they answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connect.node.herder_api import ConflictError, UnavailableError
from connect.state.config_store import ConfigStore
from connect.state.status_store import StatusStore

NO_LEADER = (
    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance "
    "was underway."
)


class ClusterView:
    """Questions about the cluster, answered from the two topics.

    Args:
        store: leader and placements.
        statuses: what nodes say of themselves.
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
        """Everything, as a JSON object."""
        leader = self._store.leader()
        placements = {}
        for name in self._store.names():
            state = self._store.get(name)
            if state.places is not None:
                count = len(state.layout.tasks) if state.layout is not None else 0
                tasks = () if state.is_stopped else state.places.tasks[:count]
                placements[name] = {"coordinator": state.places.coordinator, "tasks": list(tasks)}
        nodes = [
            {
                "worker_id": word.worker_id,
                "url": word.url,
                "ready": list(word.children),
                "draining": word.is_draining,
                "version": word.version,
            }
            for _, word in sorted(self._statuses.nodes().items())
        ]
        return {
            "group_id": self._group_id,
            "leader": None if leader is None else leader.worker_id,
            "nodes": nodes,
            "placements": placements,
        }

    def urls(self) -> dict[str, str | None]:
        """Node id -> where it answers; None for this node."""
        others = {n: word.url for n, word in self._statuses.nodes().items()}
        return {**others, self._worker_id: None}

    def leader(self) -> str:
        """Where the leader answers, which is another node.

        Raises:
            ConflictError: it is not known at this moment.
        """
        leader = self._store.leader()
        if leader is None or leader.worker_id == self._worker_id:
            raise ConflictError(NO_LEADER)
        return leader.url

    def coordinator_of(self, name: str) -> str | None:
        """Where the node with a connector's coordinator answers; None: it is this one, or none.

        Raises:
            UnavailableError: that node is gone.
        """
        places = self._store.get(name).places
        if places is None or places.coordinator == self._worker_id:
            return None
        word = self._statuses.nodes().get(places.coordinator)
        if word is None:
            raise UnavailableError(f"the node {places.coordinator} is not there any more")
        return word.url


def is_placed(store: ConfigStore, worker_id: str, name: str, task: str | None) -> bool:
    """Whether a task of a connector, or (None) its coordinator, has its place on a node.

    What has no place yet counts as placed, and so does a task of unknown name.
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
