"""One tree of errors, split by what the caller must do.

::

    IcefloeError
    |- ConfigError          fix the configuration; HTTP 400; never retried
    |- RecordError          about one record; errors.tolerance and dead letters decide
    |- RetriableError       try again unchanged, bounded
    |- CommitError
    |  |- CommitConflict      certainly not applied: reload, rebuild, try again
    |  |- CommitStateUnknown  perhaps applied: read the table, never guess
    |  `- CommitRefused       certainly not applied, and trying again unchanged will not help
    |- Fenced               another process has taken over: stop, no retry
    |- DataLost             source or control data that we need is gone: stop and name the range
    `- InvariantViolation   a bug: crash loudly with the state

Every error has a bounded ``code`` (also its metric label) and carries coordinates. Foreign
exceptions are mapped once, in the gateway that caught them. A command that ends with an error exits
with the error's ``exit_status``.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, ClassVar

from connect.redaction.foreign_text import is_hidden


class ExitStatus(IntEnum):
    """How every command ends; docs/reference/command-line.md has the table.

    Attributes:
        DONE: done, or the answer is yes.
        NO: the answer is no: refused, not found, not sound, something would change.
        USAGE: arguments, files or the environment are wrong, or ``--yes`` is missing.
        NOT_ASKED: no answer: unreachable, not authenticated, failed on the other side, a bug.
    """

    DONE = 0
    NO = 1
    USAGE = 2
    NOT_ASKED = 3


class IcefloeError(Exception):
    """Base of all errors of this product.

    Args:
        message: one sentence that names what is wrong and where, and what to do if that is known.
        code: bounded identifier; the class's default when not given.
        coordinates: connector, topic, partition, offset, table, commit_id, column, file ...
    """

    default_code: ClassVar[str] = "error"
    exit_status: ExitStatus = ExitStatus.NOT_ASKED

    def __init__(self, message: str, *, code: str | None = None, **coordinates: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.coordinates = {k: v for k, v in coordinates.items() if v is not None}

    def __str__(self) -> str:
        where = ", ".join(f"{k}={v}" for k, v in self.coordinates.items())
        return f"{self.message} [{where}]" if where else self.message

    def at(self, **coordinates: Any) -> IcefloeError:
        """Add coordinates known further up, keep those already there; return self."""
        self.coordinates = {
            **{k: v for k, v in coordinates.items() if v is not None},
            **self.coordinates,
        }
        return self


class ConfigError(IcefloeError):
    """Fix the configuration; never retried."""

    default_code = "config"
    exit_status = ExitStatus.USAGE


class RecordError(IcefloeError):
    """About one record; ``errors.tolerance`` and dead letters decide.

    Args:
        message: what is wrong, without the record's content.
        stage: Kafka Connect's stage name: KEY_CONVERTER, VALUE_CONVERTER, HEADER_CONVERTER,
            TRANSFORMATION, ROUTE (ours), TASK_PUT.
        code: bounded identifier.
        coordinates: topic, partition, offset, column, table.
    """

    default_code = "record"

    def __init__(
        self, message: str, *, stage: str = "TASK_PUT", code: str | None = None, **coordinates: Any
    ) -> None:
        super().__init__(message, code=code, **coordinates)
        self.stage = stage


class RetriableError(IcefloeError):
    """Try again unchanged, bounded."""

    default_code = "retriable"


class CommitError(IcefloeError):
    """A catalog commit did not answer with success."""

    default_code = "commit"


class CommitConflict(CommitError):  # noqa: N818 - the standard term
    """Certainly not applied: reload, rebuild, try again."""

    default_code = "commit_conflict"


class CommitStateUnknown(CommitError):  # noqa: N818 - the standard term
    """Perhaps applied: keep every file and search the table for the snapshot id."""

    default_code = "commit_unknown"


class CommitRefused(CommitError):  # noqa: N818 - pairs with CommitConflict
    """Certainly not applied, and trying again unchanged will not help (table gone, no right)."""

    default_code = "commit_refused"


class Fenced(IcefloeError):  # noqa: N818 - the standard term
    """Another process has taken over: stop, no retry."""

    default_code = "fenced"


class DataLost(IcefloeError):  # noqa: N818 - the standard term
    """Source or control data that we need is gone: stop and name the range."""

    default_code = "data_lost"


class InvariantViolation(IcefloeError):  # noqa: N818 - the standard term
    """A bug: crash loudly with the state."""

    default_code = "invariant"


def trace_of(error: BaseException) -> str:
    """Return an error as text: class, code, cause and coordinates first, then the stack.

    Texts of other systems are left out if they must stay in the process.
    """
    stack = "".join(_stack(error))
    code = f" ({error.code})" if isinstance(error, IcefloeError) else ""
    text = "" if is_hidden(error) else f": {error}"
    return f"{type(error).__name__}{code}{text}\n\n{stack}"


def _stack(error: BaseException) -> Iterator[str]:
    """Yield the error and its causes, oldest first, as Python prints them."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    if not any(map(is_hidden, chain)):
        yield from traceback.format_exception(error)
        return
    for each in reversed(chain):
        yield "Traceback (most recent call last):\n"
        yield from traceback.format_tb(each.__traceback__)
        yield f"{type(each).__name__}\n" if is_hidden(each) else f"{type(each).__name__}: {each}\n"
