"""Time, CPU and calls into the JVM of a small batch read, as a short commit interval makes them.

Usage: python -m tests.bench.small_reads [reads] [pause]. The pause in seconds before each read is
what a commit interval leaves: caches of the processor are then cold.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from connect.embedded.broker import Broker
from connect.embedded.payments import produce, ranges
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.validation.parse import parse
from tests.bench.task import cpu
from worker.batch.few_records import BatchRows
from worker.spark.session import Session, open_session
from worker.spark.source_options import source_options
from worker.task.batches.batch_runner import PipelineRunner, make_runner
from worker.task.read_ledger import OffsetRanges
from worker.task.source.source_blocks import SourceBlocks
from worker.task.source.source_reader import SourceReader
from worker.task.task_context import TaskAssignment

PARTITIONS = tuple(TopicPartition("pay", number) for number in range(4))
RECORDS = 25  # of each partition
WARM_UP = 100
PROFILED = 20


class SmallReads:
    """Reads one topic on, a few records at a time, and writes their files.

    Args:
        session: of Spark.
        kafka: properties of the broker.
        folder: for the tables.
        in_driver: whether the reads do without a Spark job.
        first: the first offset of each partition.
    """

    def __init__(
        self,
        session: Session,
        kafka: dict[str, str],
        folder: Path,
        *,
        in_driver: bool = False,
        first: int = 0,
    ) -> None:
        config = parse(
            {
                "name": "small-reads",
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                "topics": "pay",
                "iceberg.tables": "db.pay",
                "iceberg.tables.auto-create-enabled": "true",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "iceberg.control.commit.interval-ms": "1000",
                "iceberg.catalog.type": "sql",
                "iceberg.catalog.uri": f"sqlite:///{folder / 'catalog.db'}",
                "iceberg.catalog.warehouse": f"file://{folder / 'warehouse'}",
            }
        )
        assignment = TaskAssignment(0, 1, PARTITIONS)
        self.runner: PipelineRunner = make_runner(config, assignment, lambda: session)
        options = source_options(kafka, {}, task="small", has_headers=False)
        source = SourceBlocks(session, options, self.runner.columns, in_driver=in_driver)
        # bounded: all records are in the topic already, and a read must not take more than its own
        self.reader = SourceReader(source, "small", commit_interval_ms=1_000, is_bounded=True)
        self._next = first

    def read(self) -> float:
        """Read and write the next records; return the seconds that it takes."""
        starts = dict.fromkeys(PARTITIONS, self._next)
        self._next += RECORDS
        ends = dict.fromkeys(PARTITIONS, self._next)
        begun = time.perf_counter()
        self.reader.read_batch(OffsetRanges(starts, ends), self._write)
        return time.perf_counter() - begun

    @property
    def next(self) -> int:
        """The next offset of each partition."""
        return self._next

    def _write(self, rows: BatchRows, read: OffsetRanges) -> None:
        written = self.runner.run(rows, read)
        self.reader.sizes.add(written.progress, 100)


def main(reads: int, pause_s: float) -> None:
    """Print the figures of ``reads`` reads after a warm-up: by a Spark job, in the driver."""
    folder = Path(tempfile.mkdtemp(prefix="bench-reads-"))
    with Broker(folder / "broker") as broker:
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        admin = KafkaAdmin(kafka)
        admin.ensure_topic("pay", len(PARTITIONS), replication_factor=1)
        records = 2 * (WARM_UP + reads + PROFILED) * RECORDS * len(PARTITIONS)
        produce(kafka, "pay", ranges(records, [0] * len(PARTITIONS)))
        session = open_session({}, folder=folder)
        first = 0
        for in_driver in (False, True):
            small = SmallReads(session, kafka, folder, in_driver=in_driver, first=first)
            for _ in range(WARM_UP):
                small.read()
            print(measured(small, reads, pause_s), flush=True)
            first = small.next
        session.close()
        admin.close()
    shutil.rmtree(folder)


def measured(small: SmallReads, reads: int, pause_s: float) -> str:
    """Return the figures of some reads."""
    before, seconds = cpu(), []
    for _ in range(reads):
        time.sleep(pause_s)
        seconds.append(small.read())
    used = {name: (value - before[name]) / reads for name, value in cpu().items()}
    profile = cProfile.Profile()
    for _ in range(PROFILED):
        profile.runcall(small.read)
    found = pstats.Stats(profile).stats  # type: ignore[attr-defined] # not in typeshed
    calls = sum(n[1] for (_, _, name), n in found.items() if name == "send_command") / 2
    return (
        f"{len(PARTITIONS) * RECORDS} records: p50 {statistics.median(seconds) * 1e3:.0f} ms, "
        f"p95 {sorted(seconds)[int(reads * 0.95)] * 1e3:.0f} ms, "
        f"CPU ms {', '.join(f'{k} {v * 1e3:.0f}' for k, v in used.items())}, "
        f"calls into the JVM {calls / PROFILED:.0f}, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 100,
        float(sys.argv[2]) if len(sys.argv) > 2 else 0.0,
    )
