"""Commands to a child that are answered: who asks waits, bounded, on his own thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from connect.clock import Clock
from connect.node.herder_api import UnavailableError
from connect.processes.supervisor import SupervisedChild

ANSWER_TIMEOUT_S = 30.0


class ChildRequests:
    """Questions that are not answered yet. Thread-safe.

    Args:
        children: by name.
        clock: identities of the requests.
    """

    def __init__(self, children: Mapping[str, SupervisedChild], clock: Clock) -> None:
        self._children = children
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, Future[Mapping[str, Any]]] = {}

    def ask(
        self, child: str, message: Mapping[str, Any], *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> Mapping[str, Any]:
        """Send a command and return its answer.

        Raises:
            UnavailableError: the child is not there, or did not answer in time; what was asked
                may be done all the same.
        """
        request = str(self._clock.new_uuid())
        answer: Future[Mapping[str, Any]] = Future()
        with self._lock:
            self._open[request] = answer
        try:
            if not self._children[child].send({**message, "request": request}):
                raise UnavailableError(f"the {child} is not running", code="child_away")
            return answer.result(timeout_s)
        except TimeoutError:
            raise UnavailableError(
                f"the {child} did not answer in {timeout_s:.0f} s; what was asked may be done yet",
                code="child_silent",
            ) from None
        finally:
            with self._lock:
                self._open.pop(request, None)

    def answered(self, event: Mapping[str, Any]) -> None:
        """An answer came; one that nobody waits for any more is dropped."""
        with self._lock:
            waiting = self._open.pop(str(event.get("request")), None)
        if waiting is not None:
            waiting.set_result(event)
