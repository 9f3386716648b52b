"""What a task has done so far, in numbers: written by the task, read by the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from worker.rounds import WrittenBatch


@dataclass(slots=True)
class TaskFigures:
    """Totals since the task's start and last measurements; read by the metrics, never by logic."""

    records_read: int = 0
    records_written: int = 0
    records_dropped: int = 0
    records_dead_lettered: int = 0
    files_written: int = 0
    bytes_written: int = 0
    batches: int = 0
    announcements: int = 0
    restarts: int = 0
    lag_records: int = 0
    rounds_uncommitted: int = 0
    malformed_events: int = 0
    last_batch_ms: int = 0
    is_held_back: bool = False

    def add(self, batch: WrittenBatch, duration_ms: int) -> None:
        """Count one complete batch."""
        self.batches += 1
        self.last_batch_ms = duration_ms
        for counted in batch.counts.values():
            self.records_read += counted.read
            self.records_written += counted.written
            self.records_dropped += counted.dropped
            self.records_dead_lettered += counted.dead_lettered
        for _, files in batch.files:
            self.files_written += len(files)
            self.bytes_written += sum(f.file_size_in_bytes for f in files)
