"""The status of a connector, and its publication in the status topic.

Rules of this file:
- ``connector_status`` is pure: the status as Kafka Connect's API shows it, on any node. The target
  state shows at once. The status of a unit on this node is the observed one; that of a unit on
  another node is the one that node published last. A task of the API has the status of the layout's
  task that runs it.
- Each status has one node that writes it. A task's status belongs to the node that the task is
  placed on, the connector's to the node of its coordinator. Without a placement the leader writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from connect.node.herder.offsets.rewind import rewind_text
from connect.node.herder.units.units import ConnectorRun
from connect.node.node_requests import ReportedStatus, State, TaskStatus
from connect.redaction.secret_values import KNOWN
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.status_state import NodeStatus, Status
from connect.state.status_store import StatusStore
from connect.state.visible_tasks import layout_task_of, visible_task_count

TABLES_SHOWN_MAX = 20
_LIVE: Mapping[str, State] = {
    "RUNNING": "RUNNING",
    "FAILED": "FAILED",
    "RESTARTING": "RESTARTING",
    "UNASSIGNED": "UNASSIGNED",
}


@dataclass(frozen=True, slots=True)
class StoredStatuses:
    """The statuses of a connector in the status topic.

    Attributes:
        connector: status of the connector itself.
        tasks: status by task id.
        problem: why the leader cannot lay it out.
    """

    connector: Status | None = None
    tasks: Mapping[int, Status] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class LocalNode:
    """This node: its id, and whether its worker takes work."""

    worker_id: str
    has_worker: bool


def connector_status(
    state: StoredConnector, run: ConnectorRun | None, stored: StoredStatuses, local: LocalNode
) -> ReportedStatus:
    """Return the connector's status.

    A task that is about to be sent to a worker that is ready counts as running, so a resumed
    connector shows RUNNING at once.
    """
    places = state.places
    node = places.coordinator if places is not None else local.worker_id
    if state.target == "STOPPED":
        return ReportedStatus(state.name, "STOPPED", node, trace=rewind_text(state))
    if state.target == "PAUSED":
        paused = _visible(state, lambda task: _paused(task, state, run, stored, local))
        return ReportedStatus(state.name, "PAUSED", node, paused)
    if state.is_completed:
        done = _visible(state, lambda task: _completed(task, state, local))
        return ReportedStatus(state.name, "RUNNING", node, done)
    tasks = _visible(state, lambda task: _task(task, state, run, stored, local))
    own, trace = _own(state, run, stored, local)
    if stored.problem is not None:
        own, trace = "FAILED", stored.problem
    return ReportedStatus(state.name, own, node, tasks, trace)


def _visible(
    state: StoredConnector, status_of: Callable[[int], TaskStatus | None]
) -> tuple[TaskStatus, ...]:
    """Return the status of each task of the API from those of the layout's tasks."""
    layout, count = state.layout, visible_task_count(state)
    if layout is None or not count:
        return ()
    units = [status_of(task) for task in range(len(layout.tasks))]
    holders = ((task, units[layout_task_of(task, layout)]) for task in range(count))
    return tuple(
        unit if unit.id == task else replace(unit, id=task, runs_in=unit.id)
        for task, unit in holders
        if unit is not None
    )


def _completed(task: int, state: StoredConnector, local: LocalNode) -> TaskStatus:
    return TaskStatus(task, "COMPLETED", _node_of(task, state) or local.worker_id)


def _own(
    state: StoredConnector, run: ConnectorRun | None, stored: StoredStatuses, local: LocalNode
) -> tuple[State, str | None]:
    places = state.places
    if places is not None and places.coordinator != local.worker_id:
        status = stored.connector
        if status is None or status.worker_id != places.coordinator:
            return "RUNNING", None  # its node has not published its status yet
        return _LIVE.get(status.state, "RUNNING"), status.trace
    if run is None:
        return "UNASSIGNED", None
    coordinator = run.coordinator
    own: State = "RUNNING" if coordinator.phase == "WAITING" else coordinator.connect_state
    reports = run.reports
    texts = (
        reports.stall_text,
        reports.retention_text,
        failed_tables_text(reports.failed_tables),
        run.job.waits_for and f"waiting for {run.job.waits_for}",
        coordinator.wait_text if run.has_coordinator else None,
    )
    return own, coordinator.trace or "\n".join(text for text in texts if text) or None


