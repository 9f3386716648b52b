"""Where a connector reads again that goes back before its first commit. Pure.

``icefloe.start.offsets`` and ``icefloe.start.timestamp`` count as for a new connector: records
before them were never wanted. ``auto.offset.reset`` does not count, nor does an offset of -1 or
-2: they name no record, and ``latest`` would skip every row that is to be loaded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connect.config.start_position import StartPosition
from connect.model.layout import TopicPartition


@dataclass(frozen=True, slots=True)
class FirstPositions:
    """Start offsets of partitions.

    Attributes:
        offsets: of each partition, inside its log.
        gone: the ranges of records that Kafka no longer holds, as text.
        notes: what the operator should know, a sentence each.
    """

    offsets: Mapping[TopicPartition, int]
    gone: tuple[str, ...]
    notes: tuple[str, ...]


def first_positions(
    start: StartPosition,
    logs: Mapping[TopicPartition, tuple[int, int]],
    since: Mapping[TopicPartition, int],
) -> FirstPositions:
    """Return where these partitions are read from.

    Args:
        start: the connector's settings.
        logs: start and end of each partition's log.
        since: first offsets at or after ``start.timestamp_ms``; empty without it.
    """
    offsets, gone = {}, []
    for tp, (log_start, end) in sorted(logs.items()):
        named = start.offsets.get(tp, -1)
        position = named if named >= 0 else since.get(tp, 0)
        offsets[tp] = min(max(position, log_start), end)
        # records before the timestamp may be among those that are gone: it is not known
        lost_from = 0 if named < 0 and position == log_start else position
        if lost_from < log_start:
            gone.append(f"{tp.topic}-{tp.partition} {lost_from}..{log_start - 1}")
    notes = []
    if any(offsets.values()) and (start.offsets or start.timestamp_ms is not None):
        notes.append("reading begins where icefloe.start.offsets and icefloe.start.timestamp say")
    if start.reset != "earliest":
        notes.append(
            f"auto.offset.reset={start.reset} names no record: other partitions are read from the "
            "beginning of their topics"
        )
    return FirstPositions(offsets, tuple(gone), tuple(notes))
