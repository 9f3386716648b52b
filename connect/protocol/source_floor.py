"""Source partitions that a connector has read, as the config topic keeps them.

Brokers delete committed offsets, and retention deletes announcements. A partition in this record
was read before, so it must not start from ``auto.offset.reset`` again.

The record also has the start offsets that ``icefloe.start.timestamp`` gave to the partitions of the
first layout. They are stored before a task of that layout may start, so that a task that is killed
before it stored its first offsets starts at the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from connect.model.layout import TopicPartition


@dataclass(frozen=True, slots=True)
class SourceFloor:
    """Partitions that had a committed source offset, and where the others start.

    Attributes:
        offsets: partition -> the committed source offset that was read last.
        topic_ids: id of each topic at that time; a topic with another id is a new topic.
        starts: partition -> start offset, used while the partition has no committed offset.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def is_stored(self) -> bool:
        """Return whether there is anything to store."""
        return bool(self.offsets or self.starts)

    def of(
        self, partitions: Collection[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, int]:
        """Return the floors of these partitions, without those of topics that were replaced."""
        return {
            tp: self.offsets[tp]
            for tp in partitions
            if tp in self.offsets and self._is_same(tp.topic, topic_ids)
        }

    def starts_of(
        self, partitions: Collection[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, int]:
        """Return the start offsets of these partitions, without those of replaced topics."""
        return {
            tp: self.starts[tp]
            for tp in partitions
            if tp in self.starts and self._is_same(tp.topic, topic_ids)
        }

    def updated(
        self, committed: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]
    ) -> SourceFloor:
        """Return a floor with these offsets, without topics that were deleted or replaced.

        Args:
            committed: committed source offsets.
            topic_ids: present ids of all existing topics of the floor, of its start offsets and of
                ``committed``.
        """
        known = {tp for tp in {*self.offsets, *self.starts} if tp.topic in topic_ids}
        offsets = {**self.of(known, topic_ids), **committed}
        return _floor(offsets, topic_ids, self.starts_of(known, topic_ids))

    def without(self, partitions: Collection[TopicPartition]) -> SourceFloor:
        """Return a floor without these partitions."""
        offsets, starts = (
            {tp: at for tp, at in known.items() if tp not in partitions}
            for known in (self.offsets, self.starts)
        )
        return _floor(offsets, self.topic_ids, starts)

    def _is_same(self, topic: str, topic_ids: Mapping[str, str]) -> bool:
        known, now = self.topic_ids.get(topic), topic_ids.get(topic)
        return known is None or now is None or known == now


def _floor(
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    starts: Mapping[TopicPartition, int],
) -> SourceFloor:
    topics = {tp.topic for tp in {*offsets, *starts}}
    return SourceFloor(offsets, {t: i for t, i in topic_ids.items() if t in topics}, starts)
