"""What the operator and other tenants have, asked for by the name of their connector."""

from __future__ import annotations

import pytest

from tests.support.attacked_stack import BOB, AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
LETTERS = "errors.deadletterqueue.topic.name"


def test_a_tenant_does_not_validate_in_the_name_of_another(attacked: AttackedStack) -> None:
    """Grants of locations, static tables and topics belong to the name of a connector."""
    own = attacked.topic("alice-source")
    config = attacked.connector(topics=own, iceberg__tables="bob.orders")
    for remote in ("true", "false"):
        answer = attacked.alice.validate({**config, "name": BOB}, **{"icefloe.remote": remote})
        assert answer.status_code == 403
        assert answer.json()["message"] == f"alice lacks the role admin for connector {BOB}"
    granted = {
        "icefloe.outputs": "alerts",
        "icefloe.output.alerts.topic": "alice-out-1",
        "name": "alice-out-1",
    }
    answer = attacked.bob.validate({**config, **granted}, **{"icefloe.remote": "false"})
    assert answer.status_code == 403


def test_dead_letters_go_to_no_topic_of_another_tenant(attacked: AttackedStack) -> None:
    """The bytes of a dead letter are those of a record, which its producer chooses."""
    own = attacked.topic("alice-source")
    theirs = attacked.bob.call("GET", f"/connectors/{BOB}/config").json()["topics"]
    config = {
        **attacked.connector(topics=own, iceberg__tables="alice.letters"),
        "errors.tolerance": "all",
        LETTERS: theirs,
    }
    answer = attacked.alice.create("alice-letters", config)
    assert answer.status_code == 400
    assert "a connector that you may not change uses it" in answer.text
    assert BOB not in answer.text
    config[LETTERS] = "alice-letters"
    config["errors.deadletterqueue.topic.replication.factor"] = "1"
    assert attacked.alice.create("alice-letters", config).status_code == 201
    change = {LETTERS: theirs}
    answer = attacked.alice.call("PATCH", "/connectors/alice-letters/config", json=change)
    assert answer.status_code == 400
    assert attacked.alice.call("DELETE", "/connectors/alice-letters").status_code == 204
