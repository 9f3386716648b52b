"""A TCP address for a PostgreSQL server that listens on a Unix socket: Java's client needs one."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit


class _PassedOn(socketserver.BaseRequestHandler):
    """A connection that is passed on to a Unix socket."""

    server: TcpServer

    def handle(self) -> None:
        """Pass on what both ends send, until one closes."""
        # an end that was killed resets its connection
        with socket.socket(socket.AF_UNIX) as target, contextlib.suppress(ConnectionError):
            target.connect(self.server.target)
            other = {self.request: target, target: self.request}
            while not self.server.is_closing:
                ready, _, _ = select.select(list(other), [], [], 0.05)
                for end in ready:
                    if not (data := end.recv(65_536)):
                        return
                    other[end].sendall(data)


class TcpServer(socketserver.ThreadingTCPServer):
    """A server with a Unix socket, at a TCP address: the Java client uses no other.

    Args:
        target: path of the socket.
    """

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _PassedOn)
        self.target = target
        self.is_closing = False


@contextmanager
def tcp_uri(uri: str) -> Iterator[str]:
    """Return the SQLAlchemy URI of the same server at a TCP address."""
    url = urlsplit(uri)
    [target] = Path(dict(parse_qsl(url.query))["host"]).glob(".s.PGSQL.*[0-9]")
    with TcpServer(str(target)) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            address = f"127.0.0.1:{server.server_address[1]}"
            yield f"{url.scheme}://{url.username}@{address}{url.path}"
        finally:
            server.is_closing = True
            server.shutdown()
            serving.join()
