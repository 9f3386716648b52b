"""Processes each micro-batch: writes its files, checks limits, moves positions, counts records.

Rules of this file:
- ``write`` takes most of the time and changes nothing that an announcement needs. ``add`` does.
- A batch enters the ledger only after the dead letter limits accepted it.
"""

from __future__ import annotations

from dataclasses import dataclass

from worker.batch.few_records import BatchRows
from worker.spark.batch_sizing import ReadSizes
from worker.task.dead_letters.dead_letter_limits import DeadLetterLimits
from worker.task.dead_letters.record_errors import RecordErrors
from worker.task.read_ledger import OffsetRanges, ReadLedger, WrittenBatch
from worker.task.task_context import BatchRunner, TaskSetup


@dataclass(frozen=True, slots=True)
class BatchProcessor:
    """Processes the micro-batches of one task.

    Args:
        runner: writes the files.
        errors: counts and logs records that could not be processed.
        limits: stops the task when too many records are dead letters.
        ledger: takes the written batches.
        sizes: learns how large records are.
        setup: of the task; counts batches and records.
    """

    runner: BatchRunner
    errors: RecordErrors
    limits: DeadLetterLimits
    ledger: ReadLedger
    sizes: ReadSizes
    setup: TaskSetup

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
        now_ms = self.setup.clock.monotonic_ms()
        took_ms = now_ms - started_ms
        self.sizes.add(batch.progress, took_ms, output_bytes=batch.message_bytes)
        metrics = self.setup.metrics
        metrics.add(batch, started_ms=started_ms, now_ms=now_ms)
        metrics.announcement.records_pending_partition_max = self.ledger.unannounced_max
        self.setup.record_path.add(batch, now_ms, **self.setup.log_labels)
        losses = self.setup.losses
        if losses.add_unavailable(batch.unavailable) | losses.add_conflicts(batch.conflicts):
            self.setup.reports_losses()
