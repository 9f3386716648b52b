"""What a task has done so far, in numbers: written by the task, read by the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from connect import metrics
from worker.rounds import WrittenBatch


@dataclass(slots=True)
class TaskFigures:
    """Totals since the task's start and last measurements; logic never reads them."""

    records_read: int = 0
    records_written: int = 0
    records_dropped: int = 0
    records_dead_lettered: int = 0
    files_written: int = 0
    bytes_written: int = 0
    batches: int = 0
    announcements: int = 0
    retries: int = 0
    lag_records: int = 0
    rounds_uncommitted: int = 0
    malformed_events: int = 0
    batch_duration_ms: int = 0
    is_held_back: bool = False
    lso_stalled: int = 0

    def add(self, batch: WrittenBatch, duration_ms: int) -> None:
        """Count one complete batch."""
        self.batches += 1
        self.batch_duration_ms = duration_ms
        for progress in batch.progress.values():
            self.records_read += progress.read
            self.records_written += progress.written
            self.records_dropped += progress.dropped
            self.records_dead_lettered += progress.dead_lettered
        for step in batch.steps:
            for _, files in step:
                self.files_written += len(files)
                self.bytes_written += sum(f.file_size_in_bytes for f in files)


_COUNTERS = (
    "records_read",
    "records_written",
    "records_dropped",
    "records_dead_lettered",
    "files_written",
    "bytes_written",
    "batches",
    "announcements",
)
_GAUGES = ("lag_records", "rounds_uncommitted", "batch_duration_ms", "lso_stalled")


def publish(connector: str, task: int, figures: TaskFigures) -> None:
    """Put a task's figures into the metrics of this process."""
    labels = {"connector": connector, "task": task}
    for name in _COUNTERS:
        metrics.counter(name, **labels).set(getattr(figures, name))
    metrics.counter("task_retries", **labels).set(figures.retries)
    for name in _GAUGES:
        metrics.gauge(name, **labels).set(getattr(figures, name))
    metrics.gauge("held_back", **labels).set(figures.is_held_back)
