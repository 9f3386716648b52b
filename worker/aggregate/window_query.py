"""The streaming query of event-time aggregates: windows, groups and functions as keys and values.

Rules of this file:
- A sum or an average that does not fit its type is null, as nothing else can be sent for it. It
  must not stop the query, which would stop at the same record again.
- All states of a process share one bound of RocksDB's memory. Otherwise each part of a state has up
  to 136 MB of its own, and a connector may have 1,000 parts.
- Keys and values are JSON that Spark makes. The driver only passes their bytes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from connect.config.aggregation import (
    EVERY_ROW,
    WINDOW_END,
    WINDOW_START,
    AggregateFunction,
    Aggregation,
)

KEY: Final = "key"
VALUE: Final = "value"
BATCHES_KEPT: Final = 2
STATE_MEMORY_MB: Final = 256
_STREAMING: Final = "spark.sql.streaming."
_ROCKSDB: Final = f"{_STREAMING}stateStore.rocksdb."
_WINDOW: Final = "__window"
_JSON: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",  # the session's zone is UTC
}
_FUNCTIONS: Final[Mapping[str, Callable[[str], Column]]] = {
    "sum": F.try_sum,
    "avg": F.try_avg,
    "min": F.min,
    "max": F.max,
    "approx_distinct": F.approx_count_distinct,
}


def streaming_session(spark: SparkSession, aggregation: Aggregation) -> SparkSession:
    """Return a session of the same Spark with the settings of a query with state."""
    session = spark.newSession()
    memory = f"{_ROCKSDB}maxMemoryUsageMB"
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    for name, value in {
        f"{_STREAMING}stateStore.providerClass": provider,
        f"{_ROCKSDB}changelogCheckpointing.enabled": "true",
        f"{_ROCKSDB}boundedMemoryUsage": "true",
        memory: session.conf.get(memory, str(STATE_MEMORY_MB)),  # the node's properties may set it
        f"{_STREAMING}minBatchesToRetain": str(BATCHES_KEPT),
        # a batch without records would have the source offsets of the one before
        f"{_STREAMING}noDataMicroBatches.enabled": "false",
        "spark.sql.shuffle.partitions": str(aggregation.state_partitions),
    }.items():
        session.conf.set(name, value)
    return session


def aggregated(rows: DataFrame, aggregation: Aggregation) -> DataFrame:
    """Return the keys and values of changed groups and windows.

    Args:
        rows: the columns that the aggregates use, a stream.
        aggregation: the aggregates.
    """
    window = F.window(
        F.col(aggregation.time_field),
        f"{aggregation.window_ms} milliseconds",
        f"{aggregation.slide_ms} milliseconds",
    )
    delay = f"{aggregation.watermark_ms} milliseconds"
    groups = [F.col(name) for name in aggregation.group_by]
    values = [_value(each) for each in aggregation.functions]
    made = (
        rows.withWatermark(aggregation.time_field, delay)
        .groupBy(window.alias(_WINDOW), *groups)
        .agg(*values)
    )
    start = F.col(f"{_WINDOW}.start").alias(WINDOW_START)
    end = F.col(f"{_WINDOW}.end").alias(WINDOW_END)
    names = [F.col(each.name) for each in aggregation.functions]
    key = F.struct(*groups, start)
    value = F.struct(start, end, *groups, *names)
    return made.select(
        F.to_json(key, _JSON).cast("binary").alias(KEY),
        F.to_json(value, _JSON).cast("binary").alias(VALUE),
    )


def output_mode(aggregation: Aggregation) -> str:
    """Return Spark's output mode."""
    return "append" if aggregation.emit == "final" else "update"


def _value(each: AggregateFunction) -> Column:
    if each.function == "count":
        counted = F.count(F.lit(1)) if each.column == EVERY_ROW else F.count(each.column)
        return counted.alias(each.name)
    return _FUNCTIONS[each.function](each.column).alias(each.name)
