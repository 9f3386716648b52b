"""Files that wait for their announcement must not be removed as orphans: their age is bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connect.clock import SystemClock
from connect.config.keys.iceberg_keys import OWN_KEYS
from connect.operations.orphan_age import AGE_MS_MIN, MARGIN_MS
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from tests.support.task_harness import TaskHarness, paths, wait_until
from worker.spark.session import Session
from worker.task.rounds.round_answers import ANNOUNCED_EARLY_MS, FILE_AGE_MS_MAX

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
HOUR_MS = 3_600_000


class SkippingClock(SystemClock):
    """The machine's clock, whose time of day a test sets forward."""

    skipped_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since 1970, with those that were skipped."""
        return super().now_ms() + self.skipped_ms


@pytest.fixture
def clock() -> SkippingClock:
    """The clock of the task."""
    return SkippingClock()


@pytest.fixture
def harness(
    spark_session: Session, kafka_properties: dict[str, str], topics: Topics, clock: SkippingClock
) -> Iterator[TaskHarness]:
    """A task that reads three records without a round."""
    source, control = topics.create("source"), topics.create("control")
    harness = TaskHarness(spark_session, kafka_properties, source, control, 1, clock=clock)
    harness.overrides["icefloe.drain.records"] = "3"
    harness.produce(3)
    yield harness
    harness.close()


def test_files_that_wait_for_long_are_announced_without_a_round(
    harness: TaskHarness, clock: SkippingClock
) -> None:
    """The coordinator does not ask, for example because its commit interval is days long."""
    with harness.running() as task:
        wait_until(lambda: task.metrics.batch.records_read == 3)
        clock.skipped_ms = ANNOUNCED_EARLY_MS
        assert paths(harness.answer(None)) == ["0:0-2"]
    assert harness.committed()[0] == 3


def test_files_that_may_have_been_removed_are_not_announced(
    harness: TaskHarness, clock: SkippingClock
) -> None:
    """The worker was frozen for days: the records are read again, into new files."""
    with harness.running() as task:
        wait_until(lambda: task.metrics.batch.records_read == 3)
        clock.skipped_ms = FILE_AGE_MS_MAX + 1
        wait_until(lambda: task.metrics.batch.records_read == 6)
        assert task.metrics.retries == 1
        assert paths(harness.round()[1]) == ["0:0-2"]
    assert len(harness.runner.batches) == 2
    assert harness.committed()[0] == 3


def test_no_announced_file_is_older_than_the_margin() -> None:
    """The age of orphans is that of the oldest announcement, and this margin."""
    (timeout,) = (key for key in OWN_KEYS if key.name == "icefloe.batch.timeout.ms")
    batch_ms_max = 6 * HOUR_MS
    assert timeout.check is not None
    assert timeout.check(batch_ms_max) is None
    assert timeout.check(batch_ms_max + 1) is not None
    assert ANNOUNCED_EARLY_MS + batch_ms_max < FILE_AGE_MS_MAX
    assert FILE_AGE_MS_MAX + HOUR_MS <= MARGIN_MS < AGE_MS_MIN
