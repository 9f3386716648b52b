"""Supervision of a node's child processes: start, events, restart, shutdown.

Rules of this file:
- One thread per child runs its life: start, read events until end of stream, reap, wait, repeat.
- A child blocks no caller: messages to it go through a queue, so a child that is stopped (SIGSTOP)
  delays no other thread.
- A child leads its own session. It ends at end of stream. The rest of its process group (a JVM) is
  killed by the group's id before the leader is reaped, so the id cannot belong to other processes.
- A child that was ready and then sends nothing for too long is frozen or stuck: it is killed. The
  time is counted in polls of this process, so a node that was frozen itself kills no child.
- No secret is in a child's arguments; its configuration is sent over the pipe.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connect.backoff import Backoff, BackoffPolicy
from connect.clock import Clock
from connect.logs import logger
from connect.processes.child_output import ChildOutput, output_of, trim
from connect.processes.ipc import VERSION, Channel, version_refusal

QUEUE_MAX = 100_000
POLL_MS = 1_000
TRIM_EVERY_MS = 60_000
END_TIMEOUT_MS = 30_000  # a child without a node drains, then ends

OnEvent = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """The command of a child and its environment.

    Attributes:
        name: ``worker``, ``coordinator``, ``coordinator-2`` or ``maintenance``.
        command: program and arguments.
        log_file: file to which its output is appended; None writes it line by line to this
            process's log stream.
        properties: the node's properties, sent as ``configure``; placeholders unresolved.
        environ: its environment.
    """

    name: str
    command: Sequence[str]
    log_file: Path | None
    properties: Mapping[str, str]
    environ: Mapping[str, str]


class SupervisedChild:
    """One supervised child.

    Args:
        spec: what to run.
        on_event: called on the child's thread with its name and each event it sends, and with
            ``{"event": "exited", "status": int, "trace": str}`` when it has ended unexpectedly. A
            child of another version is killed, after ``{"event": "refused", "message": str}``.
        clock: for pauses.
        policy: pauses between restarts.
        silence_ms_max: time without events after which a ready child is killed; None is never.
    """

    def __init__(
        self,
        spec: ChildSpec,
        on_event: OnEvent,
        clock: Clock,
        policy: BackoffPolicy,
        *,
        silence_ms_max: int | None = None,
    ) -> None:
        self.spec = spec
        self._silence_ms_max = silence_ms_max
        self._on_event = on_event
        self._clock = clock
        self._backoff = Backoff(policy)
        self._stopping = threading.Event()
        self._lock = threading.Condition()  # notified when a child takes messages
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._outgoing: queue.Queue[Mapping[str, Any] | None] | None = None
        self._thread = threading.Thread(target=self._run, name=f"child-{spec.name}", daemon=True)
        self._log = logger("supervisor").bind(child=spec.name)

    @property
    def pid(self) -> int | None:
        """Process id of the running child."""
        with self._lock:
            return self._process.pid if self._process is not None else None

    @property
    def is_ready(self) -> bool:
        """Whether the running child has reported that it is ready."""
        return self._is_ready

    @property
    def restarts(self) -> int:
        """Restarts in a row."""
        return self._backoff.restarts

    def start(self) -> None:
        """Start the child and keep it running."""
        self._thread.start()

    def send(self, message: Mapping[str, Any], *, wait_s: float = 0.0) -> bool:
        """Queue a message; return False when no child runs.

        Args:
            message: what is sent.
            wait_s: longest wait for a child that is being started again.
        """
        with self._lock:
            self._lock.wait_for(
                lambda: self._outgoing is not None or self._stopping.is_set(), wait_s
            )
            if self._outgoing is None:
                return False
            try:
                self._outgoing.put_nowait(message)
            except queue.Full:
                return False
            return True

    def shutdown(self, grace_ms: int) -> None:
        """Request that the child drains, kill it after the grace; return when it has ended."""
        self._stopping.set()
        with self._lock:
            self._lock.notify_all()
        self.send({"op": "shutdown", "grace_ms": grace_ms})
        if self._thread.is_alive():
            self._thread.join(grace_ms / 1000)
        if self._thread.is_alive():
            self._log.warning(
                "child process did not end within its grace period, killed", grace_ms=grace_ms
            )
            with self._lock:
                if self._process is not None:
                    _kill_group(self._process.pid)
            self._thread.join()

    def trim_log(self) -> None:
        """Bound the log file, if there is one."""
        if self.spec.log_file is not None:
            trim(self.spec.log_file, self._log)

    def _run(self) -> None:
        while not self._stopping.is_set():
            output = output_of(self.spec.name, self.spec.log_file)
            try:
                status = self._live_once(output)
            except OSError as e:  # fork or exec failed: out of memory, out of processes
                self._log.error("child process could not be started", error=str(e))
                status = -1
            if self._stopping.is_set():
                return
            self._on_event(
                self.spec.name,
                {"event": "exited", "status": status, "trace": output.tail()},
            )
            pause_ms = self._backoff.failed(self._clock.monotonic_ms()) or 0
            self._log.warning(
                "child process ended, starting it again", status=status, pause_ms=pause_ms
            )
            self._stopping.wait(pause_ms / 1000)

    def _live_once(self, output: ChildOutput) -> int:
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        outgoing: queue.Queue[Mapping[str, Any] | None] = queue.Queue(QUEUE_MAX)
        properties = dict(self.spec.properties)
        configure = {"op": "configure", "version": VERSION, "properties": properties}
        outgoing.put({**configure, "process": self.spec.name})
        with theirs:
            process = self._spawn(theirs, output)
        with self._lock:
            self._process, self._outgoing = process, outgoing
            self._lock.notify_all()
        self._backoff.started(self._clock.monotonic_ms())
        self._log.info("child process started", pid=process.pid)
        sender = threading.Thread(
            target=_send_all, args=(channel, outgoing), name=f"to-{self.spec.name}", daemon=True
        )
        sender.start()
        watch = _Watch(process.pid, self._silence_ms_max, self._log)
        if self._stopping.is_set():  # requested to stop while it was being started
            outgoing.put({"op": "shutdown", "grace_ms": 0})
        try:
            for event in channel.receive():
                watch.received(event)
                if (refusal := _refusal(self.spec.name, event)) is not None:
                    self._on_event(self.spec.name, {"event": "refused", "message": refusal})
                    _kill_group(process.pid)
                    break
                self._is_ready = self._is_ready or event.get("event") == "ready"
                self._on_event(self.spec.name, event)
        except ValueError as e:
            self._log.error("child process sent a line that is not JSON, killed", error=str(e))
            _kill_group(process.pid)
        finally:
            # end of stream: the child has ended, or has closed its end and soon will
            self._is_ready = False
            with self._lock:
                self._outgoing = None
            watch.end()
            status = self._reap(process)
            output.ended()
            outgoing.put(None)
            channel.close()
            sender.join()
        return status

    def _spawn(self, end: socket.socket, output: ChildOutput) -> subprocess.Popen[bytes]:
        stdout, stderr = output.open()
        with stdout, stderr:
            process = subprocess.Popen(
                list(self.spec.command),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**self.spec.environ, "ICEFLOE_IPC_FD": str(end.fileno())},
                pass_fds=[end.fileno()],
                start_new_session=True,
            )
        output.started()
        return process

    def _reap(self, process: subprocess.Popen[bytes]) -> int:
        # WNOWAIT leaves the zombie, so no other process gets the group's id before it is killed
        deadline_ms = self._clock.monotonic_ms() + END_TIMEOUT_MS
        inspect = os.WEXITED | os.WNOWAIT | os.WNOHANG
        while os.waitid(os.P_PID, process.pid, inspect) is None:
            if not self._stopping.is_set() and self._clock.monotonic_ms() >= deadline_ms:
                self._log.warning("child process closed its pipe but did not end, killed")
                break
            threading.Event().wait(0.02)
        _kill_group(process.pid)
        with self._lock:
            self._process = None
            return process.wait()


class ChildLogs:
    """Bounds the log files of children, now and then.

    Args:
        children: whose logs.
    """

    def __init__(self, children: Iterable[SupervisedChild]) -> None:
        self._children = tuple(children)
        self._next_ms = 0

    def trim_due(self, now_ms: int) -> None:
        """Bound the files if the last time is long ago; ``now_ms`` is monotonic."""
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + TRIM_EVERY_MS
            for child in self._children:
                child.trim_log()


class _Watch:
    """Kills a child that has been ready and sends nothing any more.

    Args:
        pid: process id of the child, which is not reaped before ``end``.
        silence_ms_max: None never kills.
        log: receives an entry when it kills.
    """

    def __init__(self, pid: int, silence_ms_max: int | None, log: Any) -> None:
        self._pid = pid
        self._silence_ms_max = silence_ms_max
        self._log = log
        self._received = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def received(self, event: Mapping[str, Any]) -> None:
        """Note an event of the child."""
        self._received.set()
        is_first = self._thread is None and event.get("event") == "ready"
        if is_first and self._silence_ms_max is not None:
            self._thread = threading.Thread(
                target=self._run, args=(self._silence_ms_max,), name="watch", daemon=True
            )
            self._thread.start()

    def end(self) -> None:
        """Stop watching: the child is about to be reaped, and its id may be used again."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, silence_ms_max: int) -> None:
        silent_ms = 0
        while silent_ms < silence_ms_max:
            if self._ended.wait(min(POLL_MS, silence_ms_max) / 1000):
                return
            silent_ms = 0 if self._received.is_set() else silent_ms + POLL_MS
            self._received.clear()
        self._log.error("child process sends no events, killed", silent_ms=silent_ms, pid=self._pid)
        _kill_group(self._pid)


def _refusal(process: str, event: Mapping[str, Any]) -> str | None:
    """Return why a child cannot be used, from its first event; None if it can be."""
    match event.get("event"):
        case "refused":
            return str(event.get("message"))
        case "takes_commands" | "ready":
            return version_refusal(process, event.get("version"))
        case _:
            return None


def _send_all(channel: Channel, outgoing: queue.Queue[Mapping[str, Any] | None]) -> None:
    while (message := outgoing.get()) is not None:
        if not channel.send(message):
            return


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
