"""The metric of values that lost digits."""

from __future__ import annotations

from connect.metrics import process_metrics
from connect.model.layout import TopicPartition
from worker.batch.descriptors import PartitionProgress
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.task_metrics import TaskMetrics, publish

TP = TopicPartition("t", 0)


def test_truncated_values_are_counted() -> None:
    """Those of each complete batch."""
    metrics = TaskMetrics()
    for start, truncated in ((0, 3), (1, 0), (2, 4)):
        ranges = OffsetRanges({TP: start}, {TP: start + 1})
        progress = {TP: PartitionProgress(1, 0, 0, 1)}
        batch = WrittenBatch(ranges, progress, truncated=truncated)
        metrics.add(batch, started_ms=0, now_ms=1)
    publish("truncated", 0, metrics, 2)
    counted = {
        labels["task"]: number
        for name, labels, number in process_metrics.PROCESS.snapshot()[1]
        if name == "values_truncated" and labels["connector"] == "truncated"
    }
    assert counted == {"0": 7}
