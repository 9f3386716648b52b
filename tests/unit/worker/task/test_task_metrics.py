"""The metrics of a task."""

from __future__ import annotations

import pytest

from connect.metrics import process_metrics
from connect.model.layout import TopicPartition
from worker.batch.descriptors import PartitionProgress
from worker.task.read_ledger import OffsetRanges, ReadLedger, WrittenBatch
from worker.task.task_metrics import RECENT_MS, RecentValues, TaskMetrics, publish

TP = TopicPartition("t", 0)


def _batch(read: int, start: int = 0) -> WrittenBatch:
    ranges = OffsetRanges({TP: start}, {TP: start + read})
    return WrittenBatch(ranges, {TP: PartitionProgress(read, 0, 0, read)})


def test_recent_values_are_those_of_the_last_minute() -> None:
    """Average and maximum; older values do not count; zeros without any value."""
    values = RecentValues()
    assert values.average_and_max(5) == (0, 0)
    for at_ms, value in ((0, 100), (1_000, 2), (2_000, 4)):
        values.add(value, at_ms)
    assert values.average_and_max(2_000) == (pytest.approx(106 / 3), 100)
    assert values.average_and_max(RECENT_MS) == (3, 4)
    assert values.average_and_max(RECENT_MS + 2_000) == (0, 0)


def test_each_duration_is_in_the_histogram_once() -> None:
    """Every batch counts once, however often the values are published."""
    metrics = TaskMetrics()
    metrics.add(_batch(1), started_ms=0, now_ms=20)
    metrics.add(_batch(1, 1), started_ms=0, now_ms=700)
    for _ in range(3):
        publish("durations-once", 0, metrics, 700)
    found = {
        labels["le"]: number
        for name, labels, number in process_metrics.PROCESS.snapshot()[1]
        if name == "batch_duration_seconds" and labels.get("connector") == "durations-once"
    }
    assert found == {"0.025": 1, "1": 1, "sum": pytest.approx(0.72)}


def test_an_idle_task_is_not_published_again() -> None:
    """A worker with many idle tasks does nothing for them, until a value changes."""
    metrics = TaskMetrics()
    metrics.add(_batch(1), started_ms=0, now_ms=20)
    assert publish("idle-task", 0, metrics, 30)
    assert not any(publish("idle-task", 0, metrics, 30 + second) for second in range(50))
    assert publish("idle-task", 0, metrics, RECENT_MS + 30)  # the last minute is without a batch
    metrics.retries += 1
    assert publish("idle-task", 0, metrics, RECENT_MS + 31)
    assert _values_of("idle-task")["task_retries"] == 1
    assert _values_of("idle-task")["batch_duration_max_ms"] == 0


def _values_of(connector: str) -> dict[str, float]:
    samples = process_metrics.PROCESS.snapshot()[1]
    return {
        name: number for name, labels, number in samples if labels.get("connector") == connector
    }


def test_records_are_pending_until_their_announcement() -> None:
    """Pending records, the partition with the most, batches and announcements of a minute."""
    metrics, ledger = TaskMetrics(), ReadLedger({TP: 0, TopicPartition("t", 1): 5}, 0, 0)
    for start, now_ms in ((0, 10), (30, 40)):
        batch = _batch(30, start)
        ledger.add(batch)
        metrics.add(batch, started_ms=now_ms - 10, now_ms=now_ms)
    announcement = metrics.announcement
    assert ledger.unannounced_max == announcement.records_pending == 60
    assert announcement.pending.average_and_max(40) == (45, 60)
    assert metrics.batch.batch_records.average_and_max(40) == (30, 30)
    assert metrics.batch.batch_durations.average_and_max(40) == (10, 10)
    ledger.announced(ledger.answer())
    announcement.add(2, started_ms=40, now_ms=45)
    assert ledger.unannounced_max == announcement.records_pending == 0
    assert announcement.announcement_durations.average_and_max(45) == (5, 5)
    assert (announcement.announcements, announcement.dead_letters_produced) == (1, 2)


def test_a_restart_discards_what_is_pending() -> None:
    """Records that were read and not announced are read again; totals stay."""
    metrics = TaskMetrics()
    metrics.add(_batch(30), started_ms=0, now_ms=10)
    metrics.start(4, now_ms=20)
    assert metrics.announcement.records_pending == 0
    assert metrics.source.partitions == 4
    assert metrics.batch.records_read == 30


def test_every_published_name_is_an_attribute() -> None:
    """Each name is published by one part only."""
    metrics = TaskMetrics()
    parts = (metrics.batch, metrics.announcement, metrics.outputs, metrics.source, metrics.errors)
    names = [
        name
        for part in parts
        for name in (*getattr(part, "COUNTERS", ()), *getattr(part, "GAUGES", ()))
        if getattr(part, name) in {0, None}
    ]
    assert len(names) == len(set(names)) == 32


def test_a_lag_is_unknown_until_it_is_measured() -> None:
    """A task that waits for its catalog has none, and not 0; reads lower a known one."""
    metrics = TaskMetrics()
    metrics.start(1, now_ms=0)
    metrics.add(_batch(5), started_ms=0, now_ms=1)
    publish("no-lag", 0, metrics, 1)
    assert _values_of("no-lag")["partitions"] == 1
    assert not _values_of("no-lag").keys() & {"lag_records", "lag_records_partition_max"}
    metrics.source.lag_records, metrics.source.lag_records_partition_max = 70, 7
    metrics.add(_batch(65, 5), started_ms=1, now_ms=2)
    publish("no-lag", 0, metrics, 2)
    found = _values_of("no-lag")
    assert (found["lag_records"], found["lag_records_partition_max"]) == (5, 5)
