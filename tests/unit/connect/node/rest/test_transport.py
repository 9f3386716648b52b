"""The server below the API: TLS, client certificates, slow and too many clients."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from connect.clock import SystemClock
from connect.config.invalid_config import InvalidConfigError
from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError
from connect.node.node_requests import NodeInfo, Offsets
from connect.node.rest import http_middleware
from connect.node.rest.app import create_app
from connect.node.rest.auth import Users
from connect.node.rest.connections import Connections, source_of
from connect.node.rest.log_levels import LogLevels
from connect.node.rest.transport import tls
from tests.support.certificates import certificate
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.rest_server import Reply, RestServer

THREADS = 40  # anyio's default limit of threads
NODE = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "config.storage.topic": "c",
    "status.storage.topic": "s",
}


def guarded(users: Users | None = None, **more: Any) -> RestServer:
    """The API as a node serves it."""
    levels = LogLevels(SystemClock())
    app = create_app(FakeHerder(levels).handlers, NodeInfo("http://n:1", "c"), levels, users=users)
    return RestServer(app, is_guarded=True, **more)


class SlowHerder(FakeHerder):
    """Its broker does not answer: requests for offsets wait."""

    def __init__(self, levels: LogLevels, waiting: int) -> None:
        super().__init__(levels)
        self.answers = threading.Event()
        self.all_wait = threading.Barrier(waiting + 1, timeout=60)

    def offsets(self, name: str) -> Offsets:
        """Waits until released."""
        self.all_wait.wait()
        self.answers.wait(60)
        return super().offsets(name)


@contextmanager
def slow_requests(
    count: int, bounds: Connections | None = None
) -> Iterator[tuple[RestServer, list[Future[Reply]]]]:
    """A server that has taken requests whose answers do not come before the block's end."""
    levels = LogLevels(SystemClock())
    herder = SlowHerder(levels, count)
    herder.create("one", {"connector.class": "IcebergSink", "topics": "t"})
    app = create_app(herder.handlers, NodeInfo("http://n:1", "c"), levels)
    with (
        RestServer(app, is_guarded=True, connections=bounds) as server,
        ThreadPoolExecutor(count) as pool,
    ):
        ask = partial(server.send, "GET", "/connectors/one/offsets")
        waiting = [pool.submit(ask) for _ in range(count)]
        herder.all_wait.wait()
        try:
            yield server, waiting
        finally:
            herder.answers.set()


def test_slow_requests_do_not_delay_states() -> None:
    """While every thread waits for a broker, lists, states and health are answered."""
    with slow_requests(THREADS) as (server, waiting):
        for path in ("", "/one", "/one/status", "/one/config", "/one/tasks"):
            assert server.send("GET", f"/connectors{path}").status == 200
        assert server.send("GET", "/health").status == 200
        assert not any(future.done() for future in waiting)
    assert {future.result().status for future in waiting} == {200}


def test_concurrent_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more gets 503; it is served when another one has ended."""
    monkeypatch.setattr(http_middleware, "REQUESTS_MAX", 3)
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


def test_a_client_certificate_identifies_a_user(tmp_path: Path) -> None:
    """TLS checks it; without a certificate the caller is refused."""
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

    with guarded(Users(file, SystemClock()), context=tls(config)) as server:
        assert status(server.port, "ci.example") == 200
        assert status(server.port, "stranger") == 401
        assert status(server.port, None) == 401
        with httpx.Client(verify=trusting) as client:
            assert client.get(f"https://localhost:{server.port}/health").status_code == 200


def test_a_slow_head_and_a_slow_body_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other clients are served meanwhile."""
    monkeypatch.setattr(http_middleware, "BODY_S", 0.6)
    with guarded(head_s=0.6) as server:
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


def test_an_idle_connection_can_be_used_again() -> None:
    """Only a started head has a time limit."""
    with (
        guarded(head_s=0.6) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client,
    ):
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


def test_a_body_after_its_answer_is_cut_off() -> None:
    """A request that is refused unread does not keep its connection."""
    head = b"PUT /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    with guarded(head_s=0.6) as server, held(server, 1, "127.0.0.1") as (endless,):
        endless.sendall(head)
        assert endless.recv(4096).startswith(b"HTTP/1.1 404 ")
        with pytest.raises(ConnectionError):  # noqa: PT012 - whichever write meets the end
            for _ in range(2_000):
                endless.sendall(b"x")
                time.sleep(0.05)


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    """Its answer does not hold a connection forever."""

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        has_begun.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not ended.is_set():
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})

    has_begun, ended = threading.Event(), threading.Event()
    with RestServer(large, is_guarded=True, answer_s=0.6) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as idle:
            idle.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert has_begun.wait(60)
            wait_for(lambda: len(server.connections) == 0)
        ended.set()


