"""A tenant lets placeholders stand where their values would show."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from connect.redaction.secret_values import MASK
from tests.support.attacked_stack import FROM_ENVIRONMENT, AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
PLACES = (
    "transforms",
    "predicates",
    "transforms.a.type",
    "tasks.max",
    "errors.tolerance",
    "value.converter",
    "key.converter",
    "topics",
    "topics.regex",
    "iceberg.tables",
    "iceberg.catalog.type",
    "iceberg.catalog.uri",
    "iceberg.catalog.warehouse",
    "iceberg.control.topic",
    "iceberg.connect.group-id",
    "iceberg.tables.default-partition-by",
    "errors.deadletterqueue.topic.name",
    "consumer.override.group.id",
    "consumer.override.max.poll.records",
    "consumer.override.bootstrap.servers",
    "connector.plugin.version",
    "value.converter.schema.registry.url",
)


def test_errors_of_a_configuration_contain_no_secret(attacked: AttackedStack) -> None:
    """In validation, refusals, states, traces, metrics, views and logs, alone or in a list."""
    name, topic = "alice-wrong", attacked.topic("alice-source")
    good = attacked.connector(topics=topic, iceberg__tables="alice.t")
    for place in PLACES:
        for value in (FROM_ENVIRONMENT, f"a,{attacked.from_file}"):
            config = {**good, place: value}
            if place == "topics.regex":
                del config["topics"]
            if place.startswith("transforms.a."):
                config["transforms"] = "a"
            if place.endswith("registry.url"):
                config["value.converter"] = "io.confluent.connect.avro.AvroConverter"
            assert attacked.alice.validate({**config, "name": name}).status_code in {200, 400}
            if attacked.alice.create(name, config).status_code == 201:
                attacked.alice.call("GET", f"/connectors/{name}/status")
                assert attacked.alice.call("DELETE", f"/connectors/{name}").status_code == 204
    attacked.assert_canaries_nowhere()


def test_errors_of_a_running_connector_contain_no_secret(attacked: AttackedStack) -> None:
    """Trace, status topic, metrics, views, audit and logs; the table name is a secret."""
    name, topic = "alice-table", attacked.topic("alice-source")
    config = attacked.connector(topics=topic, iceberg__tables=f"alice.{FROM_ENVIRONMENT}")
    config |= {"iceberg.tables.auto-create-enabled": "false"}
    assert attacked.alice.create(name, config).status_code == 201
    attacked.produce(topic, b'{"id": 1}')
    path = f"/connectors/{name}/status"
    attacked.wait_until(lambda: MASK in attacked.alice.call("GET", path).text, lambda: "no trace")
    attacked.alice.call("GET", f"/icefloe/v1/connectors/{name}/audit")
    attacked.assert_canaries_nowhere(names=(name,))
    assert attacked.alice.call("DELETE", f"/connectors/{name}").status_code == 204


def test_logs_are_readable_by_their_owner_only(attacked: AttackedStack) -> None:
    """No other user of the machine reads the log of a node's process."""
    state: Path = attacked.stack.state_dir
    files = [file for file in state.rglob("*.log") if file.is_file()]
    assert {"worker.log", "coordinator.log"} <= {file.name for file in files}
    for file in files:
        if file.parent.name in {"node", state.name}:
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
