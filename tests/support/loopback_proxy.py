"""An HTTP proxy on the loopback interface; what becomes of a request is its subclass's to say."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from connect.gateways.public_trust import public_trust

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
_FORGET = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # linger for no time: the client sees a reset


class LoopbackProxy:
    """Answers requests in threads of its own from the moment it is made.

    Args:
        target: base of the server behind it.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._client = httpx.Client(timeout=120, verify=public_trust())
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else each body waits for its head's acknowledgement

            def _answer(self) -> None:
                try:
                    proxy._handle(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client did not wait

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do_PATCH = _answer  # noqa: N815

            def log_message(self, *_args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    @property
    def uri(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._client.close()

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        """Read a request and answer it."""
        raise NotImplementedError

    def _forward(
        self, request: BaseHTTPRequestHandler, body: bytes, *without: str
    ) -> httpx.Response:
        """The target's own answer; headers named in lower case are not passed on."""
        left_out = HOP_BY_HOP.union(without)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in left_out}
        return self._client.request(
            request.command, self.target + request.path, content=body, headers=headers
        )


def cut(request: BaseHTTPRequestHandler) -> None:
    """Close the connection without an answer."""
    request.close_connection = True
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _FORGET)
    request.connection.close()


def wait_until_gone(request: BaseHTTPRequestHandler) -> None:
    """Return when the client has closed the connection on which it waits for an answer."""
    poll = select.poll()
    poll.register(request.connection, select.POLLRDHUP)
    assert poll.poll(60_000), "the client waits for a minute and more"


def send(
    request: BaseHTTPRequestHandler,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    length: int | None = None,
) -> None:
    """Send an answer.

    Args:
        request: which is answered; after a HEAD no body follows.
        status: HTTP status.
        headers: all but the length.
        body: what follows the headers.
        length: of the body, in bytes, where that is not its own.
    """
    request.send_response(status)
    for key, value in headers.items():
        request.send_header(key, value)
    request.send_header("Content-Length", str(len(body) if length is None else length))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)
