"""Runs the maintenance process of this node: for one connector at a time, while it has work.

Rules of this file:
- A connector's tables are maintained by the node that runs its coordinator.
- The process is started when work is due, and ended when that is done. So it uses memory only then,
  so a run of one connector uses no catalog of another one.
- It is stopped when the coordinator is: the connector was paused, stopped, moved or changed.
- A node begins nothing for a connector while another node reports that it maintains its tables. A
  node that is gone reports nothing. A process that is frozen loses against Iceberg's conflicts.
- A process that dies has failed. Work that is still due begins again after its interval.
- Of the connectors with due work, the one that has waited longest comes first.
- All methods run on the herder's thread, but for those that say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from connect.clock import Clock
from connect.errors import IcefloeError
from connect.logs import logger
from connect.metrics.process_metrics import PROCESS, counter, gauge
from connect.node.herder.herder_thread import HerderThread
from connect.node.herder.units.maintenance_plan import ORPHAN_FILES, Job, MaintenancePlan
from connect.node.herder.units.units import ConnectorRun
from connect.processes.supervisor import ChildLogs, OnEvent, SupervisedChild

GRACE_MS: Final = 10_000
DURATION_MS_MAX: Final = 6 * 3_600_000
DIED: Final = "maintenance_died"
FAILED: Final = "maintenance_failed"
STOPPED: Final = "maintenance_stopped"
CHANGED: Final = "the connector was paused, stopped, completed, moved or changed"
COUNTERS: Final = {
    "rewritten_files": "maintenance_files_rewritten",
    "rewritten_bytes": "maintenance_bytes_rewritten",
    "removed_delete_files": "maintenance_delete_files_removed",
    "orphan_files": "maintenance_orphan_files_deleted",
}

_log = logger("maintenance")


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """How the maintenance process of a node is run.

    Attributes:
        new_child: makes a process that is not started.
        orphan_age_ms: returns, for a connector, the age from which orphan files may be deleted, or
            None when it is not known; may wait for the broker.
        is_allowed: whether the node's properties allow maintenance.
    """

    new_child: Callable[[OnEvent], SupervisedChild]
    orphan_age_ms: Callable[[str], int | None]
    is_allowed: bool


@dataclass(slots=True)
class _Active:
    """The process that runs.

    Attributes:
        config: its configuration when the process was started.
        jobs: its work.
        begun_ms: monotonic.
        child: None until it is started.
        logs: bounds its log, which grows for hours.
        is_stopping: it was requested to end.
        ended: tables and work that the process has reported as done or failed.
    """

    run: ConnectorRun
    config: Mapping[str, str]
    jobs: list[Job]
    begun_ms: int
    child: SupervisedChild | None = None
    logs: ChildLogs | None = None
    is_stopping: bool = False
    ended: set[tuple[str, str]] = field(default_factory=set)

    def unfinished(self) -> list[tuple[str, str]]:
        """Return table and work of what has not ended, also where it has not begun."""
        all_work = [(job["table"], work) for job in self.jobs for work in job["work"]]
        return [key for key in all_work if key not in self.ended]


class MaintenanceRuns:
    """The maintenance process of a node.

    Args:
        runs: connectors of this node; changed by the herder only.
        settings: how the process is run.
        thread: runs what may wait.
        has_remote: returns whether another node maintains the tables of a connector.
        publish: called with a run when its process begins and when it has ended.
    """

    def __init__(
        self,
        runs: Mapping[str, ConnectorRun],
        settings: MaintenanceSettings,
        thread: HerderThread,
        clock: Clock,
        *,
        has_remote: Callable[[str], bool],
        publish: Callable[[ConnectorRun], None],
    ) -> None:
        self._runs = runs
        self._settings = settings
        self._thread = thread
        self._clock = clock
        self._has_remote = has_remote
        self._publish = publish
        self._active: _Active | None = None
        self._begun: dict[str, int] = {}  # connector -> number of its last run
        self._runs_begun = 0

    def tick(self) -> None:
        """Stop a process whose connector has changed; start one for work that is due."""
        active = self._active
        if active is not None:
            if active.logs is not None:
                active.logs.trim_due(self._clock.monotonic_ms())
            if not (_is_running(active.run) and active.run.config == active.config):
                self._stop(active, STOPPED, CHANGED)
            elif self._clock.monotonic_ms() - active.begun_ms > DURATION_MS_MAX:
                self._stop(active, STOPPED, "it took longer than six hours")
            return
        if not self._settings.is_allowed:
            return
        now_ms = self._clock.now_ms()
        self._begun = {name: number for name, number in self._begun.items() if name in self._runs}
        for run in sorted(self._runs.values(), key=lambda run: self._begun.get(run.name, 0)):
            jobs = run.maintenance.jobs(now_ms) if _is_running(run) else []
            if jobs and run.config is not None and not self._has_remote(run.name):
                run.maintenance.begun()
                self._runs_begun += 1
                self._begun[run.name] = self._runs_begun
                self._begin(_Active(run, run.config, jobs, self._clock.monotonic_ms()))
                return

    def request(self, name: str, *, is_run: bool) -> None:
        """Run a connector's maintenance now, or stop it until the next request."""
        run = self._runs.get(name)
        if run is None:
            return
        run.maintenance.is_held = not is_run
        run.maintenance.is_requested = is_run
        active = self._active
        if active is not None and active.run is run and not is_run:
            self._stop(active, STOPPED, "an operator stopped it")

    def view(self, name: str) -> Mapping[str, Any]:
        """Return the view of a connector's maintenance; may be called from any thread."""
        run = self._runs.get(name)
        plan = MaintenancePlan() if run is None else run.maintenance
        active = self._active
        return plan.view(
            self._clock.now_ms(),
            is_allowed=self._settings.is_allowed,
            is_running=active is not None and active.run is run,
        )

    def close(self) -> None:
        """End the process; called once, when the herder's thread has ended."""
        if self._active is not None and self._active.child is not None:
            self._active.child.shutdown(GRACE_MS)

    def _begin(self, active: _Active) -> None:
        self._active = active
        gauge("maintenance_running", connector=active.run.name).set(1)
        self._set_process(active.run, has_process=True)
        self._thread.submit(self._start, active)

    def _start(self, active: _Active) -> None:
        """Start the process; on a thread of its own, because the broker may have to be asked."""
        self._set_orphan_age(active)
        child = self._settings.new_child(lambda _, event: self._thread.post(handle, event))

        def handle(event: Mapping[str, Any]) -> None:
            if active is self._active:
                self._handle(active, event)

        def begin() -> None:
            if active.is_stopping or not active.jobs:
                self._ended(active)
                return
            active.child, active.logs = child, ChildLogs((child,))
            child.trim_log()
            child.start()

        self._thread.post(begin)

    def _set_orphan_age(self, active: _Active) -> None:
        limits = active.run.maintenance.limits
        for job in active.jobs:
            job["older_than_ms"] = None
        if limits is None or limits.orphan_age_ms is None:
            return
        jobs = [job for job in active.jobs if ORPHAN_FILES in job["work"]]
        if not jobs:
            return
        safe_ms, why = None, "the oldest announcement that waits for a commit has no date"
        try:
            safe_ms = self._settings.orphan_age_ms(active.run.name)
        except IcefloeError as e:
            why = str(e)
        if safe_ms is None:
            text = f"the safe age of orphan files is not known: {why}"
            tables = [job["table"] for job in jobs]
            self._thread.post(self._fail_orphan_files, active, tables, text)
        for job in jobs:
            if safe_ms is None:
                job["work"].remove(ORPHAN_FILES)
            else:
                age_ms = max(safe_ms, limits.orphan_age_ms)
                job["older_than_ms"] = self._clock.now_ms() - age_ms
        active.jobs = [job for job in active.jobs if job["work"]]

    def _fail_orphan_files(self, active: _Active, tables: list[str], message: str) -> None:
        """Report that their removal could not begin, so that it is repeated."""
        failed = {"work": ORPHAN_FILES, "state": "FAILED", "code": FAILED, "message": message}
        for table in tables:
            self._take(active, {"table": table, **failed})
        _log.warning("orphan files not removed", connector=active.run.name, error=message)

    def _handle(self, active: _Active, event: Mapping[str, Any]) -> None:
        match event.get("event"):
            case "ready":
                self._send(active)
            case "maintenance":
                self._take(active, event)
                self._log_report(active, event)
            case "maintenance_ended":
                self._died(active, "the process ended before the work")
            case "exited":
                text = f"the maintenance process ended with status {event['status']}"
                self._died(active, f"{text}; see maintenance.log in icefloe.state.dir")

    def _send(self, active: _Active) -> None:
        limits = active.run.maintenance.limits
        if active.child is None or active.is_stopping or limits is None:
            return
        active.child.send(
            {
                "op": "maintain",
                "connector": active.run.name,
                "config": dict(active.config),
                "jobs": active.jobs,
                "tables_at_once": limits.tables_at_once,
            }
        )

    def _take(self, active: _Active, event: Mapping[str, Any]) -> None:
        """Apply a report to the plan and the metrics."""
        active.run.maintenance.received(event, self._clock.now_ms())
        state = event["state"]
        if state == "RUNNING":
            return
        active.ended.add((event["table"], event["work"]))
        where = {"connector": active.run.name, "table": event["table"]}
        outcome = "done" if state == "DONE" else event["code"]
        counter("maintenance_work", work=event["work"], outcome=outcome, **where).inc()
        for number, name in COUNTERS.items():
            if event.get(number):
                counter(name, **where).inc(event[number])

    def _log_report(self, active: _Active, event: Mapping[str, Any]) -> None:
        state = event["state"]
        if state == "RUNNING":
            return
        where = {"connector": active.run.name, "table": event["table"]}
        write = _log.info if state == "DONE" else _log.warning
        numbers = {k: v for k, v in event.items() if v and k not in {"event", *where}}
        write("table maintained", **where, **numbers)

    def _died(self, active: _Active, message: str) -> None:
        """Report what the process has not finished, also where it has not begun; then end it."""
        if active.is_stopping:
            return
        begun, unfinished = active.run.maintenance.unfinished(), active.unfinished()
        failed = {"state": "FAILED", "code": DIED, "message": message}
        for table, work in unfinished:
            report = {"table": table, "work": work, **failed}
            self._take(active, report)
            if (table, work) in begun:
                self._log_report(active, report)
        if tables := len({table for table, _ in unfinished}):  # there may be thousands
            name = active.run.name
            _log.warning("maintenance process died", connector=name, tables=tables, error=message)
        self._stop(active, DIED, message)

    def _stop(self, active: _Active, code: str, message: str) -> None:
        if active.is_stopping:
            return
        active.is_stopping = True
        active.run.maintenance.ended(code, message, self._clock.now_ms())
        child = active.child
        if child is None:
            return  # its start ends it

        def end() -> None:
            child.shutdown(GRACE_MS)
            self._thread.post(self._ended, active)

        self._thread.submit(end)

    def _ended(self, active: _Active) -> None:
        gauge("maintenance_running", connector=active.run.name).set(0)
        self._set_process(active.run, has_process=False)
        if active.run.name not in self._runs:  # deleted while the process was ending
            PROCESS.forget(connector=active.run.name)
        if self._active is active:
            self._active = None

    def _set_process(self, run: ConnectorRun, *, has_process: bool) -> None:
        run.maintenance.has_process = has_process
        self._publish(run)


def _is_running(run: ConnectorRun) -> bool:
    return run.has_coordinator and run.coordinator.phase == "RUNNING"
