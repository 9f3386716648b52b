"""How an endpoint is written: a function from a request's parts to an answer.

Rules of this file:
- Endpoints are plain functions that may block; they run on a thread. Those said to be quick read
  memory alone and run where requests are taken: a thread costs a third of a request more, and
  slow requests, which may have all threads, must not hold up whoever asks for a state.
- In order: path and method (404, 405), the caller (401, 403, 429), ``Content-Type`` (415),
  ``Accept`` (406), the caller's turn (429), the body (408, 413), the endpoint.
- A caller's requests run on threads of the caller's own: no caller waits for another one's.
  Refusals before the endpoint carry no ``Content-Type``, as Kafka Connect's do not.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from connect.errors import IcefloeError, InvariantViolation
from connect.rest.auth import EVERYBODY, Caller
from connect.rest.bodies import parse_json
from connect.rest.connections import source_of
from connect.rest.described import BY_ROUTE, OPEN_TO_ALL, Described, Method
from connect.rest.errors import ApiError, headers_of, status_of
from connect.rest.gate import BodyError, error_body, read_body
from connect.rest.limits import ASKING_OTHERS, ORDINARY, CallerTurns, SignIn, Turns
from connect.secret_values import KNOWN

JSON_TYPE = "application/json"
CERTIFICATE = "icefloe.certificate"  # in the ASGI scope: common name, checked by TLS
FOR_CERTIFICATE = "icefloe-for-certificate"
"""Header by which a node that passes a request on names the caller's certificate."""
ANY_TYPE = "*/*"
PASSED_ON = ("authorization", "accept", "content-type")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """The parts of a request that endpoints use.

    Attributes:
        path: path parameters, decoded.
        query: query parameters in order, values decoded; all values of a repeated one.
        body: the body as sent.
        has_content_type: whether the request named one (it is JSON then).
        caller: who asks.
        passed_on: headers that go along when another node has to answer.
        certificate: the caller's, where they are known by nothing else.
    """

    path: Mapping[str, str]
    query: tuple[tuple[str, str], ...]
    body: bytes
    has_content_type: bool
    caller: Caller = EVERYBODY
    passed_on: Mapping[str, str] = field(default_factory=dict)
    certificate: str | None = None

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ApiError: 415 without a content type, 400 when malformed.
        """
        if not self.has_content_type:
            raise ApiError(415, "HTTP 415 Unsupported Media Type")
        return parse_json(self.body)

    def values(self, name: str) -> list[str]:
        """All values of a query parameter."""
        return [value for key, value in self.query if key == name]

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A boolean query parameter as Java reads it: ``true`` in any case, else false."""
        found = self.values(name)
        return found[0].lower() == "true" if found else default


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, JSON value (None is an empty body), further headers."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None
    content_type: str | None = JSON_TYPE

    def with_headers(self, more: Mapping[str, str]) -> Answer:
        """The same with further headers."""
        return replace(self, headers={**self.headers, **more})


Endpoint = Callable[[Call], Answer]
Around = Callable[[Described, Endpoint], Endpoint]
IsQuick = Callable[[Call], bool]


def never(call: Call) -> bool:
    """It may block."""
    del call
    return False


def always(call: Call) -> bool:
    """It reads memory alone."""
    del call
    return True


def add_route(
    app: FastAPI, method: Method, path: str, endpoint: Endpoint, *, is_quick: IsQuick = never
) -> None:
    """Register an endpoint.

    Args:
        app: where.
        method: HTTP method.
        path: with its parameters in braces.
        endpoint: answers.
        is_quick: whether it reads memory alone for a request, and is done in a millisecond; for
            endpoints that every node answers itself.

    Raises:
        InvariantViolation: it is not described.
    """
    described = BY_ROUTE.get((method, path))
    if described is None:
        raise InvariantViolation(f"{method} {path} is not described")
    produces = described.media_type
    around: Around | None = getattr(app.state, "around", None)
    if around is not None:
        endpoint = around(described, endpoint)

    turns = ASKING_OTHERS if path.endswith("/validate") else ORDINARY

    async def serve(request: Request) -> Response:
        certificate = _certificate(request)
        if isinstance(certificate, Response):
            return certificate
        try:
            caller = await _caller(request, described, certificate)
            if isinstance(caller, Response):
                return caller
            refusal = _refusal(request, produces)
            if refusal is not None:
                return refused(refusal)
            async with _turn(request, caller, turns) as limiter:
                call = await _call(request, caller, certificate)
                if described.at == "here" and is_quick(call):
                    answer = endpoint(call)
                else:
                    answer = await run_sync(endpoint, call, limiter=limiter)
        except (BodyError, IcefloeError) as error:
            return _failure(error, f"{method} {path}")
        return _response(answer, request.headers.get("accept"))

    app.router.routes.append(Route(path, serve, methods=[method]))


async def _call(request: Request, caller: Caller, certificate: str | None) -> Call:
    """The parts of a request; reads its body.

    Raises:
        BodyError: it is too large, or took too long.
    """
    headers = request.headers
    return Call(
        path=request.path_params,
        query=tuple(request.query_params.multi_items()),
        body=await read_body(request.receive, headers.get("content-length", "")),
        has_content_type=headers.get("content-type", ANY_TYPE) != ANY_TYPE,
        caller=caller,
        passed_on={n: headers[n] for n in PASSED_ON if n in headers},
        certificate=None if caller is EVERYBODY else certificate,
    )


