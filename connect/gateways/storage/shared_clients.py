"""Clients of object stores that all tables of a process share.

Rules of this file:
- Clients with equal settings and credentials are one client: a table is loaded again in each round,
  and each new client would connect, with TLS, before its first request.
- A client is made under the lock of its own settings. A store that does not answer delays no other.
- A client is never used after a fork: its threads are in the parent only.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyarrow.fs import FileSystem

CLIENTS_MAX: Final = 64
"""Clients that are kept. Catalogs that vend credentials per table need one for each table."""

SETTINGS: Final = ("s3.", "gcs.", "adls.", "client.", "hdfs.", "hf.")
"""Prefixes of the properties that make a client."""


@dataclass(slots=True)
class _Place:
    """A client, once it is made."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    client: FileSystem | None = None


class SharedClients:
    """Keeps the clients that were used last.

    Attributes:
        made_count: how many clients were made.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: OrderedDict[Hashable, _Place] = OrderedDict()
        self._inherited: list[object] = []
        self.made_count = 0

    def client(
        self,
        scheme: str,
        host: str | None,
        properties: Mapping[str, Any],
        make: Callable[[], FileSystem],
    ) -> FileSystem:
        """Return the client for a host and properties; make it if there is none.

        Args:
            scheme: of the location.
            host: of the location.
            properties: of the ``FileIO``; only ``SETTINGS`` count.
            make: makes the client; its errors are raised.
        """
        settings = frozenset((k, str(v)) for k, v in properties.items() if k.startswith(SETTINGS))
        key = scheme, host, settings
        with self._lock:
            place = self._places.setdefault(key, _Place())
            self._places.move_to_end(key)
            while len(self._places) > CLIENTS_MAX:
                self._places.popitem(last=False)
        with place.lock:
            if place.client is None:
                place.client = make()
                self.made_count += 1
            return place.client

    def forget_inherited(self) -> None:
        """Use no client of the parent process; they are kept, because ending one would hang."""
        self._inherited.append(self._places)
        self._places = OrderedDict()
        self._lock = threading.Lock()


SHARED_CLIENTS: Final = SharedClients()
os.register_at_fork(after_in_child=SHARED_CLIENTS.forget_inherited)
