"""Limits of the removal of rows by one commit.

Rules of this file:
- A commit that reaches a limit removes no rows (``NotResolved``); its format decides what then.
- Two files of a process are written again at a time, for all its connectors. So its memory is
  bounded.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from connect.clock import Clock

KEYS_MAX: Final = 4_000_000
"""Keys of the delete files of one commit; they are in memory."""
KEY_BYTES_MAX: Final = 256 * 2**20
DURATION_MS_MAX: Final = 60_000
"""Time for all attempts of one commit; shorter than the time after which a coordinator stalls."""
PAUSE_MS: Final = 600_000
"""After a commit that took too long, commits of its table are not resolved for this time."""
FILES_AT_A_TIME: Final = 2
COPIED_BYTES_KEY: Final = "iceberg.tables.copy-on-write-max-bytes"

_REWRITING: Final = threading.BoundedSemaphore(FILES_AT_A_TIME)


class NotResolved(Exception):  # noqa: N818 - an answer, not a failure
    """The deletes of a commit cannot be resolved into rows, or the rows cannot be removed.

    Args:
        reason: the label of its metric.
        text: what an operator reads.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(slots=True)
class ResolveBudget:
    """What one commit may still do.

    Attributes:
        clock: measures the time.
        bytes_max: what an attempt may read or write again.
        bytes_key: the configuration key of this limit.
        deadline_ms: monotonic; None before the first attempt.
    """

    clock: Clock
    bytes_max: int
    bytes_key: str = COPIED_BYTES_KEY
    deadline_ms: int | None = None

    def start(self) -> None:
        """Begin an attempt."""
        if self.deadline_ms is None:
            self.deadline_ms = self.clock.monotonic_ms() + DURATION_MS_MAX

    def check_time(self) -> None:
        """Raise ``NotResolved`` after the time limit."""
        if self.deadline_ms is not None and self.clock.monotonic_ms() > self.deadline_ms:
            raise NotResolved(
                "time", f"files were read or written again for {DURATION_MS_MAX // 1000} s"
            )

    def check_bytes(self, size_bytes: int) -> None:
        """Raise ``NotResolved`` where an attempt would read or write too much."""
        if size_bytes > self.bytes_max:
            raise NotResolved(
                "bytes",
                f"{size_bytes} bytes would be read or written again, and {self.bytes_key} is "
                f"{self.bytes_max}",
            )

    @contextlib.contextmanager
    def one_file(self) -> Iterator[None]:
        """Wait until a file may be written; raise ``NotResolved`` after the time limit."""
        assert self.deadline_ms is not None
        left_ms = max(0, self.deadline_ms - self.clock.monotonic_ms())
        if not _REWRITING.acquire(timeout=left_ms / 1000):
            raise NotResolved("time", "files of other tables were written again meanwhile")
        try:
            yield
        finally:
            _REWRITING.release()
