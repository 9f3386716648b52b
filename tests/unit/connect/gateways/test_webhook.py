"""A webhook, of the operator or for rows of a tenant, against a real HTTP server."""

from __future__ import annotations

import base64
import io
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from connect import logs
from connect.backoff import BackoffPolicy
from connect.clock import SystemClock
from connect.errors import ConfigError, RetriableError
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.webhook import Webhook, WebhookAddress, webhook_host
from tests.support.certificates import certificate
from tests.support.hostile_server import HostileServer, dripping, head
from tests.support.webhook_server import WebhookServer

KEY = "icefloe.output.hook.webhook.url"
RETRIES = BackoffPolicy(first_ms=200, longest_ms=5_000)
OWNERS = pytest.mark.parametrize("is_of_operator", [False, True])


@pytest.fixture(autouse=True)
def restored_reach() -> Iterator[None]:
    """The policy of the process is its own again after each test."""
    yield
    install(AccessPolicy())


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    """A server."""
    made = WebhookServer()
    yield made
    made.close()


class SteppedClock(SystemClock):
    """A monotonic clock that only waits move.

    Attributes:
        durations: of the waits.
    """

    def __init__(self) -> None:
        self.now = 7_000
        self.durations: list[int] = []

    def monotonic_ms(self) -> int:
        """The time of the waits."""
        return self.now

    def wait(self, duration_ms: int) -> bool:
        """Move the clock; another attempt may follow."""
        self.durations.append(duration_ms)
        self.now += duration_ms
        return True


def webhook(
    url: str,
    timeout_s: float = 5,
    *,
    is_of_operator: bool = False,
    authorization: str | None = "Bearer hook-authorization",
    clock: SystemClock | None = None,
) -> Webhook:
    """A webhook with a token."""
    address = WebhookAddress(url, authorization, KEY, is_of_operator)
    return Webhook(address, clock or SystemClock(), RETRIES, timeout_s=timeout_s)


@OWNERS
def test_messages_are_accepted(server: WebhookServer, is_of_operator: bool) -> None:
    """With the authorization, and the idempotency key if there is one."""
    hook = webhook(server.url, is_of_operator=is_of_operator)
    hook.post(b'{"n": 0}', "key-0")
    hook.post(b'{"n": 1}')
    hook.close()
    assert server.messages == [{"n": 0}, {"n": 1}]
    assert server.authorizations == ["Bearer hook-authorization"] * 2
    assert [headers.get("idempotency-key") for headers in server.headers] == ["key-0", None]
    assert server.headers[0]["content-type"] == "application/json"


@OWNERS
@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (500, RetriableError, "webhook_unavailable"),
        (429, RetriableError, "webhook_unavailable"),
        (400, ConfigError, "webhook_refused"),
        (401, ConfigError, "webhook_refused"),
        (307, ConfigError, "webhook_refused"),
    ],
)
def test_other_answers_are_errors(
    server: WebhookServer,
    status: int,
    kind: type[ConfigError],
    code: str,
    is_of_operator: bool,
) -> None:
    """A redirect is not followed; no error contains the address or the token."""
    server.status = status
    hook = webhook(server.url, is_of_operator=is_of_operator)
    with pytest.raises(kind) as e:
        hook.post(b"{}", "k")
    hook.close()
    assert e.value.code == code
    assert f"HTTP {status}" in e.value.message
    assert KEY in e.value.message
    assert "hook-" not in str(e.value)
    assert len(server.headers) == 1


@OWNERS
def test_a_server_that_hangs_is_given_up(server: WebhookServer, is_of_operator: bool) -> None:
    """After the time of a request; the next request has another connection."""
    server.may_answer.clear()
    hook = webhook(server.url, timeout_s=0.3, is_of_operator=is_of_operator)
    started = time.monotonic()
    with pytest.raises(RetriableError, match="does not answer"):
        hook.post(b"{}", "k")
    assert time.monotonic() - started < 3
    server.may_answer.set()
    webhook_after = webhook(server.url)
    webhook_after.post(b"{}", "k")
    hook.post(b"{}", "k")
    for each in (hook, webhook_after):
        each.close()


