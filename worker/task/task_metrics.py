"""What a task has done so far, in numbers. The task writes them, the metrics thread reads them.

Rules of this file:
- An attribute that is published has the name of its metric.
- The task never reads a value to decide anything but its restart delay.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

from connect.metrics import process_metrics
from worker.batch.error_rows import RECORD_FAILED
from worker.pipeline.progress import ALONE
from worker.task.read_ledger import WrittenBatch

RECENT_MS: Final = 60_000
RECENT_MAX: Final = 10_000  # a batch takes at least milliseconds

TaskValue: TypeAlias = tuple[Literal["counter", "gauge"], str, float]
"""Kind, name and value of a metric."""


@dataclass(slots=True)
class RecentValues:
    """Values of the last minute, by the monotonic clock."""

    _values: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))

    def add(self, value: float, at_ms: int) -> None:
        """Add a value."""
        self._values.append((at_ms, value))

    def average_and_max(self, now_ms: int) -> tuple[float, float]:
        """Return average and maximum of the last minute; zeros if there was no value.

        The metrics thread calls it while the task's thread adds values.
        """
        recent = [value for at_ms, value in tuple(self._values) if at_ms > now_ms - RECENT_MS]
        return (sum(recent) / len(recent), max(recent)) if recent else (0.0, 0.0)


@dataclass(slots=True)
class RecentDurations(RecentValues):
    """Durations of the last minute in milliseconds, and those not in a histogram yet."""

    _unpublished: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))

    def add(self, value: float, at_ms: int) -> None:
        """Add a duration."""
        RecentValues.add(self, value, at_ms)  # super() does not work in a class with slots
        self._unpublished.append(value)

    def unpublished(self) -> Iterator[float]:
        """Take the durations that were added since the last call."""
        while self._unpublished:
            yield self._unpublished.popleft()


@dataclass(slots=True)
class BatchMetrics:
    """Micro-batches, their records and files."""

    COUNTERS: ClassVar = (
        "records_read",
        "records_written",
        "records_dropped",
        "records_dead_lettered",
        "records_failed",
        "records_future",
        "late_records",
        "values_truncated",
        "values_unavailable",
        "type_conflicts",
        "files_written",
        "bytes_written",
        "batches",
        "batch_timeouts",
    )
    GAUGES: ClassVar = ("batch_duration_ms",)

    records_read: int = 0
    records_written: int = 0
    records_dropped: int = 0
    records_dead_lettered: int = 0
    records_failed: int = 0
    records_future: int = 0
    late_records: int = 0
    values_truncated: int = 0
    values_unavailable: int = 0
    type_conflicts: int = 0
    files_written: int = 0
    bytes_written: int = 0
    batches: int = 0
    batch_timeouts: int = 0
    record_path: Counter[str] = field(default_factory=Counter)  # by reason
    batch_duration_ms: int = 0
    batch_durations: RecentDurations = field(default_factory=RecentDurations)
    batch_records: RecentValues = field(default_factory=RecentValues)

    def add(self, batch: WrittenBatch, *, started_ms: int, now_ms: int) -> None:
        """Count a complete batch (monotonic clock)."""
        self.batches += 1
        self.batch_duration_ms = now_ms - started_ms
        self.batch_durations.add(self.batch_duration_ms, now_ms)
        self.batch_records.add(batch.records_read, now_ms)
        self.records_read += batch.records_read
        self.values_truncated += batch.truncated
        self.values_unavailable += sum(batch.unavailable.values())
        self.type_conflicts += sum(batch.conflicts.values())
        for progress in batch.progress.values():
            self.records_written += progress.written
            self.records_dropped += progress.dropped
            self.records_dead_lettered += progress.dead_lettered
            self.records_future += progress.future
            self.late_records += progress.late
            self.record_path.update(progress.alone)
        self.records_failed += sum(d.error.code == RECORD_FAILED for d in batch.dead_letters)
        for step in batch.steps:
            for _, files in step:
                self.files_written += len(files)
                self.bytes_written += sum(file.file_size_in_bytes for file in files)


@dataclass(slots=True)
class OutputMetrics:
    """Rows for outputs."""

    COUNTERS: ClassVar = ("output_rows", "output_bytes", "output_rows_refused")

    output_rows: int = 0
    output_bytes: int = 0
    output_rows_refused: int = 0

    def add(self, rows: int, size: int, refused: int) -> None:
        """Count the rows of a committed announcement."""
        self.output_rows += rows
        self.output_bytes += size
        self.output_rows_refused += refused


@dataclass(slots=True)
class AnnouncementMetrics:
    """Announcements, and records that wait for one."""

    COUNTERS: ClassVar = (
        "announcements",
        "dead_letters_produced",
        "source_offsets_lost",
        "source_positions_recovered",
    )
    GAUGES: ClassVar = ("rounds_uncommitted", "records_pending", "records_pending_partition_max")

    announcements: int = 0
    dead_letters_produced: int = 0
    source_offsets_lost: int = 0
    source_positions_recovered: int = 0
    rounds_uncommitted: int = 0
    records_pending: int = 0
    records_pending_partition_max: int = 0
    announcement_durations: RecentDurations = field(default_factory=RecentDurations)
    pending: RecentValues = field(default_factory=RecentValues)

    def add(self, dead_letters: int, *, started_ms: int, now_ms: int) -> None:
        """Count a committed announcement of everything that was pending (monotonic clock)."""
        self.announcements += 1
        self.announcement_durations.add(now_ms - started_ms, now_ms)
        self.dead_letters_produced += dead_letters
        self.clear_pending(now_ms)

    def add_pending(self, records: int, now_ms: int) -> None:
        """Count records that are read and not announced."""
        self.records_pending += records
        self.pending.add(self.records_pending, now_ms)

    def clear_pending(self, now_ms: int) -> None:
        """Note that no record is pending: all are announced, or discarded after an error."""
        self.records_pending = 0
        self.records_pending_partition_max = 0
        self.pending.add(0, now_ms)


@dataclass(slots=True)
class SourceMetrics:
    """The source partitions, as of the last poll."""

    GAUGES: ClassVar = ("partitions", "lag_records", "lag_records_partition_max", "lso_stalled")

    partitions: int = 0
    lag_records: int | None = None
    lag_records_partition_max: int | None = None
    lso_stalled: int = 0
    is_held_back: bool = False

    def read(self, count: int) -> None:
        """Subtract records that were read since the lag was measured."""
        if self.lag_records is None or self.lag_records_partition_max is None:
            return
        self.lag_records = max(0, self.lag_records - count)
        self.lag_records_partition_max = min(self.lag_records_partition_max, self.lag_records)


@dataclass(slots=True)
class RecordErrorMetrics:
    """Records that could not be processed."""

    COUNTERS: ClassVar = ("record_errors", "record_errors_logged")
    GAUGES: ClassVar = ("last_error_timestamp_ms",)

    record_errors: int = 0
    record_errors_logged: int = 0
    last_error_timestamp_ms: int = 0

    def add(self, *, count: int, at_ms: int) -> None:
        """Count records that could not be processed (wall clock)."""
        self.record_errors += count
        self.last_error_timestamp_ms = at_ms


@dataclass(slots=True)
class AggregateMetrics:
    """Results of event-time aggregates, and their state."""

    COUNTERS: ClassVar = ("aggregate_results", "aggregate_late_rows")
    GAUGES: ClassVar = (
        "aggregate_state_rows",
        "aggregate_state_bytes",
        "aggregate_watermark_timestamp_seconds",
    )

    aggregate_results: int = 0
    aggregate_late_rows: int = 0
    aggregate_state_rows: int = 0
    aggregate_state_bytes: int = 0
    aggregate_watermark_timestamp_seconds: float = 0


@dataclass(slots=True)
class TaskMetrics:
    """Totals since the task's first start, and last values; ``published`` as of the last time."""

    batch: BatchMetrics = field(default_factory=BatchMetrics)
    announcement: AnnouncementMetrics = field(default_factory=AnnouncementMetrics)
    outputs: OutputMetrics = field(default_factory=OutputMetrics)
    source: SourceMetrics = field(default_factory=SourceMetrics)
    errors: RecordErrorMetrics = field(default_factory=RecordErrorMetrics)
    aggregate: AggregateMetrics | None = None
    retries: int = 0
    published: list[TaskValue] = field(default_factory=list)

    def start(self, partitions: int, *, now_ms: int) -> None:
        """Note a start or restart of the task (monotonic clock)."""
        self.source.partitions = partitions
        self.announcement.clear_pending(now_ms)

    def add(self, batch: WrittenBatch, *, started_ms: int, now_ms: int) -> None:
        """Count a complete batch, which is pending from now on (monotonic clock)."""
        self.batch.add(batch, started_ms=started_ms, now_ms=now_ms)
        self.source.read(batch.ranges.record_count_max)
        self.announcement.add_pending(batch.records_read, now_ms)


