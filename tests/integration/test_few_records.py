"""Few records without a Spark job: real broker, Spark, files. What goes wrong is Spark's work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connect import failpoints
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.odd_records import ALL, ODD_RECORDS, Records, produce_odd
from tests.support.small_reads import SmallReads, calls_into_jvm
from tests.support.source_reads import produce, source_reader, whole_topic
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from worker.batch.few_records import BatchRows, FewRecords
from worker.spark.block_reader import FEW_BYTES, FEW_RECORDS, FEW_TIMEOUT_MS
from worker.spark.session import Session, SqlSessions
from worker.spark.source_options import HEADERS_OPTION
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.source.source_blocks import SourceBlocks

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
CALLS_OF_READ = 1  # for any number of partitions


@pytest.fixture
def small(
    spark_session: Session,
    kafka_properties: dict[str, str],
    topics: Topics,
    sql_catalog_properties: dict[str, str],
) -> Iterator[SmallReads]:
    """A task that has read twice, so its table and the size of its records are known."""
    topic = topics.create("few", partitions=2)
    small = SmallReads(spark_session, kafka_properties, topic, sql_catalog_properties)
    small.read(3)
    small.read(3)
    yield small
    small.runner.close()


@pytest.fixture
def reads(
    spark_session: Session, kafka_properties: dict[str, str], small: SmallReads
) -> SourceBlocks:
    """Reads of all columns."""
    options = source_reader(spark_session, kafka_properties).source.options
    return SourceBlocks(
        spark_session,
        {**options, HEADERS_OPTION: "true"},
        ALL,
        small.reader.sizes,
        in_driver=True,
    )


def jobs(session: Session) -> int:
    """Return the number of Spark jobs so far."""
    return int(session.spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())  # type: ignore[union-attr]


def test_few_records_need_one_call_and_no_job(small: SmallReads, spark_session: Session) -> None:
    """Records of several partitions become files with one call into the JVM."""
    before = jobs(spark_session)
    assert calls_into_jvm(lambda: small.read(3, more=5)) == CALLS_OF_READ
    assert isinstance(small.last_rows, FewRecords)
    assert jobs(spark_session) == before


def test_records_equal_those_of_a_spark_job(
    reads: SourceBlocks, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Nulls, empty values, headers, times and coordinates, of several topics and partitions."""
    both = produce_odd(kafka_properties, admin, topics)
    expected = Records()
    expected(reads.rows(both), both)
    assert len(expected.sorted()) == 2 * 3 * len(ODD_RECORDS)
    assert sorted_records(reads.batch(both)) == expected.sorted()


