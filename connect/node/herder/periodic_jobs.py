"""Jobs of a node that are repeated after a pause, each one at a time."""

from __future__ import annotations

from collections.abc import Callable

from connect.errors import Fenced, RetriableError
from connect.logs import logger
from connect.node.herder.herder_thread import Action, HerderThread

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
        self._thread.submit(lambda: self._run(name, job))

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
        self._thread.post(lambda: self._done(name, fenced))

    def _done(self, name: str, fenced: Fenced | None) -> None:
        self._busy.discard(name)
        if fenced is not None:
            self._on_fenced(fenced)
