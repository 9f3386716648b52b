"""A task's life against a real broker and a real Spark session: start, rounds, stop, failure."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from connect import failpoints
from connect.errors import DataLost, Fenced, RecordError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import TransactionalProducer
from connect.model.layout import TopicPartition
from control_schemas.events import CommitComplete, DataComplete, DataWritten, StartCommit
from tests.support.reading import committed_records
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from tests.support.task_harness import TABLE, FakeBatchRunner, TaskHarness, paths, wait_until
from tests.support.topic_deletion import delete_topic
from worker.batch.few_records import BatchRows
from worker.spark.session import Session
from worker.task.source.source_reader import as_arrow

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
WAIT_S = 120


@pytest.fixture
def harness(
    spark_session: Session, kafka_properties: dict[str, str], topics: Topics
) -> Iterator[TaskHarness]:
    """Two partitions; commits far apart unless a test asks."""
    with contextlib.suppress(Exception):
        KafkaAdmin(kafka_properties).ensure_topic("dead", 1, replication_factor=1)
    harness = TaskHarness(
        spark_session,
        kafka_properties,
        topics.create("source", partitions=2),
        topics.create("control"),
        2,
    )
    yield harness
    failpoints.configure("")
    harness.close()


def test_batches_have_the_last_valid_through_time(harness: TaskHarness) -> None:
    """The VTTS of a round is in the next batches; a round without one changes nothing."""
    with harness.running():
        for claimed_us in (None, 1_700_000_000_000_999, None):
            harness.produce(1)
            commit_id, _ = harness.round()
            harness.send(CommitComplete(commit_id, claimed_us))
        harness.produce(1)
        harness.round()
    seen = harness.runner.valid_through_ms
    assert (seen[0], seen[-1]) == (None, 1_700_000_000_000)


def test_tables_that_are_due_are_loaded_between_two_rounds(harness: TaskHarness) -> None:
    """Once after each round with records, so no read waits for them; an idle task loads none."""
    runner = harness.every(1_000).runner
    with harness.running():
        for number in (1, 2):
            harness.produce(2)
            commit_id, answer = harness.round()
            assert paths(answer) == [f"0:{2 * number - 2}-{2 * number - 1}"]
            assert runner.refreshes == 2 * number - 1, "the round has not ended"
            harness.send(CommitComplete(commit_id, number * 1_000_000))
            wait_until(lambda number=number: runner.refreshes == 2 * number)
        for _ in range(3):
            commit_id, _ = harness.round()
            harness.send(CommitComplete(commit_id, 5_000_000))
        harness.round()
    assert runner.refreshes == 4


def test_records_that_wait_at_the_start_are_read_before_a_round(harness: TaskHarness) -> None:
    """A round finds them read. Later records are in it, or in the next one if it came very soon."""
    harness.produce(3)
    with harness.running() as task:
        wait_until(lambda: task.metrics.batch.records_read == 3)
        assert harness.committed() == {0: 0, 1: 0}, "nothing is announced without a round"
        harness.produce(2)
        files = paths(harness.round()[1])
        assert files[:1] == ["0:0-2"]
        if len(files) == 1:
            files += paths(harness.round()[1])
        assert files == ["0:0-2", "0:3-4"]


def test_later_records_wait_for_a_round(harness: TaskHarness) -> None:
    """Only the first poll of a task reads a few records without a request."""
    with harness.every(1_000).running() as task:
        harness.round()
        harness.produce(3)
        polled = task.metrics.source
        wait_until(lambda: polled.lag_records == 3)
        assert task.metrics.batch.records_read == 0
        assert paths(harness.round()[1]) == ["0:0-2"]


def test_a_round_announces_files_ranges_and_offsets_together(harness: TaskHarness) -> None:
    """A StartCommit is answered with the files up to the end of the log."""
    harness.produce(10)
    harness.produce(4, partition=1)
    with harness.running() as task:
        commit_id, answer = harness.round()
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
        assert harness.committed() == {0: 10, 1: 4}

        harness.produce(2)
        _, answer = harness.round()
        assert paths(answer) == ["0:10-11"]
        assert [(r.start_offset, r.end_offset) for r in answer[-1][1].ranges or ()] == [(10, 12)]
        assert task.metrics.batch.records_read == 16
    assert harness.states == [("RUNNING", None)]
    assert harness.ended == [None]


def test_an_idle_task_answers_with_its_partitions(harness: TaskHarness) -> None:
    """Only a DataComplete, without ranges, with offsets and timestamps."""
    with harness.running():
        before_us = int(time.time() * 1e6)
        _, answer = harness.round()
        ((complete, headers),) = answer
        assert isinstance(complete, DataComplete)
        assert headers.ranges == ()
        stamps = [a.timestamp_us for a in complete.assignments or ()]
        assert all(s is not None and s >= before_us - 10_001_000 for s in stamps)
        assert harness.committed() == {0: 0, 1: 0}


def test_an_open_transaction_holds_the_timestamp_back(harness: TaskHarness) -> None:
    """The partition is not idle: the task reports no poll time for it."""
    writer = Producer(
        {**harness.kafka, "transactional.id": f"open-{harness.topic}", "log_level": 0}
    )
    writer.init_transactions(120)
    writer.begin_transaction()
    writer.produce(harness.topic, b"{}", partition=1)
    writer.flush(120)
    with harness.running():
        _, ((complete, _),) = harness.round()
        assert isinstance(complete, DataComplete)
        idle, held = complete.assignments or ()
        assert idle.timestamp_us
        assert held.timestamp_us is None
        writer.commit_transaction(120)
        place = [TopicPartition(harness.topic, 1)]
        wait_until(
            lambda: harness.admin.ends(place) == harness.admin.high_watermarks(place)
        )  # its marker
        _, answer = harness.round()
        assert paths(answer) == ["1:0-0"]
        complete = answer[-1][0]
        assert isinstance(complete, DataComplete)
        assert all(a.timestamp_us for a in complete.assignments or ())


def test_a_restarted_task_continues_at_the_committed_offsets(harness: TaskHarness) -> None:
    """After a stop without pending batches, the successor reads exactly the rest."""
    harness.produce(5)
    with harness.running():
        harness.round()
    harness.produce(3)
    with harness.running():
        _, answer = harness.round()
        assert paths(answer) == ["0:5-7"]


def test_a_large_backlog_is_read_before_the_round(harness: TaskHarness) -> None:
    """The batch is pending when the StartCommit arrives."""
    harness.overrides["icefloe.drain.records"] = "60"  # all: the task may poll early
    with harness.running() as task:
        harness.produce(60)
        wait_until(lambda: task.metrics.batch.records_read == 60)
        assert harness.committed() == {0: 0, 1: 0}
        harness.produce(1, partition=1)
        _, answer = harness.round()
        assert paths(answer) == ["0:0-59", "1:0-0"]
        assert [h.batch for _, h in answer[:-1]] == [0, 1]


def test_a_stop_announces_pending_batches(harness: TaskHarness) -> None:
    """With an id of no round."""
    harness.overrides["icefloe.drain.records"] = "60"  # all: the task may poll early
    with harness.running() as task:
        harness.produce(60)
        wait_until(lambda: task.metrics.batch.records_read == 60)
    assert paths(harness.answer(None)) == ["0:0-59"]
    assert harness.committed()[0] == 60


def test_a_round_is_answered_after_a_batch_of_a_backlog(harness: TaskHarness) -> None:
    """Reading of the backlog then continues."""
    harness.sizes = {"small_records": 100, "batch_records": 1_000}
    harness.overrides["iceberg.control.commit.interval-ms"] = (
        "10"  # any batch left is far from the end
    )
    harness.produce(3_000)
    with harness.running() as task:
        files: list[str] = []
        while not files:  # a round in the middle of a long batch has none
            files = paths(harness.round()[1])
        assert files[0] == "0:0-999"
        wait_until(lambda: task.metrics.batch.records_read == 3_000)
        files += paths(harness.round()[1])
        assert files == ["0:0-999", "0:1000-1999", "0:2000-2999"]
        assert harness.committed()[0] == 3_000


@dataclass
class HeldRunner(FakeBatchRunner):
    """A runner whose batches, after the first one, wait in their Spark tasks for a file."""

    gate: Path = Path()
    held: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.before = self.hold

    def hold(self, rows: BatchRows) -> None:
        """Wait until the file exists."""
        if isinstance(rows, DataFrame) and self.batches and not self.gate.exists():
            self.held.set()
            as_arrow(rows.select("count").mapInArrow(waiting_for(str(self.gate)), "count int"))


def waiting_for(path: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function of Spark tasks that waits until the file exists."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while not os.path.exists(path):  # noqa: PTH110 - runs in an executor
            time.sleep(0.02)
        yield from batches

    return wait


@pytest.fixture
def held(harness: TaskHarness, tmp_path: Path) -> HeldRunner:
    """A backlog of three batches. The first one ends, the second one waits."""
    harness.sizes = {"small_records": 100, "batch_records": 1_000}
    harness.every(400)
    harness.runner = runner = HeldRunner(gate=tmp_path / "gate")
    harness.produce(3_000)
    return runner


def test_a_round_is_answered_in_the_middle_of_a_long_batch(
    harness: TaskHarness, held: HeldRunner
) -> None:
    """With the batches before it; the batch is announced with a later round."""
    harness.overrides["icefloe.drain.records"] = "100"
    with harness.running() as task:
        assert held.held.wait(WAIT_S)
        _, answer = harness.round()
        assert paths(answer) == ["0:0-999"]
        _, answer = harness.round()
        assert paths(answer) == []
        assert harness.committed()[0] == 1_000
        held.gate.touch()
        wait_until(lambda: task.metrics.batch.records_read == 3_000)
        files: list[str] = []
        while not files or not files[-1].endswith("-2999"):
            files += paths(harness.round()[1])
        assert files[0].startswith("0:1000-")
        assert harness.committed()[0] == 3_000


def test_a_stop_cancels_a_batch_that_takes_long(harness: TaskHarness, held: HeldRunner) -> None:
    """What was read before it is announced, and the next task reads the batch again."""
    harness.batch_stop_ms = 200
    harness.overrides["icefloe.drain.records"] = "100"
    with harness.running():
        assert held.held.wait(WAIT_S)
    assert harness.ended == [None]
    assert paths(harness.answer(None)) == ["0:0-999"]
    assert harness.committed()[0] == 1_000
    held.gate.touch()
    with harness.running() as task:
        wait_until(lambda: task.metrics.batch.records_read == 2_000)
        files: list[str] = []
        while not files or not files[-1].endswith("-2999"):
            files += paths(harness.round()[1])
        assert files[0].startswith("0:1000-")
        assert harness.committed()[0] == 3_000


def test_a_task_that_is_fenced_in_the_middle_of_a_batch_ends(
    harness: TaskHarness, held: HeldRunner
) -> None:
    """The batch is cancelled, and nothing of it is announced."""
    harness.overrides["icefloe.drain.records"] = "100"
    with harness.running() as task:
        assert held.held.wait(WAIT_S)
        successor = TransactionalProducer(harness.kafka, task.transactional_id)
        successor.init()
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: bool(harness.ended))
        successor.close()
    assert isinstance(harness.ended[0], Fenced)
    assert len(held.batches) == 1
    assert harness.committed()[0] == 0


def test_an_answer_waits_for_a_read_that_ends_soon(harness: TaskHarness) -> None:
    """The rest of a short read does not wait for another interval."""
    harness.sizes = {"small_records": 100, "batch_records": 1_000}
    harness.every(600_000)
    harness.overrides["iceberg.control.commit.timeout-ms"] = "600000"
    harness.produce(3_000)
    with harness.running():
        _, answer = harness.round()
        first, *_, last = paths(answer)  # the second batch is as large as the first one was fast
        assert first == "0:0-999"
        assert last.endswith("-2999")


def test_the_first_batch_is_small_while_tables_are_unknown(harness: TaskHarness) -> None:
    """It may have to run twice; the rest follows at once."""
    harness.runner.is_primed = False
    harness.produce(12_000)
    with harness.running():
        _, answer = harness.round()
        assert paths(answer) == ["0:0-9999", "0:10000-11999"]


def test_a_task_with_a_backlog_answers_after_its_first_batch(
    harness: TaskHarness,
) -> None:
    """Its rows are announced before the first large batch is read."""
    harness.runner.is_primed = False
    harness.sizes = {"small_records": 100, "batch_records": 1_000}
    harness.every(600_000)
    harness.overrides["iceberg.control.commit.timeout-ms"] = "600000"
    harness.produce(3_000)
    with harness.running():
        _, answer = harness.round()
        assert paths(answer) == ["0:0-999"]
        _, answer = harness.round()
        assert paths(answer)[0].startswith("0:1000-")
        assert paths(answer)[-1].endswith("-2999")


def test_missing_commit_completes_stop_the_reading(harness: TaskHarness) -> None:
    """After too many announced rounds, nothing is read until one is committed."""
    harness.overrides["iceberg.worker.max-uncommitted-rounds"] = "2"
    with harness.running() as task:
        first = None
        for _ in range(3):
            harness.produce(1)
            commit_id, answer = harness.round()
            first = first or commit_id
            assert len(paths(answer)) == 1
        harness.produce(1)
        _, answer = harness.round()
        assert paths(answer) == []
        assert task.metrics.source.is_held_back
        assert first is not None
        harness.send(CommitComplete(first, None))
        _, answer = harness.round()
        assert len(paths(answer)) == 1


POINTS = [
    *("W1", "W7", "W9", "W10", "W13"),
    *(pytest.param(f"W{n}", marks=pytest.mark.matrix) for n in (5, 6, 8, 11, 12)),
]


@pytest.mark.parametrize("point", POINTS)
def test_a_failure_at_any_point_loses_and_duplicates_nothing(
    harness: TaskHarness, point: str
) -> None:
    """A restarted task announces each record once.

    At W10 and W11 the first answer is committed, although the task may not know.
    """
    harness.produce(10)
    harness.runner.dead_letters = 1
    failpoints.configure(f"{point}=raise@1")
    with harness.running() as task:
        first, second = uuid4(), uuid4()
        harness.send(StartCommit(first))
        if point != "W13":
            wait_until(lambda: len(harness.states) == 2)
        assert task.metrics.retries == 1
        harness.send(StartCommit(second))
        events = harness.answer(None)
        if events[-1][0].commit_id == first:
            assert point in {"W10", "W11"}
            events += harness.answer(second)
    assert paths(events) == ["0:0-9"]
    assert harness.committed()[0] == 10
    assert harness.ended == [None]


def test_a_second_owner_of_the_transactional_id_fences_the_first(harness: TaskHarness) -> None:
    """The first task ends as fenced and moves no offset."""
    harness.produce(3)
    with harness.running() as task:
        harness.round()
        other = TransactionalProducer(harness.kafka, task.transactional_id)
        other.init()
        harness.produce(3)
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: bool(harness.ended))
        other.close()
    assert isinstance(harness.ended[0], Fenced)
    assert harness.committed()[0] == 3


def test_a_record_error_ends_the_task_with_its_coordinates(harness: TaskHarness) -> None:
    """It is final, and nothing of its batch is announced."""
    harness.runner.error = RecordError("not JSON", topic=harness.topic, partition=0, offset=2)
    harness.produce(3)
    with harness.running():
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: bool(harness.ended))
    assert isinstance(harness.ended[0], RecordError)
    assert "offset=2" in str(harness.ended[0])
    assert harness.committed()[0] == 0


def test_repeated_failures_are_reported_until_they_end(harness: TaskHarness) -> None:
    """A retriable error restarts the task; the report ends with the cause."""
    harness.runner.error = RetriableError("the store is away", code="storage_unavailable")
    harness.produce(3)
    with harness.running() as task:
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: [s for s, _ in harness.states] == ["RUNNING", "RUNNING"])
        _, answer = harness.round()
        assert paths(answer) == ["0:0-2"]
        assert task.metrics.retries == 1


def test_a_long_failure_is_reported(harness: TaskHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that fails for longer than ``FAILING_MS_MAX`` reports why, then continues."""
    monkeypatch.setattr("worker.task.task.FAILING_MS_MAX", 0)
    harness.runner.error = RetriableError("the store is away", code="storage_unavailable")
    harness.produce(3)
    with harness.running():
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: [s for s, _ in harness.states] == ["RUNNING", "FAILED", "RUNNING"])
        assert paths(harness.round()[1]) == ["0:0-2"]


