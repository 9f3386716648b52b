"""The server below the API: TLS, client certificates, slow and too many clients."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from connect.clock import SystemClock
from connect.config.node import NodeConfig
from connect.config.parse import InvalidConfigError
from connect.errors import ConfigError
from connect.rest import gate, transport
from connect.rest.app import create_app
from connect.rest.auth import Users
from connect.rest.herder_api import NodeInfo, Offsets
from connect.rest.loggers import LogLevels
from connect.rest.transport import GuardedProtocol, tls
from tests.certificates import certificate
from tests.fakes.herder import FakeHerder
from tests.fakes.rest_server import Reply, RestServer

THREADS = 40  # that anyio gives to whatever may block
NODE = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "config.storage.topic": "c",
    "status.storage.topic": "s",
}


def guarded(context: ssl.SSLContext | None = None, users: Users | None = None) -> RestServer:
    """The API as a node serves it."""
    levels = LogLevels(SystemClock())
    app = create_app(FakeHerder(levels), NodeInfo("http://n:1", "c"), levels, users=users)
    factory = None if context is None else lambda *_: context
    return RestServer(app, http=GuardedProtocol, ssl_context_factory=factory)


class SlowHerder(FakeHerder):
    """Its broker does not answer: whoever asks for offsets waits."""

    def __init__(self, levels: LogLevels, waiting: int) -> None:
        super().__init__(levels)
        self.answers = threading.Event()
        self.all_wait = threading.Barrier(waiting + 1, timeout=60)

    def offsets(self, name: str) -> Offsets:
        """Waits until told."""
        self.all_wait.wait()
        self.answers.wait(60)
        return super().offsets(name)


@contextmanager
def slow_requests(count: int) -> Iterator[tuple[RestServer, list[Future[Reply]]]]:
    """A server that has taken requests whose answers do not come before the block's end."""
    levels = LogLevels(SystemClock())
    herder = SlowHerder(levels, count)
    herder.create_connector("one", {"connector.class": "IcebergSink", "topics": "t"})
    app = create_app(herder, NodeInfo("http://n:1", "c"), levels)
    with RestServer(app, http=GuardedProtocol) as server, ThreadPoolExecutor(count) as pool:
        ask = partial(server.send, "GET", "/connectors/one/offsets")
        waiting = [pool.submit(ask) for _ in range(count)]
        herder.all_wait.wait()
        try:
            yield server, waiting
        finally:
            herder.answers.set()


def test_slow_requests_hold_up_no_state() -> None:
    """With every thread waiting for a broker, lists, states and health are answered."""
    with slow_requests(THREADS) as (server, waiting):
        for path in ("", "/one", "/one/status", "/one/config", "/one/tasks"):
            assert server.send("GET", f"/connectors{path}").status == 200
        assert server.send("GET", "/health").status == 200
        assert not any(future.done() for future in waiting)
    assert {future.result().status for future in waiting} == {200}


def test_requests_at_a_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than there may be is told to come again; when one is answered, it is served."""
    monkeypatch.setattr(gate, "REQUESTS_MAX", 3)
    with slow_requests(3) as (server, waiting):
        refused = server.send("GET", "/connectors")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert refused.json() == {"error_code": 503, "message": "More than 3 requests at a time"}
    assert {future.result().status for future in waiting} == {200}


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side ends it without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_a_client_certificate_is_a_user(tmp_path: Path) -> None:
    """TLS checks it, its common name says who it is; without one nobody gets in."""
    authority = certificate(tmp_path, "authority")
    for name in ("localhost", "ci.example", "stranger"):
        certificate(tmp_path, name, authority)
    file = tmp_path / "users.yaml"
    file.write_text("users: [{name: ci, certificate: ci.example, grants: [{role: read}]}]")
    config = NodeConfig.from_properties(
        {
            **NODE,
            "listeners": "https://0.0.0.0:8443",
            "icefloe.rest.users.file": str(file),
            "listeners.https.ssl.keystore.location": str(tmp_path / "localhost.pem"),
            "listeners.https.ssl.truststore.location": str(tmp_path / "authority.pem"),
            "listeners.https.ssl.client.auth": "requested",
        }
    )
    trusting = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))

    def status(port: int, name: str | None) -> int:
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        if name is not None:
            context.load_cert_chain(tmp_path / f"{name}.pem")
        with httpx.Client(verify=context) as client:
            return client.get(f"https://localhost:{port}/connectors").status_code

    with guarded(tls(config), Users(file, SystemClock())) as server:
        assert status(server.port, "ci.example") == 200
        assert status(server.port, "stranger") == 401
        assert status(server.port, None) == 401
        with httpx.Client(verify=trusting) as client:
            assert client.get(f"https://localhost:{server.port}/health").status_code == 200


def test_a_slow_head_and_a_slow_body_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow clients cannot hold connections; others are served meanwhile."""
    monkeypatch.setattr(transport, "HEAD_S", 0.6)
    monkeypatch.setattr(gate, "BODY_S", 0.6)
    with guarded() as server:
        for begin in (b"", b"GET /health HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
                slow.sendall(begin)
                assert server.send("GET", "/health").status == 200
                assert slow.recv(1024) == b""
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
            slow.sendall(
                b"PUT /connectors/a/config HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Length: 9\r\n\r\n{"
            )
            assert slow.recv(1024).startswith(b"HTTP/1.1 408 ")


def test_a_connection_is_used_again_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a head that has begun is in a hurry; a kept connection may rest."""
    monkeypatch.setattr(transport, "HEAD_S", 0.6)
    with guarded() as server, httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        for _ in range(2):
            assert client.get("/health").status_code == 200
            time.sleep(0.9)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
            slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):  # head and body come on their own
                answer += slow.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200 ")
            slow.sendall(b"GET /hea")
            assert slow.recv(1024) == b""


def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound they are closed."""
    with guarded() as server:
        monkeypatch.setattr(transport, "CONNECTIONS_MAX", 0)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as extra:
            assert is_closed(extra)
        monkeypatch.setattr(transport, "CONNECTIONS_MAX", 10)
        assert server.send("GET", "/health").status == 200


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"listeners": "http://0.0.0.0:1"}, "icefloe.rest.users.file"),
        ({"listeners": "http://10.0.0.1:1", "icefloe.rest.users.file": "u"}, "in the clear"),
        ({"listeners": "https://127.0.0.1:1"}, "listeners.https.ssl.keystore.location"),
        ({"icefloe.rest.node.certificates": "node"}, "listeners.https.ssl.client.auth requested"),
        ({"listeners": "ftp://127.0.0.1:1"}, r"is not http\(s\)://host:port"),
    ],
)
def test_open_doors_are_refused(more: dict[str, str], words: str) -> None:
    """A node does not listen where strangers could act or overhear."""
    with pytest.raises(InvalidConfigError, match=words):
        NodeConfig.from_properties({**NODE, **more})


def test_keys_that_cannot_be_used(tmp_path: Path) -> None:
    """A keystore that is missing or no PEM is named with its key."""
    (tmp_path / "bad.pem").write_text("nothing")
    for file in ("bad.pem", "missing.pem"):
        config = NodeConfig.from_properties(
            {
                **NODE,
                "listeners": "https://127.0.0.1:1",
                "listeners.https.ssl.keystore.location": str(tmp_path / file),
            }
        )
        with pytest.raises(ConfigError, match=r"listeners\.https\.ssl\.keystore\.location="):
            tls(config)
