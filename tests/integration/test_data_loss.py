"""A task that continues after source records that retention deleted (one broker, one session)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from connect import failpoints
from connect.errors import DataLost
from connect.model.layout import TopicPartition
from control_schemas.events import EventHeaders, LostRange, StartCommit
from tests.support.stack import Topics
from tests.support.task_rig import Rig, paths, until
from worker.spark.session import Session

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    # pyspark leaves the socket of a collected result to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def rig(spark_session: Session, kafka_properties: dict[str, str], topics: Topics) -> Iterator[Rig]:
    """Two partitions; commits far apart unless a test asks."""
    made = Rig(
        spark_session,
        kafka_properties,
        topics.create("source", partitions=2),
        topics.create("control"),
        2,
        overrides={"icefloe.fail-on-data-loss": "false"},
    )
    yield made
    failpoints.configure("")
    made.reader.close()
    made.admin.close()


def _delete(rig: Rig, before: int) -> LostRange:
    rig.admin.delete_records({TopicPartition(rig.topic, 0): before})
    return LostRange(rig.topic, 0, 0, before)


def _said(headers: EventHeaders) -> list[tuple[int, int, int, int]]:
    return [
        (r.partition, r.start_offset, r.end_offset, r.records_read) for r in headers.ranges or ()
    ]


def test_records_that_were_deleted_while_the_task_did_not_run(rig: Rig) -> None:
    """The announced range includes them; the status names them again after a retried error."""
    rig.feed(5)
    with rig.running():
        rig.round()
    rig.feed(10)
    _delete(rig, 9)
    lost = LostRange(rig.topic, 0, 5, 9)
    with rig.running() as task:
        rig.feed(1, partition=1)
        _, answer = rig.round()
        assert paths(answer) == ["0:9-14", "1:0-0"]
        assert _said(answer[-1][1]) == [(0, 5, 15, 6), (1, 0, 1, 1)]
        assert [headers.lost for _, headers in answer] == [(lost,), (lost,)]
        assert rig.committed() == {0: 15, 1: 1}
        # counted after the transaction that the round was read from
        until(lambda: task.metrics.announcement.source_offsets_lost == 4)
        rig.feed(1)
        _, answer = rig.round()
        assert [headers.lost for _, headers in answer] == [(), ()]
    state, error = rig.states[-1]
    assert state == "RUNNING"
    assert f"{rig.topic}-0 [5, 9)" in str(error)
    assert rig.ended == [None]


def test_records_that_are_deleted_while_the_task_runs(rig: Rig) -> None:
    """What is gone in the middle of a run is passed too, also where nothing is left to read.

    An answer without files leaves the range for the files of a later one.
    """
    rig.feed(3)
    with rig.running():
        rig.feed(3)
        lost = _delete(rig, 6)
        _, answer = rig.round()
        ((_, headers),) = answer
        assert _said(headers) == [(0, 0, 6, 0)]
        assert headers.lost == (lost,)
        assert rig.committed() == {0: 6, 1: 0}
        rig.feed(2)
        _, answer = rig.round()
        assert paths(answer) == ["0:6-7"]
        assert [headers.lost for _, headers in answer] == [(lost,), ()]
    assert [state for state, _ in rig.states] == ["RUNNING", "RUNNING"]
    assert rig.ended == [None]


def test_a_kill_before_the_announcement_loses_no_range(rig: Rig) -> None:
    """The range is announced with the offsets that pass it; the next start finds it again."""
    rig.feed(4)
    lost = _delete(rig, 2)
    rig.store({0: 0, 1: 0})
    failpoints.configure("W8=raise@1")
    with rig.running() as task:
        rig.send(StartCommit(uuid4()))
        until(lambda: [state for state, _ in rig.states].count("RUNNING") == 2)
        _, answer = rig.round()
        assert paths(answer) == ["0:2-3"]
        assert answer[-1][1].lost == (lost,)
        assert _said(answer[-1][1]) == [(0, 0, 4, 2)]
        until(lambda: task.metrics.announcement.source_offsets_lost == 2)


def test_a_truncated_log_still_stops_the_task(rig: Rig) -> None:
    """Its offsets would be used for other records: no range of lost records can be named."""
    rig.feed(2)
    rig.store({0: 5, 1: 0})
    with rig.running():
        pass
    (error,) = rig.ended
    assert isinstance(error, DataLost)
    assert error.code == "source_log_reset"
