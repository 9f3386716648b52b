"""The rest of an HTTP answer, received without being read.

Rules of this file:
- A few large system calls receive it. ``http.client`` makes two for each chunk of a body, and
  servers send chunks of 8 kB. ``long_reads`` decides when.
- An answer that ends early is an error, and so is a chunk whose size is no number.
- A connection with bytes after the end of the answer is not used again.

Source:
    RFC 9112, section 7.1; ``http.client.HTTPResponse``.
"""

from __future__ import annotations

import re
from http.client import HTTPResponse, IncompleteRead
from typing import Any, Protocol, cast

_BUFFER_BYTES = 1024 * 1024
_HEXADECIMAL = re.compile(rb"[0-9A-Fa-f]{1,15}")
LINE_BYTES_MAX = 65_536  # of http.client


class _Body(Protocol):
    """What ``http.client`` knows of an answer's body; its types say less."""

    fp: Any
    chunked: bool
    chunk_left: int | None
    length: int | None

    def isclosed(self) -> bool: ...
    def close(self) -> None: ...


class _Received:
    """Receives into one buffer; what a line needs stays in it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._raw: Any = None
        self.buffer = bytearray(_BUFFER_BYTES)
        self.end = 0

    def more(self, kept: int = 0) -> None:
        """Receive once; the last ``kept`` bytes become the first of the buffer."""
        if kept:
            self.buffer[:kept] = self.buffer[self.end - kept : self.end]
        view = memoryview(self.buffer)[kept:]
        if self._raw is None:  # what the stream has received already comes first
            first = self._stream.read1(len(view))
            view[: len(first)] = first
            size, self._raw = len(first), self._stream.raw
        else:
            size = self._raw.readinto(view)
        if not size:
            raise IncompleteRead(b"")
        self.end = kept + size

    def line_end(self, start: int) -> tuple[int, int]:
        """Return where the line at this position starts and ends now, behind its line feed."""
        while (line_feed := self.buffer.find(b"\n", start, self.end)) < 0:
            kept = self.end - start
            if kept > LINE_BYTES_MAX:
                raise IncompleteRead(b"")
            self.more(kept)
            start = 0
        return start, line_feed + 1


def receive_rest(response: HTTPResponse) -> bool:
    """Receive the rest of an answer; return whether its connection can be used again.

    Args:
        response: with a body that was read in part, or not at all.

    Raises:
        http.client.IncompleteRead: the answer ends early.
        OSError: the connection failed.
    """
    body = cast(_Body, response)
    if body.isclosed():
        return True
    received = _Received(body.fp)
    if body.chunked:
        end = _behind_chunks(received, body.chunk_left)
    elif body.length is not None:
        end = _behind(received, 0, body.length)
    else:  # the end of the connection is the end of the body
        while response.read(_BUFFER_BYTES):
            pass
        return True
    body.close()
    return end == received.end


def _behind(received: _Received, start: int, size: int) -> int:
    """Return the position behind so many bytes."""
    end = start + size
    while end > received.end:
        end -= received.end
        received.more()
    return end


def _behind_chunks(received: _Received, chunk_left: int | None) -> int:
    """Return the position behind the last chunk and its trailer.

    Args:
        received: starts where ``http.client`` stopped.
        chunk_left: bytes of the present chunk; None at its first line.
    """
    at = 0 if chunk_left is None else _behind(received, 0, chunk_left + 2)
    while True:
        at, behind_line = received.line_end(at)
        line = bytes(received.buffer[at:behind_line])
        size = chunk_size(line)
        if not size:
            break
        step = len(line) + size + 2
        at += step
        # chunks of a server mostly have one size, so the next line is mostly the same
        last, is_same = received.end - len(line), received.buffer.startswith
        while at <= last and is_same(line, at):
            at += step
        at = _behind(received, 0, at)
    at = behind_line
    while True:
        at, behind_line = received.line_end(at)
        if not received.buffer[at:behind_line].strip():
            return behind_line
        at = behind_line


def chunk_size(line: bytes) -> int:
    """Return the size in the first line of a chunk; 0 is that of the last one.

    Raises:
        http.client.IncompleteRead: it has no size.
    """
    digits = line.partition(b";")[0].strip()
    if not _HEXADECIMAL.fullmatch(digits):
        raise IncompleteRead(b"")
    return int(digits, 16)
