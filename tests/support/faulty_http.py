"""A proxy for an HTTP server that can answer wrongly, late or not at all."""

from __future__ import annotations

import json
import time
from collections import deque
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.support.loopback_proxy import HOP_BY_HOP, LoopbackProxy, cut, send, wait_until_gone


def _first_half(body: bytes) -> bytes:
    """A transaction without the second half of its tables."""
    changes = json.loads(body)["table-changes"]
    return json.dumps({"table-changes": changes[: len(changes) // 2]}).encode()


class FaultyProxy(LoopbackProxy):
    """Forwards requests; faults are used up by commits, one each.

    A fault is ``applied:WHAT``, ``refused:WHAT`` or ``some:WHAT``: the request reaches the server,
    or it does not, or only the first half of a transaction's tables does. WHAT is a status, ``cut``
    (connection closed without an answer), ``garbage``, ``empty``, ``hang`` (no answer for as long
    as the client waits), or nothing for the server's own answer. Answers of status 429 carry
    ``retry_after``, if that is set.
    """

    def __init__(self, target: str) -> None:
        self.faults: deque[str] = deque()
        self.load_faults: deque[str] = deque()
        self.commits = self.loads = 0
        self.transactions = 0
        self.applied = 0
        self.latency_s = 0.0
        self.retry_after: str | None = None
        self.before_commit: list[Any] = []
        super().__init__(target)

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
        started = time.monotonic()
        answer = self._forward(request, body, "host")
        time.sleep(max(0.0, self.latency_s - (time.monotonic() - started)))
        return answer

    def _send(
        self, request: BaseHTTPRequestHandler, answer: httpx.Response | None, what: str
    ) -> None:
        if what in {"cut", "hang"}:
            if what == "hang":
                wait_until_gone(request)
            cut(request)
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
            # the body is no longer as the target packed it
            left_out = HOP_BY_HOP | {"content-encoding"}
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in left_out}
        send(request, status, headers, body)
