"""Errors of Spark tasks on their way to the driver, as rows of descriptors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from connect.errors import ConfigError, RecordError, RetriableError

LETTERS_FULL = "dead_letters_full"
"""A Spark task met more dead letters than it can keep, or all of them more than the driver can."""

LARGE_RECORD = "record_not_small"
"""A record is not as small as all of a read were taken to be."""

NOT_WRITABLE = "table_not_writable"
"""The store does not take files of a table, while it may take those of others."""

REFUSALS = frozenset({NOT_WRITABLE, "forbidden", "unauthorized"})
"""A table may not be used: the fault of no record, and gone once it is allowed."""


def is_reported(error: RecordError | RetriableError | ConfigError) -> bool:
    """Whether the driver is told of an error; Spark need not try again what would fail again."""
    return (
        isinstance(error, RecordError)
        or error.code in {LETTERS_FULL, *REFUSALS}
        or error.code.startswith("registry_")
    )


def error_row(error: RecordError | RetriableError | ConfigError) -> tuple[str, bytes]:
    """What ended a task: its first refused record, tolerance none, or an outage."""
    if isinstance(error, RecordError):
        return "error", _dump(error_json(error))
    kind = "RetriableError" if isinstance(error, RetriableError) else "ConfigError"
    return "failure", _dump([kind, error.message, error.code, error.coordinates])


def reported(payload: bytes) -> RecordError | RetriableError | ConfigError:
    """The error of a payload that ``error_row`` made."""
    item = json.loads(payload)
    return error_from(item) if isinstance(item, dict) else failure_of(*item)


def error_json(error: RecordError) -> dict[str, Any]:
    """An error of a record as JSON holds it."""
    return {
        "message": error.message,
        "stage": error.stage,
        "code": error.code,
        "coordinates": error.coordinates,
    }


def error_from(item: dict[str, Any]) -> RecordError:
    """Inverse of ``error_json``."""
    return RecordError(
        item["message"], stage=item["stage"], code=item["code"], **item["coordinates"]
    )


def failure_of(
    kind: str, message: str, code: str, coordinates: Mapping[str, Any]
) -> RetriableError | ConfigError:
    """The failure that ``error_row`` told."""
    failure = ConfigError if kind == "ConfigError" else RetriableError
    return failure(message, code=code, **coordinates)


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()
