"""What a node does while it leads: it knows the members and says which of them runs what.

Rules of this file:
- Called by jobs; nothing here runs on the herder's thread but ``nodes_for_layout``.
- Whoever was fenced learns it from the store's refusal and changes nothing more.
- What changes of one connector moves nothing of another; work is spread anew only when a node
  comes, and taken over at once when one goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from connect.clock import Clock
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.logs import logger
from connect.metrics.process_metrics import counter, gauge
from connect.state.config_store import ConfigStore
from connect.state.placement import Places, place
from connect.state.status_state import NodeStatus
from connect.state.status_store import StatusStore

_log = logger("leader")


class Leading:
    """The leader's knowledge and decisions.

    Args:
        store: where placements are written.
        statuses: what nodes say of themselves.
        members: node ids that are in the group now.
        worker_id: this node.
        url: where it answers.
        clock: time.
        shrink_delay_ms: how long layouts keep their number of tasks after a node has gone.
    """

    def __init__(
        self,
        store: ConfigStore,
        statuses: StatusStore,
        *,
        members: Callable[[], Collection[str]],
        worker_id: str,
        url: str,
        clock: Clock,
        shrink_delay_ms: int,
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._members_now = members
        self._worker_id = worker_id
        self._url = url
        self._clock = clock
        self._shrink_delay_ms = shrink_delay_ms
        self._lock = threading.Lock()
        self._members: frozenset[str] = frozenset()
        self._absent: frozenset[str] = frozenset()
        self._nodes: tuple[str, ...] = ()
        # what is written of it; behind after a failed write
        self._spread_over: tuple[str, ...] = ()
        self._places: dict[str, Places] = {}
        self._shrunk_at_ms = 0

    def take_over(self) -> None:
        """Become the one that writes, knowing all that was written.

        Raises:
            Fenced: another node takes over at this moment.
            RetriableError: the broker is away.
        """
        self._store.lead(self._worker_id, self._url)
        found = {name: self._store.get(name).places for name in self._store.names()}
        with self._lock:
            self._places = {name: places for name, places in found.items() if places is not None}
            self._nodes, self._spread_over, self._absent = (), (), frozenset()
            # how many nodes there were before is not known: nothing shrinks for a while
            self._shrunk_at_ms = self._clock.monotonic_ms()
        counter("rebalances").inc()
        self.inspect()

    def inspect(self) -> None:
        """See who is there, and say anew who runs what if that has changed.

        Raises:
            Fenced: this node leads no more.
            RetriableError: the broker is away.
        """
        members = frozenset(self._members_now()) | {self._worker_id}
        words = self._statuses.nodes()
        absent = words.keys() - members
        for node in absent & self._absent:  # twice: one that has just come may not be listed yet
            self._statuses.forget_node(node)
        nodes = _takers(members, words)
        with self._lock:
            self._members, self._absent = members, frozenset(absent)
            before, self._nodes = self._nodes, nodes
            if len(nodes) < len(before):
                self._shrunk_at_ms = self._clock.monotonic_ms()
        gauge("cluster_nodes").set(len(members))
        if nodes != self._spread_over:
            _log.info("nodes", members=sorted(members), take_work=list(nodes))
            self._spread(is_even=bool(set(nodes) - set(self._spread_over)))
            self._spread_over = nodes

    def is_alone(self) -> bool:
        """Whether the group has this node for a member, and no other.

        Raises:
            RetriableError: the broker is away.
        """
        return frozenset(self._members_now()) == {self._worker_id}

    def misses(self) -> dict[str, int]:
        """Node id -> how often its tasks have missed a topic, by its last word."""
        return {node: word.misses for node, word in self._statuses.nodes().items()}

    def members(self) -> frozenset[str]:
        """Nodes of the last look."""
        return self._members

    def nodes_for_layout(self) -> tuple[int, bool]:
        """Number of nodes that take work; whether a layout may lose tasks over it."""
        is_settled = self._clock.monotonic_ms() - self._shrunk_at_ms >= self._shrink_delay_ms
        return max(1, len(self._nodes)), is_settled

    def places_for(self, name: str, tasks: int) -> Places | None:
        """Where a connector with so many tasks is to run; None when that is said already.

        Moves nothing that runs on a node that takes work.
        """
        with self._lock:
            counts = {n: len(p.tasks) for n, p in self._places.items()} | {name: tasks}
            nodes = self._nodes or (self._worker_id,)
            found = place(counts, nodes, self._places, is_even=False)[name]
            self._places[name] = found
        return None if self._is_reported(name, found) else found

    def forget(self, name: str) -> None:
        """The connector is deleted."""
        with self._lock:
            self._places.pop(name, None)

    def _is_reported(self, name: str, places: Places) -> bool:
        said = self._store.get(name).places
        return said is not None and _without_history(said) == _without_history(places)

    def _spread(self, *, is_even: bool) -> None:
        with self._lock:
            counts = {
                name: len(layout.tasks) if (layout := self._store.get(name).layout) else 0
                for name in self._store.names()
            }
            found = place(
                counts,
                self._nodes,
                self._places,
                is_even=is_even,
                leaving=self._members - set(self._nodes),
            )
            changed = {name: p for name, p in found.items() if not self._is_reported(name, p)}
            self._places |= changed
        if changed:
            counter("rebalances").inc()
            _log.info("work is spread anew", connectors=len(changed), is_even=is_even)
            self._store.put_places(changed)


def member_ids(admin: KafkaAdmin, group_id: str) -> frozenset[str]:
    """Node ids of the members of a group: their client ids are their URLs.

    Raises:
        RetriableError: the broker is away.
    """
    return frozenset(url.partition("://")[2] for url in admin.client_ids(group_id))


def _takers(members: Collection[str], words: Mapping[str, NodeStatus]) -> tuple[str, ...]:
    """Nodes that are given work: those that are ready, else those that do not end, else all."""
    staying = [m for m in members if m not in words or not words[m].is_draining]
    ready = [m for m in staying if m in words and words[m].is_ready]
    return tuple(sorted(ready or staying or members))


def _without_history(places: Places) -> tuple[str, tuple[str, ...]]:
    return places.coordinator, places.tasks
