"""The election of the leader: whether this node leads its cluster.

Rules of this file:
- All methods but ``received`` run on the herder's thread; requests to the broker are jobs.
- The group chooses a node. That node leads once it has become the writer of the config topic. A
  node that is fenced does not lead until the group chooses it again.
- A node that is the only member of the group leads at once. The group's rebalance may be delayed
  by the session of the node's killed predecessor, or by the broker's wait for further members.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from connect.errors import Fenced
from connect.logs import logger
from connect.metrics.process_metrics import gauge
from connect.node.herder.cluster.leader import ClusterLeader, LeaderDuties
from connect.node.herder.herder_thread import Action, HerderThread, PeriodicJobs
from connect.state.config_store import ConfigStore

RETRY_MS = 500
ALONE_POLL_MS = 250

_log = logger("leader")


class Election:
    """This node's part in the election.

    Args:
        leader: members and placements, for the time that this node leads.
        store: refuses writes while this node does not lead.
        duties: what a leader does periodically.
        jobs: runs the requests to the broker.
        on_joined: called when this node begins to lead, and when it has joined without leading.

    Attributes:
        joined: set once this node has joined the cluster, as leader or not.
    """

    def __init__(
        self,
        leader: ClusterLeader,
        store: ConfigStore,
        duties: LeaderDuties,
        jobs: PeriodicJobs,
        thread: HerderThread,
        *,
        on_joined: Action,
    ) -> None:
        self.joined = threading.Event()
        self._leader = leader
        self._store = store
        self._duties = duties
        self._jobs = jobs
        self._thread = thread
        self._on_joined = on_joined
        self._is_chosen = False
        self._is_group_member = False
        self._is_leading = False

    @property
    def is_leading(self) -> bool:
        """Whether this node leads, as far as it knows."""
        return self._is_leading

    def members(self) -> Collection[str]:
        """Return the nodes that were alive when the leader last read them."""
        return self._leader.members.alive()

    def forget(self, name: str) -> None:
        """Remove the placement of a deleted connector."""
        self._leader.placements.forget(name)

    def received(self, is_chosen: bool) -> None:
        """Handle a change of the group; called on a thread of the group member."""
        if not is_chosen:
            self._store.step_down()
        self._thread.post(self._changed, is_chosen=is_chosen, is_group_member=True)

    def tick(self, now_ms: int) -> None:
        """Start the jobs that are due."""
        if not self._is_group_member and not self._is_chosen:
            self._jobs.run_due("alone", ALONE_POLL_MS, now_ms, self._check_members)
        if self._is_chosen and not self._is_leading:
            self._jobs.run_due("take-over", RETRY_MS, now_ms, self._take_over)
        if self._is_leading:
            self._duties.tick(now_ms)

    def lost(self, error: Fenced) -> None:
        """Stop leading: the store refused a write because another node leads."""
        if self._is_leading:
            _log.warning("node no longer leads", error=str(error))
        self._is_leading = False
        self._is_chosen = self._is_chosen and self._is_group_member
        self._store.step_down()
        gauge("is_leader").set(0)

    def _changed(self, *, is_chosen: bool, is_group_member: bool) -> None:
        if self._is_group_member and not is_group_member:
            return  # the group has chosen a node meanwhile
        self._is_chosen = is_chosen
        self._is_group_member = is_group_member
        self._jobs.expire_all()
        if is_chosen:
            return
        if not self.joined.is_set():
            self.joined.set()
            self._on_joined()
        if self._is_leading:
            self.lost(Fenced("the group has chosen another node"))

    def _check_members(self) -> None:
        if self._leader.members.is_alone():
            self._thread.post(self._changed, is_chosen=True, is_group_member=False)

    def _take_over(self) -> None:
        self._leader.take_over()
        self._thread.post(self._began)

    def _began(self) -> None:
        if not self._is_chosen or not self._store.is_leading:
            return
        self._is_leading = True
        self._jobs.expire_all()
        self.joined.set()
        gauge("is_leader").set(1)
        _log.info("node leads the cluster")
        self._on_joined()
