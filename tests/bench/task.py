"""Rows and CPU seconds per million records of one task over a backlog, without a coordinator.

Usage: python tests/bench/task.py [millions] [runs]
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from uuid import uuid4

import psutil

from connect.clock import SystemClock
from connect.embedded.broker import Broker
from connect.embedded.payments import produce, ranges
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.validation.parse import parse
from tests.support.task_harness import opened
from worker.spark.session import Session, open_session
from worker.task.batches.batch_runner import make_runner
from worker.task.task import ConnectorTask
from worker.task.task_context import TaskAssignment, TaskContext

PARTITIONS = 4


def cpu() -> dict[str, float]:
    """CPU seconds so far: this process, Spark's JVM, the Python workers."""
    me = psutil.Process()
    out = {"driver": sum(me.cpu_times()[:2]), "java": 0.0, "python": 0.0}
    for child in me.children(recursive=True):
        try:
            line = child.cmdline()
            times = child.cpu_times()
        except psutil.Error:
            continue
        if "worker.spark.daemon" in line:
            out["python"] += sum(times[:4])
        elif "org.apache.spark.deploy.SparkSubmit" in line:
            out["java"] += sum(times[:2])
    return out


def rss() -> dict[str, int]:
    """Resident megabytes: Spark's JVM, all Python workers."""
    out = {"java": 0, "python": 0}
    for child in psutil.Process().children(recursive=True):
        try:
            line, size = child.cmdline(), child.memory_info().rss >> 20
        except psutil.Error:
            continue
        if "worker.spark.daemon" in line:
            out["python"] += size
        elif "org.apache.spark.deploy.SparkSubmit" in line:
            out["java"] += size
    return out


def main(records: int, runs: int) -> None:
    """Produce once; read ``runs`` times, each time with another connector."""
    folder = Path(tempfile.mkdtemp(prefix="bench-task-"))
    with Broker(folder / "broker") as broker:
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        admin = KafkaAdmin(kafka)
        admin.ensure_topic("pay", PARTITIONS, {"compression.type": "zstd"}, replication_factor=1)
        admin.ensure_topic("control", 1, replication_factor=1)
        produce(kafka, "pay", ranges(records, [0] * PARTITIONS))
        session = open_session({}, folder=folder)
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": f"file://{folder / 'warehouse'}",
        }
        for run in range(runs):
            measure(run, records, kafka, session, catalog)
        session.close()
        admin.close()
    shutil.rmtree(folder)


def measure(
    run: int, records: int, kafka: dict[str, str], session: Session, catalog: dict[str, str]
) -> None:
    """Measure one connector from its start until all files are written."""
    config = parse(
        {
            "name": f"bench-{run}-{uuid4()}",
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": "pay",
            "iceberg.tables": f"db.pay{run}",
            "iceberg.tables.auto-create-enabled": "true",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "iceberg.control.topic": "control",
            **{f"iceberg.catalog.{k}": v for k, v in catalog.items()},
        }
    )
    wiring = TaskContext(
        kafka,
        "bench",
        None,
        opened(session),
        SystemClock(),
        make_runner,
        lambda s, e: print(s, e or ""),
    )
    tps = tuple(TopicPartition("pay", p) for p in range(PARTITIONS))
    task = ConnectorTask(config, TaskAssignment(0, 1, tps), wiring)
    thread = threading.Thread(target=task.run)
    before, started, peak = cpu(), time.perf_counter(), {"java": 0, "python": 0}
    thread.start()
    while task.metrics.batch.records_read < records and thread.is_alive():
        time.sleep(0.05)
        if int(time.perf_counter() * 20) % 10 == 0:
            peak = {k: max(v, peak[k]) for k, v in rss().items()}
    wall = time.perf_counter() - started
    used = {k: (v - before[k]) / records * 1e6 for k, v in cpu().items()}
    task.stop()
    thread.join()
    batches = task.metrics.batch
    print(
        f"run {run}: {records / wall / 1e3:.0f} k records/s, CPU s per million "
        f"{sum(used.values()):.2f} ({', '.join(f'{k} {v:.2f}' for k, v in used.items())}), "
        f"batches {batches.batches}, files {batches.files_written}, "
        f"{batches.bytes_written / 1e6:.0f} MB, "
        f"peak MB {peak}, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main(
        int(float(sys.argv[1] if len(sys.argv) > 1 else 3) * 1e6),
        int(sys.argv[2]) if len(sys.argv) > 2 else 3,
    )
