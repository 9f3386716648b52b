"""Records that a batch could not process: counts and logs."""

from __future__ import annotations

import dataclasses

import pytest
from structlog.testing import capture_logs

from connect.config.connector import ErrorsConfig
from connect.errors import RecordError
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from tests.support.tables import QuickClock, connector
from worker.batch.descriptors import DeadLetter, PartitionProgress
from worker.task.dead_letters.record_errors import RecordErrors
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.task_metrics import TaskMetrics

TP = TopicPartition("t", 0)
BAD = KafkaRecord("t", 0, 7, 1_700_000_000_000, None, b"canary", ())


def _batch(read: int, dead: int = 0) -> WrittenBatch:
    error = RecordError("the field n is not a number", code="not_a_number", stage="TASK_PUT")
    return WrittenBatch(
        OffsetRanges({TP: 0}, {TP: read}),
        {TP: PartitionProgress(read, 0, dead, read - dead)},
        dead_letters=(DeadLetter(BAD, error),) * dead,
    )


def _errors(**settings: bool) -> RecordErrors:
    config = dataclasses.replace(connector("c", ["db.t"]), errors=ErrorsConfig(**settings))
    return RecordErrors(config, 3, TaskMetrics(), QuickClock())


def test_records_that_cannot_be_processed_are_counted_and_logged_on_request() -> None:
    """Each one, tolerated or not; its coordinates only when configured, its content never."""
    for settings in ({}, {"log_enable": True}, {"log_enable": True, "log_include_messages": True}):
        errors = _errors(**settings)
        with capture_logs() as logged:
            errors.tolerated(_batch(5, dead=2))
            with pytest.raises(RecordError), errors.counted():
                raise RecordError("too long", code="long", topic="t", partition=0, offset=9)
        assert errors.metrics.errors.record_errors == 3
        assert errors.metrics.errors.last_error_timestamp_ms > 0
        assert errors.metrics.errors.record_errors_logged == len(logged) == (3 if settings else 0)
        assert "canary" not in str(logged)
        for entry in logged:
            found = {key: entry.get(key) for key in ("topic", "partition", "offset")}
            assert (None not in found.values()) == ("log_include_messages" in settings)
            assert (entry["connector"], entry["task"]) == ("c", 3)
        assert [entry["tolerated"] for entry in logged] in ([], [True, True, False])


def test_a_batch_without_errors_changes_no_error_metric() -> None:
    """No timestamp of a last error, no count, no log."""
    errors = _errors(log_enable=True)
    with capture_logs() as logged, errors.counted():
        errors.tolerated(_batch(5))
    counted = errors.metrics.errors
    assert (counted.record_errors, counted.last_error_timestamp_ms) == (0, 0)
    assert not logged
