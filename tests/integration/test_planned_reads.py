"""Small reads whose work Spark plans before their offsets are known: real broker, Spark, files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from tests.support.small_reads import SmallReads, calls_into_jvm
from tests.support.source_reads import produce, whole_topic, with_source
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from worker.batch.descriptors import PartitionProgress
from worker.spark.session import Session
from worker.task.read_ledger import WrittenBatch
from worker.task.source.source_rows import SourceRows

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
CALLS_OF_RANGES = 1  # for any number of partitions
CALLS_OF_BATCH = 14  # to read and write it, once it is planned


@pytest.fixture
def small(
    spark_session: Session,
    kafka_properties: dict[str, str],
    topics: Topics,
    sql_catalog_properties: dict[str, str],
) -> Iterator[SmallReads]:
    """A task that has read twice, so its table and the size of its records are known."""
    topic = topics.create("planned", partitions=2)
    small = SmallReads(spark_session, kafka_properties, topic, sql_catalog_properties)
    small.read(3)
    small.read(3)
    yield small
    small.runner.close()


def columns_of(batch: WrittenBatch) -> int:
    """Return the number of columns with values in the only file of a batch."""
    [[(_, [file])]] = batch.steps
    return sum(1 for count in (file.value_counts or {}).values() if count)


def test_a_planned_read_makes_few_calls_into_the_jvm(small: SmallReads) -> None:
    """What is left are the ranges, and one job with its result."""
    unplanned = calls_into_jvm(lambda: small.read(3))
    rows = small.plan()
    planned = calls_into_jvm(lambda: small.read(3))
    assert small.last_rows is rows
    assert 0 < planned <= CALLS_OF_RANGES + CALLS_OF_BATCH < unplanned, (planned, unplanned)
    small.read(3)
    assert small.last_rows is not rows, "a plan is used once"


def test_a_plan_with_another_valid_through_time_is_not_used(small: SmallReads) -> None:
    """Late records are counted by the time of the read, not by that of the plan."""
    small.plan()
    small.valid_through_ms = 2**53
    assert small.read(3).progress[small.partitions[0]].late == 3


def test_a_plan_before_a_change_of_the_table_is_not_used(small: SmallReads) -> None:
    """A new column is added by the batch that has it; the next plan knows it."""
    rows = small.plan()
    assert columns_of(small.read(2, b'{"i":1,"added":2}')) == 2
    assert small.last_rows is rows
    small.plan()
    assert columns_of(small.read(2, b'{"i":1,"added":3}')) == 2


def test_a_plan_for_small_records_reads_no_large_ones(small: SmallReads) -> None:
    """Once records are large, polls get fewer of them; the plan for other polls is dropped."""
    rows = small.plan()
    big = PartitionProgress(1_000, 0, 0, 1_000, bytes_read=1_000 * 2**20)
    small.reader.sizes.add({small.partitions[0]: big})
    small.read(2)
    assert small.last_rows is not rows


def test_ranges_of_a_planned_read_are_exact(small: SmallReads, admin: KafkaAdmin) -> None:
    """Partitions without a range are not read, also if they have records."""
    small.plan()
    produce(small.kafka, small.topic, 5, partition=1)
    batch = small.read(4)
    assert {tp: counted.read for tp, counted in batch.progress.items() if counted.read} == {
        small.partitions[0]: 4
    }
    assert whole_topic(admin, small.topic, 2).ends[small.partitions[1]] == 5


def test_other_reads_are_not_planned(small: SmallReads) -> None:
    """Neither queries of a longer commit interval, nor reads of rows for a ``Sql`` query."""
    assert replace(small.reader, commit_interval_ms=5_000).plan(3) is None
    assert with_source(small.reader, SourceRows).plan(3) is None
