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

FILES_AT_A_TIME: Final = 2
COPIED_BYTES_KEY: Final = "iceberg.tables.copy-on-write-max-bytes"
OUT_OF_TIME = "copy_on_write_time"
"""The code of a commit that took too long, where rows are removed in no other way."""
FORM: Final = "file_form"
"""The reason of ``NotResolved`` where a data file is of a form that is not written again."""

_REWRITING: Final = threading.BoundedSemaphore(FILES_AT_A_TIME)


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Limits of one commit that no configuration key sets.

    Attributes:
        keys_max: keys of the delete files; they are in memory.
        key_bytes_max: size of these keys.
        files_max: data and delete files in the manifests that a commit reads.
        vector_bytes_max: size of the deletion vectors that are read, and of those that are written;
            they are in memory.
        duration_ms_max: time for all attempts; shorter than the time after which a coordinator
            stalls.
        pause_ms: after a commit that took too long, commits of its table are not resolved for this
            time.
    """

    keys_max: int = 4_000_000
    key_bytes_max: int = 256 * 2**20
    files_max: int = 50_000
    vector_bytes_max: int = 256 * 2**20
    duration_ms_max: int = 60_000
    pause_ms: int = 600_000


DEFAULT_LIMITS: Final = RowLimits()


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
        limits: of everything else.
        deadline_ms: monotonic; None before the first attempt.
    """

    clock: Clock
    bytes_max: int
    bytes_key: str = COPIED_BYTES_KEY
    limits: RowLimits = DEFAULT_LIMITS
    deadline_ms: int | None = None

    def start(self) -> None:
        """Begin an attempt."""
        if self.deadline_ms is None:
            self.deadline_ms = self.clock.monotonic_ms() + self.limits.duration_ms_max

    def check_time(self) -> None:
        """Raise ``NotResolved`` after the time limit."""
        if self.deadline_ms is not None and self.clock.monotonic_ms() > self.deadline_ms:
            seconds = self.limits.duration_ms_max // 1000
            raise NotResolved("time", f"files were read or written again for {seconds} s")

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
