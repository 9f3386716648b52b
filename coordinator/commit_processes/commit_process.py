"""One commit process, as its coordinator sees it.

Rules of this file:
- Each commit gets its outcome, or the error for which the process was given up.
- The process is in the process group of its coordinator, which the node kills with it. It is tied
  to the thread that starts it, and ends at the end of its pipe.
- Its log lines are written to the log stream of the coordinator's process, under that name.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from connect import logs
from connect.config.node.node_config import NodeConfig
from connect.errors import RetriableError
from connect.metrics.process_metrics import CountsOfHelper
from connect.processes.child_output import output_of
from connect.processes.child_process import tied_to_this_thread
from connect.processes.coordinator_names import COORDINATOR
from connect.processes.ipc import DESCRIPTOR_VARIABLE, VERSION, Channel
from coordinator.commit.table_committers import OnEvent
from coordinator.commit_processes.messages import encoded, outcome_of
from coordinator.kernel.announcements import Identifier
from coordinator.kernel.effects import CommitOutcome, TableCommit

COMMIT_PROCESS_LOST = "commit_process_lost"
# -P: Python must not run a file of that name in the working folder instead
COMMAND: Final = (sys.executable, "-P", "-m", "coordinator.commit_processes")
EXIT_TIMEOUT_S = 5.0
OnLost = Callable[[RetriableError], None]


@dataclass(frozen=True, slots=True)
class CommitProcessSetup:
    """How the commit processes of a connector are started.

    Attributes:
        count: ``icefloe.coordinator.commit.processes``.
        properties: of the node; placeholders unresolved.
        process: name of the coordinator process, for log lines.
        silence_ms_max: time without a message after which a process is given up.
        stop_ms_max: time for commits that are under way when the session ends. It is below the
            time for which a successor waits for this coordinator.
        finish_ms_max: time to close the committer, which deletes files that no snapshot lists.
            What is left then are orphans.
        command: program and arguments.
        poll_ms: how often the time limits are checked.
    """

    count: int
    properties: Mapping[str, str]
    process: str = COORDINATOR
    silence_ms_max: int = 120_000
    stop_ms_max: int = 40_000
    finish_ms_max: int = 10_000
    command: Sequence[str] = COMMAND
    poll_ms: int = 1_000

    @classmethod
    def of(cls, node: NodeConfig, process: str) -> CommitProcessSetup | None:
        """Return how a node starts them; None if it starts none.

        Args:
            node: its configuration.
            process: name of the coordinator process.
        """
        values = node.values
        if not (count := values["icefloe.coordinator.commit.processes"]):
            return None
        silence_ms_max = values["icefloe.child.silence.max.ms"]
        return cls(count, node.properties, process, silence_ms_max=silence_ms_max)


@dataclass(slots=True)
class _Waits:
    """Times without a sign of the process, counted in polls of this one.

    Attributes:
        silent_ms: without a message.
        unanswered_ms: without an outcome, while commits wait for one; not before it is open.
        has_sent: a message came since the last poll.
        has_answered: an outcome came since the last poll.
        is_open: it can commit.
    """

    silent_ms: int = 0
    unanswered_ms: int = 0
    has_sent: bool = False
    has_answered: bool = False
    is_open: bool = False

    def polled(self, poll_ms: int, *, is_busy: bool) -> None:
        """Count the time since the last poll."""
        self.silent_ms = 0 if self.has_sent else self.silent_ms + poll_ms
        is_waiting = self.is_open and is_busy and not self.has_answered
        self.unanswered_ms = self.unanswered_ms + poll_ms if is_waiting else 0
        self.has_sent = self.has_answered = False


class CommitProcess:
    """One process that commits tables. Thread-safe; started by its constructor.

    Args:
        number: of the process, from 1.
        setup: how it is started.
        on_event: receives its reports.
        on_lost: called on another thread with the reason for which it cannot be used any more.

    Raises:
        RetriableError: ``commit_process_lost``: the system starts no process.
    """

    def __init__(
        self,
        number: int,
        setup: CommitProcessSetup,
        on_event: OnEvent,
        on_lost: OnLost,
    ) -> None:
        self._name = f"commit process {number}"
        self._on_event = on_event
        self._on_lost = on_lost
        self._counts = CountsOfHelper()
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[TableCommit, Future[CommitOutcome]]] = {}
        self._waits = _Waits()
        self._ended_for: RetriableError | None = None
        self._output = output_of(setup.process, None)
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        with theirs:
            self._process = self._spawn(setup.command, theirs)
        self._thread = threading.Thread(target=self._receive, name=self._name, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def open(self, setup: CommitProcessSetup, opening: bytes) -> None:
        """Send it what it needs; before the first commit.

        Args:
            setup: how it was started.
            opening: payload of the ``open`` message.
        """
        configure = {"op": "configure", "version": VERSION, "properties": dict(setup.properties)}
        self._channel.send({**configure, "process": setup.process})
        self._channel.send({"op": "open"}, opening)

    def commit(self, number: int, commit: TableCommit) -> CommitOutcome:
        """Have the process commit a table; wait for the outcome.

        Args:
            number: of the commit, used once.
            commit: what is announced.

        Raises:
            RetriableError: the process was given up. It may have committed.
        """
        payload = encoded(commit)
        future: Future[CommitOutcome] = Future()
        with self._lock:
            if self._ended_for is not None:
                raise self._ended_for
            self._waiting[number] = commit, future
        message = {"op": "commit", "number": number, "levels": logs.set_levels()}
        self._channel.send(message, payload)  # if it fails, the end of the pipe is received, too
        return future.result()

    def load_ahead(self, identifier: Identifier) -> None:
        """Have the process load a table for its next commit; does not wait for it."""
        with self._lock:
            is_ended = self._ended_for is not None
        if not is_ended:
            self._channel.send({"op": "load_ahead", "table": list(identifier)})

    def check(self, poll_ms: int, silence_ms_max: int, unanswered_ms_max: int) -> None:
        """Give the process up if it has not sent what it must in time.

        Args:
            poll_ms: time since the last check.
            silence_ms_max: longest time without a message.
            unanswered_ms_max: longest time without an outcome, while commits wait for one.
        """
        with self._lock:
            self._waits.polled(poll_ms, is_busy=bool(self._waiting))
            silent_ms, unanswered_ms = self._waits.silent_ms, self._waits.unanswered_ms
        if silent_ms >= silence_ms_max:
            self._lost(f"has sent nothing for {silent_ms} ms")
        elif unanswered_ms >= unanswered_ms_max:
            self._lost(f"has ended no commit for {unanswered_ms} ms")

    def finish(self) -> None:
        """Request that it closes its committer and ends; no commit is under way."""
        with self._lock:
            is_lost = self._ended_for is not None
            self._ended_for = self._ended_for or _lost(self._name, "was closed")
        if not is_lost:
            self._channel.send({"op": "finish"})

    def kill(self, error: RetriableError) -> None:
        """Kill it; every commit that waits for its outcome gets the error."""
        with self._lock:
            self._ended_for = self._ended_for or error
            waiting = list(self._waiting.values())
            self._waiting.clear()
        self._process.kill()
        for _, future in waiting:
            future.set_exception(error)

    def wait(self, timeout_s: float) -> None:
        """Return when the process has ended; it is killed after the time limit."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join()
        self._channel.close()
        self._output.ended()

    def _spawn(self, command: Sequence[str], end: socket.socket) -> subprocess.Popen[bytes]:
        stdout, stderr = self._output.open()
        try:
            with stdout, stderr:
                process = subprocess.Popen(
                    tied_to_this_thread(command),
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env={**os.environ, DESCRIPTOR_VARIABLE: str(end.fileno())},
                    pass_fds=[end.fileno()],
                )
        except OSError as error:
            self._channel.close()
            raise _lost(self._name, f"could not be started: {error.strerror}") from error
        finally:
            self._output.started()
        return process

    def _receive(self) -> None:
        reason = ""
        try:
            for event in self._channel.receive():
                self._take(event)
        except _NotOpenedError as error:
            reason = f"could not open the catalog: {error}"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"sent what is no message of this version: {type(error).__name__}: {error}"
        if reason:
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_TIMEOUT_S)
        self._process.kill()  # if it has closed its pipe and does not end
        status = self._process.wait()
        self._lost(reason or f"ended with status {status}")

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        with self._lock:
            self._waits.has_sent = True
        match kind:
            case "outcome":
                self._answered(event)
            case "metrics":
                self._counts.received(event["samples"])
            case "report":
                self._on_event(event["kind"], event["where"])
            case "not_opened":
                raise _NotOpenedError(f"{event['message']} ({event['code']})")
            case "refused":
                raise ValueError(event["message"])
            case "opened":
                self._waits.is_open = True
            case _:
                raise ValueError(f"unknown event {kind!r}")

    def _answered(self, event: Mapping[str, Any]) -> None:
        with self._lock:
            commit, future = self._waiting[event["number"]]
            outcome = outcome_of(commit, event)
            del self._waiting[event["number"]]
            self._waits.has_answered = True
        future.set_result(outcome)

    def _lost(self, reason: str) -> None:
        with self._lock:
            if self._ended_for is not None:
                return  # it was closed, or is killed
        self._on_lost(_lost(self._name, reason))


class _NotOpenedError(Exception):
    """The process could not open the connector's catalog."""


def _lost(name: str, reason: str) -> RetriableError:
    return RetriableError(
        f"{name} {reason}; its commits have an unknown outcome, so the session of the coordinator "
        "starts again and reads the tables",
        code=COMMIT_PROCESS_LOST,
    )
