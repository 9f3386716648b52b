"""The client of the command line: what it does while a cluster has no leader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from connect.cli.rest_client import ELECTION_MS, NodeClient, RefusedError, Server
from connect.clock import SystemClock
from connect.node.herder.cluster.cluster import NO_LEADER


class SkippingClock(SystemClock):
    """A clock on which a pause ends at once.

    Attributes:
        skipped_ms: sum of the pauses.
    """

    skipped_ms = 0

    def monotonic_ms(self) -> int:
        """Milliseconds, with the pauses."""
        return self.skipped_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Do not wait."""
        self.skipped_ms += duration_ms


@contextmanager
def node(*answers: tuple[int, str]) -> Iterator[str]:
    """A server with these answers in turn, the last one for all later requests; its address."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, message = left.pop(0) if len(left) > 1 else left[0]
            body = json.dumps({"message": message}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


def test_a_request_during_an_election_is_sent_again() -> None:
    """Until a leader answers it."""
    clock = SkippingClock()
    with node((409, NO_LEADER), (409, NO_LEADER), (200, "done")) as url:
        client = NodeClient(Server(url), clock)
        assert client.ask("PUT", "connectors", "c", "pause") == {"message": "done"}
        client.close()
    assert 0 < clock.skipped_ms < ELECTION_MS


def test_a_cluster_without_a_leader_is_named_in_the_end() -> None:
    """The error is the node's."""
    clock = SkippingClock()
    with node((409, NO_LEADER)) as url:
        client = NodeClient(Server(url), clock)
        with pytest.raises(RefusedError, match="no known leader"):
            client.ask("PUT", "connectors", "c", "pause")
        client.close()
    assert clock.skipped_ms > ELECTION_MS


def test_another_conflict_is_an_answer() -> None:
    """For example of a connector that exists: the request is sent once."""
    clock = SkippingClock()
    with node((409, "Connector c already exists")) as url:
        client = NodeClient(Server(url), clock)
        with pytest.raises(RefusedError, match="already exists"):
            client.ask("PUT", "connectors", "c", "config")
        client.close()
    assert clock.skipped_ms == 0
