"""Processes each micro-batch: writes its files, checks limits, moves positions, counts records.

Rules of this file:
- ``write`` takes most of the time and changes nothing that an announcement needs. ``add`` does.
- A batch enters the ledger only after the dead letter limits accepted it.
- Logs of records contain coordinates, never keys, values or headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from worker.batch.few_records import BatchRows
from worker.spark.batch_sizing import ReadSizes
from worker.task.dead_letter_limits import DeadLetterLimits
from worker.task.read_ledger import OffsetRanges, ReadLedger, WrittenBatch
from worker.task.task_context import BatchRunner
from worker.task.task_metrics import TaskMetrics

log = structlog.get_logger("worker.records")


@dataclass(frozen=True, slots=True)
class BatchProcessor:
    """Processes the micro-batches of one task.

    Args:
        runner: writes the files.
        errors: counts and logs records that could not be processed.
        limits: stops the task when too many records are dead letters.
        ledger: takes the written batches.
        sizes: learns how large records are.
        metrics: counts batches and records.
        clock: monotonic time.
    """

    runner: BatchRunner
    errors: RecordErrors
    limits: DeadLetterLimits
    ledger: ReadLedger
    sizes: ReadSizes
    metrics: TaskMetrics
    clock: Clock

    def write(
        self, rows: BatchRows, ranges: OffsetRanges, valid_through_ms: int | None
    ) -> WrittenBatch:
        """Write the files of one micro-batch; args and errors as ``BatchRunner.run``."""
        with self.errors.counted():
            is_small = self.sizes.is_small(ranges.record_count_max)
            return self.runner.run(rows, ranges, valid_through_ms, is_small=is_small)

    def add(self, batch: WrittenBatch, *, started_ms: int) -> None:
        """Add a batch to the pending batches.

        Args:
            batch: its files are written.
            started_ms: when its work began (monotonic clock).

        Raises:
            RecordError: too many records could not be processed.
            InvariantViolation: the batch is not the next one.
        """
        self.errors.tolerated(batch)
        self.limits.add(batch)
        self.ledger.add(batch)
        now_ms = self.clock.monotonic_ms()
        took_ms = now_ms - started_ms
        self.sizes.add(batch.progress, took_ms, output_bytes=batch.message_bytes)
        self.metrics.add(batch, started_ms=started_ms, now_ms=now_ms)
        self.metrics.announcement.records_pending_partition_max = self.ledger.unannounced_max


@dataclass(frozen=True, slots=True)
class RecordErrors:
    """Counts the records that a task could not process, and logs them if configured.

    Args:
        config: whether to log them (``errors.log.enable``), and with their coordinates
            (``errors.log.include.messages``).
        task: number of the task, for the log.
        metrics: where they are counted.
        clock: wall clock.
    """

    config: ConnectorConfig
    task: int
    metrics: TaskMetrics
    clock: Clock

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count and log the record whose error ends the block."""
        try:
            yield
        except RecordError as error:
            self.metrics.errors.add(count=1, at_ms=self.clock.now_ms())
            if self.config.errors.log_enable:
                all_coordinates = error.coordinates
                names = ("topic", "partition", "offset")
                coordinates = {
                    name: all_coordinates[name] for name in names if name in all_coordinates
                }
                self._log(error, is_tolerated=False, **coordinates)
            raise

    def tolerated(self, batch: WrittenBatch) -> None:
        """Count and log a batch's dead letters, also those without a dead letter topic."""
        count = sum(progress.dead_lettered for progress in batch.progress.values())
        if count:
            self.metrics.errors.add(count=count, at_ms=self.clock.now_ms())
        if self.config.errors.log_enable:
            for dead_letter in batch.dead_letters:
                record = dead_letter.record
                self._log(
                    dead_letter.error,
                    is_tolerated=True,
                    topic=record.topic,
                    partition=record.partition,
                    offset=record.offset,
                    timestamp_ms=record.timestamp_ms,
                )

    def _log(self, error: RecordError, *, is_tolerated: bool, **coordinates: object) -> None:
        log.error(
            "record not processed",
            stage=error.stage,
            code=error.code,
            error=error.message,
            tolerated=is_tolerated,
            connector=self.config.name,
            task=self.task,
            **(coordinates if self.config.errors.log_include_messages else {}),
        )
        self.metrics.errors.record_errors_logged += 1
