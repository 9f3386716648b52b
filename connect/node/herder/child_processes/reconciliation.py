"""Compares the units that should run with the reports of the child processes; corrects differences.

Rules of this file:
- A report counts only if its generation is that of the unit's last start and its sequence number
  is above the last one of that generation. So reports may be late, repeated or out of order.
- A child's inventory is the truth about that child. A unit that is missing in it has ended; a unit
  in it that the node does not want is stopped.
- A coordinator that makes no progress for too long is started again. The time doubles with each
  such restart until a round ends.
- A task cancels a batch that does not end. If it makes no progress all the same, it is started
  again as well. The new start fences the one that is stuck, in the same process.
- All methods run on the herder's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connect.errors import Fenced
from connect.logs import logger
from connect.metrics.process_metrics import counter
from connect.node.herder.child_processes.child_assignments import ChildAssignments
from connect.node.herder.units.units import ConnectorRun, Unit
from connect.processes.unit_reports import Inventory, UnitReport

REPORT_LATE_MS = 60_000  # a start that no inventory lists for so long was lost
STALL_DOUBLINGS_MAX = 5
UNWANTED_LOG_MS = 60_000  # a unit may take minutes to stop, and is listed every 2 s
WAIT_SHOWN_MS = 2_000  # shorter waits are part of every start
ENDED = "ended_unasked"
MISSING = "missing"
STALLED = "no_rounds"
TASK_STALLED = "task_stalled"

_log = logger("herder")


class Reconciliation:
    """Applies reports and inventories to the units of this node.

    Args:
        runs: by connector; changed by the herder only.
        assignments: requests to this node's children.
        restart: starts a unit that ran before.
        on_changed: called with a run when its status may have changed.
    """

    def __init__(
        self,
        runs: Mapping[str, ConnectorRun],
        assignments: ChildAssignments,
        *,
        restart: Callable[[ConnectorRun, Unit], None],
        on_changed: Callable[[ConnectorRun], None],
    ) -> None:
        self._runs = runs
        self._assignments = assignments
        self._restart = restart
        self._on_changed = on_changed
        self._unwanted: dict[tuple[str, int], int] = {}  # child, generation -> when to log it again

    def restart_due(self, run: ConnectorRun, now_ms: int) -> None:
        """Start the failed units of a run again whose pause is over."""
        for unit in run.units():
            if unit.restart_at_ms is not None and unit.restart_at_ms <= now_ms:
                counter("task_restarts", connector=run.name).inc()
                self._restart(run, unit)
                self._on_changed(run)

    def on_state(self, child: str, report: UnitReport, now_ms: int) -> None:
        """Apply the report of a unit's state."""
        run, unit = self._unit_of(child, report)
        if run is not None and unit is not None and _is_current(unit, report):
            self._apply(run, unit, report, now_ms)

    def on_inventory(self, child: str, inventory: Inventory, now_ms: int) -> None:
        """Apply the inventory of all units that a child runs."""
        reports = {item.generation: item for item in inventory.units}
        claimed = set()
        for run in list(self._runs.values()):
            for unit in run.units():
                if unit.child != child or not unit.start.is_sent:
                    continue
                generation = unit.start.generation
                claimed.add(generation)
                if (item := reports.get(generation)) is not None:
                    self._compare(run, unit, item, now_ms)
                elif inventory.last_generation >= generation or _is_late(unit, now_ms):
                    self._miss(run, unit, now_ms)
        unwanted = reports.keys() - claimed
        for key in [key for key in self._unwanted if key[0] == child and key[1] not in unwanted]:
            del self._unwanted[key]
        for generation in sorted(unwanted):
            self._note_unwanted(child, reports[generation], now_ms)
            self._stop(child, reports[generation])

    def child_takes_commands(self, run: ConnectorRun, unit: Unit) -> None:
        """Start a unit that waits for its child, which takes work now."""
        if run.job.is_busy:
            run.job.is_dirty = True
        elif run.layout is not None and unit.is_to_start:
            self._assignments.start(run, unit, is_restart=unit.phase == "RESTARTING")

    def child_is_gone(self, run: ConnectorRun, unit: Unit) -> None:
        """Mark a unit as ended, because its child has."""
        del run
        with self._assignments.lock:
            unit.stopped.set()
            if unit.start.is_sent and unit.phase not in {"STOPPING", "IDLE"}:
                unit.to("RESTARTING")
            unit.start.is_sent = False

    def _unit_of(self, child: str, report: UnitReport) -> tuple[ConnectorRun | None, Unit | None]:
        run = self._runs.get(report.connector)
        if run is None:
            return None, None
        unit = run.coordinator if report.task is None else run.tasks.get(report.task)
        return run, unit if unit is not None and unit.child == child else None

    def _apply(self, run: ConnectorRun, unit: Unit, report: UnitReport, now_ms: int) -> None:
        state, has_ended = report.state, report.has_ended
        with self._assignments.lock:
            unit.start.sequence = report.sequence
            unit.start.has_ended = has_ended
            if unit.phase in {"STOPPING", "IDLE"}:
                if has_ended:
                    unit.stopped.set()
                return
            if has_ended:
                code = report.code or (ENDED if state == "STOPPED" else "unexpected")
                trace = report.trace or _ended_text(run, unit, code)
                # the unit is placed on this node: its transactional id decides who writes
                is_retriable = report.is_retriable or code == Fenced.default_code
                self._failed(run, unit, now_ms, code, trace, is_retriable=is_retriable)
            elif state == "RUNNING":
                unit.to("RUNNING")
                unit.trace = report.trace  # lost records that the task continued after
                unit.backoff.started(now_ms)
            elif state == "FAILED":
                code = report.code or "unexpected"
                unit.is_failing(report.trace or code)
                _count(run, unit, code)
        self._on_changed(run)

    def _compare(self, run: ConnectorRun, unit: Unit, item: UnitReport, now_ms: int) -> None:
        if _is_current(unit, item):
            self._apply(run, unit, item, now_ms)
        self._note_wait(run, unit, item)
        if unit.start.has_ended or item.has_ended:
            return
        if unit.phase == "STOPPING":
            self._assignments.stop_again(run, unit)
        elif unit.task is None:
            if run.layout is not None and item.layout != run.layout.number:
                self._assignments.send_layout(run)
            self._restart_if_stalled(run, unit, item, now_ms)
        else:
            self._restart_stalled_task(run, unit, item, now_ms)

    def _note_wait(self, run: ConnectorRun, unit: Unit, item: UnitReport) -> None:
        is_long = item.waited_ms >= WAIT_SHOWN_MS
        waits_for = item.waits_for if is_long and not item.has_ended else None
        if waits_for != unit.waits_for:
            unit.waits_for = waits_for
            self._on_changed(run)

    def _miss(self, run: ConnectorRun, unit: Unit, now_ms: int) -> None:
        if unit.start.has_ended:
            return
        with self._assignments.lock:
            unit.start.has_ended = True
            unit.stopped.set()
            if unit.phase in {"STOPPING", "IDLE"}:
                return
            counter("inventory_differences", connector=run.name, code=MISSING).inc()
            text = f"{_name(run, unit)} does not run in its {unit.child} process; starting it again"
            self._failed(run, unit, now_ms, MISSING, text, is_retriable=True)
        self._on_changed(run)

    def _note_unwanted(self, child: str, item: UnitReport, now_ms: int) -> None:
        """Count a unit that is to be stopped once; log it once, and seldom while it runs."""
        if item.has_ended:
            return
        name, task, generation = item.connector, item.task, item.generation
        log_at_ms = self._unwanted.get((child, generation))
        if log_at_ms is None:
            counter("inventory_differences", connector=name, code="unexpected").inc()
        if log_at_ms is None or now_ms >= log_at_ms:
            self._unwanted[child, generation] = now_ms + UNWANTED_LOG_MS
            _log.warning(
                "stopping a task or coordinator that should not run",
                connector=name,
                task=task,
                generation=generation,
            )

    def _stop(self, child: str, item: UnitReport) -> None:
        """Request that a unit stops; repeated with each inventory, as requests may be lost."""
        name, task, generation = item.connector, item.task, item.generation
        self._assignments.stop_generation(child, name, task, generation)

    def _restart_if_stalled(
        self, run: ConnectorRun, unit: Unit, item: UnitReport, now_ms: int
    ) -> None:
        reports = run.reports
        stalls = counter("coordinator_stalls", connector=run.name)  # 0 before the first, for alerts
        idle_ms = item.idle_ms
        longest_ms = item.idle_ms_max << min(reports.stalls, STALL_DOUBLINGS_MAX)
        if idle_ms <= longest_ms:
            return
        reports.stalls += 1
        reports.stall_text = (
            f"{STALLED}: the coordinator of {run.name} made no progress for {idle_ms // 1000} s; "
            f"it was started again, restart {reports.stalls} since the last round"
        )
        stalls.inc()
        _log.error("coordinator is stalled", connector=run.name, idle_ms=idle_ms)
        self._end_stalled(run, unit, now_ms, STALLED, reports.stall_text)

    def _restart_stalled_task(
        self, run: ConnectorRun, unit: Unit, item: UnitReport, now_ms: int
    ) -> None:
        stalls = counter("task_stalls", connector=run.name)  # 0 before the first, for alerts
        idle_ms = item.idle_ms
        if idle_ms <= item.idle_ms_max:
            return
        stalls.inc()
        _log.error("task is stalled", connector=run.name, task=unit.task, idle_ms=idle_ms)
        text = f"{TASK_STALLED}: {_name(run, unit)} made no progress for {idle_ms // 1000} s"
        self._end_stalled(run, unit, now_ms, TASK_STALLED, f"{text}; it is started again")

    def _end_stalled(
        self, run: ConnectorRun, unit: Unit, now_ms: int, code: str, text: str
    ) -> None:
        with self._assignments.lock:
            # the child ends this generation before it begins the next one
            unit.start.has_ended = True
            self._failed(run, unit, now_ms, code, text, is_retriable=True)
        self._on_changed(run)

    def _failed(
        self,
        run: ConnectorRun,
        unit: Unit,
        now_ms: int,
        code: str,
        trace: str,
        *,
        is_retriable: bool,
    ) -> None:
        unit.failed(now_ms, trace=trace, is_retriable=is_retriable)
        _count(run, unit, code)


def _is_current(unit: Unit, report: UnitReport) -> bool:
    start = unit.start
    is_newer = report.sequence > start.sequence
    return (
        start.is_sent and not start.has_ended and report.generation == start.generation and is_newer
    )


def _is_late(unit: Unit, now_ms: int) -> bool:
    return now_ms - unit.start.sent_at_ms >= REPORT_LATE_MS


def _count(run: ConnectorRun, unit: Unit, code: str) -> None:
    counter("task_failures", connector=run.name, code=code).inc()
    _log.warning("task or coordinator failed", connector=run.name, task=unit.task, code=code)


def _ended_text(run: ConnectorRun, unit: Unit, code: str) -> str:
    return f"{code}: {_name(run, unit)} ended without a stop request; starting it again"


def _name(run: ConnectorRun, unit: Unit) -> str:
    name = "the coordinator" if unit.task is None else f"task {unit.task}"
    return f"{name} of {run.name}"
