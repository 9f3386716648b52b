"""Errors of clients as errors of the REST API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from connect.errors import ConfigError, RetriableError
from connect.node.herder_api import NotAllowedError, UnavailableError


@contextmanager
def reachable() -> Iterator[None]:
    """Map refusals of the broker, and its absence, to errors of the API."""
    try:
        yield
    except ConfigError as e:
        raise NotAllowedError(e.message, code=e.code) from e
    except RetriableError as e:
        if e.code == "group_in_use":  # the caller can correct it
            raise NotAllowedError(e.message, code=e.code) from e
        raise UnavailableError(e.message, code=e.code) from e
