"""Control topics, configurations and states, attacked through REST and through Kafka."""

from __future__ import annotations

import dataclasses
from uuid import uuid4

import pytest

from control_schemas.codec import decode, encode
from control_schemas.events import DataWritten, TableReference
from tests.support.attacked_stack import BOB, AttackedStack
from tests.support.running_stack import EVENT, numbered

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
CONTROL, LETTERS = "iceberg.control.topic", "errors.deadletterqueue.topic.name"
OUTPUT = "icefloe.output.alerts.topic"


def test_reserved_topics_are_refused(attacked: AttackedStack) -> None:
    """Validate, create and PATCH refuse them as source, dead letter and output topic."""
    theirs = attacked.topic("bob-control")
    bobs = attacked.bob.call("PATCH", f"/connectors/{BOB}/config", json={CONTROL: theirs})
    assert bobs.status_code == 200
    own = attacked.topic("alice-source")
    for topic in (theirs, "control-iceberg", "icefloe-configs", "icefloe-status"):
        for key in ("topics", LETTERS, OUTPUT):
            change = {key: f"{own},{topic}" if key == "topics" else topic}
            if key == OUTPUT:
                change["icefloe.outputs"] = "alerts"
            config = {
                **attacked.connector(topics=own, iceberg__tables="alice.t"),
                CONTROL: "alice-control",
                **change,
            }
            named = {**config, "name": "alice-topics"}
            found = attacked.alice.validate(named, **{"icefloe.remote": "false"}).json()
            wrong = {c["value"]["name"]: c["value"]["errors"] for c in found["configs"]}
            assert any(topic in sentence for sentence in wrong[key]), (topic, key)
            assert attacked.alice.create("alice-topics", config).status_code == 400
    config = attacked.connector(topics=own, iceberg__tables="alice.t")
    assert attacked.alice.create("alice-topics", config).status_code == 201
    for change in ({"topics": theirs}, {LETTERS: theirs}):
        answer = attacked.alice.call("PATCH", "/connectors/alice-topics/config", json=change)
        assert answer.status_code == 400
    assert attacked.alice.call("DELETE", "/connectors/alice-topics").status_code == 204


def test_rows_go_to_granted_topics_only(attacked: AttackedStack) -> None:
    """Without a grant of the operator no topic can be an output, even by a placeholder."""
    own = attacked.topic("alice-source")
    theirs = attacked.bob.call("GET", f"/connectors/{BOB}/config").json()["topics"]
    config = {
        **attacked.connector(topics=own, iceberg__tables="alice.rows"),
        "iceberg.tables.auto-create-enabled": "true",
        "icefloe.outputs": "alerts",
    }
    for topic, why in (
        (theirs, "is not among the topics"),
        ("alice-alerts", "is not among the topics"),
        ("${env:ICEFLOE_CATALOG_CANARY}", "${env:ICEFLO"),  # also resolved, it is not granted
    ):
        answer = attacked.alice.create("alice-rows", {**config, OUTPUT: topic})
        assert answer.status_code == 400
        assert why in answer.text
    for topic in ("alice-out-1", "alice-out-2"):  # the operator grants alice-out-*
        assert attacked.alice.create(topic, {**config, OUTPUT: topic}).status_code == 201
        change = {OUTPUT: theirs}
        answer = attacked.alice.call("PATCH", f"/connectors/{topic}/config", json=change)
        assert answer.status_code == 400
        attacked.produce(own, *numbered(0, 1))
        attacked.wait_until(lambda topic=topic: attacked.records(topic), lambda: "a row")
        assert attacked.alice.call("DELETE", f"/connectors/{topic}").status_code == 204


def test_a_regex_skips_reserved_topics(attacked: AttackedStack) -> None:
    """``topics.regex=.*`` reads no control topic, no configurations and no states."""
    config = attacked.connector(topics__regex=".*", iceberg__tables="alice.all")
    assert attacked.alice.create("alice-regex", config).status_code == 201

    def topics() -> set[str]:
        answer = attacked.alice.call("GET", "/icefloe/v1/connectors/alice-regex/lag")
        return {row["topic"] for row in answer.json()["partitions"]} if answer.is_success else set()

    partitions = attacked.wait_until(topics, lambda: "partitions of alice-regex")
    assert not partitions & {"control-iceberg", "icefloe-configs", "icefloe-status"}
    assert not [name for name in partitions if name.startswith(("bob-control", "__"))]
    assert attacked.alice.call("DELETE", "/connectors/alice-regex").status_code == 204


def test_a_source_topic_of_another_tenant_is_refused_as_control_topic(
    attacked: AttackedStack,
) -> None:
    """Control events are not written into a topic that another tenant reads."""
    source = attacked.bob.call("GET", f"/connectors/{BOB}/config").json()["topics"]
    config = attacked.connector(topics=attacked.topic("a"), iceberg__tables="alice.t")
    answer = attacked.alice.create("alice-control", {**config, CONTROL: source})
    assert answer.status_code == 400
    assert "another connector uses that topic" in answer.text


def test_repeated_announcements_add_no_row(attacked: AttackedStack) -> None:
    """A writer of the control topic neither duplicates rows nor reaches a foreign table."""
    topic, name, table = attacked.topic("alice-events"), "alice-replayed", "alice.replayed"
    attacked.table(table)
    attacked.catalog.create_namespace_if_not_exists("bob")
    foreign = attacked.catalog.create_table("bob.private", schema=EVENT)
    config = attacked.connector(topics=topic, iceberg__tables=table)
    config[CONTROL] = attacked.topic("alice-own-control")
    assert attacked.alice.create(name, config).status_code == 201
    attacked.produce(topic, *numbered(0, 10))
    attacked.rows(table, 10, name)
    events = attacked.records(config[CONTROL])
    written = next(r for r in events if isinstance(decode(r.value()).payload, DataWritten))
    event = decode(written.value())
    payload = event.payload
    assert isinstance(payload, DataWritten)
    there = TableReference("iceberg", ("bob",), "private", foreign.metadata.table_uuid)
    stolen = dataclasses.replace(payload, table=there)
    forged = encode(dataclasses.replace(event, id=uuid4(), payload=stolen))
    for value in (written.value(), forged, written.value()):
        attacked.produce(config[CONTROL], value, key=written.key(), headers=written.headers() or [])
    attacked.produce(topic, *numbered(10, 10))
    rows = attacked.rows(table, 20, name)
    assert sorted(row["id"] for row in rows) == list(range(20))

    def refused() -> bool:
        answer = attacked.alice.call("GET", f"/icefloe/v1/connectors/{name}/tables").json()
        return "table_not_configured" in str(answer)

    attacked.wait_until(refused, lambda: "the forged announcement to be refused")
    assert attacked.catalog.load_table("bob.private").current_snapshot() is None
    assert attacked.alice.call("DELETE", f"/connectors/{name}").status_code == 204
