"""Source partitions that a connector has read, as the config topic keeps them.

Brokers delete committed offsets, and retention deletes announcements. A partition in this record
was read before, so it must not start from ``auto.offset.reset`` again.

An offset of this record may be behind: an announcement can follow it. The record therefore has
the control offset below which every announcement is counted. If the control topic still holds all
events from there on, the offset together with these events is exact.

The record also has the start offsets that ``icefloe.start.timestamp`` gave to the partitions of the
first layout. They are stored before a task of that layout may start, so that a task that is killed
before it stored its first offsets starts at the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from connect.model.layout import TopicPartition


@dataclass(frozen=True, slots=True)
class RecreatedTopic:
    """A source topic that was deleted and created again, after which the connector continues.

    Attributes:
        topic_id: id of the topic that is read from its start.
        former_ids: ids of the topics that it replaced, newest first. They never come back: a broker
            that reports one of them is behind.
        lost_from: partition -> next offset of the former topic; its records from there on are lost.
        is_pending: the source offsets are not set yet.
    """

    topic_id: str
    former_ids: tuple[str, ...] = ()
    lost_from: Mapping[int, int] = field(default_factory=dict)
    is_pending: bool = False


@dataclass(frozen=True, slots=True)
class ControlEvents:
    """Which events of a connector the control topic holds, in the partition of Icefloe's events.

    Attributes:
        topic_id: id of the control topic.
        start: first control offset that is retained.
        end: last stable control offset.
    """

    topic_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SourceFloor:
    """Partitions that had a committed source offset, and where the others start.

    Attributes:
        offsets: partition -> the committed source offset that was read last.
        topic_ids: id of each topic at that time; a topic with another id is a new topic.
        starts: partition -> start offset, used while the partition has no committed offset.
        control: partition -> control offset. ``offsets`` counts every announcement below it.
        control_topic_id: id of the control topic that ``control`` is about.
        recreated: source topics that were created again while the connector continued.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    control: Mapping[TopicPartition, int] = field(default_factory=dict)
    control_topic_id: str = ""
    recreated: Mapping[str, RecreatedTopic] = field(default_factory=dict)

    @property
    def is_stored(self) -> bool:
        """Return whether there is anything to store."""
        return bool(self.offsets or self.starts or self.recreated)

    def is_complete(self, tp: TopicPartition, events: ControlEvents | None) -> bool:
        """Return whether every announcement of a partition is in its offset or still an event."""
        at = self.control.get(tp)
        if at is None or events is None or events.topic_id != self.control_topic_id:
            return False
        return events.start <= at <= events.end

    def lost_from(
        self, partitions: Collection[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, int]:
        """Return where the lost records of recreated topics begin, by partition."""
        return {
            tp: recreation.lost_from[tp.partition]
            for tp in partitions
            if (recreation := self.recreated.get(tp.topic)) is not None
            and recreation.topic_id == topic_ids.get(tp.topic)
            and tp.partition in recreation.lost_from
        }

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
        self,
        committed: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str],
        events: ControlEvents | None = None,
    ) -> SourceFloor:
        """Return a floor with these offsets, without topics that were deleted or replaced.

        Args:
            committed: committed source offsets.
            topic_ids: present ids of all existing topics of the floor, of its start offsets and of
                ``committed``.
            events: the control topic, as it was before ``committed`` was read.
        """
        noted = {tp for tp in {*self.offsets, *self.starts} if tp.topic in topic_ids}
        offsets = {**self.of(noted, topic_ids), **committed}
        floor = _floor(self, offsets, topic_ids, self.starts_of(noted, topic_ids))
        if events is None:
            return floor
        is_same = events.topic_id == self.control_topic_id
        kept = {tp: at for tp, at in self.control.items() if is_same and tp in offsets}
        control = kept | dict.fromkeys(committed, events.end)
        return replace(floor, control=control, control_topic_id=events.topic_id)

    def without(self, partitions: Collection[TopicPartition]) -> SourceFloor:
        """Return a floor without these partitions."""
        offsets, starts = (
            {tp: at for tp, at in by_partition.items() if tp not in partitions}
            for by_partition in (self.offsets, self.starts)
        )
        return _floor(self, offsets, self.topic_ids, starts)

    def with_recreated(self, topics: Mapping[str, RecreatedTopic]) -> SourceFloor:
        """Return a floor in which these topics were created again."""
        return replace(self, recreated={**self.recreated, **topics})

    def _is_same(self, topic: str, topic_ids: Mapping[str, str]) -> bool:
        known_id, present_id = self.topic_ids.get(topic), topic_ids.get(topic)
        return known_id is None or present_id is None or known_id == present_id


def _floor(
    floor: SourceFloor,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    starts: Mapping[TopicPartition, int],
) -> SourceFloor:
    topics = {tp.topic for tp in {*offsets, *starts}}
    return replace(
        floor,
        offsets=offsets,
        topic_ids={t: i for t, i in topic_ids.items() if t in topics},
        starts=starts,
        control={tp: at for tp, at in floor.control.items() if tp in offsets},
    )
