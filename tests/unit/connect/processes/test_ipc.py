"""Messages with bytes between a node's processes."""

from __future__ import annotations

import socket
import threading

import pytest

from connect.processes.ipc import Channel


def test_bytes_follow_their_message() -> None:
    """Any bytes, also line ends, and more than the system's buffers hold."""
    ours, theirs = (Channel(end) for end in socket.socketpair())
    payloads = [b"\n{}\n", bytes(range(256)) * 20_000, b"x"]

    def send() -> None:
        for number, payload in enumerate(payloads):
            assert ours.send({"op": "commit", "number": number}, payload)
            assert ours.send({"op": "plain", "number": number})
        ours.close()

    sender = threading.Thread(target=send)
    sender.start()
    received = []
    for message in theirs.receive():
        if message["op"] == "commit":
            received.append(theirs.payload_of(message))
        else:
            assert "payload_bytes" not in message
    sender.join()
    theirs.close()
    assert received == payloads


def test_bytes_that_end_early_are_an_error() -> None:
    """The other side ended meanwhile."""
    ours, end = socket.socketpair()
    theirs = Channel(end)
    ours.sendall(b'{"op":"commit","payload_bytes":10}\n123')
    ours.close()
    message = theirs.first()
    with pytest.raises(EOFError, match="10 bytes expected, 3 received"):
        theirs.payload_of(message)
    theirs.close()
