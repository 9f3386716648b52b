"""The route class of every path operation: the checks before FastAPI reads a body.

Rules of this file:
- Order: path and method (404, 405), the caller (401, 403, 429), ``Content-Type`` (415),
  ``Accept`` (406), the caller's turn (429), the body (408, 413, 400), the path operation.
  FastAPI alone would read the body before it resolves dependencies.
- A path operation that may block is a plain function. It runs on one of its caller's threads, so
  no caller waits for another one.
- A path operation written ``async`` reads memory alone and runs on the event loop. A thread makes
  a request a third slower; and slow requests, which may use all threads, must not delay a client
  that reads a state.
- A large body is parsed and validated on a thread too: nothing blocks the event loop.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, TypeVar

from anyio.to_thread import run_sync
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import QueryParams

from connect.clock import SystemClock
from connect.errors import InvariantViolation
from connect.metrics.process_metrics import durations
from connect.node.rest.access import Rule, credentials_of
from connect.node.rest.api_errors import JSON_TYPE, ApiError
from connect.node.rest.auth import EVERYBODY, Caller
from connect.node.rest.bodies import read_model
from connect.node.rest.forwarding import POSITION, ForwardedRequest, Forwarding
from connect.node.rest.http_middleware import BodyError, error_body, read_body
from connect.node.rest.limits import CallerTurns, RequestSlot
from connect.node.rest.models import Error
from connect.node.rest.peers import FORWARD

P = ParamSpec("P")
T = TypeVar("T")

ANY_TYPE: Final = "*/*"
SMALL_BODY_BYTES: Final = 16 * 1024
REASONS: Final = {
    400: "not readable, or not valid",
    401: "unknown caller",
    403: "the caller lacks the role, a page of another site sent it, or the node disables it",
    404: "not found",
    406: "this media type is not served",
    408: "the body took too long",
    409: "not in this state, or the cluster is electing a leader",
    413: "the body is too large",
    415: "the body must be JSON",
    429: "the caller, or its address, sends more requests than its limit: see Retry-After",
    503: "the node is starting, or Kafka cannot be reached",
}
_ANYWHERE: Final = (400, 406, 408, 413, 415)
_FOR_CALLERS: Final = (401, 429)
_CLOCK: Final = SystemClock()
_turn: ContextVar[RequestSlot | None] = ContextVar("turn", default=None)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return ``responses`` of a path operation: answers with Kafka Connect's error body."""
    return {status: {"model": Error, "description": REASONS[status]} for status in statuses}


async def on_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that may block on one of the threads of the current request's caller."""
    turn = _turn.get()
    limiter = None if turn is None else turn.threads()
    return await run_sync(functools.partial(function, *args, **kwargs), limiter=limiter)


class ApiRoute(APIRoute):
    """A path operation of this API."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        dependencies = options.get("dependencies") or ()
        rules = [d.dependency for d in dependencies if isinstance(d.dependency, Rule)]
        if len(rules) != 1:
            raise InvariantViolation(f"{path} has {len(rules)} rules of access, not one")
        self.rule: Rule = rules[0]
        options["dependencies"] = [d for d in dependencies if d.dependency is not self.rule]
        kind = options.get("response_class")
        self._produces: str = getattr(kind, "value", kind).media_type or JSON_TYPE  # type: ignore[union-attr] # it has a default
        self._is_get = options.get("methods") == ["GET"]
        options["responses"] = {**(options.get("responses") or {}), **self._refusals()}
        options["openapi_extra"] = {"x-icefloe-role": self.rule.role or "read"}
        if not inspect.iscoroutinefunction(endpoint):
            endpoint = _threaded(endpoint)
        if not _sets_response(endpoint):
            status = options.get("status_code") or 200
            is_short = options.get("response_model_exclude_none") is True
            endpoint = _serialized(endpoint, status, exclude_none=is_short)
        super().__init__(path, endpoint, **options)

    def _refusals(self) -> dict[int | str, dict[str, Any]]:
        """Return the error answers of every path operation of this kind."""
        rule = self.rule
        statuses = errors(*_ANYWHERE)
        if rule.role is not None:
            statuses |= errors(*_FOR_CALLERS)
        is_for_some = rule.role is not None and (rule.role != "read" or rule.of != "any")
        if not self._is_get or is_for_some:
            statuses |= errors(403)
        return statuses | (errors(409) if rule.at == "leader" else {})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that serves a request."""
        handle = super().get_route_handler()
        model = None if self.body_field is None else self.body_field.field_info.annotation

        async def serve(request: Request) -> Response:
            started_ms, status = _CLOCK.monotonic_ms(), 500
            try:
                answer = await answered(request)
            except HTTPException as error:
                status = error.status_code
                raise
            else:
                status = answer.status_code
                return answer
            finally:
                took_ms = _CLOCK.monotonic_ms() - started_ms
                labels = {"method": request.method, "route": self.path_format, "status": status}
                durations("rest_request_duration_seconds", **labels).observe(took_ms / 1000)

        async def answered(request: Request) -> Response:
            caller = await self.rule.admit(request)
            refusal = _refusal(request, self._produces)
            if refusal is not None:
                return refusal
            with _turn_of(request, caller, self.rule) as turn:
                _turn.set(turn)
                read = ApiRequest(request, model)
                await read.body()
                forwarded = await self._forwarded(read)
                answer = await handle(read) if forwarded is None else forwarded
                if self.rule.at == "leader" and _is_forwarded(request):
                    position = await on_thread(request.app.state.services.handlers.store.position)
                    answer.headers[POSITION] = str(position)
            return _with_accept_parameters(answer, request.headers.get("accept"))

        return serve

    async def _forwarded(self, request: ApiRequest) -> Response | None:
        """Return the answer of the node that has to answer; None when this node does."""
        at = self.rule.at
        if at == "this node":
            return None
        forwarding: Forwarding = request.app.state.forwarding
        path = {name: str(value) for name, value in request.path_params.items()}
        forwarded = ForwardedRequest(
            request.method,
            self.path_format,
            path,
            tuple(request.query_params.multi_items()),
            await request.body(),
            credentials_of(request),
        )
        return await on_thread(forwarding.answer, at, forwarded)


