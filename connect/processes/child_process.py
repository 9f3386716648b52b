"""A child process that ends with its parent, writes to a log file and can be waited for.

Rules of this file:
- The child dies when the *thread* that started it ends (Linux's parent death signal). Start
  children from a thread that lives as long as they have to.
- A child runs in its own session: Ctrl-C in a terminal reaches the parent alone, which then stops
  its children in order.
"""

from __future__ import annotations

import atexit
import fcntl
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from connect.clock import SystemClock
from connect.errors import ConfigError, RetriableError
from connect.logs import open_private

TAIL_BYTES = 4_000
_PORTS = range(20_000, 32_000)
_port_turns = itertools.count(127 * os.getpid())  # each process starts at another port
_RESERVATIONS_MAX = 128
_reservations: deque[socket.socket] = deque()
# PR_SET_PDEATHSIG is 1. The parent may have died before the call: then the child must not start.
# Systems without it end the child by the end of its pipe, if it reads one.
_TIE = (
    "import ctypes, os, sys\n"
    "getattr(ctypes.CDLL(None), 'prctl', lambda *_: 0)(1, 9)\n"
    "os.getppid() == int(sys.argv[1]) and os.execvp(sys.argv[2], sys.argv[2:])"
)


def tied_to_this_thread(command: Sequence[str | Path]) -> list[str]:
    """Return a command whose process is killed when the thread that starts it ends.

    Args:
        command: program and arguments.
    """
    return [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *map(str, command)]


class ChildProcess:
    """One running child.

    Args:
        name: its name in messages, e.g. ``the broker``.
        command: program and arguments; no secret may be among them.
        log_file: file to which its output is appended.
        environ: its whole environment; the parent's if None.
        clock: for waiting.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log_file: Path,
        environ: Mapping[str, str] | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        self.name = name
        self.log_file = log_file
        self._clock = clock or SystemClock()
        self._log_start_bytes = log_file.stat().st_size if log_file.exists() else 0
        with open_private(log_file) as log:
            self._process = subprocess.Popen(
                tied_to_this_thread(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if environ is None else dict(environ),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; a paused child runs."""
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Exit status, negative signal number, or None while it runs."""
        return self._process.poll()

    def wait_until(self, is_ready: Callable[[], bool], *, timeout_ms: int) -> None:
        """Wait until ``is_ready`` returns True.

        Raises:
            RetriableError: ``child_died`` or ``child_silent``, with the end of its log.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while not is_ready():
            if not self.is_running:
                raise RetriableError(
                    f"{self.name} ended with status {self.returncode} before it was ready; "
                    f"the end of {self.log_file}:\n{self.tail()}",
                    code="child_died",
                )
            if self._clock.monotonic_ms() > deadline_ms:
                raise RetriableError(
                    f"{self.name} was not ready within {timeout_ms} ms; "
                    f"the end of {self.log_file}:\n{self.tail()}",
                    code="child_silent",
                )
            self._clock.sleep_ms(20)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if it still runs."""
        if self.is_running:
            self._process.send_signal(number)

    def stop(self, *, timeout_ms: int) -> int:
        """Send SIGTERM, and SIGKILL when it has not ended in time; return its exit status."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a paused child cannot act on a request
        try:
            return self._process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Send SIGKILL; return its exit status."""
        self.signal(signal.SIGKILL)
        return self._process.wait()

    def tail(self) -> str:
        """Return the end of this child's output."""
        with self.log_file.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start_bytes, end - TAIL_BYTES))
            return log.read().decode("utf-8", "replace").strip()


class DirLock:
    """Locks a state folder for one process; the system releases it when that process dies.

    Args:
        owner: name of the process in messages, e.g. ``an embedded broker``.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._file: TextIO | None = None

    def acquire(self, path: Path) -> None:
        """Lock the folder; does nothing when this process has locked it already.

        Raises:
            ConfigError: ``state_in_use``.
        """
        if self._file is not None:
            return
        file = (path / ".lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise ConfigError(
                f"{self._owner} is running on {path} already; end it or use another folder",
                code="state_in_use",
            ) from error
        self._file = file

    def release(self) -> None:
        """Release the folder."""
        if self._file is not None:
            self._file.close()
            self._file = None


def free_port() -> int:
    """Return a free port of the loopback interface; another one each time.

    It is outside the range of ephemeral ports. An outgoing connection could take such a port before
    the process that will listen on it has started.

    This process keeps the port bound, without listening. So no other process gets it from this
    function before a server listens. A server with ``SO_REUSEADDR`` can listen, as those of Java,
    Python's ``asyncio`` and Go do. The oldest reservations end when there are many.

    Raises:
        ConfigError: ``port_in_use``, no port of the range is free.
    """
    for _ in _PORTS:
        port = _PORTS[next(_port_turns) % len(_PORTS)]
        reservation = socket.socket()
        try:
            reservation.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        # set after the bind: with it, the bind would succeed on the reservation of another process
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _reservations.append(reservation)
        if len(_reservations) > _RESERVATIONS_MAX:
            _reservations.popleft().close()
        return port
    raise ConfigError(
        f"no port from {_PORTS[0]} to {_PORTS[-1]} is free on 127.0.0.1", code="port_in_use"
    )


@atexit.register
def _end_reservations() -> None:
    while _reservations:
        _reservations.pop().close()


def require_free_port(port: int, *, name: str, option: str) -> None:
    """Raise ``ConfigError`` ``port_in_use`` when a process listens on the port.

    ``option`` is the option of the command that chooses another one.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                f"{name} cannot listen on 127.0.0.1:{port} ({error.strerror}): "
                f"another process uses it; choose another port with {option}, or end that process",
                code="port_in_use",
            ) from error


def writable_dir(path: Path, *, name: str) -> Path:
    """Create the folder if it does not exist; return its resolved path.

    Raises:
        ConfigError: ``dir_unwritable``.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"the folder {path} for {name} cannot be written: {error.strerror}",
            code="dir_unwritable",
        ) from error
    return path.resolve()