def test_a_partition_with_a_lost_offset_stops_and_a_new_one_starts(harness: TaskHarness) -> None:
    """Only a partition that was never read starts by the reset policy."""
    harness.produce(3)
    harness.produce(4, partition=1)
    first, second = (TopicPartition(harness.topic, p) for p in range(2))
    with harness.running():
        harness.round()
    # the broker forgot one partition only; the other one and the control offsets are there
    harness.admin.delete_group(harness.group)
    harness.admin.alter_offsets(harness.group, {first: 3})
    harness.admin.alter_offsets(f"{harness.group}-coord", {TopicPartition(harness.control, 0): 1})
    harness.produce(2, partition=1)
    with harness.running():
        wait_until(lambda: bool(harness.ended))
    (error,) = harness.ended
    assert isinstance(error, DataLost)
    assert error.code == "offsets_lost"
    assert f"{harness.topic}-1 4 (its log holds 0..5)" in error.message
    assert f"{harness.topic}-0" not in error.message
    assert harness.committed() == {0: 3, 1: None}
    harness.admin.alter_offsets(harness.group, {second: 4})
    with harness.running():
        assert paths(harness.round()[1]) == ["1:4-5"]


def test_lost_records_are_named(harness: TaskHarness) -> None:
    """Committed offsets below the start of the log end the task with the range."""
    harness.produce(5)
    with harness.running():
        harness.round()
    harness.produce(10)
    harness.admin.delete_records({TopicPartition(harness.topic, 0): 12})
    harness.ended.clear()
    with harness.running():
        wait_until(lambda: bool(harness.ended))
    error = harness.ended[0]
    assert isinstance(error, DataLost)
    assert error.code == "source_data_lost"
    assert "[5, 12)" in str(error)


