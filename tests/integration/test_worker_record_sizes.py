"""How records of all sizes reach Python, with a real broker and a real Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.source_reads import (
    BatchCollector,
    never,
    produce,
    read_by,
    whole_topic,
    with_source,
)
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from worker.batch.descriptors import PartitionProgress
from worker.batch.error_rows import LARGE_RECORD
from worker.spark.batch_sizing import ReadSizes
from worker.spark.source_options import HEADERS_OPTION
from worker.task.read_ledger import OffsetRanges
from worker.task.source.source_reader import OnBatch, SourceReader, as_arrow
from worker.task.source.source_rows import SourceRows

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
WITH_HEADERS = {HEADERS_OPTION: "true"}


def weighed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows and bytes of each batch, and how many headers are null."""
    for batch in batches:
        row = (batch.num_rows, batch.nbytes, batch.column("headers").null_count)
        yield pa.record_batch([pa.array([n], pa.int32()) for n in row], ["rows", "size", "nulls"])


def weighing(weights: list[dict[str, int]]) -> OnBatch:
    """Return a callback that adds the counts of ``weighed`` for each micro-batch."""

    def weigh(rows: Any, _: OffsetRanges) -> None:
        reported = as_arrow(rows.mapInArrow(weighed, "rows int, size int, nulls int"))
        weights.extend(reported.to_pylist())

    return weigh


def test_large_records_reach_python_in_small_batches(
    reader: SourceReader, admin: KafkaAdmin, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """Arrow batches are limited in bytes; missing headers are an empty list."""
    topic = topics.create("large")
    produce(kafka_properties, topic, 30, value=b"x" * 900_000)
    columns = ("value", "headers")
    large = with_source(reader, SourceRows, options=WITH_HEADERS, columns=columns)
    weights: list[dict[str, int]] = []
    weigh = weighing(weights)
    large.read_batch(whole_topic(admin, topic), weigh)
    assert sum(each["rows"] for each in weights) == 30
    assert max(each["size"] for each in weights) < 18 * 2**20
    assert {each["nulls"] for each in weights} == {0}


def small() -> ReadSizes:
    """What a task knows after a batch of small records."""
    sizes = ReadSizes()
    sizes.add(
        {TopicPartition("t", 0): PartitionProgress(10_000, 0, 0, 10_000, bytes_read=1_900_000)}
    )
    return sizes


@pytest.mark.parametrize("how", ["batch", "backlog"])
def test_small_records_reach_python_in_batches_of_rows(
    how: str,
    reader: SourceReader,
    admin: KafkaAdmin,
    topics: Topics,
    kafka_properties: dict[str, str],
) -> None:
    """If records are known to be small, the reader does not limit a batch in bytes."""
    topic = topics.create("small")
    produce(kafka_properties, topic, 900, value=b"x" * 30_000)
    weights: list[dict[str, int]] = []
    weigh = weighing(weights)
    columns = ("key", "value", "headers")
    as_rows = with_source(
        reader, SourceRows, options=WITH_HEADERS, columns=columns, sizes=small(), is_ordered=True
    )
    if how == "batch":
        as_rows.read_batch(whole_topic(admin, topic), weigh)
    else:
        as_rows.run_query(whole_topic(admin, topic).starts, weigh, is_stopping=never)
    assert [each["rows"] for each in weights] == [900]
    assert weights[0]["size"] > 16 * 2**20


@pytest.mark.parametrize(
    "where",
    [
        *("value", "many headers"),
        *(pytest.param(where, marks=pytest.mark.matrix) for where in ("key", "headers")),
    ],
)
def test_an_unexpected_large_record_is_reported_and_can_be_read(
    where: str,
    reader: SourceReader,
    admin: KafkaAdmin,
    topics: Topics,
    kafka_properties: dict[str, str],
) -> None:
    """At any position; the rows read before it are not used."""
    topic = topics.create("uneven")
    odd: dict[str, Any] = {
        "key": {"key": b"k" * 40_000},
        "value": {"value": b"v" * 40_000},
        "headers": {"headers": [("h" * 10_000, b"x" * 30_000), ("n", None)]},
        "many headers": {"headers": [("", None)] * 3_000},
    }[where]
    producer = Producer({**kafka_properties, "log_level": 0})
    for number in range(100):
        producer.produce(topic, partition=0, **({"value": b"{}"} | (odd if number == 60 else {})))
    assert producer.flush(120) == 0
    columns = ("partition", "offset", "value", "key", "headers")
    reads = with_source(reader, SourceRows, options=WITH_HEADERS, columns=columns, sizes=small())
    for how in ("batch", "backlog"):
        with pytest.raises(RetriableError) as e:
            read_by(how, reads, whole_topic(admin, topic), BatchCollector())
        assert e.value.code == LARGE_RECORD
    assert reads.sizes.adapt_to(LARGE_RECORD, 100)
    for how in ("batch", "backlog"):
        seen = BatchCollector()
        read_by(how, reads, whole_topic(admin, topic), seen)
        assert sorted(seen.rows) == [(0, n) for n in range(100)]