def _failure(error: BodyError | IcefloeError, what: str) -> Response:
    """The answer to a request that failed."""
    if isinstance(error, BodyError):
        closing = {"connection": "close"} if error.status == 408 else {}
        content = error_body(error.status, str(error))
        return Response(content, error.status, closing, JSON_TYPE)
    status = status_of(error)
    if status == 500:
        _LOG.error("%s: %s", what, error)
    content = error_body(status, KNOWN.mask(error.message or type(error).__name__))
    return Response(content, status, headers_of(error), JSON_TYPE)


def _certificate(request: Request) -> str | Response | None:
    """Common name of the certificate that counts; the refusal of who may not speak for others.

    None where the caller brings a password or token: a node that passes a request on shows its
    own certificate beside them.
    """
    if "authorization" in request.headers:
        return None
    shown: str | None = request.scope.get(CERTIFICATE)
    named = request.headers.get(FOR_CERTIFICATE)
    if named is None:
        return shown
    nodes: frozenset[str] = getattr(request.app.state, "node_certificates", frozenset())
    if shown in nodes:
        return unquote(named)
    _LOG.warning("a client with the certificate %r wants to speak for another one", shown)
    message = f"Only nodes of icefloe.rest.node.certificates may send {FOR_CERTIFICATE}"
    return Response(error_body(403, message), 403, media_type=JSON_TYPE)


async def _caller(
    request: Request, described: Described, certificate: str | None
) -> Caller | Response:
    """Who asks; the refusal of somebody unknown, or who may not."""
    sign_in: SignIn | None = getattr(request.app.state, "sign_in", None)
    if sign_in is None or described.path in OPEN_TO_ALL:
        return EVERYBODY
    authorization = request.headers.get("authorization")
    source = source_of(request.client.host) if request.client else ""
    caller = await sign_in.caller(authorization, certificate, source)
    if caller is None:
        content = error_body(401, "User cannot access the resource.")
        headers = {"www-authenticate": sign_in.users.challenge}
        return Response(content, 401, headers, JSON_TYPE)
    name = request.path_params.get("name") if described.reach == "connector" else None
    is_any = described.reach == "any"
    role = described.role
    if caller.may_somewhere(role) if is_any else caller.may(role, name):
        return caller
    what = "the whole node" if name is None else f"connector {name}"
    return Response(
        error_body(403, f"{caller.name} lacks the role {role} for {what}"),
        403,
        media_type=JSON_TYPE,
    )


def _turn(
    request: Request, caller: Caller, turns: Turns
) -> AbstractAsyncContextManager[CapacityLimiter | None]:
    """The caller's turn, and the bound of its threads; None is the bound of all together."""
    if caller is EVERYBODY:
        return nullcontext()
    found: CallerTurns = request.app.state.turns
    return found.turn(caller, turns)


def methods_of(routes: Iterable[Any], path: str) -> set[str]:
    """The methods of all routes that match a decoded path."""
    found: set[str] = set()
    for route in routes:
        if isinstance(route, Route) and route.methods:
            scope = {"type": "http", "path": path, "root_path": "", "method": "OPTIONS"}
            if route.matches(scope)[0] != Match.NONE:
                found |= route.methods
    return found


def refused(status: int, phrase: str | None = None) -> Response:
    """An answer without content type, as to requests that reached no endpoint."""
    phrases = {
        404: "Not Found",
        405: "Method Not Allowed",
        406: "Not Acceptable",
        415: "Unsupported Media Type",
    }
    message = phrase or f"HTTP {status} {phrases.get(status, 'Error')}"
    return Response(error_body(status, message), status)


def _refusal(request: Request, produces: str) -> int | None:
    given = request.headers.get("content-type", ANY_TYPE).partition(";")[0].strip().lower()
    if given not in {JSON_TYPE, ANY_TYPE}:
        return 415 if "/" in given else 400
    accept = request.headers.get("accept")
    return None if accept is None or _accepts(accept, produces) else 406


def _accepts(accept: str, produces: str) -> bool:
    family = produces.partition("/")[0] + "/*"
    for item in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        if kind in {produces, family, "*/*", "*"} and not any(
            p.replace(" ", "") in {"q=0", "q=0.0"} for p in parameters
        ):
            return True
    return False


def _response(answer: Answer, accept: str | None) -> Response:
    if answer.text is not None:
        headers = dict(answer.headers)
        return Response(answer.text, answer.status, headers, answer.content_type)
    if answer.body is None:
        return Response(status_code=answer.status, headers=dict(answer.headers))
    content = json.dumps(answer.body, ensure_ascii=False, separators=(",", ":")).encode()
    content_type = JSON_TYPE
    if accept is not None and accept.startswith(JSON_TYPE + ";") and "q=" not in accept:
        content_type = accept
    headers = {**answer.headers, "content-type": content_type}
    return Response(content, answer.status, headers=headers)