class ApiRequest(Request):
    """A request with a bounded body, which is read as the model of its path operation.

    Args:
        model: of the body; None when the path operation takes none.
    """

    def __init__(self, request: Request, model: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._model: type[BaseModel] | None = model
        self._content: bytes | None = None
        self._query_params = FirstValues(request.scope["query_string"])

    async def body(self) -> bytes:
        """Return the whole body.

        Raises:
            ApiError: 413 too large, 408 too slow.
        """
        if self._content is None:
            headers = self.headers
            announced = headers.get("content-length", "")
            try:
                has_body = announced not in {"", "0"} or "transfer-encoding" in headers
                self._content = await read_body(self.receive, announced) if has_body else b""
            except BodyError as error:
                closing = {"connection": "close"} if error.status == 408 else None
                raise ApiError(error.status, str(error), closing) from None
            is_untyped = self.headers.get("content-type", ANY_TYPE) == ANY_TYPE
            if self._model is not None and is_untyped:
                raise ApiError(415, "HTTP 415 Unsupported Media Type")
        return self._content

    async def json(self) -> Any:
        """Return the body as its model.

        Raises:
            ApiError: 400, it is not JSON, or not valid.
        """
        if self._model is None:
            raise InvariantViolation("the body of a path operation without one was read")
        content = await self.body()
        if len(content) <= SMALL_BODY_BYTES:
            return read_model(self._model, content)
        return await on_thread(read_model, self._model, content)


class FirstValues(QueryParams):
    """Query parameters; the first value of each counts, as in Kafka Connect."""

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the first value of a parameter."""
        return next((value for name, value in self.multi_items() if name == key), default)


def _threaded(endpoint: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(endpoint)
    async def run(**values: Any) -> Any:
        return await on_thread(endpoint, **values)

    return run


def _sets_response(endpoint: Callable[..., Any]) -> bool:
    """Return whether a path operation changes status or headers of FastAPI's own response."""
    return "response" in inspect.signature(endpoint).parameters


def _serialized(
    endpoint: Callable[..., Coroutine[Any, Any, Any]], status: int, *, exclude_none: bool
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Serialize the returned model once: FastAPI would validate it again before."""

    @functools.wraps(endpoint)
    async def run(**values: Any) -> Any:
        answer = await endpoint(**values)
        if not isinstance(answer, BaseModel):
            return answer
        content = answer.__pydantic_serializer__.to_json(
            answer, by_alias=True, exclude_none=exclude_none
        )
        return Response(content, status, media_type=JSON_TYPE)

    return run


def _turn_of(
    request: Request, caller: Caller, rule: Rule
) -> AbstractContextManager[RequestSlot | None]:
    """Return the caller's turn; None without authentication, when there is one caller for all."""
    if caller is EVERYBODY:
        return nullcontext()
    turns: CallerTurns = request.app.state.turns
    return turns.turn(caller, rule.turns)


def _is_forwarded(request: Request) -> bool:
    return FORWARD in request.query_params.multi_items()


def _refusal(request: Request, produces: str) -> Response | None:
    """Return the refusal of a media type; without content type, as in Kafka Connect."""
    content_type = request.headers.get("content-type", ANY_TYPE).partition(";")[0].strip().lower()
    if content_type not in {JSON_TYPE, ANY_TYPE}:
        status, phrase = (415, "Unsupported Media Type") if "/" in content_type else (400, "Error")
        return Response(error_body(status, f"HTTP {status} {phrase}"), status)
    accept = request.headers.get("accept")
    if accept is None or accept == ANY_TYPE or _accepts(accept, produces):
        return None
    return Response(error_body(406, "HTTP 406 Not Acceptable"), 406)


def _accepts(accept: str, produces: str) -> bool:
    family = produces.partition("/")[0] + "/*"
    for item in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        if kind in {produces, family, "*/*", "*"} and not any(
            p.replace(" ", "") in {"q=0", "q=0.0"} for p in parameters
        ):
            return True
    return False


def _with_accept_parameters(answer: Response, accept: str | None) -> Response:
    """Repeat parameters of ``Accept`` in the content type, as Kafka Connect's server does."""
    if accept is None or not accept.startswith(JSON_TYPE + ";") or "q=" in accept:
        return answer
    if answer.status_code < 400 and answer.headers.get("content-type") == JSON_TYPE:
        answer.headers["content-type"] = accept
    return answer
