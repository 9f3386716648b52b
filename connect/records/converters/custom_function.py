"""Calls of users' functions in converters.

Rules of this file:
- Any exception of the function rejects the record, because libraries that read formats raise
  exceptions of their own classes. An ``OSError`` is an outage of a service: the batch is retried.
- Error messages contain the class of the exception, but not its message, which may contain data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast

from connect.errors import RetriableError
from connect.records.converters.converter import Role, refusal
from connect.records.entry_point_functions import outcome

CODE: Final = "custom"
UNAVAILABLE: Final = "converter_unavailable"

Result = TypeVar("Result")


def guarded(name: str, role: Role, call: Callable[[], Result]) -> Result:
    """Call a user's function.

    Args:
        name: name of the entry point.
        role: key, value or header.
        call: the call.

    Raises:
        RecordError: the function raised an exception.
        RetriableError: it raised an ``OSError``.
    """
    result, error = outcome(call)
    if isinstance(error, OSError):
        raise RetriableError(
            f"converter {name} raised {type(error).__name__}: a service that it uses is not "
            "available",
            code=UNAVAILABLE,
        )
    if error is not None:
        raise refusal(role, CODE, f"{name} raised {type(error).__name__}")
    return cast("Result", result)
