"""A TCP server that speaks as much Kafka as makes a client send its login, and keeps all bytes.

Source:
    Kafka protocol guide: request header v1, ApiVersions (18), SaslHandshake (17),
    SaslAuthenticate (36).
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Self

_UNSUPPORTED_VERSION = 35
_APIS = ((17, 0, 1), (18, 0, 2), (36, 0, 0))


class KafkaListener:
    """Answers versions and handshakes, and lets every login fail.

    Attributes:
        address: ``host:port``.
        received: every byte from every connection.
        connections: how many there were.
    """

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.received = bytearray()
        self.connections = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(10)
            try:
                while len(head := connection.recv(4, socket.MSG_WAITALL)) == 4:
                    body = connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
                    self.received += head + body
                    answer = _answer(body)
                    connection.sendall(struct.pack(">i", len(answer)) + answer)
            except OSError:
                return


def _answer(request: bytes) -> bytes:
    api, version, correlation = struct.unpack(">hhi", request[:8])
    out = struct.pack(">i", correlation)
    if api == 18:
        error = _UNSUPPORTED_VERSION if version > 2 else 0
        listed = b"".join(struct.pack(">hhh", *each) for each in _APIS)
        throttle = struct.pack(">i", 0) if 1 <= version <= 2 else b""
        return out + struct.pack(">hi", error, len(_APIS)) + listed + throttle
    if api == 17:
        return out + struct.pack(">hih", 0, 1, 5) + b"PLAIN"
    return out + struct.pack(">hh", 58, 2) + b"no" + struct.pack(">i", 0)  # login failed
