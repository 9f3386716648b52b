"""What this node runs of connectors: ended, handed on, handed over to its children.

Rules of this file:
- What is to run is worked out from the config topic alone (``runs.Wanted``), on every node alike.
- ``end`` and ``align`` may wait and belong to a connector's job; ``hand_over`` and ``again`` belong
  to the herder's thread.
- What runs here is told before others are waited for, or two nodes could wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from connect.node.herder.child_assignments import Handover
from connect.node.herder.remote_units import RemoteUnits
from connect.node.herder.units import Run, Unit, Wanted
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.status_store import StatusStore


class Local:
    """Units of this node.

    Args:
        store: what is wanted.
        statuses: where it is told what runs.
        handover: this node's children.
        remote: what other nodes run.
        worker_id: this node.
    """

    def __init__(
        self,
        store: ConfigStore,
        statuses: StatusStore,
        handover: Handover,
        remote: RemoteUnits,
        worker_id: str,
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._handover = handover
        self._remote = remote
        self._worker_id = worker_id

    def end(self, run: Run, *, is_all: bool, members: Collection[str]) -> None:
        """End a connector's tasks on every node, then, if asked, its coordinator if it is here.

        Args:
            run: the connector.
            is_all: with its coordinator, which then has heard the tasks' last announcements.
            members: nodes that are alive.
        """
        self._stop(run, list(run.tasks.values()))
        self._remote.await_tasks_ended(run.name, members)
        if is_all and run.has_coordinator:
            self._stop(run, [run.coordinator])

    def align(self, run: Run) -> None:
        """End what is not to run here, and wait until others have ended what is to."""
        wanted = Wanted.of(self._store.get(run.name), self._worker_id)
        is_other = wanted is None or wanted.layout != run.layout or wanted.config != run.config
        kept = frozenset[int]() if wanted is None or is_other else wanted.tasks
        self._stop(run, [unit for task, unit in run.tasks.items() if task not in kept])
        if wanted is None:
            return  # the coordinator goes on: it hears what the tasks announce at their end
        if run.has_coordinator and not wanted.has_coordinator:
            if wanted.layout is None:
                self._remote.await_tasks_ended(run.name)
            self._stop(run, [run.coordinator])
        if wanted.layout is not None:
            self._remote.await_handed_on(
                run.name,
                wanted.tasks - run.tasks.keys(),
                coordinator=wanted.has_coordinator and not run.has_coordinator,
            )

    def hand_over(self, run: Run, state: StoredConnector) -> None:
        """Start what is to run here and does not; nothing while a layout is being made ready.

        Args:
            run: the connector.
            state: what its job has ended and aligned everything for, not anything newer.
        """
        wanted = Wanted.of(state, self._worker_id)
        if wanted is None:
            return
        if wanted.layout is None:
            run.rest(is_paused=state.target == "PAUSED")
            self._statuses.put_running(self._worker_id, run.name, None)
            return
        has_new_config = run.config != wanted.config
        is_resumed = run.rested == wanted.layout
        has_new_layout = run.layout != wanted.layout
        run.take(wanted)
        self._statuses.put_running(self._worker_id, run.name, run.running())
        self._restart_if_asked(run, state)
        for unit in run.tasks.values():
            if is_resumed and unit.has_failed_for_good:
                continue  # as in Kafka: resuming is no restart
            if has_new_layout or unit.is_to_start:
                self._handover.start(run, unit)
        if run.has_coordinator and (has_new_config or run.coordinator.is_to_start):
            self._handover.start(run, run.coordinator)
        elif has_new_layout:
            self._handover.send_layout(run)

    def differs(self, run: Run, state: StoredConnector) -> bool:
        """Whether the units that were handed over are not those that the stored state wants."""
        wanted = Wanted.of(state, self._worker_id)
        if wanted is None:
            return False
        if wanted.layout is None:
            return run.layout is not None
        is_waiting = any(
            unit.is_to_start and self._handover.is_ready(unit.child) for unit in run.units()
        )
        return is_waiting or (
            run.layout != wanted.layout
            or run.config != wanted.config
            or run.tasks.keys() != wanted.tasks
            or run.has_coordinator != wanted.has_coordinator
        )

    def again(self, run: Run, unit: Unit) -> None:
        """Start a unit that ran before."""
        self._handover.start(run, unit, is_again=True)
        self._statuses.put_running(self._worker_id, run.name, run.running())

    def _restart_if_asked(self, run: Run, state: StoredConnector) -> None:
        wish = state.restart
        if wish is None or wish.request == run.restarted:
            return
        run.restarted = wish.request
        for unit in run.units():
            if wish.coordinator if unit.task is None else unit.task in wish.tasks:
                unit.backoff.reset()
                if unit.is_handed or unit.phase == "FAILED":
                    self.again(run, unit)

    def _stop(self, run: Run, units: Sequence[Unit]) -> None:
        if any(unit.phase != "IDLE" for unit in units):
            self._handover.stop(run, units)
        gone = [unit for unit in run.units() if unit.phase == "IDLE"]
        self._statuses.put_running(self._worker_id, run.name, run.running(gone))
