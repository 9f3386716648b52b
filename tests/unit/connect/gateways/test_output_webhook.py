"""A webhook for rows, against a real HTTP server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from connect.errors import ConfigError, RetriableError
from connect.gateways.output_webhook import OutputWebhook, webhook_host
from connect.gateways.reach import Reach, install
from tests.support.webhook_server import WebhookServer

KEY = "icefloe.output.hook.webhook.url"


@pytest.fixture(autouse=True)
def restored_reach() -> Iterator[None]:
    """The policy of the process is its own again after each test."""
    yield
    install(Reach())


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    """A server."""
    made = WebhookServer()
    yield made
    made.close()


def webhook(url: str, timeout_s: float = 5) -> OutputWebhook:
    """A webhook with a token."""
    return OutputWebhook(url, "Bearer hook-authorization", key=KEY, timeout_s=timeout_s)


def test_rows_are_accepted(server: WebhookServer) -> None:
    """With the authorization and the idempotency key; a connection is used again."""
    hook = webhook(server.url)
    for number in range(2):
        hook.post(b'{"n": %d}' % number, f"key-{number}")
    hook.close()
    assert server.messages == [{"n": 0}, {"n": 1}]
    assert server.authorizations == ["Bearer hook-authorization"] * 2
    assert [headers["idempotency-key"] for headers in server.headers] == ["key-0", "key-1"]
    assert server.headers[0]["content-type"] == "application/json"


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
    server: WebhookServer, status: int, kind: type[ConfigError], code: str
) -> None:
    """A redirect is not followed; no error contains the address or the token."""
    server.status = status
    hook = webhook(server.url)
    with pytest.raises(kind) as e:
        hook.post(b"{}", "k")
    hook.close()
    assert e.value.code == code
    assert f"HTTP {status}" in e.value.message
    assert KEY in e.value.message
    assert "hook-" not in str(e.value)
    assert len(server.headers) == 1


def test_a_server_that_hangs_is_given_up(server: WebhookServer) -> None:
    """After the time of a request; the next request has another connection."""
    server.may_answer.clear()
    hook = webhook(server.url, timeout_s=0.3)
    started = time.monotonic()
    with pytest.raises(RetriableError, match="does not answer"):
        hook.post(b"{}", "k")
    assert time.monotonic() - started < 3
    server.may_answer.set()
    webhook_after = webhook(server.url)
    webhook_after.post(b"{}", "k")
    hook.post(b"{}", "k")


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


def test_a_slow_or_endless_answer_ends() -> None:
    """Each byte comes in time, and the whole answer does not; or it has no end."""
    slow = _raw_server(b"HTTP/1.1 204 No Content\r\nx: " + b"y" * 1_000, 0.05)
    hook = webhook(f"http://127.0.0.1:{slow}/", timeout_s=0.5)
    started = time.monotonic()
    with pytest.raises(RetriableError, match="does not answer"):
        hook.post(b"{}", "k")
    assert time.monotonic() - started < 3
    endless = _raw_server(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n" * 200, 0)
    hook = webhook(f"http://127.0.0.1:{endless}/")
    hook.post(b"{}", "k")
    hook.close()


def test_a_server_that_is_gone_is_unavailable() -> None:
    """Its name and its port are not in the error."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(RetriableError) as e:
        webhook(f"http://127.0.0.1:{port}/secret-path").post(b"{}", "k")
    assert str(port) not in e.value.message
    assert "secret-path" not in e.value.message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]"])
def test_internal_addresses_are_refused(server: WebhookServer, host: str) -> None:
    """Where tenants write connectors; no byte is sent."""
    install(Reach(is_guarded=True))
    port = server.url.rpartition(":")[2]
    hook = webhook(f"http://{host}:{port}")
    with pytest.raises(ConfigError) as e:
        hook.post(b"{}", "k")
    assert e.value.code == "host_refused"
    assert not server.headers


class NamesUnchecked(Reach):
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


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://a/b",
        "http://",
        "http://user:pass@host/",
        "http://good\\@evil/",
        "http://a b/",
        "http://a:x/",
        "//host/",
    ],
)
def test_other_addresses_are_invalid(url: str) -> None:
    """No scheme, no host, a login, or a spelling that clients read differently."""
    assert webhook_host(url) is None
    with pytest.raises(ConfigError, match=KEY):
        webhook(url)
