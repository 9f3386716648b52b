"""Pauses between attempts, such as restarts and requests. Pure: time is passed in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Doubling pauses.

    Attributes:
        first_ms: pause after the first failure.
        longest_ms: the cap.
        stable_ms: a failure after running so long starts again with the first pause.
        restarts_max: restarts in a row before giving up; None never gives up.
    """

    first_ms: int = 1_000
    longest_ms: int = 60_000
    stable_ms: int = 60_000
    restarts_max: int | None = None


class Backoff:
    """Counts the failures in a row of one process, unit or server."""

    def __init__(self, policy: BackoffPolicy) -> None:
        self._policy = policy
        self._started_ms: int | None = None
        self.restarts = 0

    def started(self, now_ms: int) -> None:
        """Note that it runs."""
        self._started_ms = now_ms

    def failed(self, now_ms: int) -> int | None:
        """Note a failure; return the pause in milliseconds, or None to give up."""
        policy = self._policy
        if self._started_ms is not None and now_ms - self._started_ms >= policy.stable_ms:
            self.restarts = 0
        self._started_ms = None
        if policy.restarts_max is not None and self.restarts >= policy.restarts_max:
            return None
        pause_ms = policy.first_ms << min(self.restarts, 40)
        self.restarts += 1
        return min(pause_ms, policy.longest_ms)

    def reset(self) -> None:
        """Reset the count after a success, or a restart by an operator."""
        self.restarts = 0
