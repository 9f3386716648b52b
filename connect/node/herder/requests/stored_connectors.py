"""Access of requests to the stored connectors: health first, one change at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from connect.errors import Fenced, RetriableError
from connect.node.herder.cluster.cluster import NO_LEADER
from connect.node.herder_api import (
    ConflictError,
    Health,
    UnavailableError,
    UnknownConnectorError,
)
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector

HEALTHY = Health("healthy", "Worker has completed startup and is ready to handle requests.")
STARTING = Health("starting", "Worker is still starting up.")
CHANGE_WAIT_S = 60.0


class StoredConnectors:
    """The connectors in the config topic, for the requests of one node. Thread-safe.

    Args:
        store: the config topic.
        on_fenced: called when a write was refused because another node leads.

    Attributes:
        health: of this node, set by the node.
    """

    def __init__(self, store: ConfigStore, on_fenced: Callable[[Fenced], None]) -> None:
        self.health = STARTING
        self._store = store
        self._on_fenced = on_fenced
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
            self._on_fenced(e)
            raise ConflictError(NO_LEADER) from e
        except RetriableError as e:
            raise UnavailableError(
                f"not acknowledged by Kafka in time: {e.message}", code=e.code
            ) from e
        finally:
            self._changing.release()

    def run_again(self, name: str) -> bool:
        """Start a new run of a bounded connector whose run is complete; return whether it was.

        Raises:
            ConflictError, UnavailableError: as ``change``.
            UnknownConnectorError: no such connector.
        """
        if not self.get(name).is_completed:
            return False
        with self.change():
            self._store.put_end(name, None)
        return True
