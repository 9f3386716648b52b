"""Where a bounded run ends: the parsed value of ``icefloe.end``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

LATEST: Final = "latest"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_MS = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class EndPosition:
    """The end of a bounded run.

    Attributes:
        timestamp_ms: milliseconds since 1970 UTC: the run ends before the first record with this
            timestamp or a later one. None is the present end of each partition.
    """

    timestamp_ms: int | None = None


def end_position(text: str) -> EndPosition:
    """Parse ``icefloe.end``.

    Raises:
        ValueError: it is neither ``latest`` nor a timestamp.
    """
    text = text.strip()
    return EndPosition() if text == LATEST else EndPosition(_timestamp_ms(text))


def end_error(text: str | None) -> str | None:
    """Check ``icefloe.end``."""
    try:
        end_position(text or "")
    except ValueError as error:
        return str(error)
    return None


def _timestamp_ms(text: str) -> int:
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "it must be latest, an ISO-8601 instant such as 2026-01-02T03:04:05Z, or milliseconds "
            "since 1970"
        ) from None
    if moment.tzinfo is None:
        raise ValueError("the instant has no time zone; add Z or an offset such as +02:00")
    return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
