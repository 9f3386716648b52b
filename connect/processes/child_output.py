"""Where a child process's output goes: a file, or line by line into the log stream of the node.

Rules of this file:
- Lines are read until the end of the pipes, also after the child was killed, so none is lost. A
  process that left the child's group and holds a pipe delays the end by ``END_TIMEOUT_S`` only.
- Standard output and standard error have a pipe each. A child writes its log events to standard
  output and its JVM writes to standard error, so a long event of one is not cut by the other.
- When the node's own stream is slow, the child waits. Nothing is dropped and nothing is kept in
  memory but one line of each pipe.
"""

from __future__ import annotations

import os
import selectors
import threading
from pathlib import Path
from typing import IO, Any, Protocol

from connect.logs import forward, open_private

LOG_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 1024 * 1024
READ_BYTES = 64 * 1024
TAIL_BYTES = 2_000
END_TIMEOUT_S = 5.0


class ChildOutput(Protocol):
    """The output of one start of a child."""

    def open(self) -> tuple[IO[bytes], IO[bytes]]:
        """Return the files for standard output and standard error; the caller closes them."""
        ...

    def started(self) -> None:
        """The child has the files, and the caller has closed them."""
        ...

    def ended(self) -> None:
        """The child and its group have ended; return when all of their output was taken."""
        ...

    def tail(self) -> str:
        """Return the end of the output."""
        ...


class OutputFile:
    """Appends the output to a private file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def open(self) -> tuple[IO[bytes], IO[bytes]]:
        """As ``ChildOutput``."""
        return open_private(self._file), open_private(self._file)

    def started(self) -> None:
        """The file needs no reader."""

    def ended(self) -> None:
        """The system has written everything."""

    def tail(self) -> str:
        """As ``ChildOutput``."""
        try:
            with self._file.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(0, end - TAIL_BYTES))
                return log.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""


class ForwardedOutput:
    """Writes the output to the node's log stream, with the name of the child in every line.

    Args:
        name: of the child.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pipes: list[int] = []
        self._tail = b""
        self._group_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"log-{name}", daemon=True)

    def open(self) -> tuple[IO[bytes], IO[bytes]]:
        """As ``ChildOutput``."""
        ends = []
        for _ in range(2):
            ours, theirs = os.pipe()
            self._pipes.append(ours)
            ends.append(os.fdopen(theirs, "wb"))
        return ends[0], ends[1]

    def started(self) -> None:
        """As ``ChildOutput``."""
        self._thread.start()

    def ended(self) -> None:
        """As ``ChildOutput``."""
        self._group_ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def tail(self) -> str:
        """As ``ChildOutput``."""
        return self._tail.decode("utf-8", "replace").strip()

    def _run(self) -> None:
        silent_s, wait_s = 0.0, 0.2
        with selectors.DefaultSelector() as selector:
            for pipe in self._pipes:
                selector.register(pipe, selectors.EVENT_READ, _LogLines(self._name))
            while selector.get_map() and silent_s < END_TIMEOUT_S:
                ready = selector.select(wait_s)
                if not ready and self._group_ended.is_set():
                    silent_s += wait_s
                for key, _ in ready:
                    self._read(selector, key.fd, key.data)
            for key in list(selector.get_map().values()):
                self._end(selector, key.fd, key.data)

    def _read(self, selector: selectors.BaseSelector, pipe: int, lines: _LogLines) -> None:
        data = os.read(pipe, READ_BYTES)
        if not data:
            self._end(selector, pipe, lines)
            return
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        lines.add(data)

    def _end(self, selector: selectors.BaseSelector, pipe: int, lines: _LogLines) -> None:
        lines.end()
        selector.unregister(pipe)
        os.close(pipe)


class _LogLines:
    """Splits the bytes of one pipe into lines."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open = bytearray()

    def add(self, data: bytes) -> None:
        """Forward every line that is complete, and a line that is too long in pieces."""
        self._open += data
        *complete, rest = self._open.split(b"\n")
        for line in complete:
            self._forward(line)
        while len(rest) > LINE_BYTES_MAX:
            self._forward(rest[:LINE_BYTES_MAX])
            rest = rest[LINE_BYTES_MAX:]
        self._open = rest

    def end(self) -> None:
        """Forward what has no end of line."""
        self._forward(self._open)
        self._open = bytearray()

    def _forward(self, line: bytearray) -> None:
        if line.strip():
            forward(self._name, bytes(line))


def output_of(name: str, file: Path | None) -> ChildOutput:
    """Return the output of one start of a child.

    Args:
        name: of the child.
        file: file to which it is appended; None forwards it to this process's log stream.
    """
    return ForwardedOutput(name) if file is None else OutputFile(file)


def trim(file: Path, log: Any) -> None:
    """Bound a log file: its last part is copied, then the file is truncated.

    Args:
        file: the log file.
        log: receives a warning when that is not possible.
    """
    try:
        if file.stat().st_size <= LOG_BYTES_MAX:
            return
        with file.open("rb") as full, open_private(file.with_suffix(".log.1")) as copy:
            copy.truncate(0)
            full.seek(-LOG_BYTES_MAX // 2, os.SEEK_END)
            copy.write(full.read())
        os.truncate(file, 0)
    except FileNotFoundError:
        return  # the child has not been started yet
    except OSError as e:
        log.warning("log file not trimmed", error=str(e))
