"""Turns of a task's thread and of a query's callback, which run at the same time.

Rules of this file:
- Everything that an announcement reads or changes is used in a turn. The callback is outside of its
  turn only while Spark writes the files of a batch.
- The task's thread never waits for a turn. After an error of that thread the callback gets no turn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from connect.errors import RetriableError


@dataclass(frozen=True, slots=True)
class RunningBatch:
    """A batch whose files are being written.

    Attributes:
        record_count: number of its source offsets.
        started_ms: when its work began (monotonic clock).
    """

    record_count: int
    started_ms: int


@dataclass(slots=True)
class BatchTurns:
    """The turns of one task.

    Attributes:
        running: the batch whose files are being written.
        has_failed: whether the task's thread had an error in its turn.
    """

    running: RunningBatch | None = field(default=None, init=False)
    has_failed: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @contextmanager
    def of_callback(self) -> Iterator[None]:
        """Take a turn for a batch; wait for it.

        Raises:
            RetriableError: the task ends after an error. Its producer must not be used again.
        """
        with self._lock:
            self._refuse_after_error()
            yield

    @contextmanager
    def writing(self, batch: RunningBatch) -> Iterator[None]:
        """Leave the turn while the files of a batch are written.

        Raises:
            RetriableError: as ``of_callback``.
        """
        self.running = batch
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()
            self.running = None
        self._refuse_after_error()

    @contextmanager
    def of_thread(self) -> Iterator[bool]:
        """Take a turn for the task's thread if it is free; tell whether it was."""
        if not self._lock.acquire(blocking=False):
            yield False
            return
        has_ended = False
        try:
            yield True
            has_ended = True
        finally:
            self.has_failed = self.has_failed or not has_ended
            self._lock.release()

    def _refuse_after_error(self) -> None:
        if self.has_failed:
            raise RetriableError("the task ends after an error")
