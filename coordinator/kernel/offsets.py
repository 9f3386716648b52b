"""Arithmetic of control offsets and source ranges.

Rules of this file:
- A control offset stored for the group never passes an announcement that is not in its table.
- Source ranges of a partition follow each other without gap or overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from connect.errors import InvariantViolation
from connect.model.layout import TopicPartition
from control_schemas.events import DataWritten, SourceRange
from coordinator.kernel.effects import Envelope


def group_offsets(closed_at: Mapping[int, int], kept: Iterable[Envelope]) -> dict[int, int]:
    """Control offsets the ``-coord`` group may store.

    Args:
        closed_at: control partition -> next control offset at which the round was closed.
        kept: announcements that are in no table yet.

    Returns:
        control partition -> next control offset.
    """
    out = dict(closed_at)
    for envelope in kept:
        if envelope.offset < out.get(envelope.partition, 0):
            out[envelope.partition] = envelope.offset
    return out


def is_read_to(positions: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """Whether every control partition is read up to its end."""
    return all(positions.get(partition, 0) >= end for partition, end in ends.items())


def is_for_table(uuid: UUID | None, envelope: Envelope) -> bool:
    """Whether an announcement is for the table of this identity."""
    payload = envelope.event.payload
    return (
        uuid is not None and isinstance(payload, DataWritten) and payload.table.table_uuid == uuid
    )


class RangeLedger:
    """Checks that each announced source range starts where the partition's last one ended."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}

    def add(self, ranges: Iterable[SourceRange]) -> None:
        """Take the ranges of one announcement.

        Raises:
            InvariantViolation: ``source_overlap`` or ``source_gap``, naming the range.
        """
        for r in ranges:
            tp = TopicPartition(r.topic, r.partition)
            last_end = self._ends.get(tp, r.start_offset)
            if r.start_offset != last_end:
                kind = "overlaps" if r.start_offset < last_end else "leaves a gap after"
                raise InvariantViolation(
                    f"the announced range {r.start_offset}..{r.end_offset} {kind} the last one, "
                    f"which ended at {last_end}",
                    code="source_overlap" if r.start_offset < last_end else "source_gap",
                    topic=r.topic,
                    partition=r.partition,
                    offset=r.start_offset,
                )
            self._ends[tp] = r.end_offset

    def moved(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that will go on elsewhere, because somebody said so; none means all."""
        chosen = list(partitions)
        if not chosen:
            self._ends.clear()
        self.forget(chosen)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions announced by someone who gives no ranges (the Java sink)."""
        for tp in partitions:
            self._ends.pop(tp, None)
