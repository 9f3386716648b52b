"""What servers that a tenant names are sent, and what of their answers is shown."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connect.errors import ConfigError, IcefloeError, RetriableError, trace_of
from connect.gateways import access_policy as policy_module
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.catalog.catalog import open_catalog
from connect.gateways.catalog_properties import FOLDER_ROOTS, client_config
from connect.gateways.delta.delta_tables import DeltaTables
from connect.gateways.schema_registry.registry_client import SchemaNotFound, SchemaRegistry
from connect.gateways.storage.guarded_io import GuardedFileIO

BODY = "canary-of-a-body"
USERS = {"icefloe.rest.users.file": "users.yaml"}
LOCAL = AccessPolicy.of({**USERS, "icefloe.hosts.allowed": "127.0.0.1"})


class Server(ThreadingHTTPServer):
    """Answers everything alike and keeps what it was sent.

    Attributes:
        answer: status, headers, body.
        received: request lines with headers.
    """

    def __init__(self) -> None:
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"{}")
        self.received: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        assert isinstance(self.server, Server)
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.received.append(f"{self.requestline}\n{self.headers}")
        status, headers, body = self.server.answer
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = _answer  # noqa: N815 - the server's names

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """One that a tenant names, and one of the network."""
    servers = Server(), Server()
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()
    install(AccessPolicy())


def rest(server: Server) -> dict[str, str]:
    """Properties of a catalog."""
    return {"type": "rest", "uri": f"http://{server.address}"}


def load(properties: dict[str, str]) -> str:
    """The message and the trace of a catalog that answers wrongly."""
    with pytest.raises(IcefloeError) as caught:
        open_catalog("c", properties).load(("db", "t"))
    return f"{caught.value}\n{trace_of(caught.value)}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(servers: tuple[Server, Server], status: int) -> None:
    """Neither by catalogs nor by registries, with and without users."""
    named, inner = servers
    named.answer = status, {"location": f"http://{inner.address}/secret"}, b""
    inner.answer = 200, {}, BODY.encode()
    for policy in (LOCAL, AccessPolicy()):
        install(policy)
        load(rest(named))
        registry = SchemaRegistry(
            {"schema.registry.url": f"http://{named.address}", "max.retries": "0"}
        )
        with pytest.raises(IcefloeError):
            registry.by_id(1)
        registry.close()
    assert named.received
    assert not inner.received


STORE = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.region": "us-east-1"}
STORE |= {"s3.connect-timeout": "5", "s3.request-timeout": "5"}


def delta(endpoint: str) -> DeltaTables:
    """Tables in a store that a tenant names."""
    properties = {
        "type": "delta",
        FOLDER_ROOTS["delta"]: "s3://b/tables",
        "s3.endpoint": endpoint,
        **STORE,
    }
    return DeltaTables(client_config(properties).properties)


def ask(client: str, endpoint: str) -> None:
    """Send a request to a store that a tenant names."""
    if client == "delta":
        delta(endpoint).load(("db", "t"))
    else:
        GuardedFileIO({**STORE, "s3.endpoint": endpoint}).new_input("s3://b/x").exists()


@pytest.mark.parametrize("client", ["pyarrow", "delta"])
def test_a_store_that_may_redirect_is_refused(servers: tuple[Server, Server], client: str) -> None:
    """The clients of stores follow redirects: tenants use stores that the operator names."""
    named, inner = servers
    named.answer = 307, {"location": f"http://{inner.address}/secret"}, b""
    install(AccessPolicy())  # with users, the size of a Delta log is asked first, by another client
    with contextlib.suppress(IcefloeError, OSError):
        ask(client, f"http://{named.address}")
    assert inner.received, "the client does not follow redirects any more: drop the rule"
    install(AccessPolicy.of(USERS))
    with pytest.raises(ConfigError) as refused:
        ask(client, "http://203.0.113.7:9000")
    assert refused.value.code == "host_refused"
    assert "redirects" in refused.value.message


@pytest.mark.parametrize("client", ["pyarrow", "delta"])
@pytest.mark.parametrize("form", ["http://{}\\@good", "http://good;@{}", "http://good@{}"])
def test_an_address_that_clients_read_differently_is_refused(
    servers: tuple[Server, Server], client: str, form: str
) -> None:
    """The allowed host is checked, and another one would be asked."""
    install(AccessPolicy.of({**USERS, "icefloe.hosts.allowed": "good"}))
    endpoint = form.format(servers[0].address)
    with pytest.raises(ConfigError) as refused:
        ask(client, endpoint)
    assert refused.value.code == "host_refused"
    assert not servers[0].received


@pytest.mark.parametrize("operation", ["load", "create"])
def test_a_panic_of_the_delta_library_is_an_error_of_its_table(operation: str) -> None:
    """A panic is no ``Exception``, and would end the thread that commits every table."""
    tables, name = delta("http://not an address"), ("db", "t")
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    act = {
        "load": lambda: tables.load(name),
        "create": lambda: tables.create(name, schema, UNPARTITIONED_PARTITION_SPEC, {}),
    }[operation]
    with pytest.raises(RetriableError) as caught:
        act()
    assert caught.value.code == "catalog_unavailable"
    assert caught.value.coordinates["table"] == "db.t"


def test_answers_of_a_store_are_in_no_trace_of_a_delta_table(
    servers: tuple[Server, Server],
) -> None:
    """The classes of the library do not name it."""
    named, _ = servers
    named.answer = 400, {}, f"<Error><Code>{BODY}</Code></Error>".encode()
    shown = []
    for policy in (AccessPolicy(), LOCAL):
        install(policy)
        with pytest.raises(IcefloeError) as caught:
            delta(f"http://{named.address}").load(("db", "t"))
        shown.append(BODY in trace_of(caught.value))
    assert shown == [True, False]


@pytest.mark.parametrize("status", [200, 401, 404, 500])
@pytest.mark.parametrize(
    "body",
    [
        BODY,
        f'{{"error": {{"message": "{BODY}", "type": "{BODY}", "code": 404}}}}',
        f'{{"error_code": 40403, "message": "{BODY}"}}',
        f'{{"defaults": "{BODY}"}}',
        f'"{BODY}"',
    ],
)
def test_bodies_of_answers_are_not_shown(
    servers: tuple[Server, Server], status: int, body: str
) -> None:
    """Neither in a message nor in a trace."""
    install(LOCAL)
    named = servers[0]
    named.answer = status, {}, body.encode()
    assert BODY not in load(rest(named))
    registry = SchemaRegistry(
        {"schema.registry.url": f"http://{named.address}", "max.retries": "0"}
    )
    with pytest.raises((IcefloeError, SchemaNotFound)) as caught:
        registry.by_id(1)
    registry.close()
    assert BODY not in f"{caught.value}\n{trace_of(caught.value)}"


def test_logins_of_the_machine_are_opt_in(
    servers: tuple[Server, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """.netrc, session tokens and proxies of the environment need the property."""
    named, proxy = servers
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login node password canary-of-netrc\n")
    netrc.chmod(0o600)
    for name, value in {
        "NETRC": str(netrc),
        "HTTP_PROXY": f"http://{proxy.address}",
        "http_proxy": f"http://{proxy.address}",
        "AWS_ACCESS_KEY_ID": "canary-of-aws-key",
        "AWS_SECRET_ACCESS_KEY": "canary-of-aws-secret",
        "AWS_SESSION_TOKEN": "canary-of-aws-token",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    named.answer = 404, {}, b""
    install(LOCAL)
    load(rest(named))
    store = {"s3.endpoint": f"http://{named.address}", "s3.region": "us-east-1"}
    with pytest.raises(OSError, match=r"(?i)bucket"):
        len(GuardedFileIO(store).new_input("s3://bucket/x"))
    assert len(named.received) >= 2
    assert "canary" not in "".join(named.received)
    assert not proxy.received
    node = {**USERS, "icefloe.hosts.allowed": "*", "icefloe.ambient.credentials.allowed": "true"}
    install(AccessPolicy.of(node))
    with pytest.raises(OSError, match=r"(?i)bucket"):
        len(GuardedFileIO(store).new_input("s3://bucket/x"))
    assert "canary-of-aws-token" in named.received[-1]


def test_a_name_that_resolves_to_this_machine_is_refused(
    servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it resolves to another address during the check."""
    named = servers[0]
    install(AccessPolicy.of(USERS))
    original = socket.getaddrinfo

    def resolve(host: str, *rest: object, **more: object) -> object:
        return original("127.0.0.1" if host == "rebinding.test" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    address = f"http://rebinding.test:{named.server_port}"
    assert "host_refused" in load({"type": "rest", "uri": address})
    monkeypatch.setattr(policy_module, "_addresses", lambda _: [ip_address("192.0.2.1")])
    assert "may not use the host" in load({"type": "rest", "uri": address})
    registry = SchemaRegistry({"schema.registry.url": address, "max.retries": "0"})
    with pytest.raises(IcefloeError, match="may not use the host"):
        registry.by_id(1)
    registry.close()
    assert not named.received


def test_a_catalog_cannot_redirect_its_client(servers: tuple[Server, Server]) -> None:
    """Its configuration answer passes the same check as the tenant's settings."""
    named, inner = servers
    overrides = f'{{"overrides": {{"uri": "http://[::1]:{inner.server_port}"}}, "defaults": {{}}}}'
    named.answer = 200, {}, overrides.encode()
    install(LOCAL)
    assert "host_refused" in load(rest(named))
    assert not inner.received
