"""Where source partitions stood at a cut, and what was announced around it."""

from __future__ import annotations

from uuid import UUID

import pytest

from connect.errors import CommitRefused
from connect.model.layout import TopicPartition
from connect.protocol.control_topic import ControlRecord
from control_schemas.events import (
    CommitComplete,
    DataComplete,
    DataWritten,
    Event,
    EventHeaders,
    LostRange,
    SourceRange,
    TableReference,
    TopicPartitionOffset,
)
from coordinator.rewind.control_history import AnnouncedTables, ControlHistory
from coordinator.rewind.rewind_planner import chosen_commit
from coordinator.rewind.rewind_request import RewindRequest
from coordinator.rewind.table_history import OwnCommit
from tests.support.frames import FILE

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
COMMIT = UUID(int=1)
TABLE = TableReference("iceberg", ("db",), "a", UUID(int=7))
ORDERS = "db.a"


def record(offset: int, payload: object, headers: EventHeaders | None = None) -> ControlRecord:
    """An event at a control offset."""
    event = Event(COMMIT, 0, "connect-c", payload)
    return ControlRecord(0, offset, event, headers or EventHeaders())


def answer(
    offset: int, start: int, end: int, *, tp: TopicPartition = P0, letters: int = 0
) -> ControlRecord:
    """A task's DataComplete about one partition."""
    ranges = (
        SourceRange(tp.topic, tp.partition, start, end, end - start, 0, letters, end - start, None),
    )
    places = (TopicPartitionOffset(tp.topic, tp.partition, end, None),)
    return record(offset, DataComplete(COMMIT, places), EventHeaders(layout=1, ranges=ranges))


def moved(offset: int, *partitions: TopicPartition) -> ControlRecord:
    """An operator's change of source offsets; none listed means all."""
    listed = tuple((tp.topic, tp.partition) for tp in partitions)
    return record(offset, CommitComplete(COMMIT, None), EventHeaders(moved=listed))


def history(cut: int, *records: ControlRecord, floor: int = 0) -> ControlHistory:
    """What was announced around a cut."""
    control_history = ControlHistory({0: cut}, {ORDERS: {0: floor}}, {ORDERS: UUID(int=7)})
    for record in records:
        control_history.take(record)
    return control_history


def test_a_position_is_the_end_of_the_last_range_below_the_cut() -> None:
    """Ranges above the cut do not count; a partition not read above it is not changed."""
    read = history(10, answer(3, 0, 50), answer(4, 0, 7, tp=P1), answer(12, 50, 80, letters=2))
    assert read.positions.at(P0) == 50
    assert read.positions.is_changed(P0)
    assert not read.positions.is_changed(P1)
    assert read.dead_letters == 2


def test_a_position_in_a_recreated_topic_is_unknown_before_that() -> None:
    """Offsets of the former topic mean nothing in the new one; after that they are known again."""
    lost = EventHeaders(ranges=(), lost=(LostRange("t", 0, 50, None),))
    new = record(14, DataComplete(COMMIT, ()), lost)
    events = (answer(3, 0, 50), answer(4, 0, 7, tp=P1), moved(12, P0), new, answer(15, 0, 5))
    assert history(10, *events).positions.at(P0) is None
    assert history(10, *events).positions.at(P1) == 7
    assert history(20, *events).positions.at(P0) == 5


def test_without_an_event_below_the_cut_the_first_range_above_it_counts() -> None:
    """Retention took the older announcements."""
    assert history(10, answer(12, 50, 80), answer(13, 80, 90)).positions.at(P0) == 50


@pytest.mark.parametrize("partitions", [(P0,), ()])
def test_a_change_of_offsets_separates_what_is_known(partitions: tuple) -> None:
    """Below the cut it invalidates the last end; above it, the first start."""
    below = history(10, answer(3, 0, 50), moved(5, *partitions), answer(12, 20, 80))
    assert below.positions.at(P0) == 20
    above = history(10, answer(3, 0, 50), moved(11, *partitions), answer(12, 20, 80))
    assert above.positions.at(P0) == 50
    unknown = history(10, moved(11, *partitions), answer(12, 20, 80))
    assert unknown.positions.at(P0) is None
    assert unknown.positions.is_changed(P0)


def test_an_earlier_rewind_does_not_hide_where_its_table_stood() -> None:
    """The announcement of the change is below the floor that the rewind stored."""
    read = history(36, answer(3, 0, 50), answer(20, 50, 80), moved(35, P0), answer(40, 50, 90))
    assert read.positions.at(P0) == 50


def test_files_below_the_cut_that_no_commit_took_are_found() -> None:
    """Of this table only: an announcement for a dropped table of the name does not count."""
    other = TableReference("iceberg", ("db",), "a", UUID(int=8))
    read = history(
        10,
        record(2, DataWritten(COMMIT, TABLE, (FILE,), ())),
        record(5, DataWritten(COMMIT, TABLE, (FILE,), ())),
        record(6, DataWritten(COMMIT, other, (FILE,), ())),
        record(11, DataWritten(COMMIT, TABLE, (FILE,), ())),
        floor=4,
    )
    assert (read.stranded[ORDERS], read.announced[ORDERS]) == (1, 1)


def test_a_cut_that_is_above_none_of_the_offsets() -> None:
    """The last time that the offset was not passed counts; a rewind in between lowers it again."""
    announced = AnnouncedTables({P0: 60})
    for record in (answer(3, 0, 50), answer(5, 50, 80), answer(9, 50, 60), answer(12, 60, 61)):
        announced.take(record)
    assert announced.control_offset_max == 12
    assert AnnouncedTables({P0: 60}).control_offset_max is None


def commit(offset: int, at_ms: int, snapshot_id: int = 1) -> OwnCommit:
    """A commit of some table."""
    return OwnCommit("db.a", snapshot_id, at_ms, {0: offset})


def test_the_newest_commit_that_fits_is_chosen() -> None:
    """By time, snapshot or control offset; never an older one because the newest is too old."""
    commits = [commit(30, 3_000, 3), commit(20, 2_000, 2), commit(10, 1_000)]
    assert chosen_commit(commits, RewindRequest(timestamp_ms=2_500), None, {0: 0}) == commits[1]
    assert chosen_commit(commits, RewindRequest(snapshot_id=1), None, {0: 0}) == commits[2]
    by_offsets = RewindRequest(offsets={P0: 60})
    assert chosen_commit(commits, by_offsets, 29, {0: 0}) == commits[1]
    with pytest.raises(CommitRefused, match=r"too old: .* oldest commit .* snapshot 3"):
        chosen_commit(commits, RewindRequest(timestamp_ms=2_500), None, {0: 25})
    with pytest.raises(CommitRefused, match="no commit"):
        chosen_commit(commits, RewindRequest(timestamp_ms=500), None, {0: 0})
