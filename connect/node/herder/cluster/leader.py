"""What a node does while it leads: it places connectors on nodes, and has periodic duties.

Rules of this file:
- Methods are called by jobs, not on the herder's thread, except those of ``LeaderDuties``.
- A fenced leader learns it from a refused write, and changes nothing more.
- A change of one connector moves no task of another. Work is spread again only when a node joins;
  the work of a node that leaves moves at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from connect.clock import Clock
from connect.logs import logger
from connect.metrics.process_metrics import counter
from connect.node.herder.cluster.cluster_members import ClusterMembers
from connect.node.herder.deployment.deployer import Deployer
from connect.node.herder.herder_thread import HerderThread, PeriodicJobs
from connect.state.config_store import ConfigStore
from connect.state.placement import Places, place

_log = logger("leader")


class Placements:
    """The placement of every connector. Thread-safe.

    Args:
        store: where placements are written.
        members: nodes that take work.
    """

    def __init__(self, store: ConfigStore, members: ClusterMembers) -> None:
        self._store = store
        self._members = members
        self._lock = threading.Lock()
        # the nodes of the last spread that was written; outdated after a failed write
        self._spread_over: tuple[str, ...] = ()
        self._places: dict[str, Places] = {}

    def load(self) -> None:
        """Take the stored placements: this node has just begun to lead."""
        stored = {name: self._store.get(name).places for name in self._store.names()}
        with self._lock:
            self._places = {name: places for name, places in stored.items() if places is not None}
            self._spread_over = ()

    def place(self, name: str, tasks: int) -> Places | None:
        """Place a connector with so many tasks; return None if its stored placement is right.

        Moves nothing that runs on a node that takes work.
        """
        with self._lock:
            counts = {n: len(p.tasks) for n, p in self._places.items()} | {name: tasks}
            places = place(counts, self._members.takers(), self._places, is_even=False)[name]
            self._places[name] = places
        return None if self._is_stored(name, places) else places

    def spread(self, nodes: tuple[str, ...]) -> None:
        """Place the connectors on these nodes and store that, if the nodes have changed.

        Raises:
            Fenced: this node leads no more.
            RetriableError: the broker cannot be reached; the next call repeats it.
        """
        if nodes == self._spread_over:
            return
        members = sorted(self._members.alive())
        _log.info("nodes of the cluster changed", members=members, take_work=list(nodes))
        is_even = bool(set(nodes) - set(self._spread_over))
        with self._lock:
            counts = {
                name: len(layout.tasks) if (layout := self._store.get(name).layout) else 0
                for name in self._store.names()
            }
            places = place(
                counts,
                nodes,
                self._places,
                is_even=is_even,
                leaving=self._members.leaving(),
            )
            changed = {name: p for name, p in places.items() if not self._is_stored(name, p)}
            self._places |= changed
        if changed:
            counter("rebalances").inc()
            _log.info(
                "tasks and coordinators placed again", connectors=len(changed), is_even=is_even
            )
            self._store.put_places(changed)
        self._spread_over = nodes

    def forget(self, name: str) -> None:
        """Remove a deleted connector."""
        with self._lock:
            self._places.pop(name, None)

    def _is_stored(self, name: str, places: Places) -> bool:
        stored = self._store.get(name).places
        return stored is not None and _without_history(stored) == _without_history(places)


class ClusterLeader:
    """The leader's knowledge: members of the cluster, and placements.

    Args:
        store: where leader and placements are written.
        members: nodes of the cluster.
        url: base URL of its REST API.

    Attributes:
        members: nodes of the cluster.
        placements: of every connector.
    """

    def __init__(
        self, store: ConfigStore, members: ClusterMembers, *, worker_id: str, url: str
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._url = url
        self.members = members
        self.placements = Placements(store, members)

    def take_over(self) -> None:
        """Become the writer of the config topic, and place the connectors.

        Raises:
            Fenced: another node takes over at the same time.
            RetriableError: the broker cannot be reached.
        """
        self._store.lead(self._worker_id, self._url)
        self.placements.load()
        self.members.reset()
        counter("rebalances").inc()
        self.inspect()

    def inspect(self) -> None:
        """Read the members, and place the connectors again if they have changed.

        Raises:
            Fenced: this node leads no more.
            RetriableError: the broker cannot be reached.
        """
        self.placements.spread(self.members.refresh())


def _without_history(places: Places) -> tuple[str, tuple[str, ...]]:
    return places.coordinator, places.tasks


MEMBERS_POLL_MS = 1_000
VANISHED_POLL_MS = 250
KEEP_OFFSETS_MS = 1_800_000  # far below offsets.retention.minutes of any cluster


class LeaderDuties:
    """Runs the duties while this node leads; on the herder's thread.

    Args:
        leader: members and placements.
        deployer: finds outdated layouts, and stores offsets again.
        jobs: runs the duties.
        thread: receives results.
        refresh_ms: interval at which the metadata of the cluster is read.
        on_outdated: called with the connectors whose layouts are outdated.
    """

    def __init__(
        self,
        leader: ClusterLeader,
        deployer: Deployer,
        jobs: PeriodicJobs,
        thread: HerderThread,
        clock: Clock,
        *,
        refresh_ms: int,
        on_outdated: Callable[[list[str]], None],
    ) -> None:
        self._leader = leader
        self._deployer = deployer
        self._jobs = jobs
        self._thread = thread
        self._clock = clock
        self._refresh_ms = refresh_ms
        self._on_outdated = on_outdated
        self._last_reports: tuple[Mapping[str, int], tuple[int, bool]] | None = None

    def tick(self, now_ms: int) -> None:
        """Start the jobs that are due."""
        self._jobs.run_due("members", MEMBERS_POLL_MS, now_ms, self._leader.inspect)
        # a task misses a deleted topic; another number of nodes may run more or fewer tasks
        reports = self._leader.members.topic_misses(), self._leader.members.count_for_layout()
        if reports != self._last_reports:
            self._last_reports = reports
            self._jobs.expire("refresh")
        self._jobs.run_due("refresh", self._refresh_ms, now_ms, self._refresh)
        self._jobs.run_due("keep-offsets", KEEP_OFFSETS_MS, now_ms, self._deployer.keep_offsets)

    def _refresh(self) -> None:
        """Find topics and partitions that were created or deleted."""
        outdated, is_open = self._deployer.outdated()
        self._thread.post(self._refreshed, outdated, is_open=is_open)

    def _refreshed(self, outdated: list[str], *, is_open: bool) -> None:
        if is_open:  # tasks with vanished partitions announce nothing until that is decided
            self._jobs.run_by("refresh", self._clock.monotonic_ms() + VANISHED_POLL_MS)
        self._on_outdated(outdated)
