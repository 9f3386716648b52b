"""Reads of few records of one task with one table, as a short commit interval makes them."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Any

from connect.model.layout import TopicPartition
from connect.validation.parse import parse
from tests.support.source_reads import produce
from worker.batch.few_records import BatchRows
from worker.spark.session import Session
from worker.spark.source_options import source_options
from worker.task.batches.batch_runner import PipelineRunner, make_runner
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.source.source_blocks import SourceBlocks
from worker.task.source.source_reader import SourceReader
from worker.task.task_context import TaskAssignment


class SmallReads:
    """One task with one table that reads on, a few records at a time.

    Args:
        session: of Spark.
        kafka: the broker.
        topic: with two partitions.
        catalog: of the table.
    """

    def __init__(
        self,
        session: Session,
        kafka: dict[str, str],
        topic: str,
        catalog: dict[str, str],
    ) -> None:
        config = parse(
            {
                "name": topic,
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                "topics": topic,
                "iceberg.tables": "db.few",
                "iceberg.tables.auto-create-enabled": "true",
                "iceberg.tables.evolve-schema-enabled": "true",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "iceberg.control.commit.interval-ms": "1000",
                **{f"iceberg.catalog.{name}": value for name, value in catalog.items()},
            }
        )
        self.kafka = kafka
        self.topic = topic
        self.partitions = tuple(TopicPartition(topic, number) for number in range(2))
        assignment = TaskAssignment(0, 1, self.partitions)
        self.runner: PipelineRunner = make_runner(config, assignment, lambda: session)
        options = source_options(kafka, {}, task=topic, has_headers=False)
        source = SourceBlocks(session, options, self.runner.columns, in_driver=True)
        self.reader = SourceReader(source, topic, commit_interval_ms=1_000)
        self.valid_through_ms: int | None = None
        self._starts = dict.fromkeys(self.partitions, 0)
        self._rows: list[BatchRows] = []

    def read(self, count: int, value: bytes = b"", *, more: int = 0) -> WrittenBatch:
        """Produce records to the first partition, ``more`` to the other; read and write them."""
        produced = zip(self.partitions, (count, more), strict=True)
        ends = {}
        for place, records in produced:
            ends[place] = self._starts[place] + records
            if records:
                produce(self.kafka, self.topic, records, partition=place.partition, value=value)
        written: list[WrittenBatch] = []

        def write(rows: BatchRows, ranges: OffsetRanges) -> None:
            self._rows.append(rows)
            written.append(self.runner.run(rows, ranges, self.valid_through_ms))

        self.runner.refresh()
        self.reader.read_batch(OffsetRanges(dict(self._starts), ends), write)
        self._starts = ends
        self.reader.sizes.add(written[0].progress)
        assert written[0].records_read == count + more
        return written[0]

    @property
    def last_rows(self) -> BatchRows:
        """The rows of the last read."""
        return self._rows[-1]


def calls_into_jvm(work: Callable[[], Any]) -> int:
    """Return how many calls into the JVM some work makes in this thread."""
    profile = cProfile.Profile()
    profile.runcall(work)
    found = pstats.Stats(profile).stats  # type: ignore[attr-defined] # public, not in typeshed
    commands = sum(numbers[1] for (_, _, name), numbers in found.items() if name == "send_command")
    return int(commands) // 2  # of the gateway, and of its connection
