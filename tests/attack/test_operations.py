"""Dead letters, preview, migration check and catalog check of another tenant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from connect.redaction.secret_values import MASK
from tests.support.attacked_stack import BOB, FROM_ENVIRONMENT, AttackedStack, Tenant

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
BASE = "/icefloe/v1/connectors"
CONTENT = "content-of-bob-5e1c"


def requests(name: str, config: dict[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Every operation on a connector."""
    path = f"{BASE}/{name}"
    yield "GET", f"{path}/dead-letters/kinds", None
    yield "GET", f"{path}/dead-letters/0/0", None
    yield "GET", f"{path}/dead-letters/0/0/content", None
    yield "POST", f"{path}/dead-letters/replay", {"apply": True}
    yield "POST", f"{path}/migration/check", config
    yield "POST", f"{path}/catalog/check", {"config": config, "races": 1}
    yield "POST", f"{path}/preview", {"config": config, "records": 1}


def statuses(tenant: Tenant, name: str, config: dict[str, str]) -> set[int]:
    """The answers to all of them."""
    return {
        tenant.call(method, path, json=body).status_code
        for method, path, body in requests(name, config)
    }


def test_operations_on_another_tenants_connector_are_refused(attacked: AttackedStack) -> None:
    """For alice, for a reader of other connectors, and without credentials."""
    config = attacked.connector(topics=attacked.topic("alice-source"), iceberg__tables="alice.t")
    for name in (BOB, "bob-new"):
        assert statuses(attacked.alice, name, config) == {403}
        assert statuses(attacked.guest, name, config) == {403}
        assert statuses(attacked.anonymous, name, config) == {401}
    for path in ("migration/check", "catalog/check", "preview"):
        body = {**config, "name": BOB}
        given = body if path.startswith("migration") else {"config": body}
        answer = attacked.alice.call("POST", f"{BASE}/alice-new/{path}", json=given)
        assert answer.status_code == 400, answer.text
    attacked.assert_canaries_nowhere()


def test_dead_letters_in_a_shared_topic_are_hidden(attacked: AttackedStack) -> None:
    """Alice names bob's topic: none is shown, and none is replayed to his source topic."""
    shared, bobs = attacked.topic("shared-letters"), attacked.topic("bob-source")
    prefix = "__connect.errors."
    for connector in (BOB, "alice-shared"):
        headers = [
            (prefix + "topic", bobs.encode()),
            (prefix + "partition", b"0"),
            (prefix + "offset", b"0"),
            (prefix + "connector.name", connector.encode()),
        ]
        attacked.produce(shared, CONTENT.encode(), headers=headers)
    config = attacked.connector(topics=attacked.topic("alice-source"), iceberg__tables="alice.t")
    config |= {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": shared}
    assert attacked.alice.create("alice-shared", config).status_code == 201
    try:
        path = f"{BASE}/alice-shared/dead-letters"
        kinds = attacked.alice.call("GET", f"{path}/kinds").json()
        assert kinds["records"] == 1
        for more in ("", "/content"):
            hidden = attacked.alice.call("GET", f"{path}/0/0{more}")
            assert (hidden.status_code, CONTENT in hidden.text) == (404, False)
        for body in ({"apply": True}, {"apply": True, "topic": bobs}):
            refused = attacked.alice.call("POST", f"{path}/replay", json=body)
            assert refused.status_code == 400, refused.text
            assert "which the connector does not read" in refused.json()["message"]
        attacked.produce(shared, b"{}")
        refused = attacked.alice.call("POST", f"{path}/replay", json={"topic": bobs})
        assert refused.status_code == 400, refused.text
        assert attacked.records(bobs) == []
    finally:
        assert attacked.alice.call("DELETE", "/connectors/alice-shared").status_code == 204


def test_operations_leave_control_topics_of_others_alone(attacked: AttackedStack) -> None:
    """A ``topics.regex`` that matches bob's control topic: it is neither read nor written."""
    theirs = attacked.topic("bob-events")
    change = {"iceberg.control.topic": theirs}
    assert attacked.bob.call("PATCH", f"/connectors/{BOB}/config", json=change).is_success
    attacked.produce(theirs, CONTENT.encode())
    letters = attacked.topic("alice-letters")
    prefix = "__connect.errors."
    headers = [
        (prefix + "topic", theirs.encode()),
        (prefix + "partition", b"0"),
        (prefix + "offset", b"0"),
        (prefix + "connector.name", b"alice-events"),
    ]
    attacked.produce(letters, b"a forged event", headers=headers)
    config = attacked.connector(topics__regex=f"{theirs}|alice-none", iceberg__tables="alice.t")
    config |= {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": letters}
    path = f"{BASE}/alice-events"
    assert attacked.alice.create("alice-events", config).status_code == 201
    try:
        shown = attacked.alice.call("POST", f"{path}/preview", json={"config": config})
        assert (shown.status_code, CONTENT in shown.text) == (400, False), shown.text
        assert "no topic of connector alice-events exists" in shown.json()["message"]
        body = {"apply": True}
        refused = attacked.alice.call("POST", f"{path}/dead-letters/replay", json=body)
        assert refused.status_code == 400, refused.text
        assert "a topic for control events" in refused.json()["message"]
        assert b"a forged event" not in [record.value() for record in attacked.records(theirs)]
    finally:
        assert attacked.alice.call("DELETE", "/connectors/alice-events").status_code == 204


def test_checks_show_no_secret(attacked: AttackedStack) -> None:
    """Placeholders in names of tables, groups and namespaces; locations without a grant."""
    topic = attacked.topic("alice-source")
    path = f"{BASE}/alice-check"
    good = attacked.connector(topics=topic, iceberg__tables=f"alice.{FROM_ENVIRONMENT}")
    answer = attacked.alice.call("POST", f"{path}/migration/check", json=good)
    assert answer.status_code == 200, answer.text
    assert [table["name"] for table in answer.json()["tables"]] == [f"alice.{MASK}"]
    for config in (
        {**good, "iceberg.control.group-id": FROM_ENVIRONMENT},
        {**good, "iceberg.control.topic": attacked.from_file},
        {**good, "iceberg.catalog.uri": f"http://127.0.0.1:1/{FROM_ENVIRONMENT}"},
        {**good, "iceberg.catalog.warehouse": f"file:///{FROM_ENVIRONMENT}"},
        {**good, "consumer.override.bootstrap.servers": FROM_ENVIRONMENT},
    ):
        for kind, body in (
            ("migration", config),
            ("catalog", {"config": config, "races": 1, "namespace": "alice.none"}),
        ):
            attacked.alice.call("POST", f"{path}/{kind}/check", json=body)
        attacked.alice.call("POST", f"{path}/preview", json={"config": config})
    attacked.assert_canaries_nowhere()
