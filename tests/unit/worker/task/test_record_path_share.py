"""Records that are processed one by one are counted, and many of them give a warning."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from connect.metrics import process_metrics
from connect.model.layout import TopicPartition
from worker.batch.descriptors import PartitionProgress
from worker.pipeline.progress import ALONE
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.record_path_share import CURES, HOUR_MS, RecordPathShare
from worker.task.task_metrics import TaskMetrics, publish

TP = TopicPartition("t", 0)


def batch(read: int, **alone: int) -> WrittenBatch:
    """A batch of one partition."""
    progress = {TP: PartitionProgress(read, 0, 0, read, alone=alone)}
    return WrittenBatch(OffsetRanges({TP: 0}, {TP: read}), progress)


def test_they_are_counted_by_reason() -> None:
    """Each reason has a value from the first batch on."""
    metrics = TaskMetrics()
    for each in (batch(9, not_decoded=3), batch(9, not_decoded=1, not_converted=2), batch(9)):
        metrics.add(each, started_ms=0, now_ms=1)
    publish("alone", 0, metrics, 2)
    counted = {
        labels["reason"]: number
        for name, labels, number in process_metrics.PROCESS.snapshot()[1]
        if name == "record_path_records" and labels["connector"] == "alone"
    }
    assert counted == {"no_column_form": 0, "not_decoded": 4, "not_converted": 2}
    assert set(CURES) == set(counted) == set(ALONE[1:])


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([(0, batch(50_000, not_decoded=600)), (HOUR_MS, batch(50_000, not_converted=500))], 1_100),
        ([(0, batch(50_000, not_decoded=500)), (HOUR_MS, batch(50_000, not_converted=500))], None),
        ([(0, batch(900, no_column_form=900)), (HOUR_MS, batch(0))], None),
        ([(0, batch(9_000, no_column_form=9_000)), (HOUR_MS - 1, batch(0))], None),
        (
            [(0, batch(9_000, not_decoded=9_000)), (HOUR_MS, batch(0)), (HOUR_MS * 2, batch(9))],
            9_000,
        ),
    ],
)
def test_a_high_share_of_an_hour_is_a_warning(
    batches: list[tuple[int, WrittenBatch]], expected: int | None
) -> None:
    """Once per hour, with the most common reason and its cure."""
    share = RecordPathShare()
    with capture_logs() as logged:
        for now_ms, each in batches:
            share.add(each, now_ms, connector="c", task=0)
    found: list[Any] = [
        (line["log_level"], line["records"], line["reason"], line["cure"]) for line in logged
    ]
    assert found == (
        [] if expected is None else [("warning", expected, "not_decoded", CURES["not_decoded"])]
    )
