"""The periodic duties of a leader: members, metadata of the cluster, offsets that would expire."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connect.clock import Clock
from connect.node.herder.cluster.leader import ClusterLeader
from connect.node.herder.deployment.deployer import Deployer
from connect.node.herder.herder_thread import HerderThread
from connect.node.herder.periodic_jobs import PeriodicJobs

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
        clock: time.
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
        self._thread.post(lambda: self._refreshed(outdated, is_open=is_open))

    def _refreshed(self, outdated: list[str], *, is_open: bool) -> None:
        if is_open:  # tasks with vanished partitions announce nothing until that is decided
            self._jobs.run_by("refresh", self._clock.monotonic_ms() + VANISHED_POLL_MS)
        self._on_outdated(outdated)
