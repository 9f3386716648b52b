"""HTTP middleware around all path operations: paths, bodies, HEAD, OPTIONS, CORS.

Rules of this file:
- A path reaches the router in one form only: no empty segments, no encoded separators, no control
  characters, no trailing slash, path parameters (``;x=y``) removed, dots resolved.
- A body is read after its caller is authenticated (``api_route``), as a whole, up to
  ``BODY_BYTES_MAX`` and within ``BODY_S``.
- No more than ``REQUESTS_MAX`` requests are served at a time; others get 503 and ``Retry-After``.
- A cross-site request of a browser changes nothing.
- Every refusal has Kafka Connect's error body, also where Kafka's HTTP server answers in HTML.
- A browser sends stored passwords and client certificates with every request to this node, also
  for a page of another site. A request that changes state is refused when its headers show such a
  page. The steps are those of Go's ``net/http.CrossOriginProtection``. Other clients do not send
  these headers.
- A node without authentication listens on loopback. Its clients use an address, ``localhost`` or
  the advertised name. Another name in ``Host`` belongs to a site that resolves to this machine, so
  that its pages can read the answers (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES_MAX = 1024 * 1024
BODY_S = 30.0
REQUESTS_MAX = 500
_METHOD_ORDER = ("HEAD", "DELETE", "POST", "GET", "OPTIONS", "PUT", "PATCH")
_CLEAN = re.compile(r"(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+")  # most paths: nothing to do
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class CrossOrigin:
    """The origins of browsers that may call; without origins there is no CORS."""

    origins: frozenset[str] = frozenset()
    methods: tuple[str, ...] = ()

    @classmethod
    def of(cls, origins: str, methods: str) -> CrossOrigin:
        """Parse ``access.control.allow.origin`` and ``access.control.allow.methods``."""
        return cls(
            frozenset(filter(None, (o.strip() for o in origins.split(",")))),
            tuple(filter(None, (m.strip() for m in methods.split(",")))) or ("GET", "POST", "HEAD"),
        )

    def headers(self, request: dict[str, str], *, is_preflight: bool) -> list[tuple[str, str]]:
        """Return the headers to add to the answer to a request with these headers."""
        if not self.origins:
            return []
        headers = [("vary", "Origin")]
        origin = request.get("origin")
        if origin is None or not self.origins & {origin, "*"}:
            return headers
        headers.append(("access-control-allow-origin", origin))
        if is_preflight and "access-control-request-method" in request:
            headers.append(("access-control-allow-methods", ",".join(self.methods)))
            requested = request.get("access-control-request-headers")
            if requested:
                canonical = "-".join(part.capitalize() for part in requested.split("-"))
                headers.append(("access-control-allow-headers", canonical))
            headers.append(("access-control-max-age", "60"))
        return headers


class BodyError(Exception):
    """A body that is refused; the text is the message of the answer.

    Attributes:
        status: HTTP status, 408 or 413.
    """

    def __init__(self, status: int) -> None:
        slow = f"The request body took longer than {BODY_S:.0f} s"
        large = f"The request body is larger than {BODY_BYTES_MAX} bytes"
        super().__init__(slow if status == 408 else large)
        self.status = status


class PathError(Exception):
    """A path that no connector can have; the text is the message of the answer."""


def clean_path(raw: str) -> str:
    """Return the normal form of a raw path, still percent-encoded.

    Raises:
        PathError: the path is ambiguous or cannot be decoded.
    """
    if _CLEAN.fullmatch(raw):
        return raw
    if _BAD_PERCENT.search(raw) or "%00" in raw:
        raise PathError("Bad Request")
    segments: list[str] = []
    parts = raw.split("/")[1:]
    for index, part in enumerate(parts):
        segment = part.partition(";")[0]
        if not part and index < len(parts) - 1:
            raise PathError("Ambiguous URI empty segment")
        _check_segment(segment)
        if segment == "..":
            if not segments:
                raise PathError("Bad Request")
            segments.pop()
        elif segment not in {"", "."}:
            segments.append(segment)
    return "/" + "/".join(segments)


def _check_segment(segment: str) -> None:
    upper = segment.upper()
    if "%2F" in upper:
        raise PathError("Ambiguous URI path separator")
    if "%25" in upper:
        raise PathError("Ambiguous URI path encoding")
    if "%2E" in upper and unquote_to_bytes(segment) in {b".", b".."}:
        raise PathError("Ambiguous URI path segment")
    try:
        text = unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError:
        raise PathError("Bad UTF-8 encoding") from None
    if any(ord(c) < 32 or ord(c) == 127 or c == "\\" for c in text):
        raise PathError("Suspicious Path Character")


def allowed_methods(methods: Iterable[str]) -> tuple[str, ...]:
    """Return the methods of a path, HEAD and OPTIONS included, in Kafka Connect's order."""
    allowed = {*methods, "OPTIONS"}
    if "GET" in allowed:
        allowed.add("HEAD")
    return tuple(method for method in _METHOD_ORDER if method in allowed)


