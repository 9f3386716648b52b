"""Where a bounded run ends: the parsed value of ``icefloe.end``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from connect.config.start_position import parse_timestamp

LATEST: Final = "latest"


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
    if text == LATEST:
        return EndPosition()
    try:
        return EndPosition(parse_timestamp(text))
    except ValueError as error:
        raise ValueError(f"neither {LATEST} nor a timestamp: {error}") from None


def end_error(text: str | None) -> str | None:
    """Check ``icefloe.end``."""
    try:
        end_position(text or "")
    except ValueError as error:
        return str(error)
    return None
