"""Which partitions count as read before: by the config topic, and by the control topic."""

from __future__ import annotations

from uuid import UUID

from connect.model.layout import TopicPartition
from connect.protocol.control_topic import ControlRecord
from connect.protocol.offset_loss import AnnouncedOffsets, read_before
from connect.protocol.source_floor import ControlEvents, RecreatedTopic, SourceFloor
from control_schemas.events import (
    CommitComplete,
    DataComplete,
    Event,
    EventHeaders,
    TopicPartitionOffset,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
ID = UUID(int=1)


def announced(at: tuple[int, int], time_us: int, **ends: int) -> ControlRecord:
    """A DataComplete of the partitions 0 of these topics; ``at``: control partition and offset."""
    stands = tuple(TopicPartitionOffset(topic, 0, end, None) for topic, end in ends.items())
    return ControlRecord(*at, Event(ID, time_us, "connect-c", DataComplete(ID, stands)))


def moved(at: tuple[int, int], time_us: int, *partitions: TopicPartition) -> ControlRecord:
    """An operator's change; of all partitions where none is given."""
    event = Event(ID, time_us, "connect-c", CommitComplete(ID, None))
    return ControlRecord(*at, event, EventHeaders(moved=tuple(partitions)))


def test_a_recreated_topic_is_another_topic() -> None:
    """Its partitions are new; those of the topic in the floor are not."""
    floor = SourceFloor({A: 3, B: 4}, {"a": "i1", "b": "i2"})
    assert floor.of([A, B], {"a": "i1", "b": "other"}) == {A: 3}
    assert floor.of([A, TopicPartition("a", 1)], {}) == {A: 3}


def test_a_floor_drops_deleted_and_recreated_topics() -> None:
    """Committed offsets are in it."""
    floor = SourceFloor({A: 3, B: 4}, {"a": "i1", "b": "i2"})
    assert floor.updated({A: 5}, {"a": "i1"}) == SourceFloor({A: 5}, {"a": "i1"})
    again = floor.updated({}, {"a": "i1", "b": "other"})
    assert again == SourceFloor({A: 3}, {"a": "i1"})
    assert floor.without([A]) == SourceFloor({B: 4}, {"b": "i2"})


def test_fixed_start_offsets_are_kept_until_their_topic_or_partition_is_gone() -> None:
    """They survive updates of the floor, but no replaced topic and no reset partition."""
    floor = SourceFloor({}, {"a": "i1", "b": "i2"}, {A: 3, B: 4})
    assert floor.is_stored
    updated = floor.updated({A: 5}, {"a": "i1", "b": "i2"})
    assert updated == SourceFloor({A: 5}, {"a": "i1", "b": "i2"}, {A: 3, B: 4})
    assert updated.starts_of([A, B], {"a": "i1", "b": "new"}) == {A: 3}
    assert updated.updated({}, {"a": "i1"}) == SourceFloor({A: 5}, {"a": "i1"}, {A: 3})
    assert floor.without([A, B]) == SourceFloor()
    assert not SourceFloor().is_stored


def test_announcements_count_for_a_partition_without_floor() -> None:
    """A floor that starts after an offset was lost does not make its partition new."""
    floor = SourceFloor({A: 3}, {"a": "i1"})
    assert read_before([B], floor, {A: 5, B: 7}, {"a": "i1", "b": "i2"}) == {B: 7}
    assert read_before([A, B], floor, {A: 5}, {"a": "i1", "b": "i2"}) == {A: 5}
    assert read_before([A], floor, {}, {"a": "i1"}) == {A: 3}
    assert read_before([B], floor, {A: 5}, {"a": "i1", "b": "i2"}) == {}


def test_announcements_of_a_replaced_topic_do_not_count() -> None:
    """The floor has the id of the former topic, so the partitions are new."""
    floor = SourceFloor({A: 3}, {"a": "i1"})
    assert read_before([A], floor, {A: 5}, {"a": "other"}) == {}


def test_the_last_announced_end_counts() -> None:
    """By order in a control partition and by time between them, as Java's keys spread."""
    found = AnnouncedOffsets()
    found.add(announced((0, 1), 10, a=5))
    found.add(announced((0, 2), 9, a=7))
    found.add(announced((1, 0), 8, a=6, b=2))
    assert found.ends == {A: 7, TopicPartition("b", 0): 2}


def test_announcements_before_an_offset_change_do_not_count() -> None:
    """A change of one partition, then of all, then a new announcement."""
    found = AnnouncedOffsets()
    found.add(announced((0, 1), 10, a=5, b=2))
    found.add(moved((0, 2), 11, A))
    assert found.ends == {TopicPartition("b", 0): 2}
    found.add(moved((0, 3), 12))
    assert found.ends == {}
    found.add(announced((0, 4), 13, a=1))
    assert found.ends == {A: 1}
    found.add(announced((1, 9), 11, b=9))  # another control partition: before the change
    assert found.ends == {A: 1}


def test_a_floor_is_complete_while_the_control_topic_holds_what_followed() -> None:
    """Not after retention passed it, in another control topic, or in a truncated one."""
    ids = {"a": "i1", "b": "i2"}
    floor = SourceFloor().updated({A: 3}, ids, ControlEvents("c1", 0, 7))
    assert floor.is_complete(A, ControlEvents("c1", 7, 9))
    assert not floor.is_complete(A, ControlEvents("c1", 8, 9))
    assert not floor.is_complete(A, ControlEvents("c1", 0, 6))
    assert not floor.is_complete(A, ControlEvents("c2", 0, 9))
    assert not floor.is_complete(A, None)
    assert not floor.is_complete(B, ControlEvents("c1", 0, 9))


def test_an_offset_that_was_not_read_again_keeps_its_control_offset() -> None:
    """A partition whose offset has expired is not newer because the others are."""
    ids = {"a": "i1", "b": "i2"}
    floor = SourceFloor().updated({A: 3, B: 4}, ids, ControlEvents("c1", 0, 7))
    later = floor.updated({A: 5}, ids, ControlEvents("c1", 2, 20))
    assert (later.control, later.offsets) == ({A: 20, B: 7}, {A: 5, B: 4})
    assert later.updated({A: 5}, ids).control == {A: 20, B: 7}
    assert later.without([A]).control == {B: 7}
    other = later.updated({A: 6}, ids, ControlEvents("c2", 0, 1))
    assert (other.control, other.control_topic_id) == ({A: 1}, "c2")


def test_only_the_newest_announcement_of_a_control_partition_is_certain() -> None:
    """The Java sink's may be older than a deleted one in Icefloe's partition."""
    found = AnnouncedOffsets()
    found.add(announced((0, 1), 10, a=5))
    found.add(announced((1, 0), 11, b=2))
    assert found.certain == {A}
    found.events = ControlEvents("c1", 0, 2)
    assert found.certain == {A, TopicPartition("b", 0)}


def test_the_loss_of_a_recreated_topic_belongs_to_its_id() -> None:
    """And only to partitions of the former topic."""
    floor = SourceFloor(recreated={"a": RecreatedTopic("i2", ("i1",), {0: 5})})
    assert floor.is_stored
    places = [A, TopicPartition("a", 1), B]
    assert floor.lost_from(places, {"a": "i2", "b": "i3"}) == {A: 5}
    assert floor.lost_from(places, {"a": "i3"}) == {}
