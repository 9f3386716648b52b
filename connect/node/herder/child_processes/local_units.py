"""The units of this node: stopped and started so that they match the target state.

Rules of this file:
- The target is computed from the config topic alone (``TargetUnits``).
- ``stop_all`` and ``stop_outdated`` may wait: a connector's job calls them. The herder's thread
  calls ``start_targets`` and ``restart``.
- A node publishes what runs on it before it waits for other nodes. Otherwise two nodes could wait
  for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from connect.node.herder.child_processes.child_assignments import ChildAssignments
from connect.node.herder.child_processes.remote_units import RemoteUnits
from connect.node.herder.units.units import ConnectorRun, TargetUnits, Unit
from connect.processes.coordinator_names import is_coordinator
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.status_store import StatusStore


class LocalUnits:
    """Brings the units of this node in line with the target state.

    Args:
        statuses: where the running units are published.
        assignments: requests to this node's children.
        remote: units of other nodes.
        coordinators: chooses the processes of coordinators.
    """

    def __init__(
        self,
        store: ConfigStore,
        statuses: StatusStore,
        assignments: ChildAssignments,
        remote: RemoteUnits,
        *,
        coordinators: CoordinatorProcesses,
        worker_id: str,
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._assignments = assignments
        self._remote = remote
        self._coordinators = coordinators
        self._worker_id = worker_id

    def stop_all(
        self, run: ConnectorRun, *, with_coordinator: bool, members: Collection[str]
    ) -> None:
        """Stop a connector's tasks on every node, then, if requested, its coordinator.

        Args:
            run: the connector.
            with_coordinator: also stop the coordinator, if it runs on this node. By then it has
                received the last announcements of the tasks.
            members: nodes that are alive.
        """
        self._stop(run, list(run.tasks.values()))
        self._remote.await_tasks_ended(run.name, members)
        if with_coordinator and run.has_coordinator:
            self._stop(run, [run.coordinator])

    def stop_outdated(self, run: ConnectorRun) -> None:
        """Stop the units that the target does not contain; wait for other nodes to do so."""
        target = TargetUnits.of(self._store.get(run.name), self._worker_id)
        is_other = target is None or target.layout != run.layout or target.config != run.config
        kept = frozenset[int]() if target is None or is_other else target.tasks
        self._stop(run, [unit for task, unit in run.tasks.items() if task not in kept])
        if target is None:
            return  # the coordinator continues: it receives the tasks' last announcements
        if run.has_coordinator and not target.has_coordinator:
            if target.layout is None:
                self._remote.await_tasks_ended(run.name)
            self._stop(run, [run.coordinator])
        if target.layout is not None:
            self._remote.await_released(
                run.name,
                target.tasks - run.tasks.keys(),
                coordinator=target.has_coordinator and not run.has_coordinator,
            )

    def start_targets(self, run: ConnectorRun, state: StoredConnector) -> None:
        """Start the units of the target that do not run; none while a layout is made ready.

        Args:
            run: the connector.
            state: the state for which the job has stopped everything outdated, not a newer one.
        """
        target = TargetUnits.of(state, self._worker_id)
        if target is None:
            return
        if target.layout is None:
            run.rest(is_paused=state.target == "PAUSED")
            self._statuses.put_running(self._worker_id, run.name, None)
            return
        has_new_config = run.config != target.config
        is_resumed = run.paused_layout == target.layout
        has_new_layout = run.layout != target.layout
        if target.has_coordinator and not run.has_coordinator:
            self._coordinators.place(run)
        run.take(target)
        self._statuses.put_running(self._worker_id, run.name, run.running())
        self._restart_if_requested(run, state)
        for unit in run.tasks.values():
            if is_resumed and unit.has_failed_for_good:
                continue  # as in Kafka: resuming is no restart
            if has_new_layout or unit.is_to_start:
                self._assignments.start(run, unit)
        if run.has_coordinator and (has_new_config or run.coordinator.is_to_start):
            self._assignments.start(run, run.coordinator)
        elif has_new_layout:
            self._assignments.send_layout(run)

    def differs(self, run: ConnectorRun, state: StoredConnector) -> bool:
        """Return whether the assigned units are not those of the target."""
        target = TargetUnits.of(state, self._worker_id)
        if target is None:
            return False
        if target.layout is None:
            return run.layout is not None
        is_waiting = any(
            unit.is_to_start and self._assignments.takes_commands(unit.child)
            for unit in run.units()
        )
        return is_waiting or (
            run.layout != target.layout
            or run.config != target.config
            or run.tasks.keys() != target.tasks
            or run.has_coordinator != target.has_coordinator
        )

    def restart(self, run: ConnectorRun, unit: Unit) -> None:
        """Start a unit that ran before."""
        self._assignments.start(run, unit, is_restart=True)
        self._statuses.put_running(self._worker_id, run.name, run.running())

    def _restart_if_requested(self, run: ConnectorRun, state: StoredConnector) -> None:
        requested = state.restart
        if requested is None or requested.request == run.restarted:
            return
        run.restarted = requested.request
        for unit in run.units():
            if requested.coordinator if unit.task is None else unit.task in requested.tasks:
                unit.backoff.reset()
                if unit.start.is_sent or unit.phase == "FAILED":
                    self.restart(run, unit)

    def _stop(self, run: ConnectorRun, units: Sequence[Unit]) -> None:
        if any(unit.phase != "IDLE" for unit in units):
            self._assignments.stop(run, units)
        stopped = [unit for unit in run.units() if unit.phase == "IDLE"]
        self._statuses.put_running(self._worker_id, run.name, run.running(stopped))


class CoordinatorProcesses:
    """Spreads the coordinators of a node over its coordinator processes; on the herder's thread.

    A connector keeps its process until the node ends. So a stopped coordinator and its successor
    are in one process, where the successor waits for it, and no process reports old gauges of a
    connector that another one runs. A connector that is placed for the first time goes to the
    process with the fewest coordinators. The placement is not stored: after a restart of the node
    any other one is as good.

    Args:
        children: names of all child processes.
    """

    def __init__(self, children: Iterable[str], runs: Mapping[str, ConnectorRun]) -> None:
        self._names = tuple(name for name in children if is_coordinator(name))
        self._runs = runs
        self._placed: dict[str, str] = {}

    def place(self, run: ConnectorRun) -> None:
        """Set the process of a coordinator that is about to be placed on this node."""
        if run.name not in self._placed:
            load = Counter(
                other.coordinator.child for other in self._runs.values() if other.has_coordinator
            )
            self._placed[run.name] = min(self._names, key=lambda name: load[name])
        run.coordinator.child = self._placed[run.name]
