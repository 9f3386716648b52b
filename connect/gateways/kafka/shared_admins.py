"""Admin clients that the connectors of a process share.

Each client has several threads and sockets, and a connector sends few admin requests. Connectors
with the same properties use one client. It is closed when the last of them has given it back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from connect.gateways.kafka.kafka_admin import KafkaAdmin


@dataclass(slots=True)
class _LentAdmin:
    admin: KafkaAdmin
    uses: int = 0


class SharedAdmins:
    """Lends admin clients. Thread-safe.

    Args:
        open_admin: opens a client from Java-named properties.
    """

    def __init__(self, open_admin: Callable[[Mapping[str, str]], KafkaAdmin] = KafkaAdmin) -> None:
        self._open_admin = open_admin
        self._lock = threading.Lock()
        self._lent: dict[tuple[tuple[str, str], ...], _LentAdmin] = {}

    @contextlib.contextmanager
    def lend(self, properties: Mapping[str, str]) -> Iterator[KafkaAdmin]:
        """Lend the client with these properties for the time of a block.

        Raises:
            ConfigError: the client refuses the properties.
        """
        key = tuple(sorted(properties.items()))
        with self._lock:
            lent = self._lent.get(key)
            if lent is None:
                lent = self._lent[key] = _LentAdmin(self._open_admin(properties))
            lent.uses += 1
        try:
            yield lent.admin
        finally:
            with self._lock:
                lent.uses -= 1
                is_last = not lent.uses
                if is_last:
                    del self._lent[key]
            if is_last:
                lent.admin.close()
