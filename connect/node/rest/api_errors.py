"""Error answers: one status and one non-null message each, in Kafka Connect's body."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from connect.errors import ConfigError, IcefloeError, RetriableError
from connect.node.node_requests import (
    ConflictError,
    NotAllowedError,
    UnavailableError,
    UnknownConnectorError,
    UnknownTaskError,
)
from connect.node.rest.http_middleware import error_body
from connect.redaction.secret_values import KNOWN

JSON_TYPE = "application/json"
_LOG = logging.getLogger(__name__)
_PHRASES = {
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    415: "Unsupported Media Type",
}


class ApiError(HTTPException):
    """An error answer; ``message`` is sent, with secrets masked.

    Args:
        message: for the caller.
        headers: further headers of the answer.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.message = message


class TooManyError(ApiError):
    """HTTP 429: the caller, or its address, sends more requests than its limit.

    Attributes:
        retry_after_s: seconds after which to try again.
    """

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(429, message, {"retry-after": str(retry_after_s)})
        self.retry_after_s = retry_after_s


_STATUSES: tuple[tuple[type[IcefloeError], int], ...] = (
    (UnknownConnectorError, 404),
    (UnknownTaskError, 404),
    (ConflictError, 409),
    (NotAllowedError, 400),
    (ConfigError, 400),
    (UnavailableError, 503),
    (RetriableError, 503),
)


def status_of(error: IcefloeError) -> int:
    """Return the HTTP status of an error; 500 for those that no client can correct."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


@contextmanager
def not_found(message: str) -> Iterator[None]:
    """Answer 404 with this message when the block finds no such connector or task."""
    try:
        yield
    except (UnknownConnectorError, UnknownTaskError):
        raise ApiError(404, message) from None


def add_error_handlers(app: FastAPI) -> None:
    """Give every error of the application Kafka Connect's body."""
    app.add_exception_handler(ApiError, _answered)
    app.add_exception_handler(IcefloeError, _product_error)
    app.add_exception_handler(HTTPException, _router_refusal)
    app.add_exception_handler(RequestValidationError, _invalid_parameter)
    app.add_exception_handler(Exception, _bug)


async def _answered(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, ApiError)
    content = error_body(error.status_code, KNOWN.mask(error.message))
    return Response(content, error.status_code, error.headers, JSON_TYPE)


async def _product_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, IcefloeError)
    status = status_of(error)
    if status == 500:
        _LOG.error("%s %s: %s", request.method, request.url.path, error)
    content = error_body(status, KNOWN.mask(error.message or type(error).__name__))
    return Response(content, status, media_type=JSON_TYPE)


async def _router_refusal(request: Request, error: Exception) -> Response:
    """Answer a request without a path operation; without content type, as in Kafka Connect."""
    del request
    status = error.status_code if isinstance(error, HTTPException) else 500
    return Response(error_body(status, f"HTTP {status} {_PHRASES.get(status, 'Error')}"), status)


async def _invalid_parameter(request: Request, error: Exception) -> Response:
    """Answer a request with an invalid path or query parameter; bodies are validated when read."""
    del request
    assert isinstance(error, RequestValidationError)
    first_error = error.errors()[0]
    if first_error["loc"][0] == "path":
        return Response(error_body(404, "HTTP 404 Not Found"), 404, media_type=JSON_TYPE)
    message = "The request must be a JSON object, not null or missing"
    if first_error["loc"][0] != "body":
        message = f"The parameter {first_error['loc'][-1]} is not valid: {first_error['msg']}"
    return Response(error_body(400, message), 400, media_type=JSON_TYPE)


async def _bug(request: Request, error: Exception) -> Response:
    """Answer 500 without details; the server logs the error with its trace."""
    del request, error
    return Response(error_body(500, "Internal Server Error"), 500, media_type=JSON_TYPE)
