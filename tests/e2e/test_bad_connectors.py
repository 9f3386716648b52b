"""Errors of a connector are in the REST answer or in the trace of its status."""

from __future__ import annotations

from typing import Any

import pytest

from connect.processes.child_process import free_port
from tests.support.running_stack import RunningStack
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
VALIDATE = "/connector-plugins/IcebergSinkConnector/config/validate"


@pytest.mark.parametrize(
    ("settings", "key", "message"),
    [
        (
            {"icefloe.drain.record": "1"},
            "icefloe.drain.record",
            "Did you mean icefloe.drain.records?",
        ),
        (
            {"iceberg.control.commit.interval-ms": "soon"},
            "iceberg.control.commit.interval-ms",
            "Invalid value soon",
        ),
        (
            {"iceberg.tables.auto-create-enabled": "yes"},
            "iceberg.tables.auto-create-enabled",
            "Expected value to be either true or false",
        ),
        ({"errors.tolerance": "some"}, "errors.tolerance", "must be one of"),
        ({"iceberg.tables": "orders"}, "iceberg.tables", "a table is named <namespace>.<table>"),
        ({"iceberg.tables": None}, "iceberg.tables", "Null value"),
        ({"iceberg.catalog.": None}, "iceberg.catalog", "Must specify Iceberg catalog properties"),
        ({"topics": None}, "topics", "Null value"),
        (
            {"iceberg.tables.default-partition-by": "daily(ts)"},
            "iceberg.tables.default-partition-by",
            "daily",
        ),
        ({"value.converter": "MyConverter"}, "value.converter", "MyConverter"),
        ({"iceberg.catalog.uri": "${env:HOME}"}, "iceberg.catalog.uri", "${env:HOME}"),
        ({"iceberg.control.topic": "no/topic"}, "iceberg.control.topic", "no/topic"),
        ({"iceberg.catalog.type": "hadoop"}, "iceberg.catalog.type", "no atomic commit"),
        ({"iceberg.catalog.type": "rust"}, "iceberg.catalog.type", "one of rest, sql"),
        (
            {"iceberg.catalog.catalog-impl": "org.example.Mine"},
            "iceberg.catalog.type",
            "both type and catalog-impl are set",
        ),
        ({"iceberg.catalog.warehouse": ""}, "iceberg.catalog.warehouse", "Missing required"),
    ],
)
def test_wrong_settings_are_refused_at_their_key(
    running: RunningStack, settings: dict[str, str | None], key: str, message: str
) -> None:
    """Validate reports the error at its key; a create answers 400 with the same message."""
    name = unique_name("wrong")
    given: dict[str, Any] = {
        "name": name,
        **running.connector(topics="t", iceberg__tables="db.t"),
        **settings,
    }
    if "iceberg.catalog." in settings:
        given = {key: value for key, value in given.items() if not key.startswith("iceberg.cat")}
    displayed = running.api.put(VALIDATE, json=given).json()
    errors = {c["value"]["name"]: c["value"]["errors"] for c in displayed["configs"]}
    assert any(message in sentence for sentence in errors[key]), errors
    assert displayed["error_count"] >= 1
    answer = running.api.post("/connectors", json={"name": name, "config": given})
    assert answer.status_code == 400
    assert message in answer.json()["message"]
    assert running.api.get(f"/connectors/{name}").status_code == 404


@pytest.mark.parametrize(
    ("settings", "texts"),
    [
        (
            {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": "http://127.0.0.1:CLOSED"},
            ("the catalog does not answer", "127.0.0.1", "port=CLOSED"),
        ),
        (
            {"iceberg.tables": "db.nowhere"},
            ("table=db.nowhere", "create it", "iceberg.tables.auto-create-enabled"),
        ),
    ],
)
def test_errors_that_only_a_run_detects_are_in_the_trace(
    running: RunningStack, settings: dict[str, str], texts: tuple[str, ...]
) -> None:
    """Connector or task is FAILED; the first line names the cause."""
    closed = str(free_port())
    topic = running.topic("t")
    running.produce(topic, {"id": 1})
    name = unique_name("fails")
    given = {key: value.replace("CLOSED", closed) for key, value in settings.items()}
    config = {**running.connector(topics=topic, iceberg__tables="db.t"), **given}
    running.create(name, config)
    cause = running.trace(name).partition("\n")[0]
    for text in texts:
        assert text.replace("CLOSED", closed) in cause
    running.delete(name)


def test_topics_that_the_broker_refuses_are_named(running: RunningStack) -> None:
    """The connector is FAILED with topic and reason; it runs when the cause is fixed."""
    name = unique_name("fails")
    reserved = running.topic("control_refused")
    config = running.connector(topics=running.topic("t"), iceberg__tables="db.t")
    refused = reserved.replace("_", ".")  # Kafka holds the two to be one name
    running.create(name, {**config, "iceberg.control.topic": refused})
    cause = running.trace(name).partition("\n")[0]
    assert f"the broker refuses to create topic {refused}" in cause
    assert "collides" in cause
    dead_letters = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{name}-letters",  # three replicas by default
    }
    answer = running.api.put(f"/connectors/{name}/config", json={**config, **dead_letters})
    assert answer.is_success
    running.wait_until(
        lambda: f"{name}-letters: Unable to replicate" in str(running.status(name)["connector"]),
        lambda: f"the other cause: {running.status(name)}",
    )
    dead_letters["errors.deadletterqueue.topic.replication.factor"] = "1"
    running.table("db.t")
    answer = running.api.put(f"/connectors/{name}/config", json={**config, **dead_letters})
    assert answer.is_success
    running.wait_until_running(name)
    running.delete(name)
