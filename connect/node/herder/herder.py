"""Reconciles what operators want with what runs: the loop of a node.

Rules of this file:
- One thread (``herder``) takes everything that happens, in order: changes of the config topic,
  what children say, ends of jobs, the clock. Whatever may wait (broker, fencing, draining) is a
  job on another thread, one per connector at a time.
- What is to be done is worked out anew from the stored state each time; no event is needed twice
  and none is fatal to miss.
- Every node runs what is placed on it, from what is stored; the leader besides brings what is
  stored in line with what is wanted. Neither needs the other's memory.
- Failed units are started again with back-off, except where only a human can help
  (ConfigError, DataLost, InvariantViolation: ``retriable`` false in their state).
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from connect.clock import Clock
from connect.errors import Fenced, IcefloeError, InvariantViolation, RetriableError, trace_of
from connect.logs import logger
from connect.metrics.process_metrics import PROCESS, counter, gauge
from connect.node.herder import units
from connect.node.herder.child_assignments import Handover
from connect.node.herder.deployer import Deployer
from connect.node.herder.election import Leadership
from connect.node.herder.leader import Leading
from connect.node.herder.local_units import Local
from connect.node.herder.reconciliation import Reconciliation
from connect.node.herder.remote_units import RemoteUnits
from connect.node.herder.status_publisher import StatusPublisher
from connect.node.herder.units import Run, Unit
from connect.node.herder_api import ReportedStatus
from connect.processes.backoff import BackoffPolicy
from connect.processes.supervisor import SupervisedChild
from connect.state.config_store import ConfigStore
from connect.state.status_state import NodeStatus
from connect.state.status_store import StatusStore

TICK_S = 0.2
JOBS_MAX = 8
INBOX_MAX = 100_000
TRIM_EVERY_MS = 60_000
COMPARE_EVERY_MS = 5_000

_log = logger("herder")


class Herder:
    """Runs the connectors of one node.

    Args:
        store: configurations and layouts; its ``on_change`` must be ``changed``.
        statuses: where states are told.
        deployer: writes layouts and fences.
        leading: what a leader knows and decides.
        children: ``worker`` and ``coordinator``; their events must go to ``heard``.
        clock: time.
        worker_id: ``host:port`` of this node.
        url: where this node answers.
        version: this product's, shown in statuses.
        policy: restarts of failed tasks and coordinators.
        refresh_ms: how often metadata is looked at.
        grace_ms: how long tasks may drain.
        on_fatal: called when this node must not go on.
        on_metrics: called with a child's name and its samples.
    """

    def __init__(
        self,
        *,
        store: ConfigStore,
        statuses: StatusStore,
        deployer: Deployer,
        leading: Leading,
        children: Mapping[str, SupervisedChild],
        clock: Clock,
        worker_id: str,
        url: str,
        version: str,
        policy: BackoffPolicy,
        refresh_ms: int,
        grace_ms: int,
        on_fatal: Callable[[BaseException], None],
        on_metrics: Callable[[str, Any], None],
    ) -> None:
        self.worker_id = worker_id
        self._publisher = StatusPublisher(
            store, statuses, NodeStatus(worker_id, url, version=version)
        )
        self._store = store
        self._statuses = statuses
        self._deployer = deployer
        self._children = children
        self._handover = Handover(children, clock, grace_ms)
        remote = RemoteUnits(store, statuses, worker_id=worker_id, clock=clock, grace_ms=grace_ms)
        self._local = Local(store, statuses, self._handover, remote, worker_id)
        self._grace_ms = grace_ms
        self._clock = clock
        self._policy = policy
        self._on_fatal = on_fatal
        self._on_metrics = on_metrics
        self._inbox: queue.Queue[Callable[[], None]] = queue.Queue(INBOX_MAX)
        self._runs: dict[str, Run] = {}
        self._closing = threading.Event()
        self._jobs = ThreadPoolExecutor(JOBS_MAX, thread_name_prefix="job")
        self._thread = threading.Thread(target=self._loop, name="herder", daemon=True)
        self._next_trim_ms = 0
        self._reconciliation = Reconciliation(
            self._runs, self._handover, restart=self._local.again, on_changed=self._publish
        )
        self._next_comparison_ms = 0
        self.leadership = Leadership(
            leading,
            store,
            deployer,
            clock,
            refresh_ms=refresh_ms,
            submit=self._jobs.submit,
            post=self._inbox.put,
            on_joined=self._lay_out_all,
            on_outdated=self._lay_out,
            on_fatal=on_fatal,
        )

    # ------------------------------------------------------------ from other threads

    def start(self) -> None:
        """Begin; what is stored is reconciled as soon as the group has taken this node."""
        self._thread.start()

    def changed(self, name: str) -> None:
        """Something about the connector was read from the config topic."""
        self._inbox.put(lambda: self._reconcile(name))

    def received(self, child: str, event: Mapping[str, Any]) -> None:
        """A child said something, or has ended."""
        self._inbox.put(lambda: self._on_event(child, event))

    def lost(self, error: Fenced) -> None:
        """The store refused a change: another node leads."""
        self._inbox.put(lambda: self.leadership.lost(error))

    def ready_children(self) -> list[str]:
        """Child processes that take work."""
        return [name for name in sorted(self._children) if self._handover.is_ready(name)]

    def run_of(self, name: str) -> Run | None:
        """What runs of a connector, to look at only."""
        return self._runs.get(name)

    def status(self, name: str) -> ReportedStatus:
        """The connector's status as of now."""
        return self._publisher.status(name, self._runs.get(name))

    def drain(self) -> None:
        """Ask to be given nothing any more, and wait, bounded, until nothing runs here.

        What runs is ended here before it starts elsewhere. Returns at once when there is no other
        node that takes work.
        """
        self._inbox.put(lambda: self._publisher.node(is_draining=True))
        pause = threading.Event()
        deadline_ms = self._clock.monotonic_ms() + self._grace_ms
        while self._clock.monotonic_ms() < deadline_ms:
            others = [w for n, w in self._statuses.nodes().items() if n != self.worker_id]
            if not any(word.is_ready and not word.is_draining for word in others):
                return
            if not any(run.running() for run in list(self._runs.values())):
                return
            pause.wait(TICK_S)

    def close(self) -> None:
        """Stop reconciling; children are ended by whoever started them."""
        self._closing.set()
        self._inbox.put(lambda: None)
        if self._thread.is_alive():
            self._thread.join()
        for run in list(self._runs.values()):
            for unit in run.units():
                unit.stopped.set()  # no job waits any longer
        self._jobs.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------ the loop

    def _loop(self) -> None:
        try:
            while not self._closing.is_set():
                with contextlib.suppress(queue.Empty):
                    self._inbox.get(timeout=TICK_S)()
                if self._inbox.empty():
                    self._tick()
        finally:
            if not self._closing.is_set():  # a bug: nobody reconciles any more
                self._on_fatal(InvariantViolation("the herder's thread has ended"))

    def _tick(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for run in list(self._runs.values()):
            if run.retry_at_ms is not None and run.retry_at_ms <= now_ms:
                run.retry_at_ms = run.seen = None
                self._reconcile(run.name)
            elif run.is_held and not run.is_busy and self._may_go_on(run):
                self._reconcile(run.name, is_forced=True)
            self._reconciliation.restart_due(run, now_ms)
        self.leadership.tick(now_ms)
        if now_ms >= self._next_comparison_ms:
            self._next_comparison_ms = now_ms + COMPARE_EVERY_MS
            self._compare()
        self._publisher.node()  # a leader that took us for gone has forgotten it
        if now_ms >= self._next_trim_ms:
            self._next_trim_ms = now_ms + TRIM_EVERY_MS
            for child in self._children.values():
                child.trim_log()

    def _compare(self) -> None:
        """Give a job to each connector that is not handed over as the stored state wants it.

        Changes give jobs by themselves; this finds those whose job or change was lost.
        """
        if not self.leadership.joined.is_set():
            return
        for name in dict.fromkeys([*self._store.names(), *self._runs]):
            run = self._runs.get(name)
            if run is None or not (run.is_busy or run.is_held or run.retry_at_ms is not None):
                is_wrong = run is None or self._local.differs(run, self._store.get(name))
                self._reconcile(name, is_forced=is_wrong)

    def _may_go_on(self, run: Run) -> bool:
        return run.retry_at_ms is None and self._statuses.problem(run.name) is None

    def _lay_out_all(self) -> None:
        self._lay_out([*self._store.names(), *self._runs])

    def _lay_out(self, names: Collection[str]) -> None:
        for name in dict.fromkeys(names):
            self._reconcile(name, is_forced=True)

    # ------------------------------------------------------------ reconciling

    def _reconcile(self, name: str, *, is_forced: bool = False) -> None:
        if not self.leadership.joined.is_set():
            return  # all will be reconciled then
        state = self._store.get(name)
        run = self._runs.get(name)
        if run is None:
            if state.config is None:
                return
            run = self._runs[name] = Run.of(name, self._policy)
            run.restarted = state.restart.request if state.restart else None
        self._publish(run)
        if run.is_busy:
            run.is_dirty = True
            return
        if run.seen == units.signature(state) and not is_forced:
            return
        run.seen = units.signature(state)
        run.is_busy, run.is_dirty = True, False
        self._jobs.submit(self._converge, run)

    def _converge(self, run: Run) -> None:
        """Job: bring one connector to what is wanted; tell the herder's thread how it went."""
        error: BaseException | None = None
        is_leading = self.leadership.is_leading
        try:
            if is_leading:
                members = self.leadership.leading.members()
                self._deployer.converge(
                    run.name, lambda all_: self._local.end(run, is_all=all_, members=members)
                )
        except Exception as e:  # the boundary of the job: told to the herder's thread
            error = e
        try:
            self._local.align(run)
        except Exception as e:  # the same: a run whose job never ends would be busy for ever
            error = error or e
        self._inbox.put(lambda: self._converged(run, error, is_leading=is_leading))

    def _converged(self, run: Run, error: BaseException | None, *, is_leading: bool) -> None:
        run.is_busy = False
        state = self._store.get(run.name)
        # a change is read before it is heard of: the job may not have seen what there is now
        run.is_dirty |= isinstance(error, Fenced) or run.seen != units.signature(state)
        if run.is_dirty:
            run.seen = None
        if isinstance(error, Fenced):
            self.leadership.lost(error)
        elif error is not None:
            self._not_deployed(run, error)
        elif is_leading:
            run.retry_at_ms = None
            run.backoff.reset()
            self._statuses.put_problem(run.name, None)
        run.is_held = error is not None or self._statuses.problem(run.name) is not None
        if not run.is_held and not run.is_dirty:  # when it is dirty there is a job to come
            self._local.hand_over(run, state)
        if state.config is None and not run.is_dirty and error is None:
            del self._runs[run.name]
            self._forget(run.name)
            return
        self._publish(run)
        if run.is_dirty:
            self._reconcile(run.name)

    def _not_deployed(self, run: Run, error: BaseException) -> None:
        _log.warning("connector not deployed", connector=run.name, error=trace_of(error))
        if isinstance(error, RetriableError):
            now_ms = self._clock.monotonic_ms()
            run.retry_at_ms = now_ms + (run.backoff.failed(now_ms) or 0)
            if error.code != "topic_refused":
                return  # the broker is away: what runs goes on, and so do we
        self._statuses.put_problem(run.name, trace_of(error))
        code = error.code if isinstance(error, IcefloeError) else "unexpected"
        counter("task_failures", connector=run.name, code=code).inc()

    # ------------------------------------------------------------ what happens

    def _on_event(self, child: str, event: Mapping[str, Any]) -> None:
        match event.get("event"):
            case "ready":
                self._handover.ready(child)
                self._publisher.node(self.ready_children(), count=len(self._children))
                gauge("child_up", process=child).set(1)
                self._each_unit(child, self._reconciliation.child_is_ready)
            case "exited":
                self._handover.gone(child)
                self._publisher.node(self.ready_children(), count=len(self._children))
                gauge("child_up", process=child).set(0)
                counter("child_restarts", process=child).inc()
                self._each_unit(child, self._reconciliation.child_is_gone)
            case "state":
                self._reconciliation.on_state(child, event, self._clock.monotonic_ms())
            case "inventory":
                self._reconciliation.on_inventory(child, event, self._clock.monotonic_ms())
            case "metrics":
                self._on_metrics(child, event["samples"])
            case "topic_missing":
                self._publisher.missing_topic()
            case "round":
                self._on_round(event)
            case "retention" if (run := self._runs.get(event["connector"])) is not None:
                run.retention_text = event["message"]
                self._publish(run)
            case "failed_tables" if (run := self._runs.get(event["connector"])) is not None:
                run.failed_tables = tuple(event["tables"])
                self._publish(run)

    def _each_unit(self, child: str, act: Callable[[Run, Unit], None]) -> None:
        for run in list(self._runs.values()):
            for unit in run.units():
                if unit.child == child:
                    act(run, unit)
            self._publish(run)

    def _on_round(self, event: Mapping[str, Any]) -> None:
        run = self._runs.get(event["connector"])
        if run is None:
            return
        now_ms = self._clock.now_ms()
        run.received_round(event, now_ms)
        for topic in sorted({*event.get("topics", ())} - self._statuses.topics(run.name)):
            self._statuses.put_topic(run.name, topic, task=0, now_ms=now_ms)

    # ------------------------------------------------------------ telling

    def _publish(self, run: Run) -> None:
        self._publisher.publish(run, is_leading=self.leadership.is_leading)

    def _forget(self, name: str) -> None:
        if self.leadership.is_leading:
            self.leadership.leading.forget(name)
            self._publisher.forget(name)
        PROCESS.forget(connector=name)
