"""The clients of one catalog, for all threads.

Rules of this file:
- A REST client keeps its session in a ``requests.Session``, which is not made for threads, so every
  thread gets a client of its own. SQL clients share one pool of connections.
- The client of a thread that has ended is used by the next thread. A worker has a new thread for
  each streaming query, and each client has open connections.
"""

from __future__ import annotations

import threading

from pyiceberg.catalog import Catalog

from connect.config.location_policy import LocationPolicy
from connect.gateways.access_policy import access_policy
from connect.gateways.catalog.catalog_clients import GuardedRest, open_metastore
from connect.gateways.catalog.catalog_policy import database_uri
from connect.gateways.catalog_properties import ClientConfig


class ClientPool:
    """Opens a catalog's clients when they are needed. Thread-safe.

    Args:
        name: the catalog's name.
        config: what the clients are opened with.
        locations: where the tables may lie.
    """

    def __init__(self, name: str, config: ClientConfig, locations: LocationPolicy) -> None:
        self._name = name
        self._config = config
        self._locations = locations
        self._is_per_thread = config.kind == "rest"
        self._local = threading.local()
        self._lock = threading.Lock()
        self._clients: list[tuple[threading.Thread, Catalog]] = []

    def get(self) -> Catalog:
        """Return the client of this thread."""
        if self._is_per_thread:
            client: Catalog | None = getattr(self._local, "client", None)
            if client is None:
                client = self._local.client = self._of_ended_thread() or self._opened()
            return client
        with self._lock:
            if not self._clients:
                self._clients.append((threading.current_thread(), self._open()))
            return self._clients[0][1]

    def close(self) -> None:
        """Close the clients of all threads; the pool must not be used again."""
        with self._lock:
            clients, self._clients = self._clients, []
        for _, client in clients:
            client.close()

    def _of_ended_thread(self) -> Catalog | None:
        """Return a client that no thread uses any more; it now belongs to this thread."""
        with self._lock:
            for place, (thread, client) in enumerate(self._clients):
                if not thread.is_alive():
                    self._clients[place] = threading.current_thread(), client
                    return client
        return None

    def _opened(self) -> Catalog:
        client = self._open()
        with self._lock:
            self._clients.append((threading.current_thread(), client))
        return client

    def _open(self) -> Catalog:
        config = self._config
        if config.kind != "rest":
            properties = config.properties
            if config.kind == "sql":
                properties = {**properties, "uri": database_uri(config, access_policy())}
            return open_metastore(self._name, config.kind, properties, self._locations)
        limits_s = (config.connect_timeout_ms / 1000, config.read_timeout_ms / 1000)
        return GuardedRest(self._name, *limits_s, config.properties)
