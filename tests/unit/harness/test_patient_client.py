"""The client of tests repeats what a node without a leader has refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from connect.node.herder.cluster.cluster import NO_LEADER
from tests.support.patient_client import patient_client


@pytest.fixture
def answers() -> Iterator[tuple[str, list[tuple[int, str]], list[str]]]:
    """A server: its URL, the answers that it gives in turn, and the bodies that it has received."""
    prepared: list[tuple[int, str]] = []
    received: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            received.append(self.rfile.read(int(self.headers["content-length"])).decode())
            status, text = prepared.pop(0)
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_args: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", prepared, received
        server.shutdown()
        thread.join()


def test_a_request_is_repeated_until_there_is_a_leader(
    answers: tuple[str, list[tuple[int, str]], list[str]],
) -> None:
    """Whole, with its body; another conflict is an answer."""
    url, prepared, received = answers
    prepared += [(409, NO_LEADER), (409, NO_LEADER), (200, "done"), (409, "it exists already")]
    with patient_client(url) as client:
        assert client.put("/a", content=b"one").text == "done"
        refused = client.put("/a", content=b"two")
    assert (refused.status_code, refused.text) == (409, "it exists already")
    assert received == ["one", "one", "one", "two"]
