"""The state of a connector as Kafka Connect's API names it, wherever it runs: pure.

Rules of this file:
- The operator's wish shows at once; of what runs on this node its belief shows, of what runs on
  another that node's last word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connect.node.herder.units import Run
from connect.node.herder_api import ReportedStatus, State, TaskStatus
from connect.redaction.secret_values import KNOWN
from connect.state.connector_state import StoredConnector
from connect.state.status_state import Status

TABLES_SHOWN_MAX = 20
_LIVE: Mapping[str, State] = {
    "RUNNING": "RUNNING",
    "FAILED": "FAILED",
    "RESTARTING": "RESTARTING",
    "UNASSIGNED": "UNASSIGNED",
}


@dataclass(frozen=True, slots=True)
class ReportedConnector:
    """What the status topic says of a connector.

    Attributes:
        connector: of itself.
        tasks: of its tasks.
        problem: why the leader cannot lay it out.
    """

    connector: Status | None = None
    tasks: Mapping[int, Status] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class LocalConnector:
    """This node: its id, and whether its worker takes work."""

    worker_id: str
    has_worker: bool


def displayed_status(
    state: StoredConnector, run: Run | None, reported: ReportedConnector, here: LocalConnector
) -> ReportedStatus:
    """The connector's status.

    A task about to be handed to a worker that is there counts as running, so that a resumed
    connector shows it at once.
    """
    places = state.places
    own_node = places.coordinator if places is not None else here.worker_id
    if state.target == "STOPPED":
        return ReportedStatus(state.name, "STOPPED", own_node)
    count = len(state.layout.tasks) if state.layout and not state.is_stopped else 0
    if state.target == "PAUSED":
        paused = tuple(_paused(task, state, run, reported, here) for task in range(count))
        return ReportedStatus(state.name, "PAUSED", own_node, paused)
    found = (_task(task, state, run, reported, here) for task in range(count))
    tasks = tuple(task for task in found if task is not None)
    own, trace = _own(state, run, reported, here)
    if reported.problem is not None:
        own, trace = "FAILED", reported.problem
    return ReportedStatus(state.name, own, own_node, tasks, trace)


def _own(
    state: StoredConnector, run: Run | None, reported: ReportedConnector, here: LocalConnector
) -> tuple[State, str | None]:
    places = state.places
    if places is not None and places.coordinator != here.worker_id:
        status = reported.connector
        if status is None or status.worker_id != places.coordinator:
            return "RUNNING", None  # its node is about to say how it is
        return _LIVE.get(status.state, "RUNNING"), status.trace
    if run is None:
        return "UNASSIGNED", None
    own: State = "RUNNING" if run.coordinator.phase == "WAITING" else run.coordinator.displayed
    texts = (run.stall_text, run.retention_text, failed_tables_text(run.failed_tables))
    return own, run.coordinator.trace or "\n".join(text for text in texts if text) or None


def _task(
    task: int,
    state: StoredConnector,
    run: Run | None,
    reported: ReportedConnector,
    here: LocalConnector,
) -> TaskStatus | None:
    node = _node_of(task, state) or here.worker_id
    if node != here.worker_id:
        status = reported.tasks.get(task)
        number = state.layout.number if state.layout else 0
        if status is None or status.worker_id != node or status.generation != number:
            return TaskStatus(task, "RUNNING", node) if state.is_ready else None
        return TaskStatus(task, _LIVE.get(status.state, "RUNNING"), node, status.trace)
    unit = run.tasks.get(task) if run is not None else None
    if unit is not None:
        is_waiting = unit.phase == "IDLE" and run is not None and run.retry_at_ms is not None
        return TaskStatus(task, "UNASSIGNED" if is_waiting else unit.displayed, node, unit.trace)
    if not state.is_ready:
        return None
    return TaskStatus(task, "RUNNING" if here.has_worker else "UNASSIGNED", node)


def _paused(
    task: int,
    state: StoredConnector,
    run: Run | None,
    reported: ReportedConnector,
    here: LocalConnector,
) -> TaskStatus:
    node = _node_of(task, state) or here.worker_id
    trace: str | None = None
    if node != here.worker_id:
        status = reported.tasks.get(task)
        has_failed = status is not None and status.state == "FAILED" and status.worker_id == node
        trace = status.trace if status is not None and has_failed else None
    else:
        unit = run.tasks.get(task) if run is not None else None
        has_failed = unit is not None and unit.has_failed_for_good
        trace = unit.trace if unit is not None and has_failed else None
    return TaskStatus(task, "FAILED" if has_failed else "PAUSED", node, trace)


def _node_of(task: int, state: StoredConnector) -> str | None:
    places = state.places
    return places.tasks[task] if places is not None and task < len(places.tasks) else None


def failed_tables_text(tables: Sequence[Mapping[str, Any]]) -> str | None:
    """One line for each table that is not committed, the cause in the first, as in any trace.

    The connector runs all the same; they need somebody.
    """
    if not tables:
        return None
    lines = [
        f"{t['table']}: {t['code']}: {t['message']}; "
        f"{t['files']} files with {t['records']} records wait"
        for t in tables[:TABLES_SHOWN_MAX]
    ]
    if len(tables) > TABLES_SHOWN_MAX:
        lines.append(f"and {len(tables) - TABLES_SHOWN_MAX} more")
    return "\n".join(lines)


def stored(part: ReportedStatus | TaskStatus, *, generation: int, version: str) -> Status:
    """A status as the status topic keeps it.

    Args:
        part: of the connector itself, or of a task.
        generation: number of its layout.
        version: this product's.
    """
    trace = part.trace and KNOWN.mask(part.trace)
    return Status(part.state, trace, part.worker_id, generation, version)
