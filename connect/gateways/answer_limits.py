"""Limits of what other systems answer over HTTP: how large, and for how long.

Rules of this file:
- A tenant names the addresses of catalogs, registries and webhooks. An answer without end would
  fill the memory of a process that other connectors share, or hold one of its threads for ever.
- Values of JSON are counted as well: small ones take much more memory than their text.
- Bytes are counted after decompression. Twice as many may be received, with the head and with the
  sizes of chunks.
- A body that comes in very small chunks takes no more memory than another one.
- The time of an answer ends it, also if each of its bytes comes in time.
- The thread that reads applies the limits. No other thread closes its connection.
"""

from __future__ import annotations

import io
import socket
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPResponse
from typing import Any, ClassVar, Final

import httpcore
import httpx
from requests import RequestException

from connect.clock import SystemClock
from connect.gateways.access_policy import access_policy

TOKEN_BYTES_MAX: Final = 2**20
BYTES_OF_VALUE: Final = 16
"""A text of JSON with the largest size has so many bytes for each value, or it is refused."""
_VALUE_STARTS: Final = (b",", b"[", b"{")
_JOINED_BYTES: Final = 64 * 1024
_WRITE_BYTES: Final = 16 * 1024
_CLOCK: Final = SystemClock()
_until_ms: ContextVar[int | None] = ContextVar("until_ms", default=None)


class AnswerLimitError(RequestException):
    """An answer is larger or takes longer than it may.

    Args:
        message: what is wrong with the answer.
        is_size: whether it is too large.
    """

    def __init__(self, message: str, *, is_size: bool) -> None:
        super().__init__(message)
        self.message = message
        self.is_size = is_size


def too_large(bytes_max: int) -> AnswerLimitError:
    """Return the error for an answer with more bytes."""
    return AnswerLimitError(f"it has more than {bytes_max} bytes", is_size=True)


class ValueCount:
    """Counts the values of a JSON text that comes in pieces, those within strings included.

    An empty list takes 3 bytes of the text, and more than twenty times as much in memory.

    Args:
        bytes_max: limit of the text; of its values, a sixteenth.
    """

    def __init__(self, bytes_max: int) -> None:
        self._left = self._max = bytes_max // BYTES_OF_VALUE

    def add(self, piece: bytes) -> None:
        """Count the values of a piece.

        Raises:
            AnswerLimitError: they are too many.
        """
        self._left -= sum(map(piece.count, _VALUE_STARTS))
        if self._left < 0:
            raise AnswerLimitError(f"it has more than {self._max} values", is_size=True)


def answer_limit_in(error: BaseException) -> AnswerLimitError | None:
    """Return the limit that an error of a client comes from; None for other errors."""
    at: BaseException | None = error
    for _ in range(20):
        if at is None or isinstance(at, AnswerLimitError):
            return at
        at = at.__cause__ or at.__context__
    return None


def limited_pieces(pieces: Iterable[bytes], bytes_max: int) -> Iterator[bytes]:
    """Yield the pieces of an answer until they are more than so many bytes.

    Raises:
        AnswerLimitError: they are.
    """
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > bytes_max:
            raise too_large(bytes_max)
        yield piece


# ------------------------------------------------------------ requests and urllib3


class LimitedResponse(HTTPResponse):
    """An answer of ``http.client`` whose bytes and time are limited by the policy.

    Attributes:
        bytes_max: a lower limit than that of the policy.
    """

    bytes_max: ClassVar[int | None] = None

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_LimitedReads(self.fp.detach(), sock, self.bytes_max))


class _LimitedReads(io.RawIOBase):
    """Receives an answer.

    Args:
        inner: receives from the socket.
        sock: has the limit between two bytes.
        bytes_max: a lower limit than that of the policy.
    """

    def __init__(self, inner: io.RawIOBase, sock: socket.socket, bytes_max: int | None) -> None:
        super().__init__()
        self._inner = inner
        self._sock = sock
        self._pause_s = sock.gettimeout()
        policy_max = access_policy().answer_bytes_max
        self._bytes_max = policy_max if bytes_max is None else min(bytes_max, policy_max)
        self._answer_ms = access_policy().answer_ms_max + int((self._pause_s or 0) * 1_000)
        self._until_ms = _CLOCK.monotonic_ms() + self._answer_ms
        self._size = 0

    def readable(self) -> bool:
        """Return true, as of every source."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Receive once.

        Raises:
            AnswerLimitError: the answer is too large, or takes too long.
            TimeoutError: no byte came in time.
        """
        left_s = (self._until_ms - _CLOCK.monotonic_ms()) / 1_000
        if left_s <= 0:
            raise self._too_slow()
        if self._pause_s is None or left_s < self._pause_s:
            self._sock.settimeout(left_s)
        try:
            size = self._inner.readinto(buffer)
        except TimeoutError as error:
            if _CLOCK.monotonic_ms() >= self._until_ms:
                raise self._too_slow() from error
            raise
        self._size += size or 0
        if self._size > 2 * self._bytes_max:
            raise too_large(self._bytes_max)
        return size

    def close(self) -> None:
        """Close the source as well."""
        if not self.closed:
            super().close()
            self._inner.close()

    def _too_slow(self) -> AnswerLimitError:
        return AnswerLimitError(f"it takes longer than {self._answer_ms} ms", is_size=False)


