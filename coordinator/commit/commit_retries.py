"""Waits between the attempts of a commit, for every table format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from connect.clock import Clock
from connect.errors import CommitStateUnknown, IcefloeError, RetriableError
from connect.gateways.catalog.catalog_errors import THROTTLED

ATTEMPTS_MAX = 10
READ_MS_MIN = 10_000
PAUSE_MIN_MS = 20
PAUSE_MAX_MS = 2_000
THROTTLE_WAIT_MS_MAX = 30_000
THROTTLE_PAUSE_MS = 500

Loaded = TypeVar("Loaded")


class WaitingClock(Clock, Protocol):
    """A clock that can also wait."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Block the calling thread."""
        ...


def read_after(
    failure: IcefloeError,
    load: Callable[[], Loaded],
    clock: WaitingClock,
    timeout_ms: int,
) -> Loaded:
    """Read a table after a commit that failed, repeatedly until it answers.

    Args:
        failure: of the commit.
        load: reads the table once.
        clock: waits.
        timeout_ms: after this, the answer of the last attempt is final.

    Raises:
        CommitStateUnknown: no answer in time.
        CommitRefused: as ``load``.
    """
    deadline_ms = clock.monotonic_ms() + timeout_ms
    pause_ms = PAUSE_MIN_MS
    while True:
        try:
            return load()
        except RetriableError as unanswered:
            if clock.monotonic_ms() >= deadline_ms:
                raise CommitStateUnknown(
                    f"the table could not be read after a commit: {unanswered}"
                ) from failure
        clock.sleep_ms(pause_ms)
        pause_ms = min(pause_ms * 2, PAUSE_MAX_MS)


def pause_before(clock: WaitingClock, attempt: int) -> None:
    """Wait before an attempt, randomly: two committers that conflicted should not do so again."""
    longest_ms = min(PAUSE_MIN_MS * 2**attempt, PAUSE_MAX_MS)
    clock.sleep_ms(clock.new_snapshot_id() % longest_ms + 1)


@dataclass(slots=True)
class ThrottleBackoff:
    """The bounded waits of one commit for a catalog that throttles.

    Args:
        clock: waits.
    """

    clock: WaitingClock
    _left_ms: int = THROTTLE_WAIT_MS_MAX
    _pause_ms: int = THROTTLE_PAUSE_MS

    def wait(self, error: IcefloeError) -> bool:
        """Wait as long as the answer asks; return False at once if it asks for none or too much."""
        if error.code != THROTTLED:
            return False
        # commits that were refused together should not be repeated together
        pause_ms = self._pause_ms // 2 + self.clock.new_snapshot_id() % self._pause_ms
        pause_ms += 1_000 * error.coordinates.get("retry_after_s", 0)
        if pause_ms > self._left_ms:
            return False
        self._left_ms -= pause_ms
        self._pause_ms *= 2
        self.clock.sleep_ms(pause_ms)
        return True
