"""Rows for outputs: CPU of an executor, and messages that a task sends in a second.

Usage: python -m tests.bench.outputs [records]
"""

from __future__ import annotations

import random
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic

from connect.embedded.broker import Broker
from connect.gateways.kafka.kafka_clients import TransactionalProducer
from tests.bench.pipeline import BATCH_ROWS, SCHEMA, payment
from tests.differential.support import config, plan, source
from worker.batch.descriptors import BatchResult, collect
from worker.batch.pipeline_spec import PipelineLimits, PipelineSpec
from worker.pipeline.pipeline import run
from worker.task.tables.topic_rows import TopicRows

OUTPUT = "icefloe.output.alerts."
ALL = {"icefloe.outputs": "alerts", f"{OUTPUT}topic": "alerts", f"{OUTPUT}key": "customer"}
ROWS = {
    "icefloe.format": "topic",
    "icefloe.rows.columns": (
        "id BIGINT, customer STRING, merchant STRING, amount DOUBLE, currency STRING, "
        "status STRING, ts TIMESTAMP, card STRING, fraud BOOLEAN"
    ),
    "iceberg.tables": None,
    "iceberg.catalog.type": None,
    "iceberg.catalog.uri": None,
}
CASES: dict[str, dict[str, str | None]] = {
    "table alone": {},
    "table, 1 % of the rows": {**ALL, f"{OUTPUT}where": "fraud == `true`"},
    "table, 1 % by an expression for each row": {
        **ALL,
        f"{OUTPUT}where": "fraud && contains(customer, 'cust')",
    },
    "table, all rows": ALL,
    "no table, all rows": {**ALL, **ROWS},
}


def measured(batches: list[pa.RecordBatch], more: dict[str, str | None]) -> BatchResult:
    """Run one Spark task's work over the batches, and print its CPU time."""
    connector = config(**more)
    folder = Path(tempfile.mkdtemp(prefix="bench-outputs-"))
    tables = (plan(folder, SCHEMA),) if connector.has_tables else TopicRows(connector).spec().tables
    spec = PipelineSpec(connector, tables, limits=PipelineLimits(output_bytes_max=2**31))
    given = [batch.select(list(spec.columns())) for batch in batches]
    before = resource.getrusage(resource.RUSAGE_SELF)
    result = collect(pa.Table.from_batches(list(run(spec)(iter(given)))))
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    shutil.rmtree(folder)
    assert result.is_usable, result.error
    result_rows = sum(chunk.count for chunk in result.messages)
    size = sum(len(chunk.payload) for chunk in result.messages)
    records = sum(batch.num_rows for batch in batches)
    print(
        f"{spent / records * 1e6:6.2f} CPU s per million, {result_rows} rows, "
        f"{size / max(result_rows, 1):.0f} bytes each compressed"
    )
    return result


def main(records: int) -> None:
    """Measure each case, and the producer."""
    chance = random.Random(5)
    batches = [
        source([payment(start + i, chance, 1) for i in range(BATCH_ROWS)], start=start)
        for start in range(0, records, BATCH_ROWS)
    ]
    measured(batches[:1], ALL)  # imports
    for name, more in CASES.items():
        print(f"{name:42}", end="")
        result = measured(batches, more)
    with Broker(Path(tempfile.mkdtemp(prefix="bench-broker-"))) as broker:
        producer = TransactionalProducer({"bootstrap.servers": broker.bootstrap_servers}, "bench")
        producer.init()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("alerts", 3, 1)])["alerts"].result(60)
        for _ in range(3):
            started = time.perf_counter()
            before = time.process_time()
            rows = [m for chunk in result.messages for m in chunk.messages(("alerts",))]
            made = time.perf_counter()
            del rows
            producer.transact(m for chunk in result.messages for m in chunk.messages(("alerts",)))
            ended = time.perf_counter()
            print(
                f"one transaction: {records / (ended - made):9.0f} messages/s; making them took "
                f"{made - started:.2f} s, CPU {time.process_time() - before:.2f} s"
            )
        producer.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
