"""Source partitions that a connector has read, as the config topic keeps them.

Brokers delete committed offsets, and retention deletes announcements. A partition in this record
was read before, so it must not start from ``auto.offset.reset`` again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from connect.model.layout import TopicPartition


@dataclass(frozen=True, slots=True)
class SourceFloor:
    """Partitions that had a committed source offset.

    Attributes:
        offsets: partition -> the committed source offset that was read last.
        topic_ids: id of each topic at that time; a topic with another id is a new topic.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def of(
        self, partitions: Collection[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, int]:
        """Return the floors of these partitions, without those of topics that were replaced."""
        return {
            tp: self.offsets[tp]
            for tp in partitions
            if tp in self.offsets and self._is_same(tp.topic, topic_ids)
        }

    def updated(
        self, committed: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]
    ) -> SourceFloor:
        """Return a floor with these offsets, without topics that were deleted or replaced.

        Args:
            committed: committed source offsets.
            topic_ids: present ids of all existing topics of the floor and of ``committed``.
        """
        kept = {
            tp: at
            for tp, at in self.offsets.items()
            if tp.topic in topic_ids and self._is_same(tp.topic, topic_ids)
        }
        offsets = {**kept, **committed}
        topics = {tp.topic for tp in offsets}
        return SourceFloor(offsets, {t: i for t, i in topic_ids.items() if t in topics})

    def without(self, partitions: Collection[TopicPartition]) -> SourceFloor:
        """Return a floor without these partitions."""
        left = {tp: at for tp, at in self.offsets.items() if tp not in partitions}
        topics = {tp.topic for tp in left}
        return SourceFloor(left, {t: i for t, i in self.topic_ids.items() if t in topics})

    def _is_same(self, topic: str, topic_ids: Mapping[str, str]) -> bool:
        known, now = self.topic_ids.get(topic), topic_ids.get(topic)
        return known is None or now is None or known == now
