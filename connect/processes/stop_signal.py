"""A stop request that ends the waits of the thread that works."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class StopSignal:
    """A stop request that any thread may make and the working thread checks."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._wake: Callable[[], None] = _ignore

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._requested.is_set()

    def request(self) -> None:
        """Request the stop, and end the present wait."""
        self._requested.set()
        self.wake()

    def wake(self) -> None:
        """End the present wait without a stop: there is something else to do."""
        self._wake()

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call ``wake`` at each request during the block; the caller checks ``is_stopping``."""
        self._wake = wake
        try:
            yield
        finally:
            self._wake = _ignore

    def pause(self, duration_ms: int) -> None:
        """Wait; return at once when a stop is requested."""
        self._requested.wait(duration_ms / 1000)


def _ignore() -> None:
    """Nothing waits."""
