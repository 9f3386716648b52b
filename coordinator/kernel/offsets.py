"""Arithmetic of control offsets and source ranges.

Rules of this file:
- A control offset stored for the group never passes an announcement that is not in its table.
- Source ranges of a partition follow each other without gap or overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from connect.errors import Fenced, InvariantViolation
from connect.model.layout import TopicPartition
from control_schemas.events import DataComplete, DataWritten, SourceRange, StartCommit
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


class ControlPositions:
    """How far each control partition is read.

    Attributes:
        next_offsets: control partition -> next control offset to be read.
    """

    def __init__(self) -> None:
        self.next_offsets: dict[int, int] = {}
        self._initial_ends: Mapping[int, int] = {}

    def set_initial_ends(self, ends: Mapping[int, int]) -> None:
        """Remember where the control log ended when the kernel started."""
        self._initial_ends = ends

    @property
    def is_past_initial_ends(self) -> bool:
        """Whether everything is read that was in the log when the kernel started."""
        next_offsets = self.next_offsets
        return all(
            next_offsets.get(partition, 0) >= end for partition, end in self._initial_ends.items()
        )

    def read(self, envelope: Envelope) -> None:
        """An event was read.

        Raises:
            InvariantViolation: ``control_order``: it was read before.
            Fenced: ``group_in_use``: another sink wrote it after the kernel started.
        """
        if not envelope.headers.are_of_icefloe:
            self._refuse_other_sinks(envelope)
        partition, offset = envelope.partition, envelope.offset
        if offset < self.next_offsets.get(partition, 0):
            raise InvariantViolation(
                "a control event was read twice",
                code="control_order",
                control_partition=partition,
                control_offset=offset,
            )
        self.next_offsets[partition] = offset + 1

    def advance(self, positions: Mapping[int, int]) -> None:
        """The log is read up to these control offsets; lower ones change nothing."""
        next_offsets = self.next_offsets
        for partition, next_offset in positions.items():
            if next_offset > next_offsets.get(partition, -1):
                next_offsets[partition] = next_offset

    def _refuse_other_sinks(self, envelope: Envelope) -> None:
        """Refuse an event without Icefloe's headers that was written after the kernel started."""
        if envelope.offset < self._initial_ends.get(envelope.partition, envelope.offset + 1):
            return
        payload = envelope.event.payload
        if isinstance(payload, StartCommit | DataWritten | DataComplete):
            raise Fenced(
                f"another sink of this connector's group has written {type(payload).__name__} "
                "while this connector runs, so both read the same records: stop that sink, find "
                "doubled rows with icefloe audit, take them back with icefloe rewind, and restart "
                "the connector",
                code="group_in_use",
                control_partition=envelope.partition,
                control_offset=envelope.offset,
            )


class RangeLedger:
    """Checks that each announced source range starts where the partition's last one ended.

    Args:
        ranges_from: control partition -> control offset; ranges below it are not checked.
    """

    def __init__(self, ranges_from: Mapping[int, int] | None = None) -> None:
        self._ranges_from = ranges_from or {}
        self._ends: dict[TopicPartition, int] = {}

    def read(self, completion: DataComplete, envelope: Envelope) -> None:
        """Take the source ranges in the headers of a DataComplete event.

        Raises:
            InvariantViolation: as ``add``.
        """
        ranges = envelope.headers.ranges
        if ranges is None or envelope.offset < self._ranges_from.get(envelope.partition, 0):
            assignments = completion.assignments or ()
            self.forget(TopicPartition(a.topic, a.partition) for a in assignments)
        else:
            self.add(ranges)

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

    def offsets_changed(self, partitions: Iterable[TopicPartition]) -> None:
        """Accept any next range of these partitions: an operator changed their source offsets.

        Args:
            partitions: the changed ones; none means all.
        """
        chosen = list(partitions)
        if not chosen:
            self._ends.clear()
        self.forget(chosen)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Accept any next range of partitions that a task without ranges announced (Java's)."""
        for tp in partitions:
            self._ends.pop(tp, None)
