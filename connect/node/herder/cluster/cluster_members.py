"""The nodes of the cluster, as its leader knows them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from connect.clock import Clock
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.metrics.process_metrics import gauge
from connect.state.status_state import NodeStatus
from connect.state.status_store import StatusStore


class ClusterMembers:
    """Members of the group, and which of them take work. Thread-safe.

    Args:
        statuses: statuses that nodes publish about themselves.
        read_members: returns the node ids that are in the group now.
        shrink_delay_ms: how long layouts keep their number of tasks after a node has left.
    """

    def __init__(
        self,
        statuses: StatusStore,
        *,
        read_members: Callable[[], Collection[str]],
        worker_id: str,
        clock: Clock,
        shrink_delay_ms: int,
    ) -> None:
        self._statuses = statuses
        self._read_members = read_members
        self._worker_id = worker_id
        self._clock = clock
        self._shrink_delay_ms = shrink_delay_ms
        self._lock = threading.Lock()
        self._alive: frozenset[str] = frozenset()
        self._absent: frozenset[str] = frozenset()
        self._takers: tuple[str, ...] = ()
        self._shrunk_at_ms = 0

    def reset(self) -> None:
        """Forget the members: this node has just begun to lead."""
        with self._lock:
            self._takers = ()
            self._absent = frozenset()
            # the earlier number of nodes is unknown: no layout loses tasks for a while
            self._shrunk_at_ms = self._clock.monotonic_ms()

    def refresh(self) -> tuple[str, ...]:
        """Read the members; return those that take work.

        Raises:
            RetriableError: the broker cannot be reached.
        """
        alive = frozenset(self._read_members()) | {self._worker_id}
        statuses = self._statuses.nodes()
        absent = statuses.keys() - alive
        for node in absent & self._absent:  # absent twice: a new node may not be listed yet
            self._statuses.forget_node(node)
        takers = _takers(alive, statuses)
        with self._lock:
            self._alive = alive
            self._absent = frozenset(absent)
            if len(takers) < len(self._takers):
                self._shrunk_at_ms = self._clock.monotonic_ms()
            self._takers = takers
        gauge("cluster_nodes").set(len(alive))
        return takers

    def is_alone(self) -> bool:
        """Return whether this node is the only member of the group.

        Raises:
            RetriableError: the broker cannot be reached.
        """
        return frozenset(self._read_members()) == {self._worker_id}

    def alive(self) -> frozenset[str]:
        """Return the members as last read."""
        return self._alive

    def takers(self) -> tuple[str, ...]:
        """Return the nodes that take work, as last read; this node if there are none."""
        return self._takers or (self._worker_id,)

    def leaving(self) -> frozenset[str]:
        """Return the live nodes that take no work."""
        return self._alive - set(self._takers)

    def topic_misses(self) -> dict[str, int]:
        """Return, by node id, how often its tasks did not find a topic."""
        return {node: status.misses for node, status in self._statuses.nodes().items()}

    def count_for_layout(self) -> tuple[int, bool]:
        """Return the number of nodes that take work, and whether layouts may lose tasks over it."""
        is_settled = self._clock.monotonic_ms() - self._shrunk_at_ms >= self._shrink_delay_ms
        return max(1, len(self._takers)), is_settled


def member_ids(admin: KafkaAdmin, group_id: str) -> frozenset[str]:
    """Return the node ids of the members of a group: their client ids are their URLs.

    Raises:
        RetriableError: the broker cannot be reached.
    """
    return frozenset(url.partition("://")[2] for url in admin.client_ids(group_id))


def _takers(members: Collection[str], statuses: Mapping[str, NodeStatus]) -> tuple[str, ...]:
    """Return the ready members; without any, those that do not drain; without any, all."""
    staying = [m for m in members if m not in statuses or not statuses[m].is_draining]
    ready = [m for m in staying if m in statuses and statuses[m].is_ready]
    return tuple(sorted(ready or staying or members))
