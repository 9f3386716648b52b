"""What a session does once before its first records come: start what every read needs.

Rules of this file:
- It reads no topic, writes no file and needs no broker.
- It runs beside the tasks, which open meanwhile: without it the first batch waits until the Python
  daemon has its modules and the JVM its classes.
- The maker of the archive of classes runs it too, so what is warmed is what is archived.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from worker.batch.descriptors import DESCRIPTOR_DDL


def warm_up(spark: SparkSession) -> None:
    """Start the Python daemon with one row through the plan that a small read has."""
    load_source(spark)
    rows = spark.range(1).select(*_columns()).coalesce(1)
    rows.mapInArrow(_none, DESCRIPTOR_DDL).toArrow()


def load_source(spark: SparkSession) -> None:
    """Let Spark find its Kafka source; nothing connects before the first action."""
    ranges = '{"warm-up": {"0": 0}}'
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "assign": '{"warm-up": [0]}',
        "startingOffsets": ranges,
        "endingOffsets": ranges,
    }
    spark.read.format("kafka").options(**options).load()


def _columns() -> list[Column]:
    """Columns like those of the Kafka source."""
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
    """Take every batch, give none."""
    for _ in batches:
        pass
    yield from ()
