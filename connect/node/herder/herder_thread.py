"""The herder's thread, the threads of its jobs, and jobs that are repeated.

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
from functools import partial
from typing import ParamSpec, TypeAlias

from connect.errors import Fenced, InvariantViolation, RetriableError
from connect.logs import logger

TICK_S = 0.2
JOBS_MAX = 8
INBOX_MAX = 100_000

P = ParamSpec("P")
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
        self._inbox: queue.Queue[Callable[[], object]] = queue.Queue(INBOX_MAX)
        self._closing = threading.Event()
        self._jobs = ThreadPoolExecutor(JOBS_MAX, thread_name_prefix="job")
        self._thread = threading.Thread(target=self._run, name="herder", daemon=True)

    def start(self) -> None:
        """Start handling actions."""
        self._thread.start()

    def post(self, action: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run an action on the thread, after those that were posted before."""
        self._inbox.put(partial(action, *args, **kwargs))

    def submit(self, job: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a job on another thread."""
        self._jobs.submit(job, *args, **kwargs)

    def stop(self) -> None:
        """Stop handling actions; return when the thread has ended."""
        self._closing.set()
        self.post(self._closing.is_set)  # ends a wait for the next action
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


_log = logger("leader")


class PeriodicJobs:
    """Jobs by name. All methods run on the herder's thread; the jobs do not.

    Args:
        thread: runs the jobs, and receives their results.
        on_fenced: called when a job was refused because another node leads.
        on_fatal: called with an error that is a bug.
    """

    def __init__(
        self,
        thread: HerderThread,
        *,
        on_fenced: Callable[[Fenced], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._thread = thread
        self._on_fenced = on_fenced
        self._on_fatal = on_fatal
        self._busy: set[str] = set()
        self._next_ms: dict[str, int] = {}

    def run_due(self, name: str, pause_ms: int, now_ms: int, job: Action) -> None:
        """Start a job, unless it runs or was started less than a pause ago."""
        if name in self._busy or now_ms < self._next_ms.get(name, 0):
            return
        self._busy.add(name)
        self._next_ms[name] = now_ms + pause_ms
        self._thread.submit(self._run, name, job)

    def expire(self, name: str) -> None:
        """Make a job due now."""
        self._next_ms.pop(name, None)

    def expire_all(self) -> None:
        """Make every job due now."""
        self._next_ms.clear()

    def run_by(self, name: str, at_ms: int) -> None:
        """Make a job due at this time, if it is not due earlier."""
        self._next_ms[name] = min(at_ms, self._next_ms.get(name, at_ms))

    def _run(self, name: str, job: Action) -> None:
        fenced: Fenced | None = None
        try:
            job()
        except Fenced as e:
            fenced = e
        except RetriableError as e:
            _log.warning("a job of the leader failed and is repeated", job=name, error=str(e))
        except BaseException as e:
            self._on_fatal(e)
            raise
        self._thread.post(self._done, name, fenced)

    def _done(self, name: str, fenced: Fenced | None) -> None:
        self._busy.discard(name)
        if fenced is not None:
            self._on_fenced(fenced)
