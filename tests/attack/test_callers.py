"""Who may do what, asked from outside."""

from __future__ import annotations

import pytest

from tests.support.attacked_stack import BOB, CANARIES, FROM_ENVIRONMENT, AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_tenant_cannot_read_or_change_another_tenants_connectors(attacked: AttackedStack) -> None:
    """They are not listed either."""
    for tenant in (attacked.alice, attacked.guest):
        assert tenant.call("GET", f"/connectors/{BOB}/config").status_code == 403
        assert tenant.call("DELETE", f"/connectors/{BOB}").status_code == 403
        assert BOB not in tenant.call("GET", "/connectors").json()
    for path in ("/connectors", "/metrics", f"/connectors/{BOB}", "/icefloe/v1/overview"):
        assert attacked.anonymous.call("GET", path).status_code == 401
    assert attacked.alice.call("GET", "/metrics").status_code == 403
    assert CANARIES["tenant"] in attacked.bob.call("GET", f"/connectors/{BOB}/config").text
    attacked.assert_canaries_nowhere(names=(BOB,))


def test_secrets_of_the_node_are_in_no_answer(attacked: AttackedStack) -> None:
    """A configuration with placeholders is returned as it was sent."""
    name, topic = "alice-placeholders", attacked.topic("alice-source")
    config = attacked.connector(topics=topic, iceberg__tables="alice.t")
    config |= {
        "iceberg.catalog.credential": FROM_ENVIRONMENT,
        "iceberg.catalog.token": attacked.from_file,
    }
    assert attacked.alice.validate({**config, "name": name}).status_code == 200
    assert attacked.alice.create(name, config).status_code == 201
    assert attacked.alice.call("GET", f"/connectors/{name}/config").json().items() >= config.items()
    attacked.assert_canaries_nowhere(names=(name,))
    assert attacked.alice.call("DELETE", f"/connectors/{name}").status_code == 204
