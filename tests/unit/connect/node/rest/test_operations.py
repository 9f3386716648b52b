"""Operations on connectors over REST: roles, validation, masking, limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from connect.clock import SystemClock
from connect.config.keys.connector_keys import CONNECTOR_CLASS
from connect.node.node_requests import NodeInfo
from connect.node.rest.app import create_app
from connect.node.rest.auth import Users, new_token
from connect.node.rest.log_levels import LogLevels
from connect.node.rest.operation_models import (
    FILTERS_MAX,
    PARTITION_MAX,
    PREVIEW_RECORDS_MAX,
    RACES_MAX,
)
from connect.operations.dead_letter_replay import ReplayChoice
from connect.redaction.secret_values import KNOWN, MASK
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.operations import FakeOperations
from tests.support.fakes.rest_server import Reply, RestServer

CONFIG = {
    "connector.class": CONNECTOR_CLASS,
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}
GRANTS = {"reader": "read", "operator": "operate", "owner": "admin"}
TOKENS = {name: new_token() for name in GRANTS}
BASE = "/icefloe/v1/connectors"


class Api:
    """An API with users over fake operations."""

    def __init__(self, server: RestServer, operations: FakeOperations, herder: FakeHerder) -> None:
        self.server = server
        self.herder = herder
        self.operations = operations

    def ask(self, user: str, method: str, path: str, body: Any = None) -> Reply:
        """Send a request as a user."""
        headers = {"authorization": f"Bearer {TOKENS[user][0]}"}
        if body is not None:
            headers["content-type"] = "application/json"
        content = None if body is None else json.dumps(body).encode()
        return self.server.send(method, f"{BASE}{path}", content, headers)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """Connectors ``red-1`` of the users and ``blue-1`` of another tenant."""
    levels = LogLevels(SystemClock())
    herder, operations = FakeHerder(levels), FakeOperations()
    for name in ("red-1", "blue-1"):
        herder.create(name, {**CONFIG, "name": name})
    users = [
        {"name": name, "token": TOKENS[name][1], "grants": [{"role": role, "connectors": "red-*"}]}
        for name, role in GRANTS.items()
    ]
    file = tmp_path / "users.yaml"
    file.write_text(yaml.safe_dump({"users": users}))
    app = create_app(
        herder.handlers,
        NodeInfo("http://n:1", "cluster"),
        levels,
        users=Users(file, SystemClock()),
        connector_operations=operations,
    )
    with RestServer(app) as server:
        yield Api(server, operations, herder)


def test_content_of_a_dead_letter_needs_admin(api: Api) -> None:
    """Other roles get error and sizes, for connectors of their grants."""
    letter = api.ask("reader", "GET", "/red-1/dead-letters/0/7").json()
    assert letter["value"] == {"bytes": 9}
    for user in ("reader", "operator"):
        assert api.ask(user, "GET", "/red-1/dead-letters/0/7/content").status == 403
    content = api.ask("owner", "GET", "/red-1/dead-letters/0/7/content").json()
    assert content["value"]["text"].startswith("content")
    for path in ("kinds", "0/7", "0/7/content"):
        assert api.ask("owner", "GET", f"/blue-1/dead-letters/{path}").status == 403


def test_a_replay_needs_operate(api: Api) -> None:
    """Also its plan: it reads the topic."""
    path = "/red-1/dead-letters/replay"
    body = {"codes": ["bad_json"], "ends": [{"partition": 1, "offset": 9}]}
    assert api.ask("reader", "POST", path, body).status == 403
    assert api.ask("operator", "POST", path, body).json()["applied"] is False
    [(_, choice)] = api.operations.asked
    assert choice == ReplayChoice(frozenset({"bad_json"}), ends={1: 9})
    assert api.ask("owner", "POST", "/blue-1/dead-letters/replay", {"apply": True}).status == 403
    assert len(api.operations.asked) == 1


def test_checks_take_only_a_configuration_that_the_caller_may_create(api: Api) -> None:
    """Another name, a wrong key, or another connector's group: nothing is opened for it."""
    other_group = {**CONFIG, "iceberg.control.group-id": "connect-blue-1"}
    for config, message in (
        ({**CONFIG, "name": "blue-1"}, "doesn't match connector name in the URL"),
        ({**CONFIG, "tasks.max": "many"}, "tasks.max"),
        ({**CONFIG, "topics": "control-iceberg"}, "topics"),
        (other_group, "group"),
    ):
        for path, body in (
            ("migration/check", config),
            ("catalog/check", {"config": config}),
            ("preview", {"config": config}),
        ):
            refused = api.ask("owner", "POST", f"/red-2/{path}", body)
            assert (refused.status, message in refused.json()["message"]) == (400, True), refused
    for path, body in (
        ("migration/check", CONFIG),
        ("catalog/check", {"config": CONFIG}),
        ("preview", {"config": CONFIG}),
    ):
        assert api.ask("operator", "POST", f"/red-2/{path}", body).status == 403
        assert api.ask("owner", "POST", f"/blue-2/{path}", body).status == 403
    assert api.operations.asked == []
    assert api.ask("owner", "POST", "/red-2/migration/check", CONFIG).status == 200
    assert api.operations.asked == [("migration", {**CONFIG, "name": "red-2"})]


def test_requests_are_bounded(api: Api) -> None:
    """Positions, filters, partitions and races have limits."""
    for place in (f"{PARTITION_MAX + 1}/0", "-1/0", "0/-1", f"0/{2**63}", "x/0", f"0/{'9' * 5000}"):
        assert api.ask("owner", "GET", f"/red-1/dead-letters/{place}").status == 404, place
    for body in (
        {"codes": ["c"] * (FILTERS_MAX + 1)},
        {"ends": [{"partition": -1, "offset": 0}]},
        {"apply": "yes"},
        {"unknown": 1},
    ):
        assert api.ask("owner", "POST", "/red-1/dead-letters/replay", body).status == 400, body
    for races in (0, RACES_MAX + 1, "many"):
        body = {"config": CONFIG, "races": races}
        assert api.ask("owner", "POST", "/red-1/catalog/check", body).status == 400
    for given in ({"records": 0}, {"records": PREVIEW_RECORDS_MAX + 1}, {"start": "middle"}):
        body = {"config": CONFIG, **given}
        assert api.ask("owner", "POST", "/red-1/preview", body).status == 400
    assert api.operations.asked == []


def test_secrets_are_masked_also_in_names(api: Api) -> None:
    """A table or header whose name contains a secret."""
    secret = api.operations.secret = "canary-operations-77"
    KNOWN.add(secret)
    for method, path, body in (
        ("GET", "/red-1/dead-letters/kinds", None),
        ("GET", "/red-1/dead-letters/0/7/content", None),
        ("POST", "/red-1/migration/check", CONFIG),
        ("POST", "/red-1/preview", {"config": CONFIG}),
    ):
        answer = api.ask("owner", method, path, body)
        assert answer.status == 200
        assert secret.encode() not in answer.content
        assert MASK.encode() in answer.content


def test_an_audit_masks_names_of_tables(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every other text of an answer."""
    secret = "canary-audit-88"
    KNOWN.add(secret)
    counts = dict.fromkeys(("announced", "committed", "waiting", "unproved", "others", "now"), 0)
    audit = api.herder.show("red-1", "audit")
    report = {**audit, "tables": [{"name": f"db.{secret}", **counts}]}
    monkeypatch.setattr(api.herder, "show", lambda _name, _view: report)
    answer = api.ask("reader", "GET", "/red-1/audit")
    assert answer.status == 200, answer.content
    assert answer.json()["tables"][0]["name"] == f"db.{MASK}"