def _task(
    task: int,
    state: StoredConnector,
    run: ConnectorRun | None,
    stored: StoredStatuses,
    local: LocalNode,
) -> TaskStatus | None:
    node = _node_of(task, state) or local.worker_id
    if node != local.worker_id:
        status = stored.tasks.get(task)
        number = state.layout.number if state.layout else 0
        if status is None or status.worker_id != node or status.generation != number:
            return TaskStatus(task, "RUNNING", node) if state.is_ready else None
        return TaskStatus(task, _LIVE.get(status.state, "RUNNING"), node, status.trace)
    unit = run.tasks.get(task) if run is not None else None
    if unit is not None:
        is_waiting = unit.phase == "IDLE" and run is not None and run.job.retry_at_ms is not None
        shown: State = "UNASSIGNED" if is_waiting else unit.connect_state
        return TaskStatus(task, shown, node, unit.trace or unit.wait_text)
    if not state.is_ready:
        return None
    return TaskStatus(task, "RUNNING" if local.has_worker else "UNASSIGNED", node)


def _paused(
    task: int,
    state: StoredConnector,
    run: ConnectorRun | None,
    stored: StoredStatuses,
    local: LocalNode,
) -> TaskStatus:
    node = _node_of(task, state) or local.worker_id
    trace: str | None = None
    if node != local.worker_id:
        status = stored.tasks.get(task)
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
    """Return one line for each table that is not committed; the first line has a cause.

    The connector keeps running; these tables need an operator.
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


def status_value(part: ReportedStatus | TaskStatus, *, generation: int, version: str) -> Status:
    """Return a status as the status topic keeps it.

    Args:
        part: status of the connector itself, or of a task.
        generation: number of its layout.
        version: version of Icefloe.
    """
    trace = part.trace and KNOWN.mask(part.trace)
    return Status(part.state, trace, part.worker_id, generation, version)


class StatusPublisher:
    """Writes what this node has to publish.

    Args:
        node: the first status of this node.
    """

    def __init__(self, store: ConfigStore, statuses: StatusStore, node: NodeStatus) -> None:
        self._store = store
        self._statuses = statuses
        self._node = node

    def publish_node(
        self, children: Collection[str] | None = None, *, count: int = 0, is_draining: bool = False
    ) -> None:
        """Publish the status of this node.

        Args:
            children: the children that take work, if that has changed.
            count: number of children.
            is_draining: the node is about to stop.
        """
        if children is not None:
            is_ready = self._node.is_ready or len(children) == count
            self._node = replace(self._node, children=tuple(children), is_ready=is_ready)
        if is_draining:
            self._node = replace(self._node, is_draining=True)
        self._statuses.put_node(self._node)

    def topic_missing(self) -> None:
        """Publish that a task of this node did not find a topic; the leader reads the metadata."""
        self._node = replace(self._node, misses=self._node.misses + 1)
        self._statuses.put_node(self._node)

    def has_successor(self) -> bool:
        """Return whether another node takes work."""
        others = [s for n, s in self._statuses.nodes().items() if n != self._node.worker_id]
        return any(status.is_ready and not status.is_draining for status in others)

    def status(self, name: str, run: ConnectorRun | None) -> ReportedStatus:
        """Return the present status of a connector."""
        stored = StoredStatuses(
            self._statuses.connector(name),
            self._statuses.tasks(name),
            self._statuses.problem(name),
        )
        local = LocalNode(self._node.worker_id, has_worker="worker" in self._node.children)
        return connector_status(self._store.get(name), run, stored, local)

    def publish(self, run: ConnectorRun, *, is_leading: bool) -> None:
        """Publish the statuses of a connector that this node has to write."""
        name, state = run.name, self._store.get(run.name)
        if state.config is None:
            return
        worker_id = self._node.worker_id
        status = self.status(name, run)
        value = partial(
            status_value,
            generation=state.layout.number if state.layout is not None else 0,
            version=self._node.version,
        )
        if status.worker_id == worker_id and (is_leading or state.places is not None):
            self._statuses.put_connector(name, value(status))
        own = {task.id: value(task) for task in status.tasks if task.worker_id == worker_id}
        self._statuses.put_tasks(name, own)
        if is_leading:
            self._statuses.forget_tasks(name, above=len(status.tasks))

    def publish_running(self, run: ConnectorRun) -> None:
        """Publish which units of a connector run on this node."""
        self._statuses.put_running(self._node.worker_id, run.name, run.running())

    def forget(self, name: str) -> None:
        """Remove the statuses of a deleted connector; called on the leader."""
        self._statuses.put_connector(name, None)
        self._statuses.put_problem(name, None)
        self._statuses.forget_tasks(name)
        self._statuses.forget_topics(name)
