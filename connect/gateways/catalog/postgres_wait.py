"""Time limit for the answers of a PostgreSQL server.

The client waits for ever for a server that is frozen while its machine still answers on the
network; ``statement_timeout`` is the server's own and does not help then.

Source:
    psycopg2's ``psycopg2.extras.wait_select``, which waits without a limit.
"""

from __future__ import annotations

import re
import select
from typing import Any

from psycopg2 import OperationalError, extensions

from connect.gateways.catalog_properties import READ_TIMEOUT_MS

GRACE_MS = 5_000
_STATEMENT_TIMEOUT = re.compile(r"statement_timeout=(\d+)")


def limit_waiting() -> None:
    """Let every connection of this process give up in time.

    The limit is the connection's ``statement_timeout`` and some grace, so that a server that lives
    answers first; a connection that gives up is closed by the client.
    """
    extensions.set_wait_callback(_wait)


def _wait(connection: Any) -> None:
    stated = _STATEMENT_TIMEOUT.search(connection.dsn)
    limit_ms = (int(stated[1]) if stated else 0) or READ_TIMEOUT_MS
    limit_ms += GRACE_MS
    while (state := connection.poll()) != extensions.POLL_OK:
        waiting = select.poll()
        is_reading = state == extensions.POLL_READ
        waiting.register(connection.fileno(), select.POLLIN if is_reading else select.POLLOUT)
        if not waiting.poll(limit_ms):
            raise OperationalError(f"the database did not answer in {limit_ms / 1000:g} s")
