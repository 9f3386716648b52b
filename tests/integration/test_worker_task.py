"""A task's life against a real broker and a real Spark session: start, rounds, stop, failure."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from connect import failpoints
from connect.errors import DataLost, Fenced, RecordError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import TransactionalProducer
from connect.model.layout import TopicPartition
from control_schemas.events import (
    CommitComplete,
    DataComplete,
    DataWritten,
    StartCommit,
)
from tests.support.reading import committed_records
from tests.support.stack import Topics
from tests.support.task_rig import TABLE, Rig, paths, until
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
    with contextlib.suppress(Exception):
        KafkaAdmin(kafka_properties).ensure_topic("dead", 1, replication_factor=1)
    made = Rig(
        spark_session,
        kafka_properties,
        topics.create("source", partitions=2),
        topics.create("control"),
        2,
    )
    yield made
    failpoints.configure("")
    made.reader.close()
    made.admin.close()


def test_batches_know_the_last_valid_through_time(rig: Rig) -> None:
    """A round's VTTS reaches the batches that follow it; a round without one changes nothing."""
    with rig.running():
        for claimed_us in (None, 1_700_000_000_000_999, None):
            rig.feed(1)
            commit_id, _ = rig.round()
            rig.send(CommitComplete(commit_id, claimed_us))
        rig.feed(1)
        rig.round()
    seen = rig.runner.valid_through_ms
    assert (seen[0], seen[-1]) == (None, 1_700_000_000_000)


def test_round_announces_files_ranges_and_offsets_together(rig: Rig) -> None:
    """StartCommit is answered with the files up to the log's end, and the offsets move with it."""
    rig.feed(10)
    rig.feed(4, partition=1)
    with rig.running() as task:
        commit_id, answer = rig.round()
        assert paths(answer) == ["0:0-9", "1:0-3"]
        complete, headers = answer[-1]
        assert isinstance(complete, DataComplete)
        assert complete.commit_id == commit_id
        assert [(a.partition, a.offset) for a in complete.assignments or ()] == [(0, 10), (1, 4)]
        assert all(a.timestamp_us for a in complete.assignments or ())
        assert headers.layout == 3
        assert [
            (r.partition, r.start_offset, r.end_offset, r.records_read)
            for r in headers.ranges or ()
        ] == [(0, 0, 10, 10), (1, 0, 4, 4)]
        written, batch_headers = answer[0]
        assert isinstance(written, DataWritten)
        assert written.table == TABLE
        assert (batch_headers.layout, batch_headers.batch) == (3, 0)
        assert rig.committed() == {0: 10, 1: 4}

        rig.feed(2)
        _, answer = rig.round()
        assert paths(answer) == ["0:10-11"]
        assert [(r.start_offset, r.end_offset) for r in answer[-1][1].ranges or ()] == [(10, 12)]
        assert task.metrics.batch.records_read == 16
    assert rig.states == [("RUNNING", None)]
    assert rig.ended == [None]


def test_idle_task_answers_with_its_partitions(rig: Rig) -> None:
    """Nothing new: only DataComplete comes, without ranges, with offsets and timestamps."""
    with rig.running():
        before_us = int(time.time() * 1e6)
        _, answer = rig.round()
        ((complete, headers),) = answer
        assert isinstance(complete, DataComplete)
        assert headers.ranges == ()
        stamps = [a.timestamp_us for a in complete.assignments or ()]
        assert all(s is not None and s >= before_us - 10_001_000 for s in stamps)
        assert rig.committed() == {0: 0, 1: 0}


def test_open_transaction_holds_the_timestamp(rig: Rig) -> None:
    """A partition with an open transaction is not idle: the task reports no poll time for it."""
    writer = Producer({**rig.kafka, "transactional.id": f"open-{rig.topic}", "log_level": 0})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(rig.topic, b"{}", partition=1)
    writer.flush(30)
    with rig.running():
        _, ((complete, _),) = rig.round()
        assert isinstance(complete, DataComplete)
        idle, held = complete.assignments or ()
        assert idle.timestamp_us
        assert held.timestamp_us is None
        writer.commit_transaction(30)
        place = [TopicPartition(rig.topic, 1)]
        until(lambda: rig.admin.ends(place) == rig.admin.high_watermarks(place))  # its marker
        _, answer = rig.round()
        assert paths(answer) == ["1:0-0"]
        complete = answer[-1][0]
        assert isinstance(complete, DataComplete)
        assert all(a.timestamp_us for a in complete.assignments or ())