def publish(connector: str, task: int, metrics: TaskMetrics, now_ms: int) -> bool:
    """Put a task's values into the metrics of this process (monotonic clock).

    Values that are those of the last call are not put again: a worker has many idle tasks.

    Returns:
        Whether a value has changed.
    """
    values = _values(metrics, now_ms)
    has_changed = values != metrics.published
    labels = {"connector": connector, "task": task}
    if has_changed:
        for kind, name, value in values:
            measure = process_metrics.counter if kind == "counter" else process_metrics.gauge
            measure(name, **labels).set(value)
        metrics.published = values
        for reason in ALONE[1:]:
            counted = process_metrics.counter("record_path_records", reason=reason, **labels)
            counted.set(metrics.batch.record_path[reason])
    for name, recent in (
        ("batch_duration_seconds", metrics.batch.batch_durations),
        ("announcement_duration_seconds", metrics.announcement.announcement_durations),
    ):
        for duration_ms in recent.unpublished():
            process_metrics.durations(name, connector=connector).observe(duration_ms / 1000)
    return has_changed


def _values(metrics: TaskMetrics, now_ms: int) -> list[TaskValue]:
    """Return the present values of a task."""
    values: list[TaskValue] = [("counter", "task_retries", metrics.retries)]
    if (own := metrics.aggregate) is not None:
        values += [("counter", name, getattr(own, name)) for name in own.COUNTERS]
        values += [("gauge", name, getattr(own, name)) for name in own.GAUGES]
    for counted in (metrics.batch, metrics.announcement, metrics.outputs, metrics.errors):
        values += [("counter", name, getattr(counted, name)) for name in counted.COUNTERS]
    for measured in (metrics.batch, metrics.announcement, metrics.source, metrics.errors):
        gauges = [(name, getattr(measured, name)) for name in measured.GAUGES]
        values += [("gauge", name, value) for name, value in gauges if value is not None]
    values.append(("gauge", "held_back", metrics.source.is_held_back))
    for name, unit, recent in (
        ("batch_duration", "_ms", metrics.batch.batch_durations),
        ("batch_records", "", metrics.batch.batch_records),
        ("announcement_duration", "_ms", metrics.announcement.announcement_durations),
        ("records_pending", "", metrics.announcement.pending),
    ):
        average, highest = recent.average_and_max(now_ms)
        values += [("gauge", f"{name}_avg{unit}", average), ("gauge", f"{name}_max{unit}", highest)]
    return values
