"""Which client properties connectors may override, by the node's properties."""

from __future__ import annotations

import pytest

from connect.config.client_overrides import PREFIXES
from connect.config.invalid_config import InvalidConfigError
from connect.validation.client_policy import ClientPolicy
from connect.validation.parse import parse
from connect.validation.plugins import BUILT_IN
from connect.validation.providers import Providers, resolve
from connect.validation.validate import validate

NODE = {
    "bootstrap.servers": "Broker-1:9092, broker-2:9092",
    "group.id": "g",
    "config.storage.topic": "c",
    "status.storage.topic": "s",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
}
USERS = {**NODE, "icefloe.rest.users.file": "users.yaml"}
POLICY = "connector.client.config.override.policy"
ALLOWED = "icefloe.kafka.servers.allowed"
CONNECTOR = {
    "name": "orders",
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://catalog.example",
}
CONNECTIONS = {
    "bootstrap.servers": "evil:9092",
    "security.protocol": "PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "ssl.endpoint.identification.algorithm": "",
    "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
    "ssl.protocol": "TLSv1",
}


def refused(node: dict[str, str], overrides: dict[str, str]) -> dict[str, str]:
    """Return keys and errors, which policy, parser and validation report equally."""
    refusals = dict(ClientPolicy.of(node).refusals(overrides))
    raw = {**CONNECTOR, **overrides}
    sink = BUILT_IN.connector("IcebergSink")
    assert sink is not None
    displayed = validate(sink, raw, BUILT_IN, policy=ClientPolicy.of(node))
    assert {i.name: i.errors for i in displayed.configs if i.errors} == {
        name: (sentence,) for name, sentence in refusals.items()
    }
    if refusals:
        with pytest.raises(InvalidConfigError) as caught:
            parse(raw, node=node)
        assert caught.value.errors == {name: (sentence,) for name, sentence in refusals.items()}
    else:
        parse(raw, node=node)
    return refusals


@pytest.mark.parametrize("prefix", PREFIXES)
def test_connection_settings_are_the_nodes_if_the_api_has_users(prefix: str) -> None:
    """Servers, protocol, credentials and TLS, unless the node allows overrides."""
    overrides = {prefix + name: value for name, value in CONNECTIONS.items()}
    assert refused(USERS, overrides).keys() == overrides.keys()
    assert refused(NODE, overrides) == {}
    assert refused({**USERS, POLICY: "All"}, overrides).keys() == {prefix + "bootstrap.servers"}
    assert refused({**USERS, ALLOWED: "evil:9092"}, overrides) == {}
    assert refused({**NODE, ALLOWED: "other:1"}, overrides).keys() == {prefix + "bootstrap.servers"}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_repeating_a_value_of_the_node_is_allowed(prefix: str) -> None:
    """In any case and order."""
    own = {
        "bootstrap.servers": "broker-2:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.endpoint.identification.algorithm": "https",
    }
    overrides = {prefix + name: value for name, value in own.items()}
    assert refused(USERS, overrides) == {}
    extended = {prefix + "bootstrap.servers": "broker-2:9092,evil:9092"}
    assert refused(USERS, extended).keys() == extended.keys()


def test_policies_have_kafkas_meaning() -> None:
    """None allows no override, Principal the three authentication properties, All all of them."""
    overrides = {
        "consumer.override.max.poll.records": "5",
        "consumer.override.security.protocol": "SASL_PLAINTEXT",
        "producer.override.sasl.mechanism": "PLAIN",
    }
    assert refused({**NODE, POLICY: "All"}, overrides) == {}
    sentence = (
        "The '{}' policy does not allow '{}' to be overridden in the connector configuration."
    )
    assert refused({**NODE, POLICY: "Principal"}, overrides) == {
        "consumer.override.max.poll.records": sentence.format("Principal", "max.poll.records")
    }
    assert refused({**NODE, POLICY: "None"}, overrides) == {
        key: sentence.format("None", key.split(".", 2)[2]) for key in overrides
    }
    own = {"iceberg.kafka.linger.ms": "5", "iceberg.kafka.bootstrap.servers": "evil:1"}
    assert refused({**NODE, POLICY: "None"}, own).keys() == {"iceberg.kafka.bootstrap.servers"}


def test_placeholders_hide_no_server() -> None:
    """Resolved values are checked, in the node and in its children.

    A placeholder without provider is not resolved, and the text next to it is checked.
    """
    node = {
        **USERS,
        "bootstrap.servers": "${env:OWN}",
        "config.providers": "env",
        "config.providers.env.param.allowlist.pattern": ".*",
    }
    providers = Providers(node, {"OWN": "broker-1:9092", "SERVERS": "evil:9092"})
    key = "iceberg.kafka.bootstrap.servers"
    for servers in ("${env:SERVERS}", "broker-1:9092,${env:SERVERS}", "evil:9092,${none:X}"):
        raw = {**CONNECTOR, key: servers}
        with pytest.raises(InvalidConfigError) as caught:
            parse(raw, node=node, resolve=providers.resolve)
        assert list(caught.value.errors) == [key]
        assert "evil" not in str(caught.value)
        with pytest.raises(InvalidConfigError):
            resolve(parse(raw), providers, node=node)
    own = {**CONNECTOR, key: "${env:OWN}"}
    assert resolve(parse(own), providers, node=node).kafka_overrides == {
        "bootstrap.servers": "broker-1:9092"
    }