def test_restart_goes_on_at_the_committed_offsets(rig: Rig) -> None:
    """A task that is stopped with nothing pending leaves its successor exactly the rest."""
    rig.feed(5)
    with rig.running():
        rig.round()
    rig.feed(3)
    with rig.running():
        _, answer = rig.round()
        assert paths(answer) == ["0:5-7"]


def test_enough_unread_records_are_read_before_the_round(rig: Rig) -> None:
    """A full drain begins without a StartCommit; the round then finds the batch pending."""
    rig.overrides["icefloe.drain.records"] = "60"  # all: the task may poll early
    with rig.running() as task:
        rig.feed(60)
        until(lambda: task.metrics.batch.records_read == 60)
        assert rig.committed() == {0: 0, 1: 0}
        rig.feed(1, partition=1)
        _, answer = rig.round()
        assert paths(answer) == ["0:0-59", "1:0-0"]
        assert [h.batch for _, h in answer[:-1]] == [0, 1]


def test_stop_announces_what_is_pending(rig: Rig) -> None:
    """Batches read but not yet asked for go out at the stop, under an id that no round has."""
    rig.overrides["icefloe.drain.records"] = "60"  # all: the task may poll early
    with rig.running() as task:
        rig.feed(60)
        until(lambda: task.metrics.batch.records_read == 60)
    assert paths(rig.answer(None)) == ["0:0-59"]
    assert rig.committed()[0] == 60


def test_backlog_is_answered_at_the_end_of_a_batch(rig: Rig) -> None:
    """In a backlog the answer contains the current batch; the drain then continues."""
    rig.sizes = {"small_records": 100, "batch_records": 1_000}
    rig.overrides["iceberg.control.commit.interval-ms"] = "10"  # any batch left is far from the end
    rig.feed(3_000)
    with rig.running() as task:
        _, answer = rig.round()
        assert paths(answer) == ["0:0-999"]
        assert rig.committed()[0] == 1000
        until(lambda: task.metrics.batch.records_read == 3_000)
        _, answer = rig.round()
        assert paths(answer) == ["0:1000-1999", "0:2000-2999"]


def test_answer_waits_for_the_end_of_a_drain_that_is_near(rig: Rig) -> None:
    """What is left of a drain does not wait for another interval when it takes but a moment."""
    rig.sizes = {"small_records": 100, "batch_records": 1_000}
    rig.overrides["iceberg.control.commit.interval-ms"] = "600000"
    rig.overrides["iceberg.control.commit.timeout-ms"] = "600000"
    rig.feed(3_000)
    with rig.running():
        _, answer = rig.round()
        assert paths(answer) == ["0:0-999", "0:1000-1999", "0:2000-2999"]


def test_first_batch_of_a_runner_that_knows_no_tables_is_small(rig: Rig) -> None:
    """A batch that may have to be run twice holds few records; the rest follows at once."""
    rig.runner.is_primed = False
    rig.feed(12_000)
    with rig.running():
        _, answer = rig.round()
        assert paths(answer) == ["0:0-9999", "0:10000-11999"]


def test_a_task_that_begins_with_a_backlog_answers_after_its_first_batch(rig: Rig) -> None:
    """Rows are announced before the first large batch is read; the drain then continues."""
    rig.runner.is_primed = False
    rig.sizes = {"small_records": 100, "batch_records": 1_000}
    rig.overrides["iceberg.control.commit.interval-ms"] = "600000"
    rig.overrides["iceberg.control.commit.timeout-ms"] = "600000"
    rig.feed(3_000)
    with rig.running():
        _, answer = rig.round()
        assert paths(answer) == ["0:0-999"]
        _, answer = rig.round()
        assert paths(answer) == ["0:1000-1999", "0:2000-2999"]


