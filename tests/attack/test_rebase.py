"""Rebasing a connector with the tables of another tenant."""

from __future__ import annotations

import pytest

from tests.support.attacked_stack import AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_rebase_of_another_tenants_table_is_refused(attacked: AttackedStack) -> None:
    """Whether the table exists or not; nothing is changed."""
    table = attacked.table("bob.rebased", properties={"owner-note": "bob's"})
    topic = attacked.topic("alice-rebase")
    config = attacked.connector(topics=topic, iceberg__tables="alice.t")
    assert attacked.alice.create("alice-rebase", config).status_code == 201
    attacked.wait_until(
        lambda: attacked.status("alice-rebase")["connector"]["state"] == "RUNNING",
        lambda: "alice's connector",
    )
    attacked.stop("alice-rebase")
    for is_applied in (False, True):
        answer = attacked.alice.call(
            "POST",
            "/icefloe/v1/connectors/alice-rebase/control/rebase",
            json={"tables": ["bob.rebased", "bob.missing"], "apply": is_applied},
        )
        assert answer.status_code == 200, answer.text
        results = {one["table"]: one for one in answer.json()["tables"]}
        for name in ("bob.rebased", "bob.missing"):
            assert (results[name]["code"], results[name]["mended"]) == ("not_granted", False)
    before = table.metadata_location
    assert attacked.catalog.load_table("bob.rebased").metadata_location == before
    assert attacked.alice.call("DELETE", "/connectors/alice-rebase").status_code == 204
