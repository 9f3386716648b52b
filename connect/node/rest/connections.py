"""The connections of the API: their limits, and the connection to close when one is reached.

Rules of this file:
- Connections are counted when they are accepted, before TLS: a client that never finishes its
  handshake counts.
- An address has a bounded number of connections. When it opens one more, its oldest idle
  connection is closed; without an idle one, the new connection is closed.
- At the limit of all connections, the address with the most loses one. An address with few, such
  as that of a health probe, can connect while another one floods the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import resource
import socket
from functools import lru_cache
from typing import Any, Self

CONNECTIONS_MAX = 1_000
SOURCE_MAX = 250
HANDSHAKE_S = 10.0
SOURCES_KNOWN = 1_000
_IPV6_NETWORK_BITS = 64  # the network of one customer of a provider


@lru_cache(maxsize=SOURCES_KNOWN)
def source_of(host: str) -> str:
    """Return the unit of the limits: an IPv4 address, or the network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_NETWORK_BITS), strict=False))


class AcceptedSocket(socket.socket):
    """A connection that is removed from its register when it is closed."""

    register: Connections | None = None
    source = ""
    has_begun = False

    def close(self) -> None:
        """Close the connection."""
        if self.register is not None:
            self.register.leave(self)
        super().close()

    def cut_off(self) -> None:
        """Shut both directions down; the event loop then closes the connection."""
        with contextlib.suppress(OSError):  # the client has just ended it
            self.shutdown(socket.SHUT_RDWR)

    def cut_off_silent(self) -> None:
        """Cut the connection off when its TLS handshake has not been finished."""
        if not self.has_begun:
            self.cut_off()


class Connections:
    """The open connections of one listener; used on the event loop only.

    Args:
        in_all: maximum number; never more than half of the process's file limit.
        of_source: maximum number of one address.
    """

    def __init__(self, in_all: int = CONNECTIONS_MAX, of_source: int = SOURCE_MAX) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._in_all = in_all if soft < 0 else min(in_all, soft // 2)
        self._of_source = of_source
        self._sources: dict[str, dict[int, AcceptedSocket]] = {}
        self._idle: dict[str, dict[int, AcceptedSocket]] = {}
        self._by_number: dict[int, AcceptedSocket] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def enter(self, accepted: AcceptedSocket, host: str) -> None:
        """Register a connection; at a limit, close an idle one or the new one."""
        accepted.register, accepted.source = self, source_of(host)
        own = self._sources.get(accepted.source, {})
        if len(own) >= self._of_source and not self._give_up(accepted.source):
            accepted.cut_off()
            return
        if len(self) >= self._in_all:
            largest = sorted(self._idle, key=lambda source: -len(self._sources[source]))
            if not any(self._give_up(source) for source in largest):
                accepted.cut_off()
                return
        number = accepted.fileno()
        self._by_number[number] = accepted
        self._sources.setdefault(accepted.source, {})[number] = accepted
        self._idle.setdefault(accepted.source, {})[number] = accepted

    def mark(self, number: int, *, is_idle: bool) -> None:
        """Note whether a request of a connection, by its file number, is being served."""
        connection = self._by_number.get(number)
        if connection is None:
            return
        connection.has_begun = True
        idle = self._idle.setdefault(connection.source, {})
        idle.pop(number, None)
        if is_idle:
            idle[number] = connection  # the last one used is closed last
        elif not idle:
            del self._idle[connection.source]

    def holds(self, number: int) -> bool:
        """Return whether a connection, by its file number, is still registered."""
        return number in self._by_number

    def leave(self, closed: AcceptedSocket) -> None:
        """Remove a connection; does nothing when it is not registered."""
        number = closed.fileno()
        if self._by_number.get(number) is not closed:
            return
        del self._by_number[number]
        for places in (self._sources, self._idle):
            own = places.get(closed.source, {})
            own.pop(number, None)
            if not own:
                places.pop(closed.source, None)

    def _give_up(self, source: str) -> bool:
        """Close the oldest idle connection of an address; return whether there was one."""
        idle = self._idle.get(source)
        if not idle:
            return False
        oldest = next(iter(idle.values()))
        self.leave(oldest)
        oldest.cut_off()
        return True


class GuardedListener(socket.socket):
    """A listening socket whose connections are counted and bounded."""

    connections: Connections

    @classmethod
    def around(cls, listening: socket.socket, connections: Connections | None = None) -> Self:
        """Return a guarded socket; it takes the given one over."""
        listener = cls(fileno=listening.detach())
        listener.connections = Connections() if connections is None else connections
        return listener

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; above a limit it is cut off before anything of it is read."""
        plain, address = super().accept()
        accepted = AcceptedSocket(fileno=plain.detach())
        self.connections.enter(accepted, address[0])
        with contextlib.suppress(RuntimeError):  # without an event loop there is no handshake
            asyncio.get_running_loop().call_later(HANDSHAKE_S, accepted.cut_off_silent)
        return accepted, address
