"""Small reads whose work Spark plans before their offsets are known: real broker, Spark, files."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.validation.parse import parse
from tests.support.source_reads import produce, whole_topic, with_source
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from worker.batch.descriptors import PartitionProgress
from worker.spark.session import Session
from worker.spark.source_options import source_options
from worker.task.batch_runner import PipelineRunner, make_runner
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.source_blocks import SourceBlocks
from worker.task.source_reader import SourceReader
from worker.task.source_rows import SourceRows
from worker.task.task_context import TaskAssignment

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
CALLS_OF_RANGES = 1  # for any number of partitions
CALLS_OF_BATCH = 14  # to read and write it, once it is planned


class SmallReads:
    """One task with one table that reads on, a few records at a time.

    Args:
        session: of Spark.
        kafka: the broker.
        topic: with two partitions.
        catalog: of the table.
    """

    def __init__(
        self, session: Session, kafka: dict[str, str], topic: str, catalog: dict[str, str]
    ) -> None:
        config = parse(
            {
                "name": topic,
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                "topics": topic,
                "iceberg.tables": "db.planned",
                "iceberg.tables.auto-create-enabled": "true",
                "iceberg.tables.evolve-schema-enabled": "true",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "iceberg.control.commit.interval-ms": "1000",
                **{f"iceberg.catalog.{name}": value for name, value in catalog.items()},
            }
        )
        self.kafka = kafka
        self.topic = topic
        self.partitions = tuple(TopicPartition(topic, number) for number in range(2))
        assignment = TaskAssignment(0, 1, self.partitions)
        self.runner: PipelineRunner = make_runner(config, assignment, lambda: session)
        options = source_options(kafka, {}, task=topic, has_headers=False)
        source = SourceBlocks(session, options, self.runner.columns)
        self.reader = SourceReader(source, topic, commit_interval_ms=1_000)
        self.valid_through_ms: int | None = None
        self._starts = dict.fromkeys(self.partitions, 0)
        self._rows: list[DataFrame] = []

    def plan(self) -> DataFrame:
        """Plan the next read and its work."""
        rows = self.reader.plan()
        assert rows is not None
        self.runner.plan(rows, self.valid_through_ms)
        return rows

    def read(self, count: int, value: bytes = b"") -> WrittenBatch:
        """Produce records to the first partition, read and write them."""
        first = self.partitions[0]
        produce(self.kafka, self.topic, count, value=value)
        ends = {**self._starts, first: self._starts[first] + count}
        written: list[WrittenBatch] = []

        def write(rows: DataFrame, ranges: OffsetRanges) -> None:
            self._rows.append(rows)
            written.append(self.runner.run(rows, ranges, self.valid_through_ms))

        self.runner.refresh()
        self.reader.read_batch(OffsetRanges(dict(self._starts), ends), write)
        self._starts = ends
        self.reader.sizes.add(written[0].progress)
        assert written[0].records_read == count
        return written[0]

    @property
    def last_rows(self) -> DataFrame:
        """The rows of the last read."""
        return self._rows[-1]


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


def calls_into_jvm(work: Callable[[], Any]) -> int:
    """Return how many calls into the JVM some work makes in this thread."""
    profile = cProfile.Profile()
    profile.runcall(work)
    found = pstats.Stats(profile).stats  # type: ignore[attr-defined] # public, not in typeshed
    commands = sum(numbers[1] for (_, _, name), numbers in found.items() if name == "send_command")
    return int(commands) // 2  # of the gateway, and of its connection


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
    assert replace(small.reader, commit_interval_ms=5_000).plan() is None
    assert with_source(small.reader, SourceRows).plan() is None
