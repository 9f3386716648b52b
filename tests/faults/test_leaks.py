"""Hundreds of reads in one worker's session: threads, handles and memory do not grow.

``FAULT_READS`` sets the number of reads: thousands for a nightly run, at least 160. Spark's pools
start a thread per use until they are full, so the first quarter of the samples does not count.
"""

from __future__ import annotations

import gc
import os
import threading

import psutil
import pytest

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.faults.checkers import check_no_growth
from tests.support.processes import arguments
from tests.support.source_reads import as_records
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from worker.spark.session import Session
from worker.spark.source_options import source_options
from worker.task.source.source_blocks import SourceBlocks
from worker.task.source.source_reader import SourceReader

pytestmark = [pytest.mark.kafka, *SPARK_MARKS, pytest.mark.faults]

READS = int(os.environ.get("FAULT_READS", "160"))
SAMPLES = 16
MEGABYTE = 1024 * 1024
PYTHON_SLACK_MB = 8
JVM_SLACK_MB = 64  # the heap swings by collections


@pytest.mark.timeout(READS * 5 + 300)
def test_reads_leak_no_threads_handles_or_memory(
    spark_session: Session,
    topics: Topics,
    kafka_properties: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each read is a streaming query with callbacks from the JVM, and releases what it used."""
    topic = topics.create("leaks")
    admin = KafkaAdmin(kafka_properties)
    python, jvm = (
        psutil.Process(),
        next(p for p in psutil.Process().children() if "java" in p.name() and is_spark(p)),
    )
    options = source_options(kafka_properties, {}, task="leaks", has_headers=False)
    source = SourceBlocks(spark_session, options, ("partition", "offset", "value"))
    reader = SourceReader(source, pool="leaks")
    produce(kafka_properties, topic)
    start = {TopicPartition(topic, 0): 0}
    counted: list[int] = []
    series: dict[str, list[float]] = {name: [] for name in SLACK}
    for number in range(1, READS + 1):
        reader.run_query(
            start,
            lambda rows, _: counted.append(as_records(rows, offset="bigint").num_rows),
            is_stopping=lambda: False,
        )
        if number % (READS // SAMPLES) == 0:
            gc.collect()
            series["threads"].append(threading.active_count())
            series["handles"].append(python.num_fds())
            series["handles of the JVM"].append(jvm.num_fds())
            series["threads of the JVM"].append(jvm.num_threads())
            series["Python MB"].append(python.memory_info().rss / MEGABYTE)
            series["connections"].append(connection_count())
            series["heap MB of the JVM"].append(heap_mb(spark_session))
    admin.close()
    wrong = [
        w for name, seen in series.items() for w in check_no_growth(name, seen, slack=SLACK[name])
    ]
    assert not wrong
    assert counted == [3] * READS
    assert not list(spark_session.folder.glob("query-*"))
    with capsys.disabled():
        print(f"\nleaks: {READS} reads; first and last sample of {SAMPLES}")
        for name, seen in series.items():
            print(f"  {name}: {seen[0]:.0f}, {seen[-1]:.0f}")


SLACK = {
    "threads": 3,
    "handles": 10,
    "handles of the JVM": 20,
    "threads of the JVM": 10,
    "Python MB": PYTHON_SLACK_MB,
    "connections": 3,
    "heap MB of the JVM": JVM_SLACK_MB,
}


def produce(kafka_properties: dict[str, str], topic: str) -> None:
    """Produce three records."""
    from confluent_kafka import Producer

    producer = Producer({**kafka_properties, "log_level": 0})
    for _ in range(3):
        producer.produce(topic, b"{}", partition=0)
    assert producer.flush(120) == 0


def is_spark(process: psutil.Process) -> bool:
    """Return whether this is the JVM of the session and not the broker."""
    return any("spark" in argument for argument in arguments(process))


def connection_count() -> int:
    """Return the number of TCP connections, with those from the JVM into Python."""
    return len(psutil.Process().net_connections("tcp"))


def heap_mb(session: Session) -> float:
    """Return the used heap after a garbage collection, in MB."""
    runtime = session.spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    return float(runtime.totalMemory() - runtime.freeMemory()) / MEGABYTE
