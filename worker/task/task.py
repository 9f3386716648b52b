"""One task of one connector: runs until a stop request or a final error, and restarts after others.

Rules of this file:
- One thread owns a task. The callback of a streaming query runs in a thread of Spark while the
  task's thread waits for that query. They take turns; see ``worker.task.run.batch_turns``.
- After any error the producer and all pending batches are discarded. A retriable error restarts
  the task from the committed source offsets, after a delay; any other error is final.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import structlog

from connect.config.connector import ConnectorConfig
from connect.errors import CommitError, CommitRefused, RetriableError
from connect.protocol.java_sink_members import GROUP_IN_USE
from worker.task.aggregates.aggregate_start import open_aggregate_run
from worker.task.run.task_start import open_task_run
from worker.task.task_context import TaskAssignment, TaskContext, TaskSetup, TaskStop
from worker.task.task_metrics import TaskMetrics
from worker.task.task_progress import BATCH_TIMEOUT, STALLED_MARGIN_MS, TaskProgress

RESTART_MIN_MS = 500
RESTART_MAX_MS = 30_000
FAILURES_UNTIL_REPORTED = 5
FAILING_MS_MAX = 30_000  # one attempt against a broker that does not answer takes this long
REPORTED_AT_ONCE = frozenset({GROUP_IN_USE, BATCH_TIMEOUT})  # their attempts take long

log = structlog.get_logger("worker.task")


class ConnectorTask:
    """One task of one connector.

    Args:
        config: the connector, placeholders resolved.
        assignment: the partitions to read.
        context: the worker around the task.
        stop: receives the stop request.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        assignment: TaskAssignment,
        context: TaskContext,
        stop: TaskStop | None = None,
    ) -> None:
        progress = TaskProgress(context.clock, config.batch_timeout_ms)
        self._setup = TaskSetup(config, assignment, context, progress, stop=stop or TaskStop())

    @property
    def metrics(self) -> TaskMetrics:
        """What the task has done so far."""
        return self._setup.metrics

    @property
    def transactional_id(self) -> str:
        """``<group.id>-<connector>-<task>``."""
        return self._setup.transactional_id

    def idle_ms(self) -> int:
        """Milliseconds since it last made progress; any thread may call it."""
        return self._setup.progress.idle_ms()

    @property
    def idle_ms_max(self) -> int:
        """After so long without progress it is stuck where it cannot cancel its batch."""
        return self._setup.progress.timeout_ms + STALLED_MARGIN_MS

    def stop(self) -> None:
        """Request the end of the task after the current batch; any thread may call it."""
        self._setup.stop.request()

    def run(self) -> None:
        """Read, write and announce until a stop is requested; restart after retriable errors.

        Raises:
            Fenced: another task with this transactional id runs, or a newer layout exists.
            DataLost: source records are gone; the error names the range.
            RecordError: a record cannot be processed and no tolerance is configured.
            ConfigError, CommitRefused: an operator must act.
            InvariantViolation: a bug.
        """
        setup = self._setup
        restarts = RestartBackoff()
        while not setup.stop.is_stopping:
            self._setup = self._setup.renewed()
            announcements = setup.metrics.announcement.announcements
            restarts.attempt_starts(setup.clock.monotonic_ms())
            setup.progress.made()
            try:
                self.run_once()
            except CommitRefused:
                raise
            except (RetriableError, CommitError) as error:
                has_announced = setup.metrics.announcement.announcements > announcements
                if error.code == BATCH_TIMEOUT:
                    setup.metrics.batch.batch_timeouts += 1
                    # rounds are answered while the batch runs
                    has_announced = setup.progress.timeouts == 1
                restarts.attempt_fails(setup.clock.monotonic_ms(), has_announced=has_announced)
                self._restart_later(error, restarts)
        log.info("task stopped", **setup.log_labels)

    def run_once(self) -> None:
        """Start from the committed source offsets; serve rounds until a stop or new secrets.

        Raises:
            RetriableError, CommitError: the task must be started again, except CommitRefused.
            IcefloeError: all other errors are those of ``run``.
        """
        with contextlib.ExitStack() as clients:
            is_aggregate = self._setup.config.aggregation is not None
            opening = open_aggregate_run if is_aggregate else open_task_run
            run = opening(self._setup, clients)
            self._setup.context.waits_for(None)
            if not self._setup.progress.timeouts:
                self._setup.reports_losses()
            run.serve()

    def _restart_later(self, error: RetriableError | CommitError, restarts: RestartBackoff) -> None:
        setup = self._setup
        delay_ms = restarts.delay_ms(error.code)
        setup.metrics.retries += 1
        log.warning(
            "task restarts after an error",
            error=str(error),
            code=error.code,
            delay_ms=delay_ms,
            **setup.log_labels,
        )
        if restarts.must_report(error.code, setup.clock.monotonic_ms()):
            setup.context.report("FAILED", error)
        setup.context.waits_for(f"its next attempt after the error {error.code}")
        setup.stop.pause(delay_ms)


@dataclass(slots=True)
class RestartBackoff:
    """Counts consecutive failures. An announcement ends a series of failures."""

    failures: int = 0
    _failing_since_ms: int = 0

    def attempt_starts(self, now_ms: int) -> None:
        """Note the start of an attempt (monotonic clock)."""
        if not self.failures:
            self._failing_since_ms = now_ms

    def attempt_fails(self, now_ms: int, *, has_announced: bool) -> None:
        """Note the end of an attempt, and whether it announced anything before its error."""
        if has_announced:
            self.failures = 0
            self._failing_since_ms = now_ms
        self.failures += 1

    def delay_ms(self, code: str) -> int:
        """Return the delay before the next attempt: doubled after each failure, bounded.

        ``group_in_use`` is never delayed longer: its attempt has already waited for a minute.
        """
        doublings = 0 if code == GROUP_IN_USE else self.failures - 1
        return min(RESTART_MIN_MS << doublings, RESTART_MAX_MS)

    def must_report(self, code: str, now_ms: int) -> bool:
        """Return whether to report the error: it is frequent, long, or of ``REPORTED_AT_ONCE``."""
        is_long = now_ms - self._failing_since_ms >= FAILING_MS_MAX
        return self.failures >= FAILURES_UNTIL_REPORTED or is_long or code in REPORTED_AT_ONCE
