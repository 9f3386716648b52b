"""An HTTP server whose answers have no end, or no reasonable size or speed."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

PIECE: Final = b" " * 2**20
SENT_BYTES_MAX: Final = 256 * 2**20
"""After this the server gives up, so that a client without a limit fails its test, not the run."""
DRIPS_MAX: Final = 1_000
DRIP_S: Final = 0.05


def head(*headers: str, status: str = "200 OK") -> bytes:
    """The head of an answer."""
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, "", "")).encode()


def answer(body: bytes, *headers: str, status: str = "200 OK") -> list[bytes]:
    """A whole answer."""
    return [head(f"content-length: {len(body)}", *headers, status=status), body]


def endless(*, status: str = "200 OK", is_chunked: bool = False) -> Iterator[bytes]:
    """A body without end."""
    if not is_chunked:
        yield head(f"content-length: {10**15}", status=status)
    else:
        yield head("transfer-encoding: chunked", status=status)
    while True:
        yield b"%x\r\n%s\r\n" % (len(PIECE), PIECE) if is_chunked else PIECE


def dripping(first: bytes) -> Iterator[bytes]:
    """One byte after another, each of them in time."""
    yield first
    pause = threading.Event()
    for _ in range(DRIPS_MAX):
        pause.wait(DRIP_S)
        yield b"x"


@cache
def bomb(size: int, *, times: int = 1, encoding: str = "gzip") -> list[bytes]:
    """A body that decompression makes larger, perhaps several times in a row."""
    body = b"{" + b" " * size + b"}"
    for _ in range(times):
        body = gzip.compress(body, 9)
    return answer(body, f"content-encoding: {encoding}")


class HostileServer:
    """Answers each request with the pieces that a function returns, until the client has gone.

    Args:
        respond: from the request line, the pieces of the answer.
        certificate: for TLS, a PEM file with the key.

    Attributes:
        requests: request lines.
        ended: a released permit for each connection that has ended.
        sent_bytes: of all answers.
    """

    def __init__(
        self,
        respond: Callable[[str], Iterator[bytes] | list[bytes]],
        certificate: Path | None = None,
    ) -> None:
        self._respond = respond
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self.requests: list[str] = []
        self.ended = threading.Semaphore(0)
        self.sent_bytes = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError), connection:
                if self._tls is not None:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                with connection:
                    while (request := _request(connection)) is not None:
                        self._send(connection, request)
        finally:
            self.ended.release()

    def _send(self, connection: socket.socket, request: str) -> None:
        self.requests.append(request)
        for piece in self._respond(request):
            connection.sendall(piece)
            self.sent_bytes += len(piece)
            if self.sent_bytes > SENT_BYTES_MAX:
                raise OSError("the client has no limit")


def _request(connection: socket.socket) -> str | None:
    """Receive a request with its body; return its first line, None at the end."""
    received = b""
    while b"\r\n\r\n" not in received:
        if not (more := connection.recv(65_536)):
            return None
        received += more
    lines, _, body = received.partition(b"\r\n\r\n")
    first, *headers = lines.decode("latin-1").split("\r\n")
    sizes = [h.partition(":")[2] for h in headers if h.lower().startswith("content-length")]
    left = int(sizes[0]) - len(body) if sizes else 0
    while left > 0 and (more := connection.recv(65_536)):
        left -= len(more)
    return first