class LimitedBody:
    """The body of an answer, as ``requests`` reads it.

    Args:
        raw: of the answer.
        bytes_max: after decompression.
    """

    def __init__(self, raw: Any, bytes_max: int) -> None:
        self._raw = raw
        self._bytes_max = bytes_max

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the answer."""
        return getattr(self._raw, name)

    def stream(self, amt: int, decode_content: bool | None = None) -> Iterator[bytes]:
        """Yield pieces of the body.

        Raises:
            AnswerLimitError: it is too large.
        """
        joined, values = bytearray(), ValueCount(self._bytes_max)
        try:
            for piece in limited_pieces(self._raw.stream(amt, decode_content), self._bytes_max):
                values.add(piece)
                joined += piece
                if len(joined) >= _JOINED_BYTES:
                    yield bytes(joined)
                    joined.clear()
        except AnswerLimitError:
            self._raw.close()
            raise
        yield bytes(joined)


# ------------------------------------------------------------ httpx


@contextmanager
def answers_within(duration_s: float) -> Iterator[None]:
    """Limit the time of what the connections of this thread send and receive within."""
    token = _until_ms.set(_CLOCK.monotonic_ms() + int(duration_s * 1_000))
    try:
        yield
    finally:
        _until_ms.reset(token)


def left_s(timeout_s: float | None) -> float | None:
    """Return how long an operation of a connection may take; not above ``timeout_s``."""
    until_ms = _until_ms.get()
    if until_ms is None:
        return timeout_s
    left = max(0.001, (until_ms - _CLOCK.monotonic_ms()) / 1_000)
    return left if timeout_s is None else min(left, timeout_s)


class LimitedStream(httpcore.NetworkStream):
    """A connection whose operations end with the time of ``answers_within``.

    Args:
        inner: the connection.
    """

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Receive once."""
        return self._inner.read(max_bytes, left_s(_unless_over(timeout, httpcore.ReadTimeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send, in pieces: each send of the inner connection may take the whole time."""
        for at in range(0, len(buffer), _WRITE_BYTES):
            limit_s = left_s(_unless_over(timeout, httpcore.WriteTimeout))
            self._inner.write(buffer[at : at + _WRITE_BYTES], limit_s)

    def close(self) -> None:
        """Close the connection."""
        self._inner.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Begin TLS."""
        limit_s = left_s(_unless_over(timeout, httpcore.ConnectTimeout))
        return LimitedStream(self._inner.start_tls(ssl_context, server_hostname, limit_s))

    def get_extra_info(self, info: str) -> Any:
        """Return what the inner connection knows of itself."""
        return self._inner.get_extra_info(info)


def _unless_over(timeout_s: float | None, error: type[Exception]) -> float | None:
    until_ms = _until_ms.get()
    if until_ms is not None and _CLOCK.monotonic_ms() >= until_ms:
        raise error("the time of the answer is over")
    return timeout_s


def body_within(answer: httpx.Response, bytes_max: int) -> bytes:
    """Receive the body of an answer, plain or compressed once with gzip.

    Raises:
        AnswerLimitError: it has more bytes after decompression.
        httpx.HTTPError: it cannot be received, or is compressed in another way.
    """
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding in {"", "identity"}:
        return b"".join(limited_pieces(answer.iter_raw(), bytes_max))
    if encoding not in {"gzip", "x-gzip"}:
        raise httpx.DecodingError("the answer is compressed in a way that was not asked for")
    inflating, body = zlib.decompressobj(16 + zlib.MAX_WBITS), bytearray()
    try:
        for piece in limited_pieces(answer.iter_raw(), bytes_max):
            body += inflating.decompress(piece, bytes_max + 1 - len(body))
            if len(body) > bytes_max:
                raise too_large(bytes_max)
    except zlib.error as error:
        raise httpx.DecodingError("the answer is not compressed as it says") from error
    if not inflating.eof:
        raise httpx.DecodingError("the answer ends early")
    return bytes(body)
