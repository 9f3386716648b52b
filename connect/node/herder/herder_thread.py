"""The herder's thread, and the threads of its jobs.

Rules of this file:
- One thread handles everything that happens, in order. Between two events it does what is due.
- Work that may wait (for the broker, fencing, a drain) is a job on another thread.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from connect.errors import InvariantViolation

TICK_S = 0.2
JOBS_MAX = 8
INBOX_MAX = 100_000

Action: TypeAlias = Callable[[], None]


class HerderThread:
    """Runs posted actions in order on one thread, and jobs on a pool.

    Args:
        on_tick: called between events, several times per second.
        on_fatal: called when the thread ends because of a bug.
    """

    def __init__(self, on_tick: Action, on_fatal: Callable[[BaseException], None]) -> None:
        self._on_tick = on_tick
        self._on_fatal = on_fatal
        self._inbox: queue.Queue[Action] = queue.Queue(INBOX_MAX)
        self._closing = threading.Event()
        self._jobs = ThreadPoolExecutor(JOBS_MAX, thread_name_prefix="job")
        self._thread = threading.Thread(target=self._run, name="herder", daemon=True)

    def start(self) -> None:
        """Start handling actions."""
        self._thread.start()

    def post(self, action: Action) -> None:
        """Run an action on the thread, after those that were posted before."""
        self._inbox.put(action)

    def submit(self, job: Action) -> None:
        """Run a job on another thread."""
        self._jobs.submit(job)

    def stop(self) -> None:
        """Stop handling actions; return when the thread has ended."""
        self._closing.set()
        self._inbox.put(lambda: None)
        if self._thread.is_alive():
            self._thread.join()

    def cancel_jobs(self) -> None:
        """Start no further job, and wait for none."""
        self._jobs.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                with contextlib.suppress(queue.Empty):
                    self._inbox.get(timeout=TICK_S)()
                if self._inbox.empty():
                    self._on_tick()
        finally:
            if not self._closing.is_set():  # a bug: connectors are no longer reconciled
                self._on_fatal(InvariantViolation("the herder's thread has ended"))
