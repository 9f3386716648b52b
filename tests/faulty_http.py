"""A proxy before an HTTP server that answers wrongly, late or not at all when told to."""

from __future__ import annotations

import json
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


def _first_half(body: bytes) -> bytes:
    """A transaction without the second half of its tables."""
    changes = json.loads(body)["table-changes"]
    return json.dumps({"table-changes": changes[: len(changes) // 2]}).encode()


class FaultyProxy:
    """Forwards requests; faults are used up by commits, one each.

    A fault is ``applied:WHAT``, ``refused:WHAT`` or ``some:WHAT``: the request reaches the server,
    or it does not, or only the first half of a transaction's tables does. WHAT is a status, ``cut``
    (connection closed without an answer), ``garbage``, ``empty``, ``hang:SECONDS``, or nothing for
    the server's own answer. Answers of status 429 carry ``retry_after``, if that is set.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.faults: deque[str] = deque()
        self.load_faults: deque[str] = deque()
        self.commits = self.loads = 0
        self.transactions = 0
        self.applied = 0
        self.latency_s = 0.0
        self.retry_after: str | None = None
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
        is_transaction = parts[-2:] == ["transactions", "commit"]
        is_commit = request.command == "POST" and (is_table or is_transaction)
        fault = None
        if is_commit:
            self.commits += 1
            self.transactions += is_transaction
            for action in self.before_commit:
                action()
            fault = self.faults.popleft() if self.faults else None
        elif is_table and request.command == "GET":
            self.loads += 1
            fault = self.load_faults.popleft() if self.load_faults else None
        where, _, what = (fault or "").partition(":")
        if where == "some":
            body = _first_half(body)
        answer = None
        if where != "refused":
            answer = self._ask(request, body)
            self.applied += is_commit and answer.is_success
        self._send(request, answer, what)

    def _ask(self, request: BaseHTTPRequestHandler, body: bytes) -> httpx.Response:
        headers = {
            k: v
            for k, v in request.headers.items()
            if k.lower() not in {"host", "connection", "content-length"}
        }
        started = time.monotonic()
        answer = self._client.request(
            request.command, self.target + request.path, content=body, headers=headers
        )
        time.sleep(max(0.0, self.latency_s - (time.monotonic() - started)))
        return answer

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
            if status == 429 and self.retry_after is not None:
                headers["Retry-After"] = self.retry_after
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
