"""What validation asks of schema registries, against a server of their API."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping

import pytest
from starlette.applications import Starlette

from connect.clock import SystemClock
from connect.validation.parse import parse
from connect.validation.preflight.live_checks import run_checks
from connect.validation.preflight.registry_checks import NO_SCHEMA, registry_checks
from tests.support.fakes.rest_server import RestServer
from tests.support.fakes.schema_registry import SchemaRegistryServer

CONFIG = {
    "name": "c",
    "connector.class": "IcebergSinkConnector",
    "topics": "t",
    "iceberg.tables": "db.t",
    "iceberg.catalog.type": "sql",
    "iceberg.catalog.uri": "sqlite://",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
}
VALUE, KEY = "value.converter.schema.registry.url", "key.converter.schema.registry.url"
BY_ID = f"/schemas/ids/{NO_SCHEMA}"


def found(
    change: Mapping[str, str], node: Mapping[str, str] | None = None, each_s: float = 5
) -> dict[str, list[str]]:
    """Sentences by key."""
    config = parse({**CONFIG, **change}, node=node or {})
    return run_checks(registry_checks(config, each_s=each_s), whole_s=60, clock=SystemClock())


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    """One that holds no schema."""
    with SchemaRegistryServer() as running:
        yield running


def test_a_healthy_registry_is_asked_once(registry: SchemaRegistryServer) -> None:
    """Converters of key and value with equal options share a request."""
    both = {VALUE: registry.url, KEY: registry.url, "key.converter": CONFIG["value.converter"]}
    assert found(both) == {}
    assert [path for path, _ in registry.requests] == [BY_ID]
    assert found({**both, "key.converter.value.subject.name.strategy": "x"}) == {}
    assert [path for path, _ in registry.requests] == [BY_ID] * 3


def test_a_refused_login_is_reported_at_its_key(registry: SchemaRegistryServer) -> None:
    """The error shows the address of the registry without the login."""
    registry.credentials = "Basic no"
    with_login = registry.url.replace("://", "://user:hunter22@")
    (sentence,) = found({VALUE: with_login})[VALUE]
    assert sentence.startswith(f"Asked the schema registry at {registry.url} (each request within")
    assert "answers 401" in sentence
    assert "hunter22" not in sentence


def test_a_server_that_is_no_registry_is_reported() -> None:
    """Another server, and a closed port."""
    with RestServer(Starlette()) as other:
        url = f"http://127.0.0.1:{other.port}"
        assert "is not a schema registry with Confluent's API" in found({VALUE: url})[VALUE][0]
    (sentence,) = found({VALUE: url})[VALUE]
    assert sentence.endswith(f"the schema registry does not answer: {url}: ConnectError")


def test_one_of_several_addresses_is_enough(registry: SchemaRegistryServer) -> None:
    """As for a converter: the next address is used when one does not answer."""
    assert found({VALUE: f"http://127.0.0.1:1,{registry.url}"}) == {}
    registry.faults.append(503)
    (sentence,) = found({VALUE: registry.url})[VALUE]
    assert sentence.endswith("answers 503")  # one request: a check does not retry


def test_the_check_of_a_silent_registry_ends() -> None:
    """With the timeout of the check, not the longer one of the converter."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        slow = {VALUE: url, "value.converter.http.read.timeout.ms": "60000"}
        (sentence,) = found(slow, each_s=0.2)[VALUE]
    assert sentence.endswith(f"{url}: ReadTimeout")


def test_the_registry_of_the_nodes_converter_is_checked(registry: SchemaRegistryServer) -> None:
    """The error names the node's properties, not the registry's address."""
    node = {"value.converter": CONFIG["value.converter"], VALUE: registry.url}
    bare = {key: value for key, value in CONFIG.items() if key != "value.converter"}
    registry.faults.append(401)
    config = parse(bare, node=node)
    reported = run_checks(registry_checks(config, each_s=5), whole_s=60, clock=SystemClock())
    assert reported[VALUE][0].startswith("Asked the schema registry of the node's properties (each")


def test_converters_without_a_registry_send_no_request() -> None:
    """JSON, and Avro with its schema in a file, give no error."""
    json = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
    file = {"value.converter.schema.file": "/nowhere.avsc"}
    assert found(json) == found(file) == {}
