"""A tenant names Kafka servers of its own."""

from __future__ import annotations

import itertools

import pytest

from tests.support.attacked_stack import AttackedStack
from tests.support.fakes.kafka_listener import KafkaListener

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
KEYS = (
    "iceberg.kafka.bootstrap.servers",
    "consumer.override.bootstrap.servers",
    "producer.override.bootstrap.servers",
)


def test_no_client_of_the_node_calls_a_server_that_a_tenant_names(attacked: AttackedStack) -> None:
    """Alone, next to the node's own, or with a protocol: refused before a connection."""
    name, topic = "alice-servers", attacked.topic("alice-source")
    good = attacked.connector(topics=topic, iceberg__tables="alice.t")
    assert attacked.alice.create(name, good).status_code == 201
    with KafkaListener() as listener:
        together = f"{attacked.stack.bootstrap_servers},{listener.address}"
        for key, servers in itertools.product(KEYS, (listener.address, together)):
            protocol = {
                f"{key.removesuffix('bootstrap.servers')}security.protocol": "SASL_PLAINTEXT"
            }
            for change in ({key: servers, **protocol}, {key: servers}, protocol):
                config = {**good, **change}
                found = attacked.alice.validate({**config, "name": name}).json()
                wrong = {c["value"]["name"] for c in found["configs"] if c["value"]["errors"]}
                assert wrong == change.keys()
                assert attacked.alice.create("alice-other", config).status_code == 400
                path = f"/connectors/{name}/config"
                assert attacked.alice.call("PUT", path, json=config).status_code == 400
                assert attacked.alice.call("PATCH", path, json=change).status_code == 400
        assert not listener.connections
    attacked.assert_canaries_nowhere(names=(name,))
    assert attacked.alice.call("DELETE", f"/connectors/{name}").status_code == 204
