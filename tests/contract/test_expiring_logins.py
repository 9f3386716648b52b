"""A REST catalog whose tokens expire, and and that vends new credentials at each request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs
from uuid import uuid4

import pytest

from connect.clock import SystemClock
from connect.errors import CommitRefused
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from coordinator.kernel.effects import TableCommitted
from tests.support.loopback_proxy import HOP_BY_HOP, LoopbackProxy, send
from tests.support.stack import RestCatalog
from tests.support.table_harness import SCHEMA, TableHarness, paths_of
from tests.support.tables import connector
from worker.task.tables.task_tables import REFRESH_MS, TaskTables

pytestmark = pytest.mark.java
REQUESTS_PER_TOKEN = 3
SECRET = "canary-of-a-login"
TOKENS = "/v1/oauth/tokens"


class ExpiringLogins(LoopbackProxy):
    """Stands before a catalog; a token is good for a few requests.

    Attributes:
        tokens: issued so far.
        scopes: that were asked for.
        vended: how often credentials were vended.
    """

    def __init__(self, target: str) -> None:
        self.tokens = 0
        self.left = 0
        self.vended = 0
        self.scopes: set[str] = set()
        super().__init__(target)

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if request.path == TOKENS:
            self._issue(request, parse_qs(body.decode()))
            return
        self.left -= 1
        if self.left < 0 or request.headers["Authorization"] != f"Bearer token-{self.tokens}":
            error = {"message": "expired", "type": "NotAuthorizedException", "code": 401}
            _answer(request, 401, {"error": error})
            return
        answer = self._forward(request, body)
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
        headers.pop("content-encoding", None)
        content = answer.content
        if b'"metadata-location"' in content:
            self.vended += 1
            keys = {"s3.access-key-id": f"vended-{self.vended}", "s3.secret-access-key": SECRET}
            vended = [{"prefix": "file:", "config": keys}]
            content = json.dumps({**json.loads(content), "storage-credentials": vended}).encode()
        send(request, answer.status_code, headers, content)

    def _issue(self, request: BaseHTTPRequestHandler, form: dict[str, list[str]]) -> None:
        if form["client_secret"] != [SECRET]:
            _answer(request, 401, {"error": "invalid_client"})
            return
        self.scopes.update(form["scope"])
        self.tokens += 1
        self.left = REQUESTS_PER_TOKEN
        token = {"access_token": f"token-{self.tokens}", "token_type": "bearer", "expires_in": 1}
        _answer(request, 200, token)


class _ShiftedClock(SystemClock):
    """A clock that a test moves."""

    skipped_ms = 0

    def monotonic_ms(self) -> int:
        """The machine's, and what was skipped."""
        return super().monotonic_ms() + self.skipped_ms


@pytest.fixture
def logins(rest_catalog: RestCatalog) -> Iterator[ExpiringLogins]:
    """Stands before Iceberg's REST catalog."""
    proxy = ExpiringLogins(rest_catalog.uri)
    yield proxy
    proxy.close()


@pytest.fixture
def gateway(logins: ExpiringLogins, rest_catalog: RestCatalog) -> Iterator[CatalogGateway]:
    """A client with a login."""
    opened = open_catalog("iceberg", _properties(logins, rest_catalog))
    yield opened
    opened.close()


def _properties(
    logins: ExpiringLogins, behind: RestCatalog, secret: str = SECRET
) -> dict[str, str]:
    return {
        **behind.properties,
        "uri": logins.uri,
        "credential": f"client:{secret}",
        "oauth2-server-uri": logins.uri + TOKENS,
        "scope": "PRINCIPAL_ROLE:ALL",
    }


def test_rounds_are_committed_once_while_tokens_expire(
    gateway: CatalogGateway, logins: ExpiringLogins
) -> None:
    """Any request may be the first one after the end of a token."""
    table = gateway.create(("db", f"t-{uuid4().hex[:8]}"), SCHEMA)
    harness = TableHarness(gateway, table)
    committer = harness.committer()
    rounds = 7  # no multiple of the requests that a token is good for
    for offset in range(rounds):
        assert isinstance(committer.commit(harness.round(offset)), TableCommitted), offset
    files = paths_of(harness.reloaded())
    assert len(files) == len(set(files)) == rounds
    assert logins.tokens > rounds // REQUESTS_PER_TOKEN
    assert logins.scopes == {"PRINCIPAL_ROLE:ALL"}


def test_a_wrong_login_is_reported_without_the_secret(
    logins: ExpiringLogins, rest_catalog: RestCatalog
) -> None:
    """The error says so, without the secret."""
    with pytest.raises(CommitRefused) as refused:
        open_catalog("iceberg", _properties(logins, rest_catalog, secret="canary-of-another"))
    assert refused.value.code == "unauthorized"
    assert "canary" not in str(refused.value)


def test_vended_credentials_are_renewed(gateway: CatalogGateway, logins: ExpiringLogins) -> None:
    """At the refresh of the task, and at a reload right after a refusal."""
    name = f"db.l-{uuid4().hex[:8]}"
    gateway.create(name.split("."), SCHEMA)
    clock = _ShiftedClock()
    tables = TaskTables(connector("c", [name]), gateway, clock)

    def key() -> str:
        (plan,) = tables.spec().tables
        assert "token" not in " ".join(plan.io_properties)
        return plan.io_properties["s3.access-key-id"]

    tables.refresh()
    seen = [key()]
    tables.refresh()
    assert key() == seen[0] == f"vended-{logins.vended}"
    tables.confirm([name])
    clock.skipped_ms = REFRESH_MS + 1
    tables.refresh()
    seen.append(key())
    tables.reload(name)
    seen.append(key())
    assert len(set(seen)) == 3
    assert seen[-1] == f"vended-{logins.vended}"


def _answer(request: BaseHTTPRequestHandler, status: int, body: object) -> None:
    send(request, status, {"Content-Type": "application/json"}, json.dumps(body).encode())