def test_requests_of_closed_connections_are_not_served() -> None:
    """They made room for newer connections."""
    is_blocked, may_go = threading.Event(), threading.Event()
    served: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        if scope["path"] == "/block":  # no connection is accepted meanwhile
            is_blocked.set()
            may_go.wait(60)
        served.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    get = "GET /{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with (
        RestServer(app, is_guarded=True, connections=Connections(of_source=3)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as blocking,
    ):
        blocking.sendall(get.format("block").encode())
        assert is_blocked.wait(60)
        with held(server, 8, "127.0.0.2") as crowd:
            for number, one in enumerate(crowd):
                one.sendall(get.format(number).encode())
            may_go.set()
            wait_for(lambda: len(served) >= 4 and len(server.connections) == 0)
    assert sorted(served) == ["/5", "/6", "/7", "/block"]


@contextmanager
def held(server: RestServer, count: int, source: str) -> Iterator[list[socket.socket]]:
    """Connections from an address that send nothing."""
    with ExitStack() as stack:
        to = ("127.0.0.1", server.port)
        yield [
            stack.enter_context(socket.create_connection(to, 60, (source, 0))) for _ in range(count)
        ]


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait for it."""
    deadline_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.parametrize("is_secure", [False, True])
def test_connections_per_address_are_bounded(tmp_path: Path, is_secure: bool) -> None:
    """Above the limit the oldest idle one is closed, TLS handshakes included."""
    context = None
    if is_secure:
        certificate(tmp_path, "localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "localhost.pem")
    with (
        guarded(context=context, connections=Connections(of_source=5)) as server,
        held(server, 8, "127.0.0.2") as silent,
    ):
        assert all(is_closed(one) for one in silent[:3])
        wait_for(lambda: len(server.connections) == 5)
        with held(server, 1, "127.0.0.3"):
            wait_for(lambda: len(server.connections) == 6)
    wait_for(lambda: len(server.connections) == 0)


def test_requests_being_served_keep_their_connection() -> None:
    """If no connection of an address is idle, the new one is closed."""
    with slow_requests(3, Connections(of_source=3)) as (server, waiting):
        with held(server, 1, "127.0.0.1") as extra:
            assert is_closed(extra[0])
        with held(server, 1, "127.0.0.2"):
            wait_for(lambda: len(server.connections) == 4)
    assert {future.result().status for future in waiting} == {200}


def test_all_connections_are_bounded() -> None:
    """The address with the most loses one; if all are busy, the new one is closed."""
    with (
        guarded(connections=Connections(6)) as server,
        held(server, 2, "127.0.0.3"),
        held(server, 9, "127.0.0.2") as most,
    ):
        assert all(is_closed(one) for one in most[:5])
        assert server.send("GET", "/health").status == 200
    with slow_requests(3, Connections(3)) as (server, _), held(server, 1, "127.0.0.2") as extra:
        assert is_closed(extra[0])


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_network_counts_as_one_address(host: str, source: str) -> None:
    """A client can choose addresses in its network."""
    assert source_of(host) == source


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"listeners": "http://0.0.0.0:1"}, "icefloe.rest.users.file"),
        ({"listeners": "http://10.0.0.1:1", "icefloe.rest.users.file": "u"}, "without encryption"),
        ({"listeners": "https://127.0.0.1:1"}, "listeners.https.ssl.keystore.location"),
        (
            {"icefloe.rest.node.certificates": "node"},
            "listeners.https.ssl.client.auth is requested",
        ),
        ({"listeners": "ftp://127.0.0.1:1"}, r"is not http\(s\)://host:port"),
    ],
)
def test_unprotected_listeners_are_refused(more: dict[str, str], message: str) -> None:
    """Listeners without authentication or TLS that other machines can reach."""
    with pytest.raises(InvalidConfigError, match=message):
        NodeConfig.from_properties({**NODE, **more})


def test_unusable_keystores_are_named(tmp_path: Path) -> None:
    """A missing file, or no PEM."""
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
