"""The snapshot property that names source records that were deleted before they were read.

Rules of this file:
- A task announces lost records with files, so they are in the snapshot that adds these files.
- The property has a bounded number of ranges, and the number of all lost offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from typing import Final

from coordinator.kernel.effects import Envelope

PROPERTY: Final = "icefloe.data-loss"
RANGES_MAX: Final = 50


def lost_records(announcements: Iterable[Envelope], floor: Mapping[int, int]) -> dict[str, str]:
    """Return the snapshot property ``icefloe.data-loss``; nothing if no record was lost.

    Its value is JSON: ``{"ranges":[["orders",0,10,25]],"more":0,"offsets":15}``, with topic,
    partition, first lost offset and the next offset after the last one. The latter is null, and not
    counted, for a topic that was created again: the end of the former topic is unknown.

    Args:
        announcements: of the table.
        floor: control partition -> control offset below which the table has the announcements.
    """
    lost = {
        lost_range
        for envelope in announcements
        if envelope.offset >= floor.get(envelope.partition, 0)
        for lost_range in envelope.headers.lost
    }
    if not lost:
        return {}
    ranges = sorted((astuple(lost_range) for lost_range in lost), key=lambda r: (*r[:3], r[3] or 0))
    value = {
        "ranges": ranges[:RANGES_MAX],
        "more": max(0, len(ranges) - RANGES_MAX),
        "offsets": sum(lost_range.offsets for lost_range in lost),
    }
    return {PROPERTY: json.dumps(value, separators=(",", ":"), ensure_ascii=False)}