def error_body(status: int, message: str) -> bytes:
    """Return Kafka Connect's error body."""
    body = {"error_code": status, "message": message}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class HttpMiddleware:
    """ASGI middleware around the whole application.

    Args:
        app: the router.
        methods_of: returns the methods of a path, none when there is no such path.
        hosts: valid names in ``Host``; None is any.
    """

    def __init__(
        self,
        app: ASGIApp,
        methods_of: Callable[[str], Iterable[str]],
        cross_origin: CrossOrigin | None = None,
        hosts: frozenset[str] | None = None,
    ) -> None:
        self._app = app
        self._methods_of = methods_of
        self._cross_origin = cross_origin or CrossOrigin()
        self._hosts = hosts
        self._served = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._served >= REQUESTS_MAX:
            message = f"More than {REQUESTS_MAX} requests at a time"
            again = [("retry-after", "1")]
            await _answer(send, 503, error_body(503, message), "application/json", again)
            return
        self._served += 1
        try:
            await self._serve(scope, receive, send)
        finally:
            self._served -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        extra = self._cross_origin.headers(headers, is_preflight=scope["method"] == "OPTIONS")
        send = _adding(send, extra)
        trusted = self._cross_origin.origins
        why = cross_site_refusal(scope["method"], headers, trusted=trusted, hosts=self._hosts)
        if why is not None:
            await _answer(send, 403, error_body(403, why), "application/json")
            return
        raw = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        try:
            path = clean_path(raw.partition("?")[0])
        except PathError as error:
            await _answer(send, 400, error_body(400, str(error)), "application/json")
            return
        decoded = unquote_to_bytes(path).decode("utf-8") if "%" in path else path
        inner: dict[str, Any] = {**scope, "path": decoded, "raw_path": path.encode()}
        if scope["method"] == "OPTIONS":
            await self._answer_options(send, decoded)
            return
        if scope["method"] == "HEAD":
            inner["method"] = "GET"
            send = _without_body(send)
        await self._app(inner, receive, send)

    async def _answer_options(self, send: Send, path: str) -> None:
        methods = list(self._methods_of(path))
        if not methods:
            await _answer(send, 404, error_body(404, "HTTP 404 Not Found"), None)
            return
        allowed = allowed_methods(methods)
        allow = [("allow", ",".join(allowed))]
        await _answer(send, 200, ", ".join(allowed).encode(), "text/plain", allow)


async def read_body(receive: Receive, announced: str) -> bytes:
    """Return the whole body of a request.

    Args:
        receive: ASGI's function.
        announced: the header ``Content-Length``, or an empty text.

    Raises:
        BodyError: it is too large, or took too long.
    """
    if announced.isdecimal() and int(announced) > BODY_BYTES_MAX:
        raise BodyError(413)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return b"".join(chunks)
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > BODY_BYTES_MAX:
                    raise BodyError(413)
                if not message.get("more_body", False):
                    return b"".join(chunks)
    except TimeoutError:
        raise BodyError(408) from None


async def _answer(
    send: Send,
    status: int,
    body: bytes,
    content_type: str | None,
    headers: Iterable[tuple[str, str]] = (),
) -> None:
    headers_sent = [("content-length", str(len(body))), *headers]
    if content_type is not None:
        headers_sent.insert(0, ("content-type", content_type))
    encoded = [(k.encode(), v.encode()) for k, v in headers_sent]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def _adding(send: Send, headers: list[tuple[str, str]]) -> Send:
    if not headers:
        return send
    encoded = [(k.encode(), v.encode()) for k, v in headers]

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *encoded]}
        await send(message)

    return adding


def _without_body(send: Send) -> Send:
    async def dropping(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return dropping


def cross_site_refusal(
    method: str,
    headers: Mapping[str, str],
    *,
    trusted: frozenset[str],
    hosts: frozenset[str] | None,
) -> str | None:
    """Return why a request is refused; None when it is served.

    Args:
        method: HTTP method.
        headers: the request's, names in lower case.
        trusted: origins with pages that may change state; ``*`` is every origin.
        hosts: valid names in ``Host``, in addition to addresses and ``localhost``; None is any.
    """
    host = headers.get("host", "")
    if hosts is not None and host and not _is_own_name(host, hosts):
        return (
            f"This node is not called {_name(host)}; set rest.advertised.host.name to that name, "
            "or icefloe.rest.users.file so that it knows its callers"
        )
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if method in _SAFE or (origin is not None and trusted & {origin, "*"}):
        return None
    if site is not None:
        is_own = site in _OWN_SITES
    else:
        is_own = origin is None or origin.partition("://")[2].lower() == host.lower()
    if is_own:
        return None
    return (
        "A page of another site may not change anything on this node; "
        "set access.control.allow.origin to allow its origin"
    )


def _name(host: str) -> str:
    """Return a ``Host`` header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()


def _is_own_name(host: str, hosts: frozenset[str]) -> bool:
    name = _name(host)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost") or name in hosts
    return True  # an address is not a name that another site could resolve
