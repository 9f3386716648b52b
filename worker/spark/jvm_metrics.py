"""Memory, threads and garbage collection of Spark's JVM, and its executors on other machines.

The metrics of the JVM have their usual Prometheus names.

Source:
    ``java.lang.management``; names of Prometheus' client for Java.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from connect.metrics import process_metrics
from worker.spark.jvm import jvm_of
from worker.spark.session import Session

JvmValue: TypeAlias = tuple[str, dict[str, str], float]


def publish_jvm(session: Session) -> None:
    """Put the present values into the metrics of this process; nothing when the JVM has ended."""
    try:
        values = list(jvm_values(session.spark))
        if session.cluster is not None:
            values.append(("spark_executors", {}, session.executor_count))
    except (Py4JError, OSError):
        return
    for name, labels, value in values:
        process_metrics.gauge(name, **labels).set(value)


def jvm_values(spark: SparkSession) -> Iterator[JvmValue]:
    """Yield metric, labels and value.

    Raises:
        Py4JError, OSError: the JVM does not answer.
    """
    management = jvm_of(spark).java.lang.management.ManagementFactory
    memory = management.getMemoryMXBean()
    for area, usage in (
        ("heap", memory.getHeapMemoryUsage()),
        ("nonheap", memory.getNonHeapMemoryUsage()),
    ):
        yield "jvm_memory_used_bytes", {"area": area}, usage.getUsed()
        yield "jvm_memory_committed_bytes", {"area": area}, usage.getCommitted()
        yield "jvm_memory_max_bytes", {"area": area}, usage.getMax()
    yield "jvm_threads_current", {}, management.getThreadMXBean().getThreadCount()
    for collector in management.getGarbageCollectorMXBeans():
        gc = {"gc": str(collector.getName())}
        yield "jvm_gc_collection_seconds_sum", gc, collector.getCollectionTime() / 1000
        yield "jvm_gc_collection_seconds_count", gc, collector.getCollectionCount()
