"""Connectors from files in one node without storage topics: the process of ``icefloe standalone``.

Rules of this file:
- The node runs the connectors of the command line. Other connectors in its state folder are
  stopped, and keep their state.
- The process ends when every connector is COMPLETED, or when one has failed and is not restarted
  automatically. Otherwise it runs until SIGTERM or SIGINT, and drains.
- A bounded run that SIGTERM has ended early is not done: its status is that of the signal. The next
  start continues it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping, Sequence

from connect.errors import ConfigError, ExitStatus, IcefloeError
from connect.logs import logger
from connect.node.node import Node
from connect.node.rest.api_errors import ApiError
from connect.node.rest.auth import EVERYBODY
from connect.node.standalone_connectors import StandaloneConnector

POLL_S = 0.5
SIGNALLED = 128 + signal.SIGTERM

_log = logger("standalone")


class StandaloneJob:
    """Runs connectors in a node, and ends the node with them.

    Args:
        node: the node; its state is in files.
        connectors: what it runs.
        is_new_run: start completed bounded runs again.
    """

    def __init__(
        self, node: Node, connectors: Sequence[StandaloneConnector], *, is_new_run: bool
    ) -> None:
        self._node = node
        self._connectors = connectors
        self._is_new_run = is_new_run
        self._failing: Mapping[str, str] = {}
        self.failure: IcefloeError | None = None

    def run(self) -> int:
        """Run until the connectors have ended, or a signal; return the exit status.

        Raises:
            IcefloeError: a connector cannot be run; the message names it.
        """
        watching = threading.Thread(target=self._watch, name="standalone", daemon=True)
        watching.start()
        status = self._node.run()
        if self.failure is not None:
            raise self.failure
        if status:
            return ExitStatus.NOT_ASKED
        return SIGNALLED if self._is_unfinished() else ExitStatus.DONE

    def _watch(self) -> None:
        parts = self._node.parts
        try:
            while parts.handlers.connectors.health.status != "healthy":
                if self._node.wait_for_stop(POLL_S):
                    return
            self._apply()
            while not self._has_ended():
                if self._node.wait_for_stop(POLL_S):
                    return
        except ApiError as e:
            self.failure = ConfigError(e.message)
        except IcefloeError as e:
            self.failure = e
        self._node.stop()

    def _apply(self) -> None:
        """Store the connectors of the command line and stop all others."""
        connectors, store = self._node.parts.handlers.connectors, self._node.parts.store
        names = {connector.name for connector in self._connectors}
        for name in store.names():
            if name not in names:
                connectors.set_target(name, "STOPPED")
        validator = self._node.validator
        for connector in self._connectors:
            name = connector.name
            valid = validator.valid(connector.config, EVERYBODY)
            if store.get(name).config is None:
                connectors.create(name, valid, initial_state=connector.target)
                continue
            connectors.put(name, valid)
            if self._is_new_run and store.get(name).is_completed:
                connectors.restart(name, include_tasks=True, only_failed=False)
            connectors.set_target(name, connector.target)

    def _has_ended(self) -> bool:
        names = [connector.name for connector in self._connectors]
        failing = {name: why for name in names if (why := self._why_failed(name)) is not None}
        # twice: a job that is about to start again has no time of its restart for a moment
        if name := next((n for n in failing if n in self._failing), None):
            self.failure = ConnectorFailedError(f"connector {name} FAILED: {failing[name]}")
            return True
        self._failing = failing
        store = self._node.parts.store
        if not all(store.get(name).is_completed for name in names):
            return False
        _log.info("all connectors are completed", connectors=names)
        return True

    def _why_failed(self, name: str) -> str | None:
        parts = self._node.parts
        run = parts.herder.run_of(name)
        if run is None:
            return None
        traces = [unit.trace for unit in run.units() if unit.has_failed_for_good]
        job = run.job
        if job.is_held and not job.is_busy and job.retry_at_ms is None:
            traces.append(parts.statuses.problem(name))
        first_trace = next((trace for trace in traces if trace), None)
        return None if first_trace is None else first_trace.splitlines()[0]

    def _is_unfinished(self) -> bool:
        states = [self._node.parts.store.get(connector.name) for connector in self._connectors]
        return any(state.end is not None and not state.is_completed for state in states)


class ConnectorFailedError(IcefloeError):
    """A connector has failed, and is not restarted automatically."""

    default_code = "connector_failed"
    exit_status = ExitStatus.NO
