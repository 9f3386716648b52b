"""Control offsets as tables store them: JSON, control partition -> next control offset."""

from __future__ import annotations

import json
from collections.abc import Mapping

from connect.errors import CommitRefused

_PARTITION_DIGITS_MAX = 9
_OFFSET_MAX = 2**63 - 1
_TEXT_CHARACTERS_MAX = 4_000_000


def merged(*floors: Mapping[int, int]) -> dict[int, int]:
    """Return the highest offset of each control partition."""
    out: dict[int, int] = {}
    for floor in floors:
        for partition, offset in floor.items():
            if partition not in out or offset > out[partition]:
                out[partition] = offset
    return out


def covers(floor: Mapping[int, int], other: Mapping[int, int]) -> bool:
    """Return whether ``floor`` is below ``other`` in no partition."""
    return all(floor.get(partition, -1) >= offset for partition, offset in other.items())


def offsets_text(offsets: Mapping[int, int]) -> str:
    """Return control offsets in the form of snapshot properties, as Java's sink writes them."""
    return json.dumps({str(p): offsets[p] for p in sorted(offsets)}, separators=(",", ":"))


def parse_offsets(text: str | None) -> dict[int, int]:
    """Parse the result of ``offsets_text``; None gives an empty mapping.

    Raises:
        CommitRefused: ``floor_unreadable``: a guessed offset could lose rows.
    """
    if text is None:
        return {}
    try:
        offsets = json.loads(text) if len(text) <= _TEXT_CHARACTERS_MAX else None
    except (ValueError, RecursionError):
        offsets = None
    if isinstance(offsets, dict) and all(_is_offset(k, v) for k, v in offsets.items()):
        return {int(partition): offset for partition, offset in offsets.items()}
    raise CommitRefused(
        "the control offsets kept in the table cannot be read", code="floor_unreadable"
    )


def _is_offset(partition: str, offset: object) -> bool:
    return (
        partition.isascii()
        and partition.isdecimal()
        and len(partition) <= _PARTITION_DIGITS_MAX
        and type(offset) is int
        and 0 <= offset <= _OFFSET_MAX
    )