@pytest.mark.parametrize("is_there_again", [True, pytest.param(False, marks=pytest.mark.matrix)])
def test_records_of_a_recreated_topic_are_not_announced(
    harness: TaskHarness, *, is_there_again: bool
) -> None:
    """If the topic is deleted or recreated, the task stops, also at its next start."""
    harness.topic_ids = harness.admin.topic_ids([harness.topic])
    harness.produce(5)
    with harness.running():
        harness.round()
        delete_topic(harness.admin, harness.topic)
        wait_until(lambda: harness.topic not in harness.admin.topics())
        if is_there_again:
            harness.admin.ensure_topic(harness.topic, 2, replication_factor=1)
            harness.produce(9)
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: bool(harness.ended))
    code = "source_topic_recreated" if is_there_again else "source_topic_deleted"
    error = harness.ended[0]
    assert isinstance(error, DataLost)
    assert error.code == code
    assert harness.topic in str(error)
    harness.ended.clear()
    with harness.running():
        wait_until(lambda: bool(harness.ended))
    assert isinstance(harness.ended[0], DataLost)
    assert harness.ended[0].code == code


def test_dead_letters_are_in_the_transaction_of_the_answer(harness: TaskHarness) -> None:
    """And in its counts."""
    harness.runner.dead_letters = 2
    harness.produce(6)
    dead = TopicPartition("dead", 0)
    before = harness.admin.high_watermarks([dead])[dead]
    with harness.running():
        _, answer = harness.round()
    (source_range,) = answer[-1][1].ranges or ()
    assert (
        source_range.records_read,
        source_range.records_dead_lettered,
        source_range.records_written,
    ) == (6, 2, 4)
    dead_letters = committed_records(harness.kafka, dead, first=before)
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
    harness: TaskHarness, limits: dict[str, str]
) -> None:
    """The batch is not announced; after the fix, the task reads it again."""
    harness.overrides.update(limits)
    harness.produce(1_000)
    harness.runner.dead_letters = 501
    with harness.running():
        harness.send(StartCommit(uuid4()))
        wait_until(lambda: bool(harness.ended))
    error = harness.ended[0]
    assert isinstance(error, RecordError)
    assert error.code == "too_many_dead_letters"
    assert harness.committed() == {0: 0, 1: 0}
    harness.runner.dead_letters = 500
    harness.ended.clear()
    with harness.running():
        _, answer = harness.round()
    (source_range,) = answer[-1][1].ranges or ()
    assert (source_range.start_offset, source_range.end_offset) == (0, 1_000)
    assert (source_range.records_dead_lettered, source_range.records_written) == (500, 500)
