"""Records that could not be handled: counted, and logged where the connector wants that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from worker.task.read_ledger import WrittenBatch
from worker.task.task_metrics import TaskMetrics

log = structlog.get_logger("worker.records")


@dataclass(frozen=True, slots=True)
class RecordErrors:
    """The records that a task could not handle.

    Args:
        config: whether they are logged (``errors.log.enable``), and with their place
            (``errors.log.include.messages``); nothing of their content is, in either case.
        task: number; named in the log, as Spark's threads do not know it.
        measurements: where they are counted.
        clock: when.
    """

    config: ConnectorConfig
    task: int
    measurements: TaskMetrics
    clock: Clock

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count and log the record whose error ends the block."""
        try:
            yield
        except RecordError as error:
            self.measurements.record_failed(count=1, at_ms=self.clock.now_ms())
            if self.config.errors.log_enable:
                place = error.coordinates
                known = {k: place[k] for k in ("topic", "partition", "offset") if k in place}
                self._log(error, is_tolerated=False, **known)
            raise

    def tolerated(self, batch: WrittenBatch) -> None:
        """Count and log a batch's dead letters, those without a topic to go to included."""
        count = sum(counted.dead_lettered for counted in batch.progress.values())
        if count:
            self.measurements.record_failed(count=count, at_ms=self.clock.now_ms())
        if self.config.errors.log_enable:
            for letter in batch.dead_letters:
                record = letter.record
                self._log(
                    letter.error,
                    is_tolerated=True,
                    topic=record.topic,
                    partition=record.partition,
                    offset=record.offset,
                    timestamp_ms=record.timestamp_ms,
                )

    def _log(self, error: RecordError, *, is_tolerated: bool, **place: object) -> None:
        displayed = place if self.config.errors.log_include_messages else {}
        log.error(
            "record not handled",
            stage=error.stage,
            code=error.code,
            error=error.message,
            tolerated=is_tolerated,
            connector=self.config.name,
            task=self.task,
            **displayed,
        )
        self.measurements.record_errors_logged += 1