def _raw_server(answer: bytes, pause_s: float) -> int:
    """Start a server that sends an answer byte by byte, or again and again; return its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, listening:
            connection.recv(65_536)
            try:
                for place in range(10_000):
                    piece = answer[place : place + 1] if pause_s else answer
                    connection.sendall(piece or b"x")
                    time.sleep(pause_s)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    return int(listening.getsockname()[1])


@OWNERS
def test_a_slow_or_endless_answer_ends(is_of_operator: bool) -> None:
    """Each byte comes in time, and the whole answer does not; or it has no end."""
    slow = _raw_server(b"HTTP/1.1 204 No Content\r\nx: " + b"y" * 1_000, 0.05)
    hook = webhook(f"http://127.0.0.1:{slow}/", timeout_s=0.5, is_of_operator=is_of_operator)
    started = time.monotonic()
    with pytest.raises(RetriableError, match="does not answer"):
        hook.post(b"{}", "k")
    assert time.monotonic() - started < 3
    endless = _raw_server(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n" * 200, 0)
    hook = webhook(f"http://127.0.0.1:{endless}/", is_of_operator=is_of_operator)
    hook.post(b"{}", "k")
    hook.close()


SLOW_TLS: dict[str, Callable[[Path], HostileServer]] = {
    "handshake": lambda _: HostileServer(lambda _: []),  # it never answers the client's first bytes
    "head": lambda pem: HostileServer(lambda _: dripping(b"HTTP/1.1 204 No Content\r\nx: "), pem),
    "body": lambda pem: HostileServer(lambda _: dripping(head("content-length: 60000")), pem),
    "silence": lambda pem: HostileServer(lambda _: silent(), pem),
}


def silent() -> Iterator[bytes]:
    """The part of an answer, and nothing for a minute."""
    yield b"HTTP/1.1 "
    time.sleep(60)


class NotedSocket(ssl.SSLSocket):
    """A connection of a client that notes which thread closes it."""

    closed_by: ClassVar[list[str]] = []

    def close(self) -> None:
        """Close it."""
        if not self.server_side:
            self.closed_by.append(threading.current_thread().name)
        super().close()


@pytest.fixture
def closed_by() -> Iterator[list[str]]:
    """Names of the threads that close connections with TLS."""
    ssl.SSLContext.sslsocket_class = NotedSocket
    NotedSocket.closed_by.clear()
    yield NotedSocket.closed_by
    ssl.SSLContext.sslsocket_class = ssl.SSLSocket


@pytest.mark.parametrize(
    ("part", "is_of_operator"),
    [("handshake", False), *((part, True) for part in SLOW_TLS)],  # only its trust can be set
)
def test_only_the_thread_of_a_request_closes_its_connection(
    part: str,
    is_of_operator: bool,
    closed_by: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With TLS, a thread must not close a socket that another one is inside of."""
    certificate(tmp_path, "server")
    pem = tmp_path / "server.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    slow = SLOW_TLS[part](pem)
    url = f"https://localhost:{slow.port}/"
    hook = webhook(url, timeout_s=1.5, is_of_operator=is_of_operator)
    with pytest.raises(RetriableError, match="does not answer"):
        hook.post(b"{}", "k")
    hook.close()
    slow.close()
    assert bool(slow.requests) == (part != "handshake")
    assert set(closed_by) <= {"webhook"}
    for thread in threading.enumerate():
        if thread.name == "webhook":
            thread.join(60)
            assert not thread.is_alive()
    if part == "body":
        assert closed_by


@OWNERS
def test_a_server_that_is_gone_is_unavailable(is_of_operator: bool) -> None:
    """Its name and its port are not in the error."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(RetriableError) as e:
        webhook(f"http://127.0.0.1:{port}/secret-path", is_of_operator=is_of_operator).post(
            b"{}", "k"
        )
    assert str(port) not in e.value.message
    assert "secret-path" not in e.value.message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]"])
def test_internal_addresses_are_refused(server: WebhookServer, host: str) -> None:
    """Where tenants write connectors; no byte is sent."""
    install(AccessPolicy(is_guarded=True))
    port = server.url.partition("/hook")[0].rpartition(":")[2]
    hook = webhook(f"http://{host}:{port}")
    with pytest.raises(ConfigError) as e:
        hook.post(b"{}", "k")
    assert e.value.code == "host_refused"
    assert not server.headers


class NamesUnchecked(AccessPolicy):
    """A policy whose check of names finds nothing."""

    def check_host(self, *_: object, **__: object) -> None:
        """The name has another address now."""


def test_the_peer_of_a_connection_is_checked(server: WebhookServer) -> None:
    """A name may resolve to another address after the check of the name."""
    install(NamesUnchecked(is_guarded=True))
    with pytest.raises(ConfigError) as e:
        webhook(server.url).post(b"{}", "k")
    assert e.value.code == "host_refused"
    assert not server.headers


def test_the_operator_may_name_an_internal_address(server: WebhookServer) -> None:
    """On a node with users, too: tenants cannot choose it."""
    install(AccessPolicy(is_guarded=True))
    hook = webhook(server.url, is_of_operator=True)
    hook.post(b"{}")
    hook.close()
    assert server.messages == [{}]


def test_a_proxy_of_the_environment_is_for_the_operator_only(
    server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of a tenant is reached directly, so that its peer can be checked."""
    monkeypatch.setenv("HTTP_PROXY", server.url.partition("/hook")[0])
    for is_of_operator in (False, True):
        hook = webhook("http://name.invalid/hook", is_of_operator=is_of_operator)
        if is_of_operator:
            hook.post(b"{}")
        else:
            with pytest.raises(RetriableError, match="does not answer"):
                hook.post(b"{}")
        hook.close()
    assert len(server.headers) == 1


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://a/b",
        "no-address",
        "http://",
        "http://[::1",
        "http://good\\@evil/",
        "http://a b/",
        "http://a:x/",
        "//host/",
    ],
)
@OWNERS
def test_other_addresses_are_invalid(url: str, is_of_operator: bool) -> None:
    """No scheme, no host, or a spelling that clients read differently."""
    assert webhook_host(url) is None
    with pytest.raises(ConfigError, match=KEY) as e:
        webhook(url, is_of_operator=is_of_operator)
    assert not url or url not in str(e.value).replace("http(s)://host", "")