def test_no_commit_complete_stops_the_reading(rig: Rig) -> None:
    """After too many announced rounds nothing is read until one is committed."""
    rig.overrides["iceberg.worker.max-uncommitted-rounds"] = "2"
    with rig.running() as task:
        first = None
        for _ in range(3):
            rig.feed(1)
            commit_id, answer = rig.round()
            first = first or commit_id
            assert len(paths(answer)) == 1
        rig.feed(1)
        _, answer = rig.round()
        assert paths(answer) == []
        assert task.metrics.source.is_held_back
        assert first is not None
        rig.send(CommitComplete(first, None))
        _, answer = rig.round()
        assert len(paths(answer)) == 1


POINTS = ["W1", "W5", "W6", "W7", "W8", "W9", "W10", "W11", "W12", "W13"]


@pytest.mark.parametrize("point", POINTS)
def test_failure_at_any_point_loses_and_repeats_nothing(rig: Rig, point: str) -> None:
    """A restarted task announces each record once, after a failure at any point.

    At W10 and W11 the first answer is committed, although the task may not know.
    """
    rig.feed(10)
    rig.runner.dead_letters = 1
    failpoints.configure(f"{point}=raise@1")
    with rig.running() as task:
        first, second = uuid4(), uuid4()
        rig.send(StartCommit(first))
        if point != "W13":
            until(lambda: len(rig.states) == 2)
        assert task.metrics.retries == 1
        rig.send(StartCommit(second))
        found = rig.answer(None)
        if found[-1][0].commit_id == first:
            assert point in {"W10", "W11"}
            found += rig.answer(second)
    assert paths(found) == ["0:0-9"]
    assert rig.committed()[0] == 10
    assert rig.ended == [None]


def test_second_owner_of_the_id_fences_the_first(rig: Rig) -> None:
    """A task whose transactional id was taken over ends as fenced and moves nothing."""
    rig.feed(3)
    with rig.running() as task:
        rig.round()
        other = TransactionalProducer(rig.kafka, task.transactional_id)
        other.init()
        rig.feed(3)
        rig.send(StartCommit(uuid4()))
        until(lambda: bool(rig.ended))
        other.close()
    assert isinstance(rig.ended[0], Fenced)
    assert rig.committed()[0] == 3


def test_record_error_ends_the_task_with_its_coordinates(rig: Rig) -> None:
    """A record that nothing tolerates is final, and nothing of its batch is announced."""
    rig.runner.error = RecordError("not JSON", topic=rig.topic, partition=0, offset=2)
    rig.feed(3)
    with rig.running():
        rig.send(StartCommit(uuid4()))
        until(lambda: bool(rig.ended))
    assert isinstance(rig.ended[0], RecordError)
    assert "offset=2" in str(rig.ended[0])
    assert rig.committed()[0] == 0


def test_repeated_failures_are_reported_and_gone_over(rig: Rig) -> None:
    """A retriable error starts the task over; when the cause has gone, so has the error."""
    rig.runner.error = RetriableError("the store is away", code="storage_unavailable")
    rig.feed(3)
    with rig.running() as task:
        rig.send(StartCommit(uuid4()))
        until(lambda: [s for s, _ in rig.states] == ["RUNNING", "RUNNING"])
        _, answer = rig.round()
        assert paths(answer) == ["0:0-2"]
        assert task.metrics.retries == 1


