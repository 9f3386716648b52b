"""A Kafka service that lacks functions: a proxy of a real broker that hides requests.

Clients see only the proxy: addresses in the broker's answers are replaced by its own. Hidden
requests are missing in the answer to ApiVersions, as they are at a service without them.

Source:
    Kafka protocol guide: ApiVersions (18) in versions 0 to 4, CreateTopics (19).
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Collection
from typing import Final, Self

API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
TRANSACTION_REQUESTS: Final = frozenset({22, 24, 25, 26, 28})
_FLEXIBLE: Final = 3  # from this version on, ApiVersions has compact arrays and tagged fields
_COMPACT: Final = (b"compact", b"\x00\x07compact")


class LimitedKafka:
    """Passes requests on to a broker, until it is closed.

    Args:
        broker: ``host:port`` of the broker.
        hidden: API keys that the broker seems not to have.
        policy: what the service makes of ``cleanup.policy=compact`` when it creates a topic; the
            empty text keeps it.

    Attributes:
        address: ``host:port`` of the proxy.
    """

    def __init__(
        self, broker: str, *, hidden: Collection[int] = frozenset(), policy: str = ""
    ) -> None:
        host, _, port = broker.partition(":")
        self._broker = (host, int(port))
        self._hidden = frozenset(hidden)
        self._policy = policy.encode()
        self._socket = socket.create_server(("127.0.0.1", 0))
        own_port = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{own_port}"
        name = host.encode()
        self._addresses = (name + struct.pack(">i", int(port)), name + struct.pack(">i", own_port))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._socket, *self._open):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
            finally:
                each.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
                broker = socket.create_connection(self._broker)
            except OSError:
                return
            self._open += [client, broker]
            asked: dict[int, int] = {}
            for source, target, change in (
                (client, broker, lambda frame, asked=asked: self._request(frame, asked)),
                (broker, client, lambda frame, asked=asked: self._answer(frame, asked)),
            ):
                threading.Thread(target=_pump, args=(source, target, change), daemon=True).start()

    def _request(self, frame: bytes, asked: dict[int, int]) -> bytes:
        api, version, correlation = struct.unpack(">hhi", frame[:8])
        if api == API_VERSIONS:
            asked[correlation] = version
        if api == CREATE_TOPICS and self._policy:
            text, whole = _COMPACT
            assert whole in frame or text not in frame, "a version with compact strings"
            return frame.replace(whole, struct.pack(">h", len(self._policy)) + self._policy)
        return frame

    def _answer(self, frame: bytes, asked: dict[int, int]) -> bytes:
        version = asked.pop(struct.unpack(">i", frame[:4])[0], None)
        if version is None:
            return frame.replace(*self._addresses)
        return _without(frame, self._hidden, version)


def _without(frame: bytes, hidden: Collection[int], version: int) -> bytes:
    """Return an answer to ApiVersions without the hidden API keys."""
    (error,) = struct.unpack(">h", frame[4:6])
    if error:
        return frame
    is_flexible = version >= _FLEXIBLE
    if is_flexible:
        count, at = frame[6] - 1, 7
        if frame[6] & 0x80:  # a number of two bytes
            count, at = (frame[6] & 0x7F) + (frame[7] << 7) - 1, 8
    else:
        count, at = struct.unpack(">i", frame[6:10])[0], 10
    size = 7 if is_flexible else 6  # the key, its versions, and an empty set of tagged fields
    entries = [frame[at + n * size : at + (n + 1) * size] for n in range(count)]
    kept = [entry for entry in entries if struct.unpack(">h", entry[:2])[0] not in hidden]
    assert len(kept) == len(entries) - len(hidden), "the broker lacks the requests itself"
    head = bytes([len(kept) + 1]) if is_flexible else struct.pack(">i", len(kept))
    assert len(kept) < 0x7F
    return frame[:6] + head + b"".join(kept) + frame[at + count * size :]


def _pump(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
    try:
        while len(head := source.recv(4, socket.MSG_WAITALL)) == 4:
            length = struct.unpack(">i", head)[0]
            frame = change(source.recv(length, socket.MSG_WAITALL))
            target.sendall(struct.pack(">i", len(frame)) + frame)
    except OSError:
        return
    finally:
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
