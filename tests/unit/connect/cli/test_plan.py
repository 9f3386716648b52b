"""Plans: what would change, whose it is, and what is never shown."""

from __future__ import annotations

import pytest

from connect.cli.gitops.connector_files import DesiredConnector
from connect.cli.gitops.plan import OWNER, displayed, make_plan
from connect.config.masking import may_be_secret
from connect.errors import ConfigError
from connect.redaction.secret_values import MASK


def desired(name: str, **config: str) -> DesiredConnector:
    return DesiredConnector(name, {"name": name, **config}, f"{name}.json")


def test_a_plan_creates_changes_and_prunes() -> None:
    """Only connectors of this owner are deleted, and only with prune."""
    actual = {
        "same": {"name": "same", "k": "1", OWNER: "me"},
        "other": {"name": "other", "k": "1", "old": "x", OWNER: "me"},
        "gone": {"name": "gone", OWNER: "me"},
        "theirs": {"name": "theirs", OWNER: "them"},
        "nobodys": {"name": "nobodys"},
    }
    wanted = [desired("new", k="1"), desired("other", k="2"), desired("same", k="1")]
    plan = make_plan(wanted, actual, owner="me", prune=True)
    assert [(a.kind, a.name) for a in plan.actions] == [
        ("create", "new"),
        ("update", "other"),
        ("unchanged", "same"),
        ("prune", "gone"),
    ]
    assert [(c.key, c.before, c.after) for c in plan.actions[1].changes] == [
        ("k", "1", "2"),
        ("old", "x", None),
    ]
    assert len(make_plan(wanted, actual, owner="me", prune=False).actions) == 3


def test_connectors_of_another_owner_are_reported() -> None:
    """A connector without an owner gets this one."""
    plan = make_plan([desired("a")], {"a": {"name": "a"}}, owner="me", prune=False)
    assert [(c.key, c.after) for c in plan.actions[0].changes] == [(OWNER, "me")]
    with pytest.raises(ConfigError, match=r"'a' in a\.json belongs to the owner 'them', not 'me'"):
        make_plan([desired("a")], {"a": {"name": "a", OWNER: "them"}}, owner="me", prune=False)


@pytest.mark.parametrize(
    "key",
    [
        "iceberg.catalog.credential",
        "iceberg.catalog.token",
        "iceberg.catalog.s3.secret-access-key",
        "iceberg.catalog.s3.access-key-id",
        "iceberg.kafka.sasl.jaas.config",
        "consumer.override.ssl.keystore.password",
        "value.converter.basic.auth.user.info",
        "anything.api-key",
    ],
)
def test_secrets_are_masked(key: str) -> None:
    """Values that may be secrets are masked; references are shown."""
    assert may_be_secret(key)
    assert displayed(key, "hunter2") == MASK
    assert displayed(key, "${file:/etc/secrets:it}") == "${file:/etc/secrets:it}"
    assert displayed(key, "hunter2${file:/etc/secrets:it}") == MASK
    assert displayed("iceberg.tables", "db.t") == "db.t"
    assert displayed("key.converter", "StringConverter") == "StringConverter"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("postgresql://user:p@ss@host/db", f"postgresql://user:{MASK}@host/db"),
        ("http://token@a,https://x:y@b/", f"http://{MASK}@a,https://x:{MASK}@b/"),
        ("postgresql://user:${env:PASSWORD}@host/db", "postgresql://user:${env:PASSWORD}@host/db"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
    ],
)
def test_logins_in_addresses_are_masked(value: str, text: str) -> None:
    """For any key: the password of an address, or a user name alone."""
    assert displayed("iceberg.catalog.uri", value) == text
