"""The commit rounds of one task: which is requested, answered, committed. No clients, no clock.

Rules of this file:
- A StartCommit whose id was already answered is ignored: the coordinator sends it again for tasks
  that started late.
- A CommitComplete withdraws the request of its round. The next round takes what is pending.
- A task stops reading while too many of its announced rounds are not committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(slots=True)
class TaskRounds:
    """Rounds between StartCommit and CommitComplete, and the back-pressure that follows from them.

    Args:
        rounds_max: reading stops when more announced rounds than this are not committed
            (``iceberg.worker.max-uncommitted-rounds``).
        silence_ms_max: reading also stops when files are pending and the coordinator has sent no
            StartCommit for this time.

    Attributes:
        requested: id of the round that waits for this task's answer.
        requested_ms: when its first StartCommit was received; None before any (monotonic clock).
        valid_through_ms: the last VTTS that a CommitComplete carried.
        is_between: whether a round has ended and the next one has not started.
    """

    rounds_max: int
    silence_ms_max: int
    requested: UUID | None = field(default=None, init=False)
    requested_ms: int | None = field(default=None, init=False)
    valid_through_ms: int | None = field(default=None, init=False)
    is_between: bool = field(default=False, init=False)
    _answered: UUID | None = field(default=None, init=False)
    _uncommitted: deque[UUID] = field(default_factory=deque, init=False)
    _start_received_ms: int | None = field(default=None, init=False)

    @property
    def uncommitted_count(self) -> int:
        """Announced rounds that are not known to be committed."""
        return len(self._uncommitted)

    def wait_since(self, now_ms: int) -> None:
        """Note that waiting for a StartCommit began (monotonic clock)."""
        self._start_received_ms = now_ms

    def started(self, commit_id: UUID, now_ms: int) -> None:
        """Take a StartCommit (monotonic clock)."""
        if commit_id not in {self._answered, self.requested}:
            self.requested, self.requested_ms = commit_id, now_ms
        self.is_between = False
        self._start_received_ms = now_ms

    def announced(self, commit_id: UUID, *, has_batches: bool) -> None:
        """Take a committed announcement; it answers the requested round, if there is one.

        Args:
            commit_id: the id that the announcement carried.
            has_batches: whether it announced data, which the round must commit.
        """
        if self.requested is not None:
            self._answered = self.requested
            self.requested = None
        if has_batches:
            self._uncommitted.append(commit_id)

    def completed(
        self, commit_id: UUID, waiting: Iterable[UUID] = (), valid_through_us: int | None = None
    ) -> None:
        """Take a CommitComplete: everything announced up to that round is in the tables.

        A round that this task never answered commits everything announced before it as well.

        Args:
            commit_id: the round.
            waiting: rounds of which no table contains data of this task or its predecessors.
            valid_through_us: the VTTS of the round, if it has one.
        """
        if commit_id not in self._uncommitted:
            self._uncommitted.clear()
        while self._uncommitted:
            if self._uncommitted.popleft() == commit_id:
                break
        still = dict.fromkeys(waiting)
        later = (each for each in self._uncommitted if each not in still)
        self._uncommitted = deque([*still, *later])
        if valid_through_us is not None:
            self.valid_through_ms = valid_through_us // 1000
        if self.requested == commit_id:
            self.requested = None
        self.is_between = self.requested is None

    def must_pause(self, now_ms: int, *, has_pending: bool) -> bool:
        """Return whether the task must not read now.

        Args:
            now_ms: monotonic clock.
            has_pending: whether batches wait for an announcement.
        """
        if len(self._uncommitted) > self.rounds_max:
            return True
        started_ms = self._start_received_ms
        silent_ms = 0 if started_ms is None else now_ms - started_ms
        return has_pending and silent_ms > self.silence_ms_max
