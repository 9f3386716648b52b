"""From errors to answers: one status and one non-null message each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from connect.errors import ConfigError, IcefloeError, RetriableError
from connect.rest.herder_api import (
    ConflictError,
    NotAllowedError,
    UnavailableError,
    UnknownConnectorError,
    UnknownTaskError,
)


class ApiError(IcefloeError):
    """An answer that is not a success; ``message`` goes out as it stands."""

    default_code = "api"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class TooManyError(ApiError):
    """HTTP 429: the caller, or its address, asks for more than its share.

    Attributes:
        retry_after_s: when to try again.
    """

    default_code = "too_many"

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(429, message)
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
    """The HTTP status of an error; 500 for those no client can do anything about."""
    if isinstance(error, ApiError):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


@contextmanager
def not_found(name: str) -> Iterator[None]:
    """Answer 404 where the block finds no such connector."""
    try:
        yield
    except UnknownConnectorError:
        raise ApiError(404, f"Connector {name} not found") from None


def headers_of(error: IcefloeError) -> dict[str, str]:
    """Further headers of an error's answer."""
    return {"retry-after": str(error.retry_after_s)} if isinstance(error, TooManyError) else {}
