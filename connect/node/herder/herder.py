"""The herder of a node: it keeps what runs in line with what operators have requested.

The state flows in one direction:

1. ``TargetUnits`` computes the target state of this node from the config topic.
2. ``Convergence`` has one job per connector. The leader's job writes layouts (``Deployer``); every
   node's job stops outdated units and starts new ones (``LocalUnits``).
3. ``ChildAssignments`` sends the start and stop requests to the child processes.
4. ``ChildEvents`` and ``Reconciliation`` apply the children's reports to the observed state
   (``ConnectorRun``, ``Unit``), and correct differences.
5. ``StatusPublisher`` publishes that state in the status topic.

Rules of this file:
- One thread handles every event in order: changes of the config topic, events of children, results
  of jobs, the clock (``HerderThread``).
- A failed unit is started again with back-off, unless only an operator can help (ConfigError,
  DataLost, InvariantViolation: ``retriable`` is false in its report).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from connect.backoff import BackoffPolicy
from connect.clock import Clock
from connect.errors import Fenced
from connect.node.herder.child_processes.child_assignments import ChildAssignments
from connect.node.herder.child_processes.child_events import ChildEvents
from connect.node.herder.child_processes.local_units import CoordinatorProcesses, LocalUnits
from connect.node.herder.child_processes.maintenance_runs import (
    MaintenanceRuns,
    MaintenanceSettings,
)
from connect.node.herder.child_processes.reconciliation import Reconciliation
from connect.node.herder.child_processes.remote_units import RemoteUnits
from connect.node.herder.cluster.election import Election
from connect.node.herder.cluster.leader import ClusterLeader, LeaderDuties
from connect.node.herder.convergence import Convergence
from connect.node.herder.deployment.deployer import Deployer
from connect.node.herder.herder_thread import TICK_S, HerderThread, PeriodicJobs
from connect.node.herder.units.status_publisher import StatusPublisher
from connect.node.herder.units.units import ConnectorRun
from connect.node.node_requests import ReportedStatus
from connect.processes.coordinator_names import COORDINATOR
from connect.processes.supervisor import ChildLogs, SupervisedChild
from connect.state.config_store import ConfigStore
from connect.state.status_state import NodeStatus
from connect.state.status_store import StatusStore


class Herder:
    """Runs the connectors of one node.

    Args:
        store: configurations and layouts; its ``on_change`` must be ``changed``.
        statuses: where states are published.
        deployer: writes layouts and fences.
        leader: members and placements, for the time that this node leads.
        children: ``worker`` and the coordinator processes; their events must go to ``received``.
        node: the first status of this node.
        policy: restarts of failed tasks and coordinators.
        refresh_ms: interval at which the leader reads the metadata of the cluster.
        grace_ms: how long tasks may drain.
        on_fatal: called when this node must stop.
        on_metrics: called with a child's name and its samples.
        maintenance: how the maintenance process is run.

    Attributes:
        election: whether this node leads.
    """

    def __init__(
        self,
        *,
        store: ConfigStore,
        statuses: StatusStore,
        deployer: Deployer,
        leader: ClusterLeader,
        children: Mapping[str, SupervisedChild],
        clock: Clock,
        node: NodeStatus,
        policy: BackoffPolicy,
        refresh_ms: int,
        grace_ms: int,
        on_fatal: Callable[[BaseException], None],
        on_metrics: Callable[[str, Any], None],
        maintenance: MaintenanceSettings,
    ) -> None:
        self._logs = ChildLogs(children.values())
        self._clock = clock
        self._grace_ms = grace_ms
        self._ticked_ms: int | None = None
        self._runs: dict[str, ConnectorRun] = {}
        self._publisher = StatusPublisher(store, statuses, node)
        self._thread = HerderThread(self._tick, on_fatal)
        self.election = self._new_election(leader, store, deployer, refresh_ms, on_fatal)
        assignments = ChildAssignments(children, clock, grace_ms)
        remote = self._new_remote(store, statuses, node.worker_id)
        self.maintenance = self._new_maintenance(maintenance, remote)
        local = LocalUnits(
            store,
            statuses,
            assignments,
            remote,
            coordinators=CoordinatorProcesses(children, self._runs),
            worker_id=node.worker_id,
        )
        self._convergence = Convergence(
            self._runs,
            store=store,
            statuses=statuses,
            deployer=deployer,
            local=local,
            publisher=self._publisher,
            election=self.election,
            thread=self._thread,
            clock=clock,
            policy=policy,
        )
        self._reconciliation = Reconciliation(
            self._runs,
            assignments,
            restart=local.restart,
            on_changed=self._convergence.publish,
        )
        self._events = ChildEvents(
            frozenset(children),
            self._runs,
            assignments=assignments,
            reconciliation=self._reconciliation,
            publisher=self._publisher,
            statuses=statuses,
            clock=clock,
            on_metrics=on_metrics,
            on_changed=self._convergence.publish,
            on_completed=lambda run: self._convergence.request(run.name, is_forced=True),
        )

    def _new_remote(self, store: ConfigStore, statuses: StatusStore, worker_id: str) -> RemoteUnits:
        return RemoteUnits(
            store,
            statuses,
            worker_id=worker_id,
            clock=self._clock,
            grace_ms=self._grace_ms,
            on_wait=self._waits_for_nodes,
        )

    def _new_maintenance(
        self, settings: MaintenanceSettings, remote: RemoteUnits
    ) -> MaintenanceRuns:
        return MaintenanceRuns(
            self._runs,
            settings,
            self._thread,
            self._clock,
            has_remote=remote.has_maintenance,
            publish=self._publisher.publish_running,
        )

    def _new_election(
        self,
        leader: ClusterLeader,
        store: ConfigStore,
        deployer: Deployer,
        refresh_ms: int,
        on_fatal: Callable[[BaseException], None],
    ) -> Election:
        jobs = PeriodicJobs(self._thread, on_fenced=self._on_fenced, on_fatal=on_fatal)
        duties = LeaderDuties(
            leader,
            deployer,
            jobs,
            self._thread,
            self._clock,
            refresh_ms=refresh_ms,
            on_outdated=self._on_outdated,
        )
        return Election(
            leader,
            store,
            duties,
            jobs,
            self._thread,
            on_joined=self._on_joined,
        )

    def start(self) -> None:
        """Start; the stored state is reconciled as soon as this node has joined the group."""
        self._thread.start()

    def changed(self, name: str) -> None:
        """Handle a record about a connector that was read from the config topic."""
        self._thread.post(self._convergence.request, name)

    def received(self, child: str, event: Mapping[str, Any]) -> None:
        """Handle an event of a child, or its end."""
        self._thread.post(self._events.handle, child, event)

    def lost(self, error: Fenced) -> None:
        """Handle a refused write to the store: another node leads."""
        self._thread.post(self._on_fenced, error)

    def silent_ms(self) -> int:
        """Return how long the herder's thread has been busy with one event; 0 before its start."""
        ticked_ms = self._ticked_ms
        return 0 if ticked_ms is None else self._clock.monotonic_ms() - ticked_ms

    def request_maintenance(self, name: str, *, is_run: bool) -> None:
        """Run a connector's maintenance now, or stop it until the next request."""
        self._thread.post(self.maintenance.request, name, is_run=is_run)

    def run_of(self, name: str) -> ConnectorRun | None:
        """Return the observed state of a connector, to read only."""
        return self._runs.get(name)

    def coordinator_process(self, name: str) -> str:
        """Return the name of the child process for a connector's coordinator."""
        run = self._runs.get(name)
        return COORDINATOR if run is None else run.coordinator.child

    def status(self, name: str) -> ReportedStatus:
        """Return the present status of a connector."""
        return self._publisher.status(name, self._runs.get(name))

    def drain(self) -> None:
        """Take no more work, and wait, bounded, until nothing runs on this node.

        Units stop on this node before they start on another one. Returns at once when no other
        node takes work.
        """
        self._thread.post(self._publisher.publish_node, is_draining=True)
        pause = threading.Event()
        deadline_ms = self._clock.monotonic_ms() + self._grace_ms
        while self._clock.monotonic_ms() < deadline_ms:
            if not self._publisher.has_successor():
                return
            if not any(run.running() for run in list(self._runs.values())):
                return
            pause.wait(TICK_S)

    def close(self) -> None:
        """Stop reconciling; the node stops the children itself."""
        self._thread.stop()
        for run in list(self._runs.values()):
            for unit in run.units():
                unit.stopped.set()  # ends the waits of jobs
        self._thread.cancel_jobs()
        self.maintenance.close()

    def _waits_for_nodes(self, name: str, nodes: Collection[str]) -> None:
        """Note, on the thread of a connector's job, the nodes that it waits for."""
        run = self._runs.get(name)
        if run is not None:
            text = f"{', '.join(nodes)} to stop its tasks" if nodes else None
            run.job.waits_for = text
            self._thread.post(self._convergence.publish, run)

    def _on_fenced(self, error: Fenced) -> None:
        self.election.lost(error)

    def _on_joined(self) -> None:
        self._convergence.request_all()

    def _on_outdated(self, names: list[str]) -> None:
        self._convergence.request_each(names)

    def _tick(self) -> None:
        now_ms = self._ticked_ms = self._clock.monotonic_ms()
        for run in list(self._runs.values()):
            self._convergence.retry_due(run, now_ms)
            self._reconciliation.restart_due(run, now_ms)
        self.election.tick(now_ms)
        self._convergence.compare_due(now_ms)
        self._publisher.publish_node()  # a leader that took this node for gone has removed it
        self.maintenance.tick()
        self._logs.trim_due(now_ms)
