"""Warms up a session before its first records: JVM classes, Kafka source, a Python worker.

Rules of this file:
- It reads no topic, writes no file and needs no broker.
- It runs while the tasks start. Without it the first batch waits until the JVM has loaded its
  classes. The Python daemon starts earlier, see ``worker.spark.opening``.
- The class archive is made from a warm-up, so it contains the classes that the warm-up loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from connect.model.layout import TopicPartition
from worker.batch.descriptors import DESCRIPTOR_DDL
from worker.spark.range_rows import RangeSource
from worker.spark.session import is_of_rows
from worker.spark.source_columns import source_column
from worker.spark.source_options import FETCH

_PARTITION: Final = TopicPartition("warm-up", 0)
_OPTIONS: Final = {
    "kafka.bootstrap.servers": "127.0.0.1:9",
    "kafka.group.id": "warm-up",
    "kafka.default.api.timeout.ms": FETCH["default.api.timeout.ms"],
    "includeHeaders": "false",
}
# of most connectors. Spark compiles a class for them, which their first batch then has
_COLUMNS: Final = ("value", "topic", "partition", "offset", "timestamp")


def warm_up(spark: SparkSession) -> None:
    """Run the plan of a small read, with an empty range."""
    load_source(spark)
    rows = RangeSource(spark, _OPTIONS).open([_PARTITION]).rows
    is_small = is_of_rows(rows)
    chosen = rows.select(*(source_column(name, is_small=is_small) for name in _COLUMNS))
    chosen.coalesce(1).mapInArrow(_none, DESCRIPTOR_DDL).toArrow()


def load_source(spark: SparkSession) -> None:
    """Load the classes of the Kafka source; no client connects before the first action."""
    ranges = '{"warm-up": {"0": 0}}'
    options = {
        **_OPTIONS,
        "assign": '{"warm-up": [0]}',
        "startingOffsets": ranges,
        "endingOffsets": ranges,
    }
    spark.read.format("kafka").options(**options).load()


def _none(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Consume every batch and return none."""
    for _ in batches:
        pass
    yield from ()
