"""Waiting for other nodes to end what they run, so that nothing has to be cut off.

Safety does not rest on it: who goes on without waiting fences the others, which then lose what
they have not announced and do it again. All waits are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from connect.clock import Clock
from connect.logs import logger
from connect.state.config_store import ConfigStore
from connect.state.status_state import Running
from connect.state.status_store import StatusStore

LOOK_S = 0.1

_log = logger("herder")


class RemoteUnits:
    """What other nodes run, by their last words.

    Args:
        store: layouts and placements.
        statuses: the words.
        worker_id: this node.
        clock: time.
        grace_ms: how long anything is waited for.
    """

    def __init__(
        self,
        store: ConfigStore,
        statuses: StatusStore,
        *,
        worker_id: str,
        clock: Clock,
        grace_ms: int,
    ) -> None:
        self._store = store
        self._statuses = statuses
        self._worker_id = worker_id
        self._clock = clock
        self._grace_ms = grace_ms

    def await_tasks_ended(self, name: str, members: Collection[str] | None = None) -> None:
        """Wait until no other node runs a task that the stored state does not want any more.

        Args:
            name: connector.
            members: nodes that are alive; None asks all that have said something.
        """

        def has_ended() -> bool:
            state = self._store.get(name)
            is_wanted = state.config is not None and state.target == "STARTED"
            newest = state.layout.number if is_wanted and state.layout is not None else None
            return not any(
                running.tasks and running.layout != newest
                for node, running in self._others(name).items()
                if members is None or node in members
            )

        self._wait(has_ended, name)

    def await_handed_on(self, name: str, tasks: frozenset[int], *, coordinator: bool) -> None:
        """Wait until the nodes that ran these units before have ended them.

        Args:
            name: connector.
            tasks: that are to start here.
            coordinator: whether the coordinator is to start here.
        """
        places = self._store.get(name).places
        if places is None or not (before := set(places.after) - {self._worker_id}):
            return

        def is_handed_on() -> bool:
            if self._store.get(name).places != places:
                return True  # what is wanted has changed meanwhile
            return not any(
                running.tasks & tasks or (coordinator and running.coordinator)
                for node, running in self._others(name).items()
                if node in before
            )

        self._wait(is_handed_on, name)

    def _others(self, name: str) -> dict[str, Running]:
        found = self._statuses.running(name)
        found.pop(self._worker_id, None)
        return found

    def _wait(self, is_so: Callable[[], bool], name: str) -> None:
        deadline_ms = self._clock.monotonic_ms() + self._grace_ms
        while not self._statuses.until(is_so, LOOK_S):
            if self._clock.monotonic_ms() >= deadline_ms:
                _log.warning("another node did not end in time what it ran", connector=name)
                return
