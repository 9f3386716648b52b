"""Limits of logs of tables without catalog: those who write to a store can make them large.

Rules of this file:
- The limits are those of a catalog's answer. Another table of the connector is not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from connect.errors import CommitRefused
from connect.gateways.access_policy import ANSWER_BYTES_MAX, access_policy
from connect.gateways.answer_limits import BYTES_OF_VALUE, AnswerLimitError, ValueCount

_ENTRY_BYTES: Final = 128
"""What an entry of a listing takes in memory, in addition to its name."""
Entry = TypeVar("Entry", bound=tuple[str, int])


def log_too_large() -> CommitRefused:
    """Return the error of a log."""
    bytes_max = access_policy().answer_bytes_max
    return CommitRefused(
        f"the table's log, or a file of it, has more than {bytes_max} bytes or "
        f"{bytes_max // BYTES_OF_VALUE} values: restore the log, or ask the node's operator to "
        f"raise {ANSWER_BYTES_MAX}",
        code="metadata_too_large",
    )


def limited_content(read: Callable[[int], bytes]) -> bytes:
    """Return the content of a file of a log.

    Args:
        read: of the open file; returns at most so many bytes.

    Raises:
        CommitRefused: ``metadata_too_large``: it has too many bytes.
    """
    bytes_max = access_policy().answer_bytes_max
    content = read(bytes_max + 1)
    if len(content) > bytes_max:
        raise log_too_large()
    return content


def check_values(text: bytes) -> None:
    """Check how many values a JSON text has.

    Raises:
        CommitRefused: ``metadata_too_large``.
    """
    try:
        ValueCount(access_policy().answer_bytes_max).add(text)
    except AnswerLimitError as error:
        raise log_too_large() from error


def limited_entries(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries of a listing, a name and more.

    Raises:
        CommitRefused: ``metadata_too_large``: they take too much memory.
    """
    left = access_policy().answer_bytes_max
    for entry in entries:
        left -= len(entry[0]) + _ENTRY_BYTES
        if left < 0:
            raise log_too_large()
        yield entry
