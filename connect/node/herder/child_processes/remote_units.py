"""Waits for other nodes to stop the units that move away from them.

Waiting is not needed for correctness: a unit that starts without it fences the other one, which
loses the work that it has not announced and repeats it. All waits are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from connect.clock import Clock
from connect.logs import logger
from connect.state.config_store import ConfigStore
from connect.state.status_state import Running
from connect.state.status_store import StatusStore

POLL_S = 0.1

_log = logger("herder")


class RemoteUnits:
    """The units of other nodes, as those nodes last reported them.

    Args:
        store: layouts and placements.
        statuses: the reports.
        grace_ms: bound of each wait.
        on_wait: called with a connector and the nodes that are waited for, again with none.
    """

    def __init__(
        self,
        store: ConfigStore,
        statuses: StatusStore,
        *,
        worker_id: str,
        clock: Clock,
        grace_ms: int,
        on_wait: Callable[[str, Collection[str]], None] = lambda *_: None,
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._worker_id = worker_id
        self._clock = clock
        self._grace_ms = grace_ms
        self._on_wait = on_wait

    def await_tasks_ended(self, name: str, members: Collection[str] | None = None) -> None:
        """Wait until no other node runs a task that the stored state does not contain.

        Args:
            name: connector.
            members: nodes that are alive; None waits for every node with a report.
        """

        def busy_nodes() -> list[str]:
            state = self._store.get(name)
            newest = state.layout.number if state.is_to_run and state.layout is not None else None
            return [
                node
                for node, running in self._others(name).items()
                if (members is None or node in members)
                and running.tasks
                and running.layout != newest
            ]

        self._wait(busy_nodes, name)

    def await_released(self, name: str, tasks: frozenset[int], *, coordinator: bool) -> None:
        """Wait until the nodes that ran these units before have stopped them.

        Args:
            name: connector.
            tasks: task ids that will start on this node.
            coordinator: whether the coordinator will start on this node.
        """
        places = self._store.get(name).places
        if places is None or not (before := set(places.after) - {self._worker_id}):
            return

        def busy_nodes() -> list[str]:
            if self._store.get(name).places != places:
                return []  # the target has changed meanwhile
            return [
                node
                for node, running in self._others(name).items()
                if node in before
                and (running.tasks & tasks or (coordinator and running.coordinator))
            ]

        self._wait(busy_nodes, name)

    def has_maintenance(self, name: str) -> bool:
        """Return whether another node maintains the connector's tables."""
        return any(running.is_maintaining for running in self._others(name).values())

    def _others(self, name: str) -> dict[str, Running]:
        running = self._statuses.running(name)
        running.pop(self._worker_id, None)
        return running

    def _wait(self, busy_nodes: Callable[[], list[str]], name: str) -> None:
        if not (nodes := busy_nodes()):
            return
        _log.info("waiting for other nodes to stop tasks", connector=name, nodes=nodes)
        self._on_wait(name, nodes)
        try:
            self._wait_until_free(busy_nodes, name)
        finally:
            self._on_wait(name, ())

    def _wait_until_free(self, busy_nodes: Callable[[], list[str]], name: str) -> None:
        deadline_ms = self._clock.monotonic_ms() + self._grace_ms
        while not self._statuses.wait_for(lambda: not busy_nodes(), POLL_S):
            if self._clock.monotonic_ms() >= deadline_ms:
                _log.warning(
                    "other nodes did not stop their tasks in time",
                    connector=name,
                    nodes=busy_nodes(),
                )
                return
