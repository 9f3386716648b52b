"""Blocks of records have what Spark's own Kafka source returns, from the same broker."""

from __future__ import annotations

import psutil
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from connect.errors import DataLost
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.odd_records import ALL, ODD_RECORDS, Records, produce_odd
from tests.support.processes import arguments
from tests.support.source_reads import (
    BatchCollector,
    never,
    produce,
    whole_topic,
    with_source,
)
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from worker.spark.batch_sizing import ReadSizes
from worker.spark.block_reader import BLOCK_BYTES, BLOCK_ROWS
from worker.spark.source_options import HEADERS_OPTION
from worker.task.read_ledger import OffsetRanges
from worker.task.source.source_blocks import SourceBlocks
from worker.task.source.source_reader import SourceReader, as_arrow
from worker.task.source.source_rows import SourceRows

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]


@pytest.mark.parametrize(
    "compression",
    [*("none", "zstd"), pytest.param("lz4", marks=pytest.mark.matrix)],
)
def test_records_equal_those_of_sparks_source(
    compression: str,
    reader: SourceReader,
    admin: KafkaAdmin,
    topics: Topics,
    kafka_properties: dict[str, str],
) -> None:
    """Nulls, empty values, headers, times and coordinates, of several topics and partitions."""
    both = produce_odd(kafka_properties, admin, topics, compression)
    read: dict[type, Records] = {SourceRows: Records(), SourceBlocks: Records()}
    for kind, seen in read.items():
        all_columns = with_source(reader, kind, options={HEADERS_OPTION: "true"}, columns=ALL)
        all_columns.read_batch(both, seen)
    expected = read[SourceRows].sorted()
    assert len(expected) == 2 * 3 * len(ODD_RECORDS)
    assert read[SourceBlocks].sorted() == expected


def test_blocks_are_bounded_in_rows_and_bytes(
    reader: SourceReader, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """A block ends with the record that reaches a bound; a large record has its own block."""
    topic = topics.create("sizes", max_message_bytes=str(32 * 2**20))
    large = {"message.max.bytes": 32 * 2**20, "compression.type": "zstd", "log_level": 0}
    producer = Producer({**kafka_properties, **large})
    for _ in range(BLOCK_ROWS + 10):
        producer.produce(topic, b"{}")
        producer.poll(0)
    sizes = (3 * BLOCK_BYTES // 4, 3 * BLOCK_BYTES // 4, 24 * 2**20, 1)
    for size in sizes:
        producer.produce(topic, b"x" * size)
    assert producer.flush(120) == 0
    blocks: list[tuple[int, int]] = []

    def weigh(rows: DataFrame, _: OffsetRanges) -> None:
        table = as_arrow(rows.selectExpr("count", "octet_length(value) AS size"))
        blocks.extend((row["count"], row["size"]) for row in table.to_pylist())

    part = whole_topic(admin, topic)
    bounded = with_source(reader, sizes=ReadSizes(small_records=200_000, small_bytes=2**30))
    bounded.read_batch(part, weigh)
    assert blocks == [
        (BLOCK_ROWS, 2 * BLOCK_ROWS),
        (12, 20 + sizes[0] + sizes[1]),
        (1, sizes[2]),
        (1, sizes[3]),
    ]


def test_a_consumer_is_used_again(
    reader: SourceReader, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Reads of one task, one after the other, of different partitions, have one consumer.

    Those of tests before may still close theirs.
    """
    topic = topics.create("again", partitions=3)
    for partition in range(3):
        produce(kafka_properties, topic, 20, partition=partition)
    part, seen = whole_topic(admin, topic, 3), BatchCollector()
    reader.read_batch(part.head(6), seen)
    before = connections(kafka_properties)
    rest = part.starting_at(part.head(6).ends)
    while rest.record_count_max:
        head = rest.head(9)
        reader.read_batch(head, seen)
        rest = rest.starting_at(head.ends)
    after = connections(kafka_properties)
    assert after
    assert after <= before
    assert sorted(seen.rows) == [(p, n) for p in range(3) for n in range(20)]


def connections(kafka_properties: dict[str, str]) -> set[int]:
    """Return the local ports of the connections of Spark's JVM to the broker."""
    port = int(kafka_properties["bootstrap.servers"].rpartition(":")[2])
    (jvm,) = (
        p
        for p in psutil.Process().children()
        if "org.apache.spark.deploy.SparkSubmit" in arguments(p)
    )
    return {c.laddr.port for c in jvm.net_connections("tcp") if c.raddr and c.raddr.port == port}


@pytest.mark.parametrize("is_ordered", [False, True])
def test_cut_partitions_lose_and_double_nothing(
    is_ordered: bool,
    reader: SourceReader,
    admin: KafkaAdmin,
    topics: Topics,
    kafka_properties: dict[str, str],
) -> None:
    """One partition feeds all cores, unless the order of its records counts."""
    topic = topics.create("cut")
    produce(kafka_properties, topic, 1_000, transaction="commit")
    produce(kafka_properties, topic, 500, transaction="abort")
    produce(kafka_properties, topic, 1_001, transaction="commit")
    seen = BatchCollector()
    cut = with_source(reader, sizes=ReadSizes(small_records=10), is_ordered=is_ordered)
    part = whole_topic(admin, topic)
    cut.read_batch(part, seen)
    assert seen.tasks == [1 if is_ordered else reader.session.cores]
    offsets = sorted(offset for _, offset in seen.rows)
    assert offsets == [*range(1_000), *range(1_502, 2_503)]


def test_a_log_that_ends_before_the_range_is_a_loss(
    reader: SourceReader, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """For example a topic that was created again; the read asks after a time without records."""
    topic = topics.create("short")
    produce(kafka_properties, topic, 5)
    tp = TopicPartition(topic, 0)
    impatient = with_source(reader, options={"kafka.request.timeout.ms": "1500"})
    with pytest.raises(DataLost) as lost:
        impatient.read_batch(OffsetRanges({tp: 0}, {tp: 7}), BatchCollector())
    assert lost.value.code == "source_data_lost"
    assert whole_topic(admin, topic).ends == {tp: 5}


def test_a_cancelled_batch_ends_while_it_waits_for_records(
    reader: SourceReader, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Its consumer is closed, and the next read works."""
    topic = topics.create("waiting")
    produce(kafka_properties, topic, 5)
    tp = TopicPartition(topic, 0)
    status = reader.session.spark.sparkContext.statusTracker()
    ranges = OffsetRanges({tp: 0}, {tp: 9})  # waits for records that never come
    ends = reader.read_batch(
        ranges, BatchCollector(), must_cancel=lambda: bool(list(status.getActiveJobsIds()))
    )
    assert ends == ranges.starts
    seen = BatchCollector()
    reader.run_query(whole_topic(admin, topic).starts, seen, is_stopping=never)
    assert [offset for _, offset in seen.rows] == list(range(5))
