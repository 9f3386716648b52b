"""The REST API behind a real HTTP server in this process; a client that sends paths as given."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import uvicorn
from starlette.types import ASGIApp

from connect.node.rest.connections import Connections, GuardedListener
from connect.node.rest.transport import http_server


class Reply(NamedTuple):
    """Status, headers by lower-case name, body bytes."""

    status: int
    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.content)


class RestServer:
    """uvicorn on a free loopback port, for a ``with`` block.

    Args:
        app: what it serves.
        is_guarded: serve it as a node does, with bounds of connections.
        connections: those bounds, for a guarded one.
        context: TLS, for a guarded one.
        more: time limits, for a guarded one.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        is_guarded: bool = False,
        connections: Connections | None = None,
        context: ssl.SSLContext | None = None,
        **more: float,
    ) -> None:
        self.connections = Connections() if connections is None else connections
        listening = socket.create_server(("127.0.0.1", 0))
        self._socket = GuardedListener.around(listening, self.connections)
        self.port = int(self._socket.getsockname()[1])
        if is_guarded:
            self._server = http_server(app, self.connections, context, **more)
        else:
            config = uvicorn.Config(app, log_level="warning", server_header=False, lifespan="off")
            self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started:
            assert time.monotonic() < deadline, "the server has not started"
            time.sleep(0.01)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        self._socket.close()

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send one request, the path unchanged."""
        return send(self.port, method, path, body, headers)

    def json(self, method: str, path: str, body: Any = None) -> Reply:
        """Send JSON, or nothing."""
        if body is None:
            return self.send(method, path)
        return self.send(
            method, path, json.dumps(body).encode(), {"content-type": "application/json"}
        )


def send(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Send one request, the path unchanged, only the headers given (and the needed ones)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        received = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, received, answer.read())
    finally:
        connection.close()
