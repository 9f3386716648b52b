"""Records with nulls, headers and odd bytes, and what a read returns of them."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from tests.support.source_reads import as_records, whole_topic
from tests.support.stack import Topics
from worker.task.read_ledger import OffsetRanges

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
ODD_RECORDS: tuple[dict[str, Any], ...] = (
    {"value": b"{}"},
    {"value": None, "key": b"tombstone"},
    {"value": b"", "key": b""},
    {"value": b"x", "headers": []},
    {"value": b"y", "headers": [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b"")]},
    {"value": b"\xff\x00" * 70_000, "key": "schlüssel", "headers": [("größe", b"\x00")]},
    {"value": None, "headers": [("only", b"header")]},
)


def produce_odd(
    kafka: dict[str, str], admin: KafkaAdmin, topics: Topics, compression: str = "none"
) -> OffsetRanges:
    """Produce each odd record three times to two topics of two partitions; return their ranges."""
    names = [topics.create("odd", partitions=2) for _ in range(2)]
    producer = Producer({**kafka, "compression.type": compression, "log_level": 0})
    now_ms = int(time.time() * 1000)  # retention would delete much older records
    for number, odd in enumerate(ODD_RECORDS * 3):
        for topic in names:
            producer.produce(topic, partition=number % 2, timestamp=now_ms - number, **odd)
    assert producer.flush(60) == 0
    ranges = [whole_topic(admin, topic, 2) for topic in names]
    return OffsetRanges(
        {place: start for each in ranges for place, start in each.starts.items()},
        {place: end for each in ranges for place, end in each.ends.items()},
    )


class Records:
    """Collects the records of micro-batches, with all columns."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def __call__(self, rows: DataFrame, _: OffsetRanges) -> None:
        """Take a batch."""
        self.tables.append(
            as_records(
                rows,
                topic="string",
                partition="int",
                offset="bigint",
                timestamp="timestamp",
                key="binary",
                value="binary",
                headers="array<struct<key: string, value: binary>>",
            )
        )

    def sorted(self) -> list[dict[str, Any]]:
        """Return all records in the order of their coordinates."""
        rows: list[dict[str, Any]] = pa.concat_tables(self.tables).to_pylist()
        return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
