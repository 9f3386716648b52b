"""Secrets that change while a connector runs: tokens of a short life, and all certificates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.support.loopback_proxy import HOP_BY_HOP, LoopbackProxy, send
from tests.support.running_stack import RunningStack, numbered, pick
from tests.support.secure_broker import (
    AUDIENCE,
    CLIENT_SECRET,
    STORE_PASSWORD,
    USER,
    OAuthServer,
)
from tests.support.secure_stack import SecureStack, flowing_records

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
TOKEN_LIFE_S = 10
CHANGE_S = 2.5 * TOKEN_LIFE_S  # the token of the beginning, and its successor, have ended
TABLE = "secure.orders"


class TokenRequests(LoopbackProxy):
    """Stands before the OAuth2 server.

    Attributes:
        count: requests for tokens so far.
    """

    count = 0

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.count += 1
        answer = self._forward(request, body, "host")  # the issuer of a token is the server's name
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
        send(request, answer.status_code, headers, answer.content)


class TokenStack(SecureStack):
    """Every client logs in with tokens that end after ``TOKEN_LIFE_S``."""

    def __init__(self, folder: Path, oauth: OAuthServer) -> None:
        # the broker ends connections whose token has ended
        own = "listener.name.oauth.oauthbearer.connections.max.reauth.ms"
        super().__init__(folder, oauth, {own: str(1000 * TOKEN_LIFE_S)})
        self.tokens = TokenRequests(oauth.issuer.removesuffix("/default"))

    def logins(self) -> dict[str, str]:
        """One login for all roles."""
        return {
            **self.secure.client("OAUTH", sasl_mechanism="OAUTHBEARER"),
            "sasl.oauthbearer.token.endpoint.url": f"{self.tokens.uri}/default/token",
            "sasl.jaas.config": f'{OAUTH} required clientId="{USER}" '
            f'clientSecret="{CLIENT_SECRET}" scope="{AUDIENCE}";',
        }


class CertificateStack(SecureStack):
    """Every client logs in with a certificate: PKCS12 for consumers, PEM for the others."""

    def prepare(self) -> None:
        """Create the stores."""
        self.keys.stores()

    def replace_all(self) -> None:
        """Replace the authority, and what it signed, while the broker is stopped."""
        self.secure.stop()
        self.keys.replace_authority()
        self.keys.client(USER)
        self.keys.stores()
        self.secure.start()

    def logins(self) -> dict[str, str]:
        """Stores of two types."""
        folder = self.keys.folder
        stores = {"keystore": folder / "client.p12", "truststore": folder / "trust.p12"}
        pkcs12 = {}
        for store, file in stores.items():
            pkcs12[f"consumer.ssl.{store}.type"] = "PKCS12"
            pkcs12[f"consumer.ssl.{store}.location"] = str(file)
            pkcs12[f"consumer.ssl.{store}.password"] = STORE_PASSWORD
        pem = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / f"{USER}.pem")}
        return {**self.secure.client("MTLS"), **pem, **pkcs12}


@contextmanager
def started(stack: SecureStack) -> Iterator[RunningStack]:
    """A running node."""
    try:
        stack.start_broker()
        stack.start_node()
        stack.wait_for_node()
        with closing(RunningStack(stack)) as running:
            yield running
    finally:
        stack.stop()


def _run(running: RunningStack, name: str) -> str:
    """Create a connector with a hundred rows; return its topic."""
    topic = running.topic("orders")
    running.table(TABLE)
    config = running.connector(
        topics=topic,
        iceberg__tables=TABLE,
        iceberg__control__commit__timeout_ms="5000",  # Spark starts after the first commit
    )
    running.create(name, config)
    running.produce(topic, *numbered(0, 100))
    running.rows(TABLE, 100, name)
    return topic


def _count(running: RunningStack) -> int:
    """Return the number of rows in the table."""
    snapshot = running.catalog.load_table(TABLE).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary["total-records"] or 0)


def _end(running: RunningStack, name: str, topic: str, count: int) -> None:
    """Every record is in the table once, more are taken, and the connector can be deleted."""
    assert pick(running.rows(TABLE, count, name), "id") == pick(numbered(0, count), "id")
    running.produce(topic, *numbered(count, 100))
    rows = running.rows(TABLE, count + 100, name)
    assert pick(rows, "id") == pick(numbered(0, count + 100), "id")
    # a node that just lost its broker may have no leader yet; it then answers 409
    running.wait_until(
        lambda: running.api.delete(f"/connectors/{name}").status_code in {204, 404},
        lambda: f"{name} to be deleted",
    )
    assert running.api.get(f"/connectors/{name}").status_code == 404
    for log, text in running.logs().items():
        assert not any(secret in text for secret in (CLIENT_SECRET, STORE_PASSWORD)), log


def test_tokens_of_ten_seconds(tmp_path: Path) -> None:
    """Records flow for two lives of a token; each client gets new ones, none is restarted."""
    oauth = OAuthServer(tmp_path, lifetime_s=TOKEN_LIFE_S)
    oauth.start()
    stack = TokenStack(tmp_path, oauth)
    try:
        with started(stack) as running:
            topic = _run(running, "tokens")
            enough = stack.tokens.count + CHANGE_S // TOKEN_LIFE_S
            ends = time.monotonic() + CHANGE_S
            with flowing_records(running, topic, 100) as sent:
                while time.monotonic() < ends or stack.tokens.count <= enough:
                    time.sleep(0.5)
                    assert [task["state"] for task in running.status("tokens")["tasks"]] == [
                        "RUNNING"
                    ]
            _end(running, "tokens", topic, sent[-1])
    finally:
        stack.tokens.close()
        oauth.stop()


def test_a_new_authority_and_new_keys(tmp_path: Path) -> None:
    """All certificates are replaced at once; node, task and coordinator use the new ones."""
    stack = CertificateStack(tmp_path)
    with started(stack) as running:
        topic = _run(running, "certificates")
        running.produce(topic, *numbered(100, 50))
        stack.replace_all()
        with flowing_records(running, topic, 150) as sent:
            running.wait_until(lambda: _count(running) >= 200, lambda: "rows after the change")
        _end(running, "certificates", topic, sent[-1])
