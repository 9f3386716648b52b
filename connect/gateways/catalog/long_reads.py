"""The body of a long HTTP answer, received in few large pieces.

Rules of this file:
- A server that sends slower than this process reads would wake it for each chunk. So it waits
  before it receives again: until a megabyte has arrived, at most a twentieth of the time since the
  request was sent, and at most 20 ms.
- The wait ends when the system's buffer is full, so the server never waits for it. There is none
  after a piece that filled the reader's buffer, because more of it may have arrived.
- The first bytes are received as they come: a short answer is not delayed.
- With TLS a receipt is a record of 16 kB. So all records that have arrived are received together.
- It changes when bytes are received, never which.

Source:
    socket(7) and tcp(7) of Linux: ``SO_RCVLOWAT``.
"""

from __future__ import annotations

import io
import select
import socket
import ssl
from typing import Any, Final

from requests import Response

from connect.clock import SystemClock

_PIECE_BYTES: Final = 1024 * 1024
_SHORT_BYTES: Final = 32 * 1024
_BUFFER_BYTES: Final = 128 * 1024
_WAIT_PART: Final = 0.05
_WAIT_MS_MAX: Final = 20
_CLOCK: Final = SystemClock()


class Arrival:
    """What arrives at a socket.

    Args:
        connection: perhaps with TLS.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._records = connection if isinstance(connection, ssl.SSLSocket) else None
        self._arrived = select.poll()
        self._arrived.register(connection, select.POLLIN)

    def wait(self, milliseconds: int) -> None:
        """Wait for a piece, or until the system's buffer is full; at most so long."""
        # it also makes room for so much
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _PIECE_BYTES)
        try:
            self._arrived.poll(milliseconds)
        finally:
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    def records(self, buffer: memoryview) -> int:
        """Receive records of TLS that have arrived already; return how many bytes."""
        records, size = self._records, 0
        if records is None:
            return 0
        timeout_s = records.gettimeout()
        records.settimeout(0)
        try:
            while size < len(buffer) and (more := records.recv_into(buffer[size:])):
                size += more
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return size
        finally:
            records.settimeout(timeout_s)
        return size


class LongReads(io.RawIOBase):
    """Receives what is behind the head of an answer.

    Args:
        stream: of ``http.client``, buffered; it has received some of the body.
        arrival: what arrives at its socket.
        clock: for the length of waits.
        elapsed_ms: since the request was sent.
    """

    def __init__(self, stream: Any, arrival: Arrival, clock: SystemClock, elapsed_ms: int) -> None:
        super().__init__()
        self._stream = stream
        self._arrival = arrival
        self._clock = clock
        self._started_ms = clock.monotonic_ms() - elapsed_ms
        self._may_have_more = True
        self._was_full = False
        self._received_bytes = 0

    def readable(self) -> bool:
        """Return true, as of every source."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive once; return how many bytes, 0 at the end of the connection."""
        if self._may_have_more:  # what the stream has received already comes first
            first: bytes = self._stream.read1(len(buffer))
            size = len(first)
            buffer[:size] = first
            self._may_have_more = size == len(buffer)
        else:
            if self._received_bytes >= _SHORT_BYTES and not self._was_full:
                self._wait_for_much()
            size = self._stream.raw.readinto(buffer)
            if size:
                size += self._arrival.records(memoryview(buffer)[size:])
            self._was_full = size == len(buffer)
        self._received_bytes += size
        return size

    def close(self) -> None:
        """Close the stream as well."""
        if not self.closed:
            super().close()
            self._stream.close()

    def _wait_for_much(self) -> None:
        taken_ms = self._clock.monotonic_ms() - self._started_ms
        if wait_ms := min(int(taken_ms * _WAIT_PART), _WAIT_MS_MAX):
            self._arrival.wait(wait_ms)


def http_answer(response: Response) -> Any:
    """Return the answer of Python's HTTP client, whose body urllib3 reads."""
    return response.raw._fp  # noqa: SLF001 - urllib3 has no other way to it


def receive_in_pieces(response: Response) -> None:
    """Let the rest of an answer be received in large pieces; what reads it stays the same."""
    body = http_answer(response)
    connection = getattr(getattr(body.fp, "raw", None), "_sock", None)
    if connection is None:  # the body is complete, or is from no socket
        return
    elapsed_ms = int(response.elapsed.total_seconds() * 1000)
    reads = LongReads(body.fp, Arrival(connection), _CLOCK, elapsed_ms)
    body.fp = io.BufferedReader(reads, _BUFFER_BYTES)
