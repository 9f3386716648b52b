"""A tenant names addresses of the node's own network."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest

from tests.support.attacked_stack import AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
BODY = "canary-of-an-inner-service"


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        seen.append(self.requestline)
        self.send_response(404)
        self.send_header("content-length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY.encode())

    do_GET = do_POST = do_HEAD = do_PUT = _answer  # noqa: N815 - the server's names

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


seen: list[str] = []


@pytest.fixture
def port() -> Iterator[int]:
    """A service that listens at this machine only."""
    seen.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def addresses(port: int) -> list[str]:
    """Spellings of its address."""
    hosts = ("127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "localhost", "[::1]")
    return [f"http://{host}:{port}/" for host in (*hosts, "[::ffff:127.0.0.1]", "x@127.0.0.1")]


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_no_client_of_the_node_calls_internal_addresses(
    attacked: AttackedStack, port: int, *, is_whole: bool
) -> None:
    """Catalogs, token endpoints, stores, registries, webhooks: refused, and nothing is sent.

    Each client with one spelling, and one client with each spelling; or all of them with each.
    """
    topic = attacked.topic("alice-source")
    good = attacked.connector(topics=topic, iceberg__tables="alice.t")
    rest = {k: v for k, v in good.items() if not k.startswith("iceberg.catalog.")}
    rest |= {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": "http://192.0.2.1"}
    registry = "value.converter.schema.registry.url"
    avro = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
    own = f"icefloe.topic.{topic}.value.converter"
    delta = {k: v for k, v in good.items() if not k.startswith("iceberg.catalog.")}
    delta |= {"icefloe.format": "delta", "icefloe.delta.location": "s3://lake/tables"}
    delta |= {"iceberg.catalog.s3.access-key-id": "a", "iceberg.catalog.s3.secret-access-key": "b"}
    for number, address in enumerate(addresses(port)):
        configs = (
            {**rest, "iceberg.catalog.uri": address},
            {**rest, "iceberg.catalog.uri": f"{address}#"},
            {**rest, "iceberg.catalog.uri": f"{address}?x="},
            {**rest, "iceberg.catalog.oauth2-server-uri": address},
            {**rest, "iceberg.catalog.s3.endpoint": address},
            {**good, **avro, registry: address},
            {**good, "icefloe.outputs": "h", "icefloe.output.h.webhook.url": address},
            {**good, own: avro["value.converter"], f"{own}.schema.registry.url": address},
            {**delta, "iceberg.catalog.s3.endpoint": address},
            {**delta, "iceberg.catalog.adls.blob-storage-authority": urlsplit(address).netloc},
            {**delta, "iceberg.catalog.s3.endpoint": f"{address[:-1]}\\@s3.amazonaws.com"},
            {**delta, "iceberg.catalog.s3.endpoint": "https://redirects.example.com"},
        )
        for config in configs if is_whole or number == 0 else configs[:1]:
            answer = attacked.alice.validate({**config, "name": "alice-inner"})
            assert answer.json()["error_count"]
            assert attacked.alice.create("alice-inner", config).status_code == 400
    assert not seen
    for tenant in attacked.tenants.values():
        assert all(BODY not in answer for _, answer in tenant.answers)


def test_a_client_that_uses_the_nodes_credentials_is_refused(attacked: AttackedStack) -> None:
    """Signed requests, profiles and roles need the tenant's own keys."""
    good = attacked.connector(topics=attacked.topic("alice-source"), iceberg__tables="alice.t")
    rest = {k: v for k, v in good.items() if not k.startswith("iceberg.catalog.")}
    for catalog in (
        {"type": "rest", "uri": "http://192.0.2.1", "rest.sigv4-enabled": "true"},
        {"type": "glue", "warehouse": "s3://bucket/x", "glue.endpoint": "http://192.0.2.1"},
        {"type": "rest", "uri": "http://192.0.2.1", "rest.auth.type": "google"},
    ):
        config = {**rest, **{f"iceberg.catalog.{k}": v for k, v in catalog.items()}}
        assert attacked.alice.create("alice-inner", config).status_code == 400
    attacked.assert_canaries_nowhere()
