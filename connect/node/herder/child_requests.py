"""Commands to a child process that are answered; the caller waits, bounded, on its thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from connect.clock import Clock
from connect.node.node_requests import UnavailableError
from connect.processes.coordinator_names import COORDINATOR
from connect.processes.supervisor import SupervisedChild

ANSWER_TIMEOUT_S = 30.0
SLOW_ANSWER_TIMEOUT_S = 600.0
"""For commands that read a control topic and commit to many tables."""
RESTART_WAIT_S = 10.0
"""A child that has ended starts again meanwhile, unless it ends again and again."""


class ChildRequests:
    """Commands without an answer yet. Thread-safe.

    Args:
        children: by name.
        clock: identities of the requests.
        coordinator_of: returns the process for a connector's coordinator.
    """

    def __init__(
        self,
        children: Mapping[str, SupervisedChild],
        clock: Clock,
        coordinator_of: Callable[[str], str] = lambda _: COORDINATOR,
    ) -> None:
        self._children = children
        self._coordinator_of = coordinator_of
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, Future[Mapping[str, Any]]]] = {}

    def ask(
        self, child: str, message: Mapping[str, Any], *, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> Mapping[str, Any]:
        """Send a command and return its answer.

        Args:
            child: ``worker``, or ``coordinator`` for the process of the connector's coordinator.
            message: the command, with its ``connector``.
            timeout_s: longest wait for the answer.

        Raises:
            UnavailableError: the child does not run and did not start again within 10 s, or did
                not answer in time; the command may still be executed.
        """
        if child == COORDINATOR:
            child = self._coordinator_of(message["connector"])
        request = str(self._clock.new_uuid())
        answer: Future[Mapping[str, Any]] = Future()
        with self._lock:
            self._open[request] = child, answer
        try:
            command = {**message, "request": request}
            if not self._children[child].send(command, wait_s=min(RESTART_WAIT_S, timeout_s)):
                raise UnavailableError(f"the {child} is not running", code="child_away")
            return answer.result(timeout_s)
        except TimeoutError:
            raise UnavailableError(
                f"the {child} did not answer in {timeout_s:.0f} s; the command may still be done",
                code="child_silent",
            ) from None
        finally:
            with self._lock:
                self._open.pop(request, None)

    def answered(self, event: Mapping[str, Any]) -> None:
        """Pass an answer to its caller; drop it when the caller no longer waits."""
        with self._lock:
            waiting = self._open.pop(str(event.get("request")), None)
        if waiting is not None:
            waiting[1].set_result(event)

    def exited(self, child: str) -> None:
        """Fail the open requests of a child process that has ended: no answer comes."""
        with self._lock:
            lost = [request for request, (name, _) in self._open.items() if name == child]
            for request in lost:
                _, answer = self._open.pop(request)
                answer.set_exception(
                    UnavailableError(
                        f"the {child} ended before it answered; the command may have been done",
                        code="child_away",
                    )
                )
