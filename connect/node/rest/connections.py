"""The API's connections: how many there may be, and which is closed when there are too many.

Rules of this file:
- Connections are counted where they are accepted, before TLS: a client that never finishes its
  handshake counts.
- An address has a bounded number of connections. When it opens one more, its oldest idle
  connection is closed; when none is idle, the new one is.
- When there are as many in all as may be, the address with the most gives one up. An address
  with few, such as that of a health probe, gets in while another one floods the node.
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
_IPV6_NETWORK_BITS = 64  # what one customer of a provider has


@lru_cache(maxsize=SOURCES_KNOWN)
def source_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or the network of an IPv6 address."""
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
    """A connection that leaves its register when it is closed."""

    register: Connections | None = None
    source = ""
    has_begun = False

    def close(self) -> None:
        """Close it."""
        if self.register is not None:
            self.register.leave(self)
        super().close()

    def cut_off(self) -> None:
        """End it on both sides; the event loop then closes it."""
        with contextlib.suppress(OSError):  # the client has just ended it
            self.shutdown(socket.SHUT_RDWR)

    def cut_off_silent(self) -> None:
        """End it when its TLS handshake has not been finished."""
        if not self.has_begun:
            self.cut_off()


class Connections:
    """The open connections of one listener; used on the event loop only.

    Args:
        in_all: how many there may be; never more than half of the process's files.
        of_source: how many of one address.
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

    def enter(self, made: AcceptedSocket, host: str) -> None:
        """Register a connection, or close it, or close another one in its place."""
        made.register, made.source = self, source_of(host)
        own = self._sources.get(made.source, {})
        if len(own) >= self._of_source and not self._give_up(made.source):
            made.cut_off()
            return
        if len(self) >= self._in_all:
            largest = sorted(self._idle, key=lambda source: -len(self._sources[source]))
            if not any(self._give_up(source) for source in largest):
                made.cut_off()
                return
        number = made.fileno()
        self._by_number[number] = made
        self._sources.setdefault(made.source, {})[number] = made
        self._idle.setdefault(made.source, {})[number] = made

    def mark(self, number: int, *, is_idle: bool) -> None:
        """Say of a connection, by its file number, whether a request of it is being served."""
        found = self._by_number.get(number)
        if found is None:
            return
        found.has_begun = True
        idle = self._idle.setdefault(found.source, {})
        idle.pop(number, None)
        if is_idle:
            idle[number] = found  # last: the one that was used last is closed last
        elif not idle:
            del self._idle[found.source]

    def holds(self, number: int) -> bool:
        """Whether a connection, by its file number, has not been given up."""
        return number in self._by_number

    def leave(self, gone: AcceptedSocket) -> None:
        """Forget a connection; one that is not registered changes nothing."""
        number = gone.fileno()
        if self._by_number.get(number) is not gone:
            return
        del self._by_number[number]
        for places in (self._sources, self._idle):
            own = places.get(gone.source, {})
            own.pop(number, None)
            if not own:
                places.pop(gone.source, None)

    def _give_up(self, source: str) -> bool:
        """Close the oldest idle connection of an address; whether there was one."""
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
        """The same socket, guarded; the one given is not used any more."""
        made = cls(fileno=listening.detach())
        made.connections = Connections() if connections is None else connections
        return made

    def accept(self) -> tuple[socket.socket, Any]:
        """Take a connection; one too many is ended before anything of it is read."""
        taken, address = super().accept()
        made = AcceptedSocket(fileno=taken.detach())
        self.connections.enter(made, address[0])
        with contextlib.suppress(RuntimeError):  # no event loop: nobody waits for a handshake
            asyncio.get_running_loop().call_later(HANDSHAKE_S, made.cut_off_silent)
        return made, address
