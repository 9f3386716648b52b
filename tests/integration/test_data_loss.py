"""A task that continues after source records that retention deleted (one broker, one session)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from connect import failpoints
from connect.errors import DataLost
from connect.model.layout import TopicPartition
from connect.protocol.source_floor import ControlEvents, RecreatedTopic, SourceFloor
from control_schemas.events import EventHeaders, LostRange, StartCommit
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from tests.support.task_harness import TaskHarness, paths, wait_until
from tests.support.topic_deletion import delete_topic
from worker.spark.session import Session

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]


@pytest.fixture
def harness(
    spark_session: Session, kafka_properties: dict[str, str], topics: Topics
) -> Iterator[TaskHarness]:
    """Two partitions; commits far apart unless a test asks."""
    made = TaskHarness(
        spark_session,
        kafka_properties,
        topics.create("source", partitions=2),
        topics.create("control"),
        2,
        overrides={"icefloe.fail-on-data-loss": "false"},
    )
    yield made
    failpoints.configure("")
    made.close()


def _delete(harness: TaskHarness, before: int) -> LostRange:
    harness.admin.delete_records({TopicPartition(harness.topic, 0): before})
    return LostRange(harness.topic, 0, 0, before)


def _said(headers: EventHeaders) -> list[tuple[int, int, int, int]]:
    return [
        (r.partition, r.start_offset, r.end_offset, r.records_read) for r in headers.ranges or ()
    ]


def test_records_deleted_before_a_start_are_reported_as_lost(harness: TaskHarness) -> None:
    """The announced range includes them; the status names them again after a retried error."""
    harness.produce(5)
    with harness.running():
        harness.round()
    harness.produce(10)
    _delete(harness, 9)
    lost = LostRange(harness.topic, 0, 5, 9)
    with harness.running() as task:
        harness.produce(1, partition=1)
        _, answer = harness.round()
        assert paths(answer) == ["0:9-14", "1:0-0"]
        assert _said(answer[-1][1]) == [(0, 5, 15, 6), (1, 0, 1, 1)]
        assert [headers.lost for _, headers in answer] == [(lost,), (lost,)]
        assert harness.committed() == {0: 15, 1: 1}
        # counted after the transaction that the round was read from
        wait_until(lambda: task.metrics.announcement.source_offsets_lost == 4)
        harness.produce(1)
        _, answer = harness.round()
        assert [headers.lost for _, headers in answer] == [(), ()]
    state, error = harness.states[-1]
    assert state == "RUNNING"
    assert f"{harness.topic}-0 [5, 9)" in str(error)
    assert harness.ended == [None]


def test_records_deleted_during_a_run_are_reported_as_lost(harness: TaskHarness) -> None:
    """Also where no record is left to read.

    An answer without files leaves the range for the files of a later one.
    """
    harness.produce(3)
    with harness.running():
        harness.produce(3)
        lost = _delete(harness, 6)
        _, answer = harness.round()
        ((_, headers),) = answer
        assert _said(headers) == [(0, 0, 6, 0)]
        assert headers.lost == (lost,)
        assert harness.committed() == {0: 6, 1: 0}
        harness.produce(2)
        _, answer = harness.round()
        assert paths(answer) == ["0:6-7"]
        assert [headers.lost for _, headers in answer] == [(lost,), ()]
    assert [state for state, _ in harness.states] == ["RUNNING", "RUNNING"]
    assert harness.ended == [None]


def test_a_kill_before_the_announcement_keeps_the_lost_range(harness: TaskHarness) -> None:
    """The range is announced with the offsets that pass it; the next start finds it again."""
    harness.produce(4)
    lost = _delete(harness, 2)
    harness.store_offsets({0: 0, 1: 0})
    failpoints.configure("W8=raise@1")
    with harness.running() as task:
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: [state for state, _ in harness.states].count("RUNNING") == 2)
        _, answer = harness.round()
        assert paths(answer) == ["0:2-3"]
        assert answer[-1][1].lost == (lost,)
        assert _said(answer[-1][1]) == [(0, 0, 4, 2)]
        wait_until(lambda: task.metrics.announcement.source_offsets_lost == 2)


def test_a_truncated_log_stops_the_task(harness: TaskHarness) -> None:
    """Its offsets would be used for other records, so no lost range can be named."""
    harness.produce(2)
    harness.store_offsets({0: 5, 1: 0})
    with harness.running():
        pass
    (error,) = harness.ended
    assert isinstance(error, DataLost)
    assert error.code == "source_log_reset"


def test_expired_offsets_continue_after_the_last_announcement(harness: TaskHarness) -> None:
    """The broker has forgotten both groups; the control topic has the announcements.

    No record is read again, also after a second loss, and the status names the positions.
    """
    harness.produce(3)
    harness.produce(4, partition=1)
    with harness.running():
        harness.round()
    for count in (2, 1):
        harness.admin.delete_group(harness.group)
        harness.produce(count, partition=1)
        with harness.running() as task:
            end = sum(harness.committed().values())  # type: ignore[arg-type]  # stored at the start
            assert paths(harness.round()[1]) == [f"1:{end - 3}-{end - 4 + count}"]
            assert task.metrics.announcement.source_positions_recovered == 2
        state, error = harness.states[-1]
        assert (state, isinstance(error, DataLost)) == ("RUNNING", True)
        assert f"{harness.topic}-0 3, {harness.topic}-1 {end - 3}" in str(error)
    assert harness.committed() == {0: 3, 1: 7}


@pytest.mark.parametrize("is_certain", [True, False])
def test_a_floor_counts_if_no_later_announcement_can_be_gone(
    harness: TaskHarness, *, is_certain: bool
) -> None:
    """Retention deleted the announcements: the floor is used if it was read after them only."""
    harness.produce(3)
    with harness.running():
        harness.round()
    control = TopicPartition(harness.control, 0)
    end = harness.admin.ends([control])[control]
    topic_id = harness.admin.topic_id(harness.control)
    assert topic_id is not None
    places = [TopicPartition(harness.topic, p) for p in range(2)]
    harness.floor = SourceFloor().updated(
        dict(zip(places, (3, 0), strict=True)),
        harness.admin.topic_ids([harness.topic]),
        ControlEvents(topic_id, 0, end if is_certain else end - 1),
    )
    harness.admin.delete_group(harness.group)
    harness.admin.delete_records({control: end})
    harness.produce(2)
    with harness.running():
        if is_certain:
            assert paths(harness.round()[1]) == ["0:3-4"]
            return
        wait_until(lambda: bool(harness.ended))
    (error,) = harness.ended
    assert isinstance(error, DataLost)
    assert error.code == "offsets_lost"
    assert "so these may be behind" in error.message
    assert harness.committed() == {0: None, 1: None}


def test_a_recreated_topic_is_left_to_the_leader_and_its_loss_announced_once(
    harness: TaskHarness,
) -> None:
    """The task announces nothing of the new topic before the leader has accepted its id.

    Then the first range of each partition names the records of the former topic that are lost.
    """
    former = harness.topic_ids = harness.admin.topic_ids([harness.topic])
    harness.produce(5)
    with harness.running():
        harness.round()
        delete_topic(harness.admin, harness.topic)
        wait_until(lambda: harness.topic not in harness.admin.topics())
        harness.admin.ensure_topic(harness.topic, 2, replication_factor=1)
        harness.produce(9)
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: ("topic missing", None) in harness.states)
    assert harness.ended == [None]
    assert harness.committed()[0] in {5, None}
    present = harness.topic_ids = harness.admin.topic_ids([harness.topic])
    harness.store_offsets({0: 0, 1: 0})
    topic = RecreatedTopic(present[harness.topic], (former[harness.topic],), {0: 5, 1: 0})
    harness.floor = SourceFloor(topic_ids=present, recreated={harness.topic: topic})
    lost = LostRange(harness.topic, 0, 5, None)
    failpoints.configure("W8=raise@1")
    with harness.running():
        harness.send(StartCommit(uuid4()))  # ends before its transaction is committed
        wait_until(lambda: [state for state, _ in harness.states].count("RUNNING") == 2)
        _, answer = harness.round()
        assert paths(answer) == ["0:0-8"]
        assert [headers.lost for _, headers in answer] == [(lost,), (lost,)]
        harness.produce(1)
        _, answer = harness.round()
        assert [headers.lost for _, headers in answer] == [(), ()]
    assert f"{harness.topic}-0 from 5 on (the topic was created again)" in str(harness.states[0][1])
    with harness.running():
        harness.produce(1, partition=1)
        _, answer = harness.round()
        assert answer[-1][1].lost == (LostRange(harness.topic, 1, 0, None),)
