"""Limits of time and size for the answers of a PostgreSQL server.

The client waits for ever for a server that is frozen while its machine still answers on the
network; ``statement_timeout`` is the server's own and does not help then.

Source:
    psycopg2's ``psycopg2.extras.wait_select``, which waits without a limit.
"""

from __future__ import annotations

import os
import re
import select
import socket
import struct
from typing import Any, Final

from psycopg2 import OperationalError, extensions

from connect.clock import SystemClock
from connect.gateways.access_policy import access_policy
from connect.gateways.catalog_properties import READ_TIMEOUT_MS

GRACE_MS = 5_000
_CLOCK: Final = SystemClock()
_RECEIVED_AT: Final = 128  # of ``tcpi_bytes_received`` in Linux's ``struct tcp_info``
_TCP_INFO_BYTES: Final = 136
_STATEMENT_TIMEOUT = re.compile(r"statement_timeout=(\d+)")


def limit_waiting() -> None:
    """Let every connection of this process give up in time.

    The limit is the connection's ``statement_timeout`` and some grace, so that a server that lives
    answers first; a connection that gives up is closed by the client. An answer also ends with the
    limits of catalogs: libpq keeps all rows of it. The address of a new connection is checked
    before the first byte is sent.
    """
    extensions.set_wait_callback(_wait)


def _wait(connection: Any) -> None:
    stated = _STATEMENT_TIMEOUT.search(connection.dsn)
    limit_ms = (int(stated[1]) if stated else 0) or READ_TIMEOUT_MS
    limit_ms += GRACE_MS
    policy = access_policy()
    until_ms = _CLOCK.monotonic_ms() + limit_ms + policy.answer_ms_max
    started, is_checked = None, False
    while (state := connection.poll()) != extensions.POLL_OK:
        left_ms = until_ms - _CLOCK.monotonic_ms()
        if left_ms <= 0:
            raise OperationalError(f"an answer takes longer than {policy.answer_ms_max} ms")
        waiting = select.poll()
        is_reading = state == extensions.POLL_READ
        waiting.register(connection.fileno(), select.POLLIN if is_reading else select.POLLOUT)
        if not waiting.poll(min(limit_ms, left_ms)) and limit_ms < left_ms:
            raise OperationalError(f"the database did not answer in {limit_ms / 1000:g} s")
        with socket.socket(fileno=os.dup(connection.fileno())) as peer:
            is_checked = is_checked or _is_allowed(peer, connection)
            received = _received_bytes(peer)
        started = received if started is None else started
        if received - started > policy.answer_bytes_max:
            raise OperationalError(f"an answer has more than {policy.answer_bytes_max} bytes")


def _is_allowed(peer: socket.socket, connection: Any) -> bool:
    """Check the address of a connection that is open; return whether it is.

    Raises:
        ConfigError: ``host_refused``; nothing was sent then.
    """
    if peer.family == socket.AF_UNIX:
        return True
    try:
        address = str(peer.getpeername()[0])
    except OSError:  # it is not open yet
        return False
    access_policy().check_peer(extensions.parse_dsn(connection.dsn).get("host", ""), address)
    return True


def _received_bytes(peer: socket.socket) -> int:
    """Return how many bytes a connection has received; 0 where the system does not count them."""
    try:
        info = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        return int(struct.unpack_from("=Q", info, _RECEIVED_AT)[0])
    except (OSError, struct.error):  # a local socket, another system
        return 0
