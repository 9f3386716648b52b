"""Convergence: one job per connector that brings it to its target state.

Rules of this file:
- Each job computes what to do from the stored state. It needs no memory of earlier events, so no
  event is lost for good and a repeated one does no harm.
- Every node runs the units that are placed on it. The leader also brings the stored layout in line
  with configuration, target state and metadata of the cluster.
- A connector has one job at a time. ``request`` runs on the herder's thread, the job on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from connect.backoff import BackoffPolicy
from connect.clock import Clock
from connect.errors import Fenced, IcefloeError, RetriableError, trace_of
from connect.logs import logger
from connect.metrics.process_metrics import PROCESS, counter
from connect.node.herder.child_processes.local_units import LocalUnits
from connect.node.herder.cluster.election import Election
from connect.node.herder.deployment.deployer import Deployer
from connect.node.herder.herder_thread import HerderThread
from connect.node.herder.units.status_publisher import StatusPublisher
from connect.node.herder.units.units import ConnectorRun, signature
from connect.state.config_store import ConfigStore
from connect.state.status_store import StatusStore

COMPARE_EVERY_MS = 5_000

_log = logger("herder")


class Convergence:
    """The connectors of this node and their jobs.

    Args:
        runs: by connector; this class adds and removes them.
        statuses: where problems of deployment are published.
        deployer: writes layouts and fences.
        local: the units of this node.
        election: whether this node leads.
        thread: runs jobs, and receives their results.
        policy: back-off of failed units and jobs.
    """

    def __init__(
        self,
        runs: dict[str, ConnectorRun],
        *,
        store: ConfigStore,
        statuses: StatusStore,
        deployer: Deployer,
        local: LocalUnits,
        publisher: StatusPublisher,
        election: Election,
        thread: HerderThread,
        clock: Clock,
        policy: BackoffPolicy,
    ) -> None:
        self._runs = runs
        self._store = store
        self._statuses = statuses
        self._deployer = deployer
        self._local = local
        self._publisher = publisher
        self._election = election
        self._thread = thread
        self._clock = clock
        self._policy = policy
        self._next_comparison_ms = 0

    def request(self, name: str, *, is_forced: bool = False) -> None:
        """Start a job for a connector, unless one runs or nothing has changed.

        Args:
            name: connector.
            is_forced: start one even if the stored state is that of the last job.
        """
        if not self._election.joined.is_set():
            return  # all connectors are converged then
        state = self._store.get(name)
        run = self._runs.get(name)
        if run is None:
            if state.config is None:
                return
            run = self._runs[name] = ConnectorRun.of(name, self._policy)
            run.restarted = state.restart.request if state.restart else None
        self.publish(run)
        job = run.job
        if job.is_busy:
            job.is_dirty = True
            return
        if job.signature == signature(state) and not is_forced:
            return
        job.signature = signature(state)
        job.is_busy = True
        job.is_dirty = False
        self._thread.submit(self._job(run))

    def request_all(self) -> None:
        """Start a job for every connector."""
        self.request_each([*self._store.names(), *self._runs])

    def request_each(self, names: Iterable[str]) -> None:
        """Start a job for each of these connectors."""
        for name in dict.fromkeys(names):
            self.request(name, is_forced=True)

    def retry_due(self, run: ConnectorRun, now_ms: int) -> None:
        """Start the job of a connector again after a failure, or after the leader's problem."""
        job = run.job
        if job.retry_at_ms is not None and job.retry_at_ms <= now_ms:
            job.retry_at_ms = None
            job.signature = None
            self.request(run.name)
        elif job.is_held and not job.is_busy and self._is_released(run):
            self.request(run.name, is_forced=True)

    def compare_due(self, now_ms: int) -> None:
        """Start jobs, every few seconds, for connectors with units that are not the target's.

        A change of the stored state starts a job itself. The comparison finds connectors with a
        lost change or job.
        """
        if now_ms < self._next_comparison_ms:
            return
        self._next_comparison_ms = now_ms + COMPARE_EVERY_MS
        if not self._election.joined.is_set():
            return
        for name in dict.fromkeys([*self._store.names(), *self._runs]):
            run = self._runs.get(name)
            job = None if run is None else run.job
            if job is None or not (job.is_busy or job.is_held or job.retry_at_ms is not None):
                state = self._store.get(name)
                is_wrong = run is None or self._local.differs(run, state)
                # a coordinator on another node reports it in the status topic
                is_completed = self._election.is_leading and self._deployer.is_completed(state)
                self.request(name, is_forced=is_wrong or is_completed)

    def publish(self, run: ConnectorRun) -> None:
        """Publish the status of a connector."""
        self._publisher.publish(run, is_leading=self._election.is_leading)

    def _is_released(self, run: ConnectorRun) -> bool:
        return run.job.retry_at_ms is None and self._statuses.problem(run.name) is None

    def _job(self, run: ConnectorRun) -> Callable[[], None]:
        def converge() -> None:
            error: BaseException | None = None
            is_leading = self._election.is_leading
            try:
                if is_leading:
                    self._deploy(run)
            except Exception as e:  # the boundary of the job: handled by the herder's thread
                error = e
            try:
                self._local.stop_outdated(run)
            except Exception as e:  # the same: a job without a result would keep its run busy
                error = error or e
            self._thread.post(self._converged, run, error, is_leading=is_leading)

        return converge

    def _deploy(self, run: ConnectorRun) -> None:
        members = self._election.members()

        def stop(*, with_coordinator: bool) -> None:
            self._local.stop_all(run, with_coordinator=with_coordinator, members=members)

        self._deployer.converge(run.name, stop)

    def _converged(
        self, run: ConnectorRun, error: BaseException | None, *, is_leading: bool
    ) -> None:
        job = run.job
        job.is_busy = False
        state = self._store.get(run.name)
        # a change is stored before it is posted: the job may not have read the present state
        job.is_dirty |= isinstance(error, Fenced) or job.signature != signature(state)
        if job.is_dirty:
            job.signature = None
        if isinstance(error, Fenced):
            self._election.lost(error)
        elif error is not None:
            self._not_deployed(run, error)
        elif is_leading:
            job.retry_at_ms = None
            job.backoff.reset()
            self._statuses.put_problem(run.name, None)
        job.is_held = error is not None or self._statuses.problem(run.name) is not None
        if not job.is_held and not job.is_dirty:  # a dirty connector gets another job
            self._local.start_targets(run, state)
        if state.config is None and not job.is_dirty and error is None:
            del self._runs[run.name]
            self._forget(run.name)
            return
        self.publish(run)
        if job.is_dirty:
            self.request(run.name)

    def _not_deployed(self, run: ConnectorRun, error: BaseException) -> None:
        _log.warning("connector not deployed", connector=run.name, error=trace_of(error))
        if isinstance(error, RetriableError):
            now_ms = self._clock.monotonic_ms()
            run.job.retry_at_ms = now_ms + (run.job.backoff.failed(now_ms) or 0)
            if error.code != "topic_refused":
                return  # the broker cannot be reached: running units continue
        self._statuses.put_problem(run.name, trace_of(error))
        code = error.code if isinstance(error, IcefloeError) else "unexpected"
        counter("task_failures", connector=run.name, code=code).inc()

    def _forget(self, name: str) -> None:
        if self._election.is_leading:
            self._election.forget(name)
            self._publisher.forget(name)
        PROCESS.forget(connector=name)
