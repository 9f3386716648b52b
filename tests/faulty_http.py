"""A proxy before an HTTP server that answers wrongly, late or not at all when told to."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx

_HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "content-encoding",
}


class FaultyProxy:
    """Forwards requests; faults are used up by table commits, one each.

    A fault is ``applied:WHAT`` or ``refused:WHAT``: the request reaches the server or it does not.
    WHAT is a status, ``cut`` (connection closed without an answer), ``garbage``, ``empty``,
    ``hang:SECONDS``.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.faults: deque[str] = deque()
        self.load_faults: deque[str] = deque()
        self.commits = 0
        self.applied = 0
        self.before_commit: list[Any] = []
        self._client = httpx.Client(timeout=30)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                proxy._handle(self)

            do_GET = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815

            def log_message(self, *_args: Any) -> None:
                """Stay quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def uri(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._client.close()

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length") or 0)
        body = request.rfile.read(length)
        parts = urlsplit(request.path).path.split("/")
        is_table = len(parts) > 2 and parts[-2] == "tables"
        fault = None
        if is_table and request.command == "POST":
            self.commits += 1
            for action in self.before_commit:
                action()
            fault = self.faults.popleft() if self.faults else None
        elif is_table and request.command == "GET":
            fault = self.load_faults.popleft() if self.load_faults else None
        where, _, what = (fault or "").partition(":")
        answer = None
        if where in {"", "applied"}:
            headers = {
                k: v for k, v in request.headers.items() if k.lower() not in {"host", "connection"}
            }
            answer = self._client.request(
                request.command, self.target + request.path, content=body, headers=headers
            )
            if is_table and request.command == "POST" and answer.is_success:
                self.applied += 1
        self._send(request, answer, what)

    def _send(
        self, request: BaseHTTPRequestHandler, answer: httpx.Response | None, what: str
    ) -> None:
        if what.startswith("hang"):
            time.sleep(float(what.partition(":")[2]))
        if what == "cut" or (what.startswith("hang") and answer is None):
            request.close_connection = True
            request.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
            )
            request.connection.close()
            return
        status, body = 200, b""
        headers = {"Content-Type": "application/json"}
        if what == "garbage":
            body = b"<html>ok</html>"
        elif what.isdecimal():
            status = int(what)
            body = b'{"error": {"message": "injected", "type": "Injected", "code": %d}}' % status
        elif answer is not None and what != "empty":
            status, body = answer.status_code, answer.content
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
        try:
            request.send_response(status)
            for key, value in headers.items():
                request.send_header(key, value)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            if request.command != "HEAD":
                request.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            request.close_connection = True  # the client did not wait
