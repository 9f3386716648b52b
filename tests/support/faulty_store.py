"""A proxy for an S3 API that delays, refuses, cuts off, or reports a wrong outcome."""

from __future__ import annotations

import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

from tests.support.loopback_proxy import HOP_BY_HOP, LoopbackProxy, cut, send

_ERROR = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>injected</Message>'
    b"<RequestId>1</RequestId></Error>"
)
_CODES = {"403": b"AccessDenied", "503": b"SlowDown"}


class FaultyStore(LoopbackProxy):
    """Forwards requests; a fault meets every request of one operation, or the first few.

    Operations: ``put``, ``begin``, ``part``, ``complete``, ``head``, ``get``, ``delete``, ``list``.
    A fault is ``applied:WHAT`` or ``refused:WHAT``: the request reaches the store or not. WHAT is a
    status, ``cut``, ``hang:SECONDS``, ``slow:SECONDS``, ``held`` (until ``heal`` is called),
    ``error-in-200`` (what S3 does when a multipart upload fails after it has begun to answer),
    ``empty`` (a success without a body).
    """

    def __init__(self, target: str) -> None:
        self.faults: dict[str, str] = {}
        self.times: dict[str, int] = {}
        self.path = ""
        self.met = 0
        self.seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._healed = threading.Event()
        super().__init__(target)

    def fail(self, operation: str, fault: str, times: int = 1_000_000, *, path: str = "") -> None:
        """Meet the next requests of an operation, for keys that contain ``path``, with a fault."""
        with self._lock:
            self.path = path
            self.met = 0
            self._healed.clear()
            self.faults[operation] = fault
            self.times[operation] = times

    def heal(self) -> None:
        """Remove all faults and counts; answer the requests that are held."""
        self._healed.set()
        with self._lock:
            self.faults.clear()
            self.seen.clear()

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = _body(request)
        operation = _operation(request)
        with self._lock:
            self.seen[operation] += 1
            fault = self.faults.get(operation, "")
            if fault and self.path in unquote(request.path):
                self.times[operation] -= 1
                if self.times[operation] < 0:
                    fault = ""
            else:
                fault = ""
            self.met += bool(fault)
        where, _, what = fault.partition(":")
        kind, _, seconds = what.partition(":")
        if kind in {"slow", "hang"}:
            time.sleep(float(seconds))
        elif kind == "held":
            self._healed.wait()
        answer = None if where == "refused" else self._forward(request, body, "expect")
        self._send(request, answer, kind)

    def _send(
        self, request: BaseHTTPRequestHandler, answer: httpx.Response | None, what: str
    ) -> None:
        if what == "cut" or (what == "hang" and answer is None):
            cut(request)
            return
        status, body, headers = 200, b"", {"Content-Type": "application/xml"}
        if what.isdecimal():
            status, body = int(what), _ERROR % _CODES.get(what, b"InternalError")
        elif what == "error-in-200":
            body = _ERROR % b"InternalError"
        elif what != "empty" and answer is not None:
            status, body = answer.status_code, answer.content
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
        length = len(body)
        if answer is not None and request.command == "HEAD" and not what.isdecimal():
            length = int(answer.headers.get("Content-Length") or 0)
        send(request, status, headers, body, length=length)


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    parts = []
    while size := int(request.rfile.readline().partition(b";")[0], 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    while request.rfile.readline().strip():
        pass  # trailers
    return b"".join(parts)


def _operation(request: BaseHTTPRequestHandler) -> str:
    query = parse_qs(urlsplit(request.path).query, keep_blank_values=True)
    match request.command:
        case "PUT":
            return "part" if "partNumber" in query else "put"
        case "POST":
            return "begin" if "uploads" in query else "complete" if "uploadId" in query else "post"
        case "GET" if "list-type" in query:
            return "list"
        case command:
            return command.lower()
