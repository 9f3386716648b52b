"""Records that a task could not process: counts, logs, and the error that ends the task.

Rules of this file:
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
from connect.records.routing import WITHOUT_TABLE
from worker.task.read_ledger import WrittenBatch
from worker.task.task_metrics import TaskMetrics

log = structlog.get_logger("worker.records")


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


def advised(error: RecordError) -> RecordError:
    """Return the error that ends a task, with the setting that lets the task continue."""
    setting = (
        "iceberg.tables.unmatched to drop or dead-letter"
        if error.code in WITHOUT_TABLE
        else "errors.tolerance to all (and errors.deadletterqueue.topic.name)"
    )
    error.message += f"; to continue without such records, set {setting}"
    return error
