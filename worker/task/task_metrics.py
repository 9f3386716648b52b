"""What a task has done so far, in numbers: written by the task, read by the metrics."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from connect.metrics import process_metrics
from worker.task.read_ledger import WrittenBatch

RECENT_MS: Final = 60_000
RECENT_MAX: Final = 10_000  # a batch takes milliseconds at least


@dataclass(slots=True)
class Recent:
    """Measurements of the last minute; monotonic times."""

    _seen: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))

    def add(self, value: float, at_ms: int) -> None:
        """One measurement."""
        self._seen.append((at_ms, value))

    def measurements(self, now_ms: int) -> tuple[float, float]:
        """Average and highest of the last minute; zeros when there was none.

        The metrics' thread asks while the task's adds.
        """
        recent = [value for at_ms, value in tuple(self._seen) if at_ms > now_ms - RECENT_MS]
        return (sum(recent) / len(recent), max(recent)) if recent else (0.0, 0.0)


@dataclass(slots=True)
class TaskMetrics:
    """Totals since the task's start and last measurements; logic never reads them."""

    records_read: int = 0
    records_written: int = 0
    records_dropped: int = 0
    records_dead_lettered: int = 0
    records_future: int = 0
    late_records: int = 0
    record_errors: int = 0
    record_errors_logged: int = 0
    dead_letters_produced: int = 0
    files_written: int = 0
    bytes_written: int = 0
    batches: int = 0
    announcements: int = 0
    retries: int = 0
    partitions: int = 0
    lag_records: int = 0
    rounds_uncommitted: int = 0
    records_pending: int = 0
    records_pending_partition_max: int = 0
    malformed_events: int = 0
    batch_duration_ms: int = 0
    last_error_timestamp_ms: int = 0
    is_held_back: bool = False
    lso_stalled: int = 0
    batch_durations: Recent = field(default_factory=Recent)
    batch_records: Recent = field(default_factory=Recent)
    announcement_durations: Recent = field(default_factory=Recent)
    pending: Recent = field(default_factory=Recent)

    def add(self, batch: WrittenBatch, *, started_ms: int, now_ms: int) -> None:
        """Count one complete batch; monotonic times."""
        self.batches += 1
        self.batch_duration_ms = now_ms - started_ms
        self.batch_durations.add(self.batch_duration_ms, now_ms)
        read = sum(progress.read for progress in batch.progress.values())
        self.batch_records.add(read, now_ms)
        self.records_read += read
        for progress in batch.progress.values():
            self.records_written += progress.written
            self.records_dropped += progress.dropped
            self.records_dead_lettered += progress.dead_lettered
            self.records_future += progress.future
            self.late_records += progress.late
        for step in batch.steps:
            for _, files in step:
                self.files_written += len(files)
                self.bytes_written += sum(f.file_size_in_bytes for f in files)
        self.lag_records = max(0, self.lag_records - batch.slice.record_count_max)
        self.records_pending += read
        self.pending.add(self.records_pending, now_ms)

    def begin(self, partitions: int, *, now_ms: int) -> None:
        """The task takes its partitions, anew after an error; monotonic time."""
        self.partitions = partitions
        self._nothing_pending(now_ms)  # what was pending is forgotten and read again

    def announced(self, letters: int, started_ms: int, *, now_ms: int) -> None:
        """An announcement of all that was pending is committed; monotonic times."""
        self.announcements += 1
        self.announcement_durations.add(now_ms - started_ms, now_ms)
        self.dead_letters_produced += letters
        self._nothing_pending(now_ms)

    def _nothing_pending(self, now_ms: int) -> None:
        self.records_pending = self.records_pending_partition_max = 0
        self.pending.add(0, now_ms)

    def record_failed(self, *, count: int, at_ms: int) -> None:
        """Records could not be handled; ``at_ms`` is wall clock."""
        self.record_errors += count
        self.last_error_timestamp_ms = at_ms


_COUNTERS = (
    "records_read",
    "records_written",
    "records_dropped",
    "records_dead_lettered",
    "records_future",
    "late_records",
    "record_errors",
    "record_errors_logged",
    "dead_letters_produced",
    "files_written",
    "bytes_written",
    "batches",
    "announcements",
)
_GAUGES = (
    "partitions",
    "lag_records",
    "rounds_uncommitted",
    "records_pending",
    "records_pending_partition_max",
    "batch_duration_ms",
    "last_error_timestamp_ms",
    "lso_stalled",
)


def publish(connector: str, task: int, measurements: TaskMetrics, now_ms: int) -> None:
    """Put a task's figures into the metrics of this process; ``now_ms`` is monotonic."""
    labels = {"connector": connector, "task": task}
    for name in _COUNTERS:
        process_metrics.counter(name, **labels).set(getattr(measurements, name))
    process_metrics.counter("task_retries", **labels).set(measurements.retries)
    for name in _GAUGES:
        process_metrics.gauge(name, **labels).set(getattr(measurements, name))
    process_metrics.gauge("held_back", **labels).set(measurements.is_held_back)
    for name, unit, recent in (
        ("batch_duration", "_ms", measurements.batch_durations),
        ("batch_records", "", measurements.batch_records),
        ("announcement_duration", "_ms", measurements.announcement_durations),
        ("records_pending", "", measurements.pending),
    ):
        average, highest = recent.measurements(now_ms)
        process_metrics.gauge(f"{name}_avg{unit}", **labels).set(average)
        process_metrics.gauge(f"{name}_max{unit}", **labels).set(highest)
