"""What a task counts of itself."""

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
from worker.task.read_ledger import Ledger, Slice, WrittenBatch
from worker.task.record_errors import RecordErrors
from worker.task.task_metrics import RECENT_MS, Recent, TaskMetrics

TP = TopicPartition("t", 0)
BAD = KafkaRecord("t", 0, 7, 1_700_000_000_000, None, b"canary", ())


def _batch(read: int, dead: int = 0, start: int = 0) -> WrittenBatch:
    error = RecordError("the field n is no number", code="not_a_number", stage="TASK_PUT")
    return WrittenBatch(
        Slice({TP: start}, {TP: start + read}),
        {TP: PartitionProgress(read, 0, dead, read - dead)},
        dead_letters=(DeadLetter(BAD, error),) * dead,
    )


def test_recent_measurements_are_those_of_a_minute() -> None:
    """Average and highest; what is older is forgotten; zeros without any."""
    seen = Recent()
    assert seen.measurements(5) == (0, 0)
    for at_ms, value in ((0, 100), (1_000, 2), (2_000, 4)):
        seen.add(value, at_ms)
    assert seen.measurements(2_000) == (pytest.approx(106 / 3), 100)
    assert seen.measurements(RECENT_MS) == (3, 4)
    assert seen.measurements(RECENT_MS + 2_000) == (0, 0)


def test_records_are_pending_until_their_announcement() -> None:
    """Active records, the partition farthest behind, batches and commits of the last minute."""
    measurements, ledger = TaskMetrics(), Ledger({TP: 0, TopicPartition("t", 1): 5}, 0, 0)
    for start, now_ms in ((0, 10), (30, 40)):
        batch = _batch(30, start=start)
        ledger.add(batch)
        measurements.add(batch, started_ms=now_ms - 10, now_ms=now_ms)
    assert ledger.unannounced_max == measurements.records_pending == 60
    assert measurements.pending.measurements(40) == (45, 60)
    assert measurements.batch_records.measurements(40) == (30, 30)
    assert measurements.batch_durations.measurements(40) == (10, 10)
    ledger.announced(ledger.answer())
    measurements.announced(2, 40, now_ms=45)
    assert ledger.unannounced_max == measurements.records_pending == 0
    assert measurements.announcement_durations.measurements(45) == (5, 5)
    assert (measurements.announcements, measurements.dead_letters_produced) == (1, 2)


def _errors(**settings: bool) -> RecordErrors:
    config = dataclasses.replace(connector("c", ["db.t"]), errors=ErrorsConfig(**settings))
    return RecordErrors(config, 3, TaskMetrics(), QuickClock())


def test_records_that_cannot_be_handled_are_counted_and_logged_on_request() -> None:
    """Each one, tolerated or not; its place only when asked for, its content never."""
    for settings in ({}, {"log_enable": True}, {"log_enable": True, "log_include_messages": True}):
        errors = _errors(**settings)
        with capture_logs() as logged:
            errors.tolerated(_batch(5, dead=2))
            with pytest.raises(RecordError), errors.counted():
                raise RecordError("too long", code="long", topic="t", partition=0, offset=9)
        assert errors.measurements.record_errors == 3
        assert errors.measurements.last_error_timestamp_ms > 0
        assert errors.measurements.record_errors_logged == len(logged) == (3 if settings else 0)
        assert "canary" not in str(logged)
        for entry in logged:
            place = {key: entry.get(key) for key in ("topic", "partition", "offset")}
            assert (None not in place.values()) == ("log_include_messages" in settings)
            assert (entry["connector"], entry["task"]) == ("c", 3)
        assert [entry["tolerated"] for entry in logged] in ([], [True, True, False])


def test_without_an_error_nothing_is_noted() -> None:
    """No time of a last error, no count."""
    errors = _errors(log_enable=True)
    with capture_logs() as logged, errors.counted():
        errors.tolerated(_batch(5))
    assert (errors.measurements.record_errors, errors.measurements.last_error_timestamp_ms) == (
        0,
        0,
    )
    assert not logged
