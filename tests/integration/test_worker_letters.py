"""A task's dead letters are bounded in bytes, in one batch and while they wait for a round."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from tests.support.stack import Topics
from tests.support.task_rig import Rig, paths
from worker.batch.descriptors import DESCRIPTOR_DDL, to_batch
from worker.batch.error_rows import DEAD_LETTERS_FULL, LARGE_RECORD
from worker.spark.session import Session
from worker.spark.source_options import map_spark_error
from worker.task.source_reader import as_arrow

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    # pyspark leaves the socket of a collected result to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def rig(spark_session: Session, kafka_properties: dict[str, str], topics: Topics) -> Iterator[Rig]:
    """One partition."""
    source, control = topics.create("source"), topics.create("control")
    made = Rig(spark_session, kafka_properties, source, control, 1)
    KafkaAdmin(kafka_properties).ensure_topic("dead", 1, replication_factor=1)
    yield made
    made.reader.close()
    made.admin.close()


def answer_once(rig: Rig) -> None:
    """However long a batch takes, the answer to a round waits for all of them."""
    rig.overrides["iceberg.control.commit.interval-ms"] = "36000000"
    rig.overrides["iceberg.control.commit.timeout-ms"] = "36000000"


def test_a_batch_that_holds_too_much_is_read_in_smaller_ones(rig: Rig) -> None:
    """Its dead letters do not fit into memory; the task continues without a restart."""
    rig.runner.error = RetriableError("more than can be kept", code=DEAD_LETTERS_FULL)
    answer_once(rig)
    rig.feed(800)
    with rig.running() as task:
        _, answer = rig.round()
        # an eighth, then a query in steps of a quarter
        ends = [0, 100, 300, 500, 700, 800]
        assert paths(answer) == [f"0:{a}-{b - 1}" for a, b in itertools.pairwise(ends)]
        assert task.metrics.retries == 0


def test_a_record_larger_than_thought_is_read_again_in_another_way(rig: Rig) -> None:
    """The same range, without starting over."""
    rig.runner.error = RetriableError("large", code=LARGE_RECORD)
    rig.feed(3)
    with rig.running() as task:
        _, answer = rig.round()
        assert paths(answer) == ["0:0-2"]
        assert task.metrics.retries == 0


def test_partitions_with_one_huge_letter_each_take_turns(rig: Rig, topics: Topics) -> None:
    """No batch of one record per partition is small enough: some are read, then others."""
    answer_once(rig)
    rig.topic, rig.partitions, rig.runner.records_max = topics.create("many", partitions=3), 3, 1
    for partition in range(3):
        rig.feed(2, partition)
    with rig.running() as task:
        _, answer = rig.round()
        found = sorted(paths(answer))
        assert found == [f"{p}:{n}-{n}" for p in range(3) for n in range(2)]
        assert task.metrics.retries == 0


def large(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row of 60 MiB for each."""
    for batch in batches:
        for _ in range(batch.num_rows):
            yield to_batch([("dead_letter", b"x" * (60 << 20))])


def test_results_that_the_driver_cannot_take_ask_for_smaller_batches(
    spark_session: Session,
) -> None:
    """Each Spark task keeps within its bounds, all together do not."""
    rows = spark_session.spark.range(0, 8, 1, 8)
    with pytest.raises(Exception, match="maxResultSize") as raised:
        as_arrow(rows.mapInArrow(large, DESCRIPTOR_DDL))
    error = map_spark_error(raised.value)
    assert isinstance(error, RetriableError)
    assert error.code == DEAD_LETTERS_FULL


def test_many_bytes_of_dead_letters_do_not_wait_for_a_round(rig: Rig) -> None:
    """They go out under an id that no round has; the next round is answered as usual."""
    rig.overrides["icefloe.drain.records"] = "2"
    rig.runner.dead_letters, rig.runner.letter = 2, b"x" * 2**25
    with rig.running():
        rig.feed(2)
        assert paths(rig.answer(None)) == ["0:0-1"]
        assert rig.committed()[0] == 2
        rig.runner.dead_letters = 0
        rig.feed(1)
        _, answer = rig.round()
        assert paths(answer) == ["0:2-2"]
