"""Warms up a session before its first records: JVM classes, Kafka source, a Python worker.

Rules of this file:
- It reads no topic, writes no file and needs no broker.
- It runs while the tasks start. Without it the first batch waits until the JVM has loaded its
  classes. The Python daemon starts earlier, see ``worker.spark.session_opening``.
- The class archive is made from a warm-up, so it contains the classes that the warm-up loads.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from worker.batch.descriptors import DESCRIPTOR_DDL
from worker.spark.block_reader import RecordBlocks
from worker.spark.session import Session

_NO_BROKER = {
    "kafka.bootstrap.servers": "127.0.0.1:9",
    "kafka.max.poll.records": "1",
    "kafka.request.timeout.ms": "30000",
}


def warm_up(session: Session) -> None:
    """Run the plan of a small read, without a range; its consumer connects to nothing."""
    load_source(session.spark)
    blocks = RecordBlocks(session, _NO_BROKER, ()).rows([[]], poll_records=1)
    blocks.mapInArrow(_none, DESCRIPTOR_DDL).toArrow()


def warm_up_rows(spark: SparkSession) -> None:
    """Run one row through the plan of a small read of a query."""
    rows = spark.range(1).select(*_columns()).coalesce(1)
    rows.mapInArrow(_none, DESCRIPTOR_DDL).toArrow()


def load_source(spark: SparkSession) -> None:
    """Load the classes of the Kafka source; no client connects before the first action."""
    ranges = '{"warm-up": {"0": 0}}'
    options = {
        **_NO_BROKER,
        "assign": '{"warm-up": [0]}',
        "startingOffsets": ranges,
        "endingOffsets": ranges,
    }
    spark.read.format("kafka").options(**options).load()


def _columns() -> list[Column]:
    """Return columns with the types of the Kafka source."""
    number, nothing = F.col("id"), F.lit(None)
    return [
        nothing.cast("binary").alias("key"),
        number.cast("string").cast("binary").alias("value"),
        F.lit("warm-up").alias("topic"),
        number.cast("int").alias("partition"),
        number.alias("offset"),
        F.current_timestamp().alias("timestamp"),
        number.cast("int").alias("timestampType"),
        F.coalesce(nothing.cast("array<struct<key: string, value: binary>>"), F.array()).alias(
            "headers"
        ),
    ]


def _none(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Consume every batch and return none."""
    for _ in batches:
        pass
    yield from ()
