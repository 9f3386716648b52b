"""The progress of a task: a batch that does not end is cancelled, and the task starts again.

Rules of this file:
- Progress is the start of an attempt, a pass of the run loop, the begin and end of each batch, and
  each post to a webhook. Rounds that are answered while a batch runs are no progress.
- While a cluster has no executor, no time counts: another attempt would not help.
- A task with a batch that timed out is FAILED until a batch ends or no record waits.
- Spark kills the Python worker of a cancelled job. What is stuck in this process cannot be
  cancelled: the node then starts the task again, and the new start fences this one.

Any thread may call the methods.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from connect.clock import Clock
from connect.errors import RetriableError
from worker.spark.session import Session

BATCH_TIMEOUT = "batch_timeout"
STALLED_MARGIN_MS: Final = 120_000  # a cancelled batch ends much earlier


@dataclass(slots=True)
class TaskProgress:
    """The progress of one task, for its whole life.

    Args:
        clock: time.
        timeout_ms: time without progress after which a batch is cancelled.
        timeouts: batches in a row that timed out.
    """

    clock: Clock
    timeout_ms: int
    timeouts: int = 0
    _at_ms: int = field(init=False)
    _is_overdue: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._at_ms = self.clock.monotonic_ms()

    def made(self) -> None:
        """Note progress."""
        self._at_ms = self.clock.monotonic_ms()

    def idle_ms(self) -> int:
        """Return the milliseconds since the last progress."""
        return self.clock.monotonic_ms() - self._at_ms

    def has_worked(self) -> bool:
        """Note that a batch ended or nothing waits; return whether a batch had timed out before."""
        had_timeouts, self.timeouts = self.timeouts > 0, 0
        self._is_overdue = False
        self.made()
        return had_timeouts

    def is_overdue(self, session: Session) -> bool:
        """Return whether to cancel the running batch."""
        if self.idle_ms() < self.timeout_ms:
            return False
        if session.cluster is not None and not session.executor_count:
            self.made()
            return False
        self._is_overdue = True
        return True

    def check(self) -> None:
        """Raise the error of a batch that was cancelled because it was overdue.

        Raises:
            RetriableError: ``batch_timeout``.
        """
        if not self._is_overdue:
            return
        self._is_overdue = False
        self.timeouts += 1
        raise RetriableError(
            f"a batch did not end within {self.timeout_ms} ms (icefloe.batch.timeout.ms) and was "
            f"cancelled, {self.timeouts} in a row; code of a converter, transformation or query "
            "may never return",
            code=BATCH_TIMEOUT,
        )