def test_a_login_in_the_address_is_for_the_operator_only(server: WebhookServer) -> None:
    """Clients of tenants' addresses read logins differently."""
    url = server.url.replace("://", "://user:login-secret-80@")
    with pytest.raises(ConfigError, match="without a login") as e:
        webhook(url)
    assert "login-secret" not in str(e.value)
    hook = webhook(url, is_of_operator=True, authorization=None)
    hook.post(b"{}")
    hook.close()
    login = base64.b64encode(b"user:login-secret-80").decode()
    assert server.authorizations == [f"Basic {login}"]


def _delays(hook: Webhook, clock: SteppedClock, attempts: int) -> Iterator[int]:
    for _ in range(attempts):
        with pytest.raises(RetriableError):
            hook.post(b"{}")
        yield hook.retry_at_ms - clock.now


def test_pauses_grow_until_a_message_is_accepted(server: WebhookServer) -> None:
    """They double up to a bound, and begin again after a success."""
    clock = SteppedClock()
    hook = webhook(server.url, clock=clock)
    server.status = 503
    assert list(_delays(hook, clock, 7)) == [200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    server.status = 204
    hook.post(b"{}")
    server.status = 503
    assert list(_delays(hook, clock, 1)) == [200]
    hook.close()


def test_a_message_is_repeated_for_a_limited_time(server: WebhookServer) -> None:
    """With the same key; each message has its own time and pauses."""
    clock = SteppedClock()
    hook = webhook(server.url, clock=clock)
    server.status = 503
    for number in range(2):
        clock.durations.clear()
        with pytest.raises(RetriableError):
            hook.post_within(20_000, b"{}", f"key-{number}", clock.wait)
        assert clock.durations == [200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    assert [headers["idempotency-key"] for headers in server.headers] == ["key-0"] * 8 + [
        "key-1"
    ] * 8
    hook.close()


def _until_third_wait(clock: SteppedClock, then: Callable[[], bool]) -> Callable[[int], bool]:
    def wait(duration_ms: int) -> bool:
        clock.wait(duration_ms)
        return True if len(clock.durations) < 3 else then()

    return wait


def test_a_repetition_ends_with_the_first_other_answer(server: WebhookServer) -> None:
    """Accepted, refused, or no further attempt is allowed."""
    clock = SteppedClock()
    hook = webhook(server.url, clock=clock)

    def answers(status: int) -> Callable[[], bool]:
        def change() -> bool:
            server.status = status
            return True

        return change

    server.status = 503
    hook.post_within(60_000, b'{"n": 1}', "k", _until_third_wait(clock, answers(204)))
    assert (server.messages, clock.durations) == ([{"n": 1}], [200, 400, 800])
    for then, kind in ((answers(400), ConfigError), (lambda: False, RetriableError)):
        server.status = 503
        clock.durations.clear()
        with pytest.raises(kind):
            hook.post_within(60_000, b"{}", "k", _until_third_wait(clock, then))
        assert clock.durations == [200, 400, 800]
    hook.close()


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    """All lines that the process would write, of clients too."""
    root, chatty = logging.getLogger(), [logging.getLogger(n) for n in ("httpx", "httpcore")]
    before = root.handlers[:], root.level, [each.level for each in chatty]
    stream = io.StringIO()
    logs.configure("node", stream=stream, level="DEBUG")
    for each in chatty:
        each.setLevel(logging.DEBUG)
    yield stream
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    for each, level in zip(chatty, before[2], strict=True):
        each.setLevel(level)
    logs.configure("tests")


@OWNERS
def test_no_line_of_the_log_has_a_secret(
    server: WebhookServer, is_of_operator: bool, log_lines: io.StringIO
) -> None:
    """Also where a client spells the address in another way than the configuration does."""
    login = "user:p%40ss-secret-81@" if is_of_operator else ""
    url = server.url.replace("http://127.0.0.1", f"HTTP://{login}LOCALHOST")
    hook = webhook(url, is_of_operator=is_of_operator, authorization="Bearer hook-secret-82")
    hook.post(b"{}")
    server.status = 400
    with pytest.raises(ConfigError) as e:
        hook.post(b"{}")
    logs.logger("tests").info("refused", error=str(e.value), sent=list(server.headers))
    hook.close()
    lines = log_lines.getvalue()
    assert "HTTP Request: POST" in lines
    assert "ss-secret-81" not in lines
    assert "hook-secret" not in lines
    assert base64.b64encode(b"user:p@ss-secret-81").decode() not in lines
