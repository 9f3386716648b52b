"""Errors of Spark tasks as descriptor rows, which Spark sends to the driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from connect.errors import ConfigError, RecordError, RetriableError

DEAD_LETTERS_FULL = "dead_letters_full"
"""The dead letters of a Spark task, or of all tasks of a batch, do not fit into memory."""

OUTPUT_FULL = "output_full"
"""The rows of a Spark task for outputs do not fit into memory."""

OUTPUT_COLUMN = "output_column"
"""A table lacks a column that an output names."""

CONVERTER_UNAVAILABLE = "converter_unavailable"
"""A service that a user's converter needs does not answer."""

DISK_FULL = "disk_full"
"""The temporary folder has no room for rows that one Spark task passes on to another."""

HOST_REFUSED = "host_refused"
"""The access policy of the node does not allow the host of a registry."""

RECORD_FAILED = "record_failed"
"""A record raised an exception that no code expects, and the batch succeeds without it."""

LARGE_RECORD = "record_not_small"
"""A record is large in a read that expects small records."""

NOT_WRITABLE = "table_not_writable"
"""The store does not accept files of a table; it may accept those of other tables."""

STORE_UNAVAILABLE = "storage_unavailable"
"""The store does not answer, after its client has repeated the request."""

TYPE_CONFLICT = "type_conflict"
"""A table fails because the source has changed the type of a column."""

REFUSALS = frozenset({NOT_WRITABLE, TYPE_CONFLICT, "forbidden", "unauthorized"})
"""A table may not be used. A change of permissions, or of the table, ends it."""

_REPORTED = REFUSALS | {
    DEAD_LETTERS_FULL,
    DISK_FULL,
    HOST_REFUSED,
    OUTPUT_COLUMN,
    OUTPUT_FULL,
    STORE_UNAVAILABLE,
}


def is_converter_outage(error: RetriableError | ConfigError) -> bool:
    """Return whether a service that a converter uses did not answer, or refused us."""
    return error.code == CONVERTER_UNAVAILABLE or error.code.startswith("registry_")


def is_reported(error: RecordError | RetriableError | ConfigError) -> bool:
    """Return whether to send an error to the driver; Spark retries all other errors first."""
    return isinstance(error, RecordError) or error.code in _REPORTED or is_converter_outage(error)


def error_row(error: RecordError | RetriableError | ConfigError) -> tuple[str, bytes]:
    """Return the row of the error that ended a task: a refused record or a failed service."""
    if isinstance(error, RecordError):
        return "error", _dump(error_json(error))
    kind = "RetriableError" if isinstance(error, RetriableError) else "ConfigError"
    return "failure", _dump([kind, error.message, error.code, error.coordinates])


def reported(payload: bytes) -> RecordError | RetriableError | ConfigError:
    """Return the error of a payload of ``error_row``."""
    item = json.loads(payload)
    return error_from(item) if isinstance(item, dict) else failure_of(*item)


def error_json(error: RecordError) -> dict[str, Any]:
    """Return the error of a record as a JSON object."""
    return {
        "message": error.message,
        "stage": error.stage,
        "code": error.code,
        "coordinates": error.coordinates,
    }


def error_from(item: dict[str, Any]) -> RecordError:
    """Return the error of an object of ``error_json``."""
    return RecordError(
        item["message"], stage=item["stage"], code=item["code"], **item["coordinates"]
    )


def failure_of(
    kind: str, message: str, code: str, coordinates: Mapping[str, Any]
) -> RetriableError | ConfigError:
    """Return the failure of a payload of ``error_row``."""
    failure = ConfigError if kind == "ConfigError" else RetriableError
    return failure(message, code=code, **coordinates)


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()