def test_what_is_not_gone_over_soon_is_shown(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that fails for longer than ``FAILING_MS_MAX`` reports why, then continues."""
    monkeypatch.setattr("worker.task.task.FAILING_MS_MAX", 0)
    rig.runner.error = RetriableError("the store is away", code="storage_unavailable")
    rig.feed(3)
    with rig.running():
        rig.send(StartCommit(uuid4()))
        until(lambda: [s for s, _ in rig.states] == ["RUNNING", "FAILED", "RUNNING"])
        assert paths(rig.round()[1]) == ["0:0-2"]


def test_a_partition_that_lost_its_offset_stops_and_a_new_one_starts(rig: Rig) -> None:
    """An announced partition never starts from the reset policy; one never read does."""
    rig.feed(3)
    rig.feed(4, partition=1)
    first, second = (TopicPartition(rig.topic, p) for p in range(2))
    with rig.running():
        rig.round()
    # the broker forgot one partition only; the other one and the control offsets are there
    rig.admin.delete_group(rig.group)
    rig.admin.alter_offsets(rig.group, {first: 3})
    rig.admin.alter_offsets(f"{rig.group}-coord", {TopicPartition(rig.control, 0): 1})
    rig.feed(2, partition=1)
    with rig.running():
        until(lambda: bool(rig.ended))
    (error,) = rig.ended
    assert isinstance(error, DataLost)
    assert error.code == "offsets_lost"
    assert f"{rig.topic}-1 4 (its log holds 0..5)" in error.message
    assert f"{rig.topic}-0" not in error.message
    assert rig.committed() == {0: 3, 1: None}
    rig.admin.alter_offsets(rig.group, {second: 4})
    with rig.running():
        assert paths(rig.round()[1]) == ["1:4-5"]


def test_lost_records_are_named(rig: Rig) -> None:
    """Committed offsets below the log's start end the task with the range."""
    from confluent_kafka import TopicPartition as ClientPartition
    from confluent_kafka.admin import AdminClient

    rig.feed(5)
    with rig.running():
        rig.round()
    rig.feed(10)
    client = AdminClient(rig.kafka)
    for future in client.delete_records([ClientPartition(rig.topic, 0, 12)]).values():
        future.result(30)
    rig.ended.clear()
    with rig.running():
        until(lambda: bool(rig.ended))
    error = rig.ended[0]
    assert isinstance(error, DataLost)
    assert error.code == "source_data_lost"
    assert "[5, 12)" in str(error)


@pytest.mark.parametrize("is_there_again", [True, False])
def test_a_topic_that_is_another_is_not_announced(rig: Rig, *, is_there_again: bool) -> None:
    """If the topic is deleted or recreated, the task stops, and stops again at its start."""
    rig.topic_ids = rig.admin.topic_ids([rig.topic])
    rig.feed(5)
    with rig.running():
        rig.round()
        rig.admin.delete_topic(rig.topic)
        until(lambda: rig.topic not in rig.admin.topics())
        if is_there_again:
            rig.admin.ensure_topic(rig.topic, 2, replication_factor=1)
            rig.feed(9)
        rig.send(StartCommit(uuid4()))
        until(lambda: bool(rig.ended))
    code = "source_topic_recreated" if is_there_again else "source_topic_deleted"
    error = rig.ended[0]
    assert isinstance(error, DataLost)
    assert error.code == code
    assert rig.topic in str(error)
    rig.ended.clear()
    with rig.running():
        until(lambda: bool(rig.ended))
    assert isinstance(rig.ended[0], DataLost)
    assert rig.ended[0].code == code


def test_dead_letters_travel_with_the_answer(rig: Rig) -> None:
    """Dead letters are in the answer's transaction and in its counts."""
    rig.runner.dead_letters = 2
    rig.feed(6)
    dead = TopicPartition("dead", 0)
    before = rig.admin.high_watermarks([dead])[dead]
    with rig.running():
        _, answer = rig.round()
    (source_range,) = answer[-1][1].ranges or ()
    assert (
        source_range.records_read,
        source_range.records_dead_lettered,
        source_range.records_written,
    ) == (6, 2, 4)
    dead_letters = committed_records(rig.kafka, dead, first=before)
    assert [letter.value for letter in dead_letters] == [b"0", b"1"]


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {
            "errors.deadletterqueue.max-ratio": "1",
            "errors.deadletterqueue.max-run-length": "500",
        },
    ],
    ids=["share", "run"],
)
def test_too_many_dead_letters_stop_the_task_and_lose_nothing(
    rig: Rig, limits: dict[str, str]
) -> None:
    """The batch is not announced; after the fix, the task reads it again and writes every row."""
    rig.overrides.update(limits)
    rig.feed(1_000)
    rig.runner.dead_letters = 501
    with rig.running():
        rig.send(StartCommit(uuid4()))
        until(lambda: bool(rig.ended))
    error = rig.ended[0]
    assert isinstance(error, RecordError)
    assert error.code == "too_many_dead_letters"
    assert rig.committed() == {0: 0, 1: 0}
    rig.runner.dead_letters = 500
    rig.ended.clear()
    with rig.running():
        _, answer = rig.round()
    (source_range,) = answer[-1][1].ranges or ()
    assert (source_range.start_offset, source_range.end_offset) == (0, 1_000)
    assert (source_range.records_dead_lettered, source_range.records_written) == (500, 500)
