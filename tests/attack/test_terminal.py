"""What an operator's terminal is sent of a tenant's."""

from __future__ import annotations

import unicodedata

import pytest

from tests.support.attacked_stack import AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
TITLE, ERASE, TURN = "\x1b]0;pwned\x07", "\x9b2J\x1b[2J", "\u202egnp.exe"


def test_control_characters_of_a_tenant_are_escaped(
    attacked: AttackedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``get``, ``status`` and ``lag`` print escapes in their place."""
    token = attacked.root.api.headers["authorization"].removeprefix("Bearer ")
    monkeypatch.setenv("ICEFLOE_TOKEN", token)
    topic = attacked.topic("alice-terminal")
    names = []
    for name in (f"alice-{TURN}", "alice-terminal"):
        config = attacked.connector(topics=topic, iceberg__tables="alice.t")
        config["iceberg.tables"] = f"alice.{ERASE}{TITLE}"
        config["transforms.x.note"] = f"{TITLE}\nforged\tRUNNING"
        if attacked.alice.create(name, config).status_code == 201:
            names.append(name)
    assert names
    for command in (("get",), ("get", "-o", "yaml"), ("status",), ("lag",), ("get", "nothing\x1b")):
        _, displayed = attacked.icefloe(*command)
        kinds = {
            unicodedata.category(char) for char in displayed.replace("\n", "").replace("\t", "")
        }
        assert not kinds & {"Cc", "Cf", "Zl", "Zp"}, displayed
    for name in names:
        attacked.alice.call("DELETE", f"/connectors/{name}")
