"""Requests about the stored connectors: health first, one change at a time.

Rules of this file:
- A change is written to the config topic, and read back, before the request is answered. This node
  makes one change at a time, so concurrent requests have one order.
- Configurations, names and bodies are valid: the REST layer checks them first. Configurations are
  stored and returned exactly as sent.
- Reads of connectors, statuses and task configurations use memory alone: the REST layer calls them
  on its event loop. All other methods may block.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from connect.clock import Clock
from connect.errors import Fenced, RetriableError
from connect.node.herder.cluster.cluster import NO_LEADER
from connect.node.herder.herder import Herder
from connect.node.herder.offsets.rewind import may_become
from connect.node.node_requests import (
    ConflictError,
    ConnectorDefinition,
    Health,
    ReportedStatus,
    UnavailableError,
    UnknownConnectorError,
    UnknownTaskError,
)
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.status_store import StatusStore
from connect.state.topic_records import TargetState
from connect.state.visible_tasks import layout_task_of, visible_task_configs, visible_task_count

HEALTHY = Health("healthy", "Worker has completed startup and is ready to handle requests.")
STARTING = Health("starting", "Worker is still starting up.")
CHANGE_WAIT_S = 60.0


class StoredConnectors:
    """The connectors in the config topic, for the requests of one node. Thread-safe.

    Args:
        statuses: active topics.
        herder: statuses; it is informed when a write was refused because another node leads.
        clock: identities of restarts.

    Attributes:
        health: of this node, set by the node.
    """

    def __init__(
        self, store: ConfigStore, statuses: StatusStore, herder: Herder, clock: Clock
    ) -> None:
        self.health = STARTING
        self._store = store
        self._statuses = statuses
        self._herder = herder
        self._clock = clock
        self._changing = threading.Lock()

    def check_started(self) -> None:
        """Return when the node has started.

        Raises:
            UnavailableError: it is still starting.
        """
        if self.health.status == "starting":
            raise UnavailableError(self.health.message)

    def get(self, name: str) -> StoredConnector:
        """Return an existing connector.

        Raises:
            UnavailableError: the node is starting.
            UnknownConnectorError: no such connector.
        """
        self.check_started()
        state = self._store.get(name)
        if state.config is None:
            raise UnknownConnectorError("no such connector", connector=name)
        return state

    @contextmanager
    def change(self) -> Iterator[None]:
        """Make one change at a time, on a node that leads.

        Raises:
            ConflictError: another node leads.
            UnavailableError: the node is starting, or Kafka did not acknowledge in time.
        """
        self.check_started()
        if not self._changing.acquire(timeout=CHANGE_WAIT_S):
            raise UnavailableError("an earlier change is still being written", code="busy")
        try:
            yield
        except Fenced as e:
            self._herder.lost(e)
            raise ConflictError(NO_LEADER) from e
        except RetriableError as e:
            raise UnavailableError(
                f"not acknowledged by Kafka in time: {e.message}", code=e.code
            ) from e
        finally:
            self._changing.release()

    def names(self) -> Sequence[str]:
        """Return the names of all connectors."""
        self.check_started()
        return self._store.names()

    def definition(self, name: str) -> ConnectorDefinition:
        """Return one connector as created.

        Raises:
            UnavailableError, UnknownConnectorError: as ``get``.
        """
        state = self.get(name)
        return ConnectorDefinition(name, dict(state.config or {}), _tasks(state))

    def task_configs(self, name: str) -> Mapping[int, Mapping[str, str]]:
        """Return the stored task configurations by task id.

        Raises:
            UnavailableError, UnknownConnectorError: as ``get``.
        """
        return visible_task_configs(self.get(name))

    def status(self, name: str) -> ReportedStatus:
        """Return the state of a connector and its tasks; PAUSED and STOPPED show at once.

        Raises:
            UnavailableError, UnknownConnectorError: as ``get``.
        """
        self.get(name)
        return self._herder.status(name)

    def statuses(self) -> list[ReportedStatus]:
        """Return the status of every connector, also while the node starts."""
        return [self._herder.status(name) for name in self._store.names()]

    def active_topics(self, name: str) -> Sequence[str]:
        """Return the topics read since creation or the last reset; none if it is unknown."""
        return sorted(self._statuses.topics(name))

    def reset_active_topics(self, name: str) -> None:
        """Remove all active topics; does nothing for an unknown connector."""
        self._statuses.forget_topics(name)

    def create(
        self, name: str, config: Mapping[str, str], *, initial_state: TargetState | None = None
    ) -> ConnectorDefinition:
        """Store a new connector; return its definition, without tasks.

        Raises:
            ConflictError: the name is taken, or as ``change``.
            UnavailableError: as ``change``.
        """
        with self.change():
            if self._store.get(name).config is not None:
                raise ConflictError(f"Connector {name} already exists", connector=name)
            self._store.put_connector(name, config, initial_state)
        return ConnectorDefinition(name, dict(config), ())

    def put(self, name: str, config: Mapping[str, str]) -> tuple[bool, ConnectorDefinition]:
        """Create or replace; return whether it was created, and the connector.

        An equal configuration is not written again.

        Raises:
            ConflictError, UnavailableError: as ``change``.
        """
        with self.change():
            before = self._store.get(name)
            if before.config != dict(config):
                self._store.put_connector(name, config)
            tasks = _tasks(before) if before.config is not None else ()
            return before.config is None, ConnectorDefinition(name, dict(config), tasks)

    def delete(self, name: str) -> None:
        """Delete the connector and stop its tasks.

        Raises:
            ConflictError, UnavailableError: as ``change``.
            UnknownConnectorError: no such connector.
        """
        with self.change():
            self.get(name)
            self._store.delete_connector(name)

    def set_target(self, name: str, state: TargetState) -> None:
        """Pause, resume (STARTED) or stop.

        Raises:
            ConflictError: a rewind was begun and is not finished, or as ``change``.
            UnavailableError: as ``change``.
            UnknownConnectorError: no such connector.
        """
        with self.change():
            if may_become(self.get(name), state).target != state:
                self._store.put_target(name, state)

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ReportedStatus:
        """Restart the connector, its tasks, or the failed ones; a completed run starts again.

        Returns:
            The status, with those that restart as RESTARTING.

        Raises:
            ConflictError, UnavailableError: as ``change``.
            UnknownConnectorError: no such connector.
        """
        now = self.status(name)
        if not only_failed and self._run_again(name):
            tasks = tuple(replace(task, state="RESTARTING") for task in now.tasks)
            return replace(now, state="RESTARTING", tasks=tasks)
        is_own = now.state == "FAILED" or not only_failed
        tasks_asked = now.tasks if include_tasks else ()
        chosen = [t.id for t in tasks_asked if t.state == "FAILED" or not only_failed]
        run_alone = [t.id for t in tasks_asked if t.id in chosen and t.runs_in is None]
        tasks = tuple(
            replace(task, state="RESTARTING", trace=None) if task.id in chosen else task
            for task in now.tasks
        )
        self._put_restart(name, coordinator=is_own, tasks=run_alone)
        shown = replace(now, tasks=tasks)
        return replace(shown, state="RESTARTING", trace=None) if is_own else shown

    def restart_task(self, name: str, task: int) -> None:
        """Restart one task and those that run in it, or all if their bounded run is complete.

        Raises:
            ConflictError, UnavailableError: as ``change``.
            UnknownConnectorError: no such connector.
            UnknownTaskError: no such task.
        """
        state = self.get(name)
        if state.layout is None or task not in _tasks(state):
            raise UnknownTaskError("no such task", connector=name, task=task)
        if not self._run_again(name):
            self._put_restart(name, coordinator=False, tasks=[layout_task_of(task, state.layout)])

    def publish_log_level(self, namespace: str, level: str) -> None:
        """Set a logger's level on every node, this one included, and in their child processes.

        Raises:
            ConflictError, UnavailableError: as ``change``.
        """
        with self.change():
            self._store.put_logger(namespace, level)

    def _put_restart(self, name: str, *, coordinator: bool, tasks: list[int]) -> None:
        with self.change():
            request = str(self._clock.new_uuid())
            self._store.put_restart(request, name, coordinator=coordinator, tasks=tasks)

    def _run_again(self, name: str) -> bool:
        """Start a new run of a bounded connector whose run is complete; return whether it was."""
        if not self.get(name).is_completed:
            return False
        with self.change():
            self._store.put_end(name, None)
        return True


def _tasks(state: StoredConnector) -> tuple[int, ...]:
    return tuple(range(visible_task_count(state)))
