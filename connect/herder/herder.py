"""Reconciles what operators want with what runs: the loop of a node.

Rules of this file:
- One thread (``herder``) takes everything that happens, in order: changes of the config topic,
  what children say, ends of jobs, the clock. Whatever may wait (broker, fencing, draining) is a
  job on another thread, one per connector at a time.
- What is to be done is worked out anew from the stored state each time; no event is needed twice
  and none is fatal to miss.
- Failed units are started again with back-off, except where only a human can help
  (ConfigError, DataLost, InvariantViolation: ``retriable`` false in their state).
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from connect.clock import Clock
from connect.errors import Fenced, IcefloeError, InvariantViolation, RetriableError, trace_of
from connect.herder import runs
from connect.herder.backoff import BackoffPolicy
from connect.herder.deploy import Deployed, Deployer
from connect.herder.handover import Handover
from connect.herder.runs import Run, Unit
from connect.herder.store import ConfigStore, StatusStore
from connect.herder.supervisor import Child
from connect.logs import logger
from connect.metrics import PROCESS, counter, gauge
from connect.rest.herder_api import ConnectorStatus

TICK_S = 0.2
JOBS_MAX = 8
INBOX_MAX = 100_000
TRIM_EVERY_MS = 60_000

_log = logger("herder")


class Herder:
    """Runs the connectors of one node.

    Args:
        store: configurations and layouts; its ``on_change`` must be ``changed``.
        statuses: where states are told.
        deployer: writes layouts and fences.
        children: ``worker`` and ``coordinator``; their events must go to ``heard``.
        clock: time.
        worker_id: ``host:port`` of this node.
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
        children: Mapping[str, Child],
        clock: Clock,
        worker_id: str,
        version: str,
        policy: BackoffPolicy,
        refresh_ms: int,
        grace_ms: int,
        on_fatal: Callable[[BaseException], None],
        on_metrics: Callable[[str, Any], None],
    ) -> None:
        self.worker_id = worker_id
        self._version = version
        self._store = store
        self._statuses = statuses
        self._deployer = deployer
        self._children = children
        self._handover = Handover(children, clock, grace_ms)
        self._clock = clock
        self._policy = policy
        self._refresh_ms = refresh_ms
        self._on_fatal = on_fatal
        self._on_metrics = on_metrics
        self._inbox: queue.Queue[Callable[[], None]] = queue.Queue(INBOX_MAX)
        self._runs: dict[str, Run] = {}
        self._closing = threading.Event()
        self._jobs = ThreadPoolExecutor(JOBS_MAX, thread_name_prefix="job")
        self._thread = threading.Thread(target=self._loop, name="herder", daemon=True)
        self._next_refresh_ms = 0
        self._next_trim_ms = 0
        self._is_refreshing = False

    # ------------------------------------------------------------ from other threads

    def start(self) -> None:
        """Begin to reconcile; the stores have read their topics."""
        for name in self._store.names():
            self.changed(name)
        self._thread.start()

    def changed(self, name: str) -> None:
        """Something about the connector was read from the config topic."""
        self._inbox.put(lambda: self._reconcile(name))

    def heard(self, child: str, event: Mapping[str, Any]) -> None:
        """A child said something, or has ended."""
        self._inbox.put(lambda: self._on_event(child, event))

    def restart(self, name: str, *, coordinator: bool, tasks: frozenset[int]) -> None:
        """An operator asks for it."""
        self._inbox.put(lambda: self._on_restart(name, coordinator=coordinator, tasks=tasks))

    def ready_children(self) -> list[str]:
        """Child processes that take work."""
        return [name for name in sorted(self._children) if self._handover.is_ready(name)]

    def run_of(self, name: str) -> Run | None:
        """What runs of a connector, to look at only."""
        return self._runs.get(name)

    def status(self, name: str) -> ConnectorStatus:
        """The connector's status as of now."""
        return runs.shown_status(
            self._store.get(name),
            self._runs.get(name),
            self.worker_id,
            has_worker=self._handover.is_ready("worker"),
        )

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
            for unit in run.units():
                if unit.restart_at_ms is not None and unit.restart_at_ms <= now_ms:
                    counter("task_restarts", connector=run.name).inc()
                    self._again(run, unit)
        if now_ms >= self._next_refresh_ms and not self._is_refreshing:
            self._next_refresh_ms = now_ms + self._refresh_ms
            self._is_refreshing = True
            self._jobs.submit(self._refresh)
        if now_ms >= self._next_trim_ms:
            self._next_trim_ms = now_ms + TRIM_EVERY_MS
            for child in self._children.values():
                child.trim_log()

    def _refresh(self) -> None:
        """Job: look for topics and partitions that came or went."""
        try:
            for name in self._deployer.outdated():
                self._inbox.put(partial(self._reconcile, name, is_forced=True))
        except RetriableError as e:
            _log.warning("topics could not be listed", error=str(e))
        finally:
            self._is_refreshing = False

    # ------------------------------------------------------------ reconciling

    def _reconcile(self, name: str, *, is_forced: bool = False) -> None:
        state = self._store.get(name)
        run = self._runs.get(name)
        if run is None:
            if state.config is None:
                return
            run = self._runs[name] = Run.of(name, self._policy)
        self._publish(run)
        if run.is_busy:
            run.is_dirty = True
            return
        if run.seen == runs.signature(state) and not is_forced:
            return
        run.seen = runs.signature(state)
        run.is_busy, run.is_dirty = True, False
        self._jobs.submit(self._converge, run)

    def _converge(self, run: Run) -> None:
        """Job: bring one connector to what is wanted; tell the herder's thread how it went."""
        deployed: Deployed | None = None
        error: BaseException | None = None
        try:
            deployed = self._deployer.converge(
                run.name, lambda is_all: self._handover.stop(run, with_coordinator=is_all)
            )
        except Exception as e:  # the boundary of the job: told to the herder's thread
            error = e
        self._inbox.put(lambda: self._converged(run, deployed, error))

    def _converged(self, run: Run, deployed: Deployed | None, error: BaseException | None) -> None:
        run.is_busy = False
        while run.later:
            self._inbox.put(run.later.pop(0))
        state = self._store.get(run.name)
        run.seen = None if run.is_dirty else runs.signature(state)
        if deployed is not None:
            run.trace = run.retry_at_ms = None
            run.backoff.reset()
            self._hand_over(run, deployed)
        elif isinstance(error, Fenced):
            self._on_fatal(error)
            return
        else:
            assert error is not None
            self._not_deployed(run, error)
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
        run.trace = trace_of(error)
        code = error.code if isinstance(error, IcefloeError) else "unexpected"
        counter("task_failures", connector=run.name, code=code).inc()

    # ------------------------------------------------------------ handing over

    def _hand_over(self, run: Run, deployed: Deployed) -> None:
        layout, config = deployed.layout, deployed.config
        if layout is None:
            run.rest(is_paused=self._store.get(run.name).target == "PAUSED")
            return
        has_new_config = run.config != config
        is_resumed = run.rested == layout
        has_new_layout = run.layout != layout
        run.take(layout, config)
        for unit in run.tasks.values():
            if is_resumed and unit.has_failed_for_good:
                continue  # as in Kafka: resuming is no restart
            if has_new_layout or unit.is_to_start:
                self._handover.start(run, unit)
        if has_new_config or run.coordinator.is_to_start:
            self._handover.start(run, run.coordinator)
        elif has_new_layout:
            self._handover.tell_layout(run)

    def _again(self, run: Run, unit: Unit) -> None:
        self._handover.start(run, unit, is_again=True)
        self._publish(run)

    # ------------------------------------------------------------ what happens

    def _on_restart(self, name: str, *, coordinator: bool, tasks: frozenset[int]) -> None:
        run = self._runs.get(name)
        if run is None:
            return
        if run.is_busy:
            run.later.append(partial(self._on_restart, name, coordinator=coordinator, tasks=tasks))
            return
        units = [unit for unit in run.tasks.values() if unit.task in tasks]
        if coordinator:
            units.append(run.coordinator)
            run.seen = None  # looks at configuration and topics again, too
        for unit in units:
            unit.backoff.reset()
            if run.layout is not None:
                self._again(run, unit)
        if coordinator:
            self._reconcile(name)

    def _on_event(self, child: str, event: Mapping[str, Any]) -> None:
        match event.get("event"):
            case "ready":
                self._handover.ready(child)
                gauge("child_up", process=child).set(1)
                self._each_unit(child, self._child_is_ready)
            case "exited":
                self._handover.gone(child)
                gauge("child_up", process=child).set(0)
                counter("child_restarts", process=child).inc()
                self._each_unit(child, self._child_is_gone)
            case "state":
                self._on_state(child, event)
            case "metrics":
                self._on_metrics(child, event["samples"])
            case "round":
                self._on_round(event)
            case "failed_tables" if (run := self._runs.get(event["connector"])) is not None:
                run.failed_tables = tuple(event["tables"])
                self._publish(run)

    def _each_unit(self, child: str, act: Callable[[Run, Unit], None]) -> None:
        for run in list(self._runs.values()):
            for unit in run.units():
                if unit.child == child:
                    act(run, unit)
            self._publish(run)

    def _child_is_ready(self, run: Run, unit: Unit) -> None:
        if run.is_busy:
            run.is_dirty = True
        elif run.layout is not None and unit.is_to_start:
            self._handover.start(run, unit, is_again=unit.phase == "RESTARTING")

    def _child_is_gone(self, run: Run, unit: Unit) -> None:
        del run
        unit.stopped.set()
        if unit.is_handed and unit.phase not in {"STOPPING", "IDLE"}:
            unit.to("RESTARTING")
        unit.is_handed = False

    def _on_state(self, child: str, event: Mapping[str, Any]) -> None:
        run = self._runs.get(event["connector"])
        task = event.get("task")
        if run is None:
            return
        unit = run.tasks.get(task) if isinstance(task, int) else run.coordinator
        if unit is None or unit.child != child:
            return
        layout = event.get("layout")
        if layout is not None and run.layout is not None and layout != run.layout.number:
            return  # a late word of an earlier layout
        state = event["state"]
        if unit.phase == "STOPPING":
            if state in {"STOPPED", "FAILED"}:
                unit.stopped.set()
            return
        if unit.phase == "IDLE":
            return
        now_ms = self._clock.monotonic_ms()
        if state == "RUNNING":
            unit.to("RUNNING")
            unit.backoff.started(now_ms)
        elif state == "FAILED":
            code = str(event.get("code") or "unexpected")
            unit.failed(
                now_ms,
                code=code,
                trace=str(event.get("trace") or code),
                # the placement says that it runs here: the transactional id decides who writes
                is_retriable=bool(event.get("retriable")) or code == Fenced.default_code,
            )
            counter("task_failures", connector=run.name, code=code).inc()
            _log.warning("failed", connector=run.name, task=task, code=code)
        self._publish(run)

    def _on_round(self, event: Mapping[str, Any]) -> None:
        run = self._runs.get(event["connector"])
        if run is None:
            return
        now_ms = self._clock.now_ms()
        run.heard_round(event, now_ms)
        for topic in sorted({*event.get("topics", ())} - self._statuses.topics(run.name)):
            self._statuses.put_topic(run.name, topic, task=0, now_ms=now_ms)

    # ------------------------------------------------------------ telling

    def _publish(self, run: Run) -> None:
        name = run.name
        if self._store.get(name).config is None:
            return
        generation = run.layout.number if run.layout is not None else 0
        self._statuses.put_all(
            name, *runs.stored_statuses(self.status(name), generation, self._version)
        )

    def _forget(self, name: str) -> None:
        self._statuses.put_all(name, None, {})
        self._statuses.forget_topics(name)
        PROCESS.forget(connector=name)