def sorted_records(few: BatchRows) -> list[dict[str, Any]]:
    """Return all records in the order of their coordinates."""
    assert isinstance(few, FewRecords)
    table = pa.Table.from_batches(few.batches)
    place = table.column_names.index("timestamp")
    stamps = table["timestamp"].cast(pa.timestamp("us", "UTC"))
    rows: list[dict[str, Any]] = table.set_column(place, "timestamp", stamps).to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def test_few_records_do_not_wait_for_spark_sql(
    reads: SourceBlocks, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """A worker that has just started reads them while Spark SQL still starts."""
    topic = topics.create("early")
    produce(kafka_properties, topic, 3)
    not_started: Future[SqlSessions] = Future()
    not_started.set_exception(RuntimeError("Spark SQL was used"))
    starting = replace(reads.session, sql=not_started)
    assert offsets(replace(reads, session=starting).batch(whole_topic(admin, topic))) == [0, 1, 2]


def test_ranges_end_at_positions(
    reads: SourceBlocks, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Markers and aborted records leave gaps, also at the end of a range."""
    topic = topics.create("gaps")
    produce(kafka_properties, topic, 10, transaction="commit")
    produce(kafka_properties, topic, 5, transaction="abort")
    part = whole_topic(admin, topic)
    assert part.record_count_max == 17
    assert offsets(reads.batch(part)) == [*range(10)]
    begins = OffsetRanges({TopicPartition(topic, 0): 4}, {TopicPartition(topic, 0): 8})
    assert offsets(reads.batch(begins)) == [4, 5, 6, 7]


def test_records_that_arrived_with_others_are_read_too(
    reads: SourceBlocks, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Records after the requested end are read if the consumer has them, in each partition."""
    topic = topics.create("arrived", partitions=3)
    first, other, empty = (TopicPartition(topic, number) for number in range(3))
    produce(kafka_properties, topic, 10, transaction="commit")
    produce(kafka_properties, topic, 6, partition=1)
    part = OffsetRanges({first: 1, other: 0, empty: 0}, {first: 4, other: 5, empty: 0})
    exact = reads.batch(part)
    assert offsets(exact) == [1, 2, 3, *range(5)]
    assert isinstance(exact, FewRecords)
    assert exact.ends == part.ends
    more = reads.batch(part, may_pass_ends=True)
    assert offsets(more) == [*range(1, 10), *range(6)]
    assert isinstance(more, FewRecords)
    last = 11  # after the marker of the transaction
    assert more.ends == {first: last, other: 6, empty: 0}
    again = Records()
    again(more.as_rows(), OffsetRanges(part.starts, more.ends))
    assert [record["offset"] for record in again.sorted()] == offsets(more)


def test_a_batch_has_the_ranges_of_its_records(
    small: SmallReads,
    reads: SourceBlocks,
    admin: KafkaAdmin,
    topics: Topics,
    kafka_properties: dict[str, str],
) -> None:
    """A read that takes more says so; a bounded run reads no further than its ends."""
    topic = topics.create("passed")
    produce(kafka_properties, topic, 8)
    whole, seen = whole_topic(admin, topic), list[OffsetRanges]()
    part = whole.head(2)
    reader = replace(small.reader, source=reads)
    for each in (reader, replace(reader, is_bounded=True)):
        ended = each.read_batch(part, lambda _, ranges: seen.append(ranges))
        assert ended == seen[-1].ends
    assert seen == [whole, part]


def offsets(few: BatchRows) -> list[int]:
    """Return the offsets of all records."""
    return [record["offset"] for record in sorted_records(few)]


def test_larger_reads_are_jobs(
    reads: SourceBlocks, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """More records, and fewer ones with more bytes than expected."""
    topic = topics.create("larger")
    produce(kafka_properties, topic, 2, value=b"x" * (FEW_BYTES // 4))
    part = whole_topic(admin, topic)
    assert isinstance(reads.batch(part), FewRecords)
    produce(kafka_properties, topic, 4, value=b"x" * (FEW_BYTES // 4))
    assert not isinstance(reads.batch(whole_topic(admin, topic)), FewRecords)
    assert reads.are_few(FEW_RECORDS)
    assert not reads.are_few(FEW_RECORDS + 1)


def test_records_that_do_not_arrive_are_left_to_a_job(
    reads: SourceBlocks, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """A read in the driver cannot be cancelled, so it ends by itself."""
    topic = topics.create("late")
    produce(kafka_properties, topic, 3)
    part = whole_topic(admin, topic)
    too_far = OffsetRanges(part.starts, {place: end + 1 for place, end in part.ends.items()})
    started_s = time.monotonic()
    assert not isinstance(reads.batch(too_far), FewRecords)
    assert time.monotonic() - started_s < 4 * FEW_TIMEOUT_MS / 1000


def test_lost_records_are_left_to_a_job(
    reads: SourceBlocks, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Kafka's error ends the read in the driver; the job that repeats it names the loss."""
    topic = topics.create("lost")
    produce(kafka_properties, topic, 5)
    part = whole_topic(admin, topic)
    admin.delete_records({TopicPartition(topic, 0): 3})
    assert not isinstance(reads.batch(part), FewRecords)
    assert offsets(reads.batch(whole_topic(admin, topic))) == [3, 4]


def test_work_that_fails_is_repeated_by_a_job(small: SmallReads, spark_session: Session) -> None:
    """Spark's tasks do not hit this process's failpoints. The files of the first try are gone."""
    before = jobs(spark_session)
    folder = path_of(small.read(3)).parent
    files = {*folder.iterdir()}
    failpoints.configure("W3=raise@1")
    try:
        written = small.read(3)
    finally:
        failpoints.configure("")
    assert jobs(spark_session) > before
    assert {*folder.iterdir()} - files == {path_of(written)}


def path_of(written: WrittenBatch) -> Path:
    """Return where the only file of a batch is."""
    [[(_, [file])]] = written.steps
    return Path(file.file_path.removeprefix("file://"))


def test_a_new_column_is_added(small: SmallReads, spark_session: Session) -> None:
    """The batch runs again after the change of the table, with the records that it has."""
    before = jobs(spark_session)
    [[(_, [file])]] = small.read(2, b'{"i":1,"added":2}').steps
    assert sum(1 for count in (file.value_counts or {}).values() if count) == 2
    assert jobs(spark_session) == before


def test_late_records_are_counted_by_the_time_of_the_read(small: SmallReads) -> None:
    """The VTTS that the task received last decides."""
    small.valid_through_ms = 2**53
    assert small.read(3).progress[small.partitions[0]].late == 3
