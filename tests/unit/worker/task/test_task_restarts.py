"""Delays before a task restarts, and errors that are reported."""

from __future__ import annotations

from typing import Any

from connect.clock import SystemClock
from connect.errors import RetriableError
from connect.model.layout import TopicPartition
from connect.protocol.java_sink_members import GROUP_IN_USE
from connect.validation.parse import parse
from worker.task.task import (
    FAILING_MS_MAX,
    FAILURES_UNTIL_REPORTED,
    RESTART_MAX_MS,
    RESTART_MIN_MS,
    ConnectorTask,
    RestartBackoff,
)
from worker.task.task_context import TaskAssignment, TaskContext, TaskStop

ATTEMPTS = 12
CONFIG = {
    "name": "c",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "t",
    "iceberg.tables": "db.t",
    "iceberg.catalog.type": "sql",
    "iceberg.catalog.uri": "sqlite://",
    "iceberg.catalog.warehouse": "/nowhere",
}


class CountedPauses(TaskStop):
    """Records each pause instead of waiting, and stops after some."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses_ms: list[int] = []

    def pause(self, duration_ms: int) -> None:
        """Record the pause."""
        self.pauses_ms.append(duration_ms)
        if len(self.pauses_ms) == ATTEMPTS:
            self.request()


def pauses(code: str) -> list[int]:
    """Pauses of a task that fails with this code at each attempt."""

    class FailingTask(ConnectorTask):
        """Fails at once."""

        def run_once(self) -> None:
            """Fail."""
            raise RetriableError("no", code=code)

    nothing: Any = None
    context = TaskContext(
        node={},
        node_group_id="node",
        stored=None,
        session=nothing,
        clock=SystemClock(),
        runner=nothing,
        report=lambda _state, _error: None,
    )
    stop = CountedPauses()
    assignment = TaskAssignment(0, 1, (TopicPartition("t", 0),))
    FailingTask(parse(CONFIG), assignment, context, stop).run()
    return stop.pauses_ms


def test_a_task_starts_at_once_after_another_sink_has_left() -> None:
    """The wait for the other sink paces the attempts, however long it runs; no delay is added."""
    assert set(pauses(GROUP_IN_USE)) == {RESTART_MIN_MS}


def test_the_delay_doubles_after_each_other_failure() -> None:
    """It doubles up to a limit."""
    found = pauses("storage_unavailable")
    assert found[:3] == [RESTART_MIN_MS, 2 * RESTART_MIN_MS, 4 * RESTART_MIN_MS]
    assert found[-1] == RESTART_MAX_MS


def test_an_announcement_ends_a_series_of_failures() -> None:
    """The next delay is the shortest one, and the next error is not reported at once."""
    backoff = RestartBackoff()
    for now_ms in range(0, 4_000, 1_000):
        backoff.attempt_starts(now_ms)
        backoff.attempt_fails(now_ms, has_announced=False)
    assert backoff.delay_ms("storage_unavailable") == 8 * RESTART_MIN_MS
    backoff.attempt_starts(50_000)
    backoff.attempt_fails(90_000, has_announced=True)
    assert backoff.delay_ms("storage_unavailable") == RESTART_MIN_MS
    assert not backoff.must_report("storage_unavailable", 90_000)


def test_frequent_and_long_failures_are_reported() -> None:
    """The fifth failure in a row, a failure after 30 s, and another sink that is running."""
    backoff = RestartBackoff()
    for number in range(1, FAILURES_UNTIL_REPORTED + 1):
        backoff.attempt_starts(0)
        backoff.attempt_fails(0, has_announced=False)
        is_fifth = number == FAILURES_UNTIL_REPORTED
        assert backoff.must_report("storage_unavailable", 0) == is_fifth
        assert backoff.must_report(GROUP_IN_USE, 0)
        assert backoff.must_report("storage_unavailable", FAILING_MS_MAX)
