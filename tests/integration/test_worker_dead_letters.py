"""A task's dead letters are bounded in bytes, in one batch and while they wait for a round."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from tests.support.task_harness import TaskHarness, paths
from worker.batch.descriptors import DESCRIPTOR_DDL, to_batch
from worker.batch.error_rows import DEAD_LETTERS_FULL, LARGE_RECORD
from worker.spark.session import Session
from worker.spark.source_options import map_spark_error
from worker.task.source.source_reader import as_arrow

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]


@pytest.fixture
def harness(
    spark_session: Session, kafka_properties: dict[str, str], topics: Topics
) -> Iterator[TaskHarness]:
    """One partition."""
    source, control = topics.create("source"), topics.create("control")
    harness = TaskHarness(spark_session, kafka_properties, source, control, 1)
    KafkaAdmin(kafka_properties).ensure_topic("dead", 1, replication_factor=1)
    yield harness
    harness.close()


def answer_once(harness: TaskHarness) -> None:
    """However long a batch takes, the answer to a round waits for all of them."""
    harness.overrides["iceberg.control.commit.interval-ms"] = "36000000"
    harness.overrides["iceberg.control.commit.timeout-ms"] = "36000000"


def test_a_batch_with_too_many_dead_letters_is_read_in_smaller_batches(
    harness: TaskHarness,
) -> None:
    """They do not fit into memory; the task continues without a restart."""
    harness.runner.error = RetriableError("more than can be kept", code=DEAD_LETTERS_FULL)
    answer_once(harness)
    harness.produce(800)
    with harness.running() as task:
        _, answer = harness.round()
        # an eighth, then a query in steps of a quarter
        ends = [0, 100, 300, 500, 700, 800]
        assert paths(answer) == [f"0:{a}-{b - 1}" for a, b in itertools.pairwise(ends)]
        assert task.metrics.retries == 0


def test_a_batch_with_a_large_record_is_read_again_with_a_byte_limit(harness: TaskHarness) -> None:
    """The same range, without a restart of the task."""
    harness.runner.error = RetriableError("large", code=LARGE_RECORD)
    harness.produce(3)
    with harness.running() as task:
        _, answer = harness.round()
        assert paths(answer) == ["0:0-2"]
        assert task.metrics.retries == 0


def test_partitions_with_huge_dead_letters_are_read_in_turns(
    harness: TaskHarness, topics: Topics
) -> None:
    """Even one record per partition is too much for a batch."""
    answer_once(harness)
    harness.topic, harness.partitions, harness.runner.records_max = (
        topics.create("many", partitions=3),
        3,
        1,
    )
    for partition in range(3):
        harness.produce(2, partition)
    with harness.running() as task:
        _, answer = harness.round()
        found = sorted(paths(answer))
        assert found == [f"{p}:{n}-{n}" for p in range(3) for n in range(2)]
        assert task.metrics.retries == 0


def large(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row of 60 MiB for each."""
    for batch in batches:
        for _ in range(batch.num_rows):
            yield to_batch([("dead_letter", b"x" * (60 << 20))])


def test_results_too_large_for_the_driver_lead_to_smaller_batches(
    spark_session: Session,
) -> None:
    """Each Spark task is within its limit, and all together are not."""
    rows = spark_session.spark.range(0, 5, 1, 5)
    with pytest.raises(Exception, match="maxResultSize") as raised:
        as_arrow(rows.mapInArrow(large, DESCRIPTOR_DDL))
    error = map_spark_error(raised.value)
    assert isinstance(error, RetriableError)
    assert error.code == DEAD_LETTERS_FULL


def test_large_dead_letters_are_announced_before_a_round(harness: TaskHarness) -> None:
    """With an id of no round; the next round is answered as usual."""
    harness.overrides["icefloe.drain.records"] = "2"
    harness.runner.dead_letters, harness.runner.dead_letter_value = 2, b"x" * 2**25
    with harness.running():
        harness.produce(2)
        assert paths(harness.answer(None)) == ["0:0-1"]
        assert harness.committed()[0] == 2
        harness.runner.dead_letters = 0
        harness.produce(1)
        _, answer = harness.round()
        assert paths(answer) == ["0:2-2"]
