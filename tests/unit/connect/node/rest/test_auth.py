"""Who may call: users files, roles, and every endpoint's rule, from the application's routes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from connect.clock import SystemClock
from connect.errors import ConfigError
from connect.node.node_requests import NodeInfo
from connect.node.rest.api_route import ApiRoute
from connect.node.rest.app import create_app
from connect.node.rest.auth import KNOWN_MS, Caller, Grant, Login, Users, hashed_password, new_token
from connect.node.rest.log_levels import LogLevels
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.operations import FakeOperations
from tests.support.fakes.rest_server import Reply, RestServer

CONFIG = {
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}
LETTERS = "errors.deadletterqueue.topic.name"
NAMES = ("red-1", "red-2", "blue-1")
TOKENS = {name: new_token() for name in ("root", "reader", "red", "blue", "stranger")}
GRANTS: dict[str, list[dict[str, Any]]] = {
    "root": [{"role": "admin", "connectors": "*"}],
    "reader": [{"role": "read"}],
    "red": [{"role": "admin", "connectors": ["red-*"]}],
    "blue": [
        {"role": "operate", "connectors": ["blue-*"]},
        {"role": "read", "connectors": "red-1"},
    ],
}
PASSWORD = "correct horse: battery"
HASHED = hashed_password(PASSWORD)  # slow on purpose: once


class AdvancingClock(SystemClock):
    """A clock that advances by a second with every call."""

    seconds = 0

    def monotonic_ms(self) -> int:
        """A second later than before."""
        self.seconds += 1
        return self.seconds * 1000


def users_file(folder: Path) -> Path:
    """Every kind of user."""
    users: list[dict[str, Any]] = [
        {"name": name, "token": TOKENS[name][1], "grants": grants}
        for name, grants in GRANTS.items()
    ]
    users[0]["password"] = HASHED
    users.append({"name": "machine", "certificate": "ci.example", "grants": [{"role": "read"}]})
    file = folder / "users.yaml"
    file.write_text(yaml.safe_dump({"users": users}))
    return file


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    """The API with users, and three connectors."""
    levels = LogLevels(SystemClock())
    herder = FakeHerder(levels)
    for name in NAMES:
        herder.create(name, {**CONFIG, "name": name}, initial_state=None)
    users = Users(users_file(tmp_path), SystemClock())
    app = create_app(
        herder.handlers,
        NodeInfo("http://n:1", "cluster"),
        levels,
        users=users,
        connector_operations=FakeOperations(),
    )
    with RestServer(app) as running:
        yield running


def ask(server: RestServer, user: str | None, method: str, path: str, body: Any = None) -> Reply:
    """As one of the users, by token."""
    headers = {} if user is None else {"Authorization": f"Bearer {TOKENS[user][0]}"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    content = b"" if body is None else json.dumps(body).encode()
    return server.send(method, path, content, headers)


OPEN_TO_ALL = {"/health", "/livez", "/readyz", "/ui", "/ui/{file}"}
APP = create_app(
    FakeHerder(LogLevels(SystemClock())).handlers,
    NodeInfo("http://n:1", "c"),
    LogLevels(SystemClock()),
)
OPERATIONS = [
    (method, route.path, route.rule.role or "read")
    for route in APP.routes
    if isinstance(route, ApiRoute)
    for method in sorted(route.methods)
]


@pytest.mark.parametrize(("method", "path", "role"), OPERATIONS)
def test_every_route_has_its_rule(server: RestServer, method: str, path: str, role: str) -> None:
    """Unknown callers, lower roles and users of other connectors are refused."""
    concrete = (
        path.replace("{name}", "red-1")
        .replace("{task}", "0")
        .replace("{table}", "db.t")
        .replace("{plugin}", "IcebergSink")
        .replace("{logger}", "root")
    )
    if path in OPEN_TO_ALL:
        concrete = concrete.replace("{file}", "app.js")
        assert ask(server, None, method, concrete).status == 200
        return
    for user in (None, "stranger"):
        refused = ask(server, user, method, concrete)
        assert refused.status == 401
        assert refused.json() == {
            "error_code": 401,
            "message": "User cannot access the resource.",
        }
        assert "Basic" in refused.headers["www-authenticate"]
    if role != "read":
        assert ask(server, "reader", method, concrete).status == 403
    if "{name}" in path:
        theirs = concrete.replace("red-1", "blue-1")
        refused = ask(server, "red", method, theirs)
        assert refused.status == 403
        assert refused.json()["message"] == f"red lacks the role {role} for connector blue-1"
    if path.startswith(("/admin", "/metrics", "/icefloe/v1/cluster")):
        assert ask(server, "red", method, concrete).status == 403
    assert ask(server, "root", method, concrete).status not in {401, 403}


def test_every_route_is_tested() -> None:
    """Only the listed ones are open to all."""
    assert len(OPERATIONS) == len(APP.routes) > 40
    is_open = {r.path for r in APP.routes if isinstance(r, ApiRoute) and r.rule.role is None}
    assert is_open == OPEN_TO_ALL


@pytest.mark.parametrize(
    ("pattern", "name", "is_covered"),
    [
        ("*", "anything", True),
        ("red-*", "red-1", True),
        ("red-*", "red-", True),
        ("red-*", "dark-red-1", False),
        ("*-red", "dark-red", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c", False),
        ("ab*ba", "aba", False),
        ("a**b", "ab", True),
        ("red", "red-1", False),
        ("red-?", "red-1", False),
        ("red-?", "red-?", True),
        ("red-[12]", "red-1", False),
        ("red-[12]", "red-[12]", True),
        ("red-[!a]*", "red-bc", False),
        ("red.*", "redx1", False),
    ],
)
def test_only_the_asterisk_is_a_wildcard(pattern: str, name: str, is_covered: bool) -> None:
    """Other characters are literal; grants for the node need the asterisk alone."""
    grant = Grant("admin", (pattern,))
    assert grant.covers("read", name) is is_covered
    assert grant.covers("read", None) is (pattern == "*")


def test_lists_contain_only_readable_connectors(server: RestServer) -> None:
    """An answer does not contain names of other users' connectors."""
    assert ask(server, "root", "GET", "/connectors").json() == sorted(NAMES)
    assert ask(server, "red", "GET", "/connectors").json() == ["red-1", "red-2"]
    expanded = ask(server, "blue", "GET", "/connectors?expand=info").json()
    assert sorted(expanded) == ["blue-1", "red-1"]


def test_creating_needs_a_grant_for_the_name_in_the_body(server: RestServer) -> None:
    """The name in the body decides; a prefix does not reach beyond itself."""
    body = {"name": "blue-9", "config": CONFIG}
    assert ask(server, "red", "POST", "/connectors", body).status == 403
    assert ask(server, "blue", "POST", "/connectors", body).status == 403
    body["name"] = "red-9"
    assert ask(server, "red", "POST", "/connectors", body).status == 201
    assert ask(server, "red", "PUT", "/connectors/blue-9/config", CONFIG).status == 403


def test_validating_needs_a_grant_for_the_name_in_the_body(server: RestServer) -> None:
    """What the operator grants to a connector by its name is not for other users."""
    path = "/connector-plugins/IcebergSink/config/validate?icefloe.remote=false"
    refused = ask(server, "red", "PUT", path, {**CONFIG, "name": "blue-1"})
    assert refused.status == 403
    assert refused.json()["message"] == "red lacks the role admin for connector blue-1"
    assert ask(server, "red", "PUT", path, {**CONFIG, "name": "red-9"}).status == 200
    assert ask(server, "root", "PUT", path, {**CONFIG, "name": "blue-1"}).status == 200
    nameless = ask(server, "red", "PUT", path, CONFIG).json()
    assert nameless["error_count"] == 1


def test_dead_letters_go_to_no_topic_of_another_users_connector(server: RestServer) -> None:
    """They have the bytes of their records. A caller who may change both connectors may."""
    theirs = {**CONFIG, "topics": "payments"}
    assert ask(server, "root", "PUT", "/connectors/blue-1/config", theirs).status == 200
    config = {**CONFIG, "errors.tolerance": "all", LETTERS: "payments"}
    for method, path in (
        ("PUT", "/connectors/red-1/config"),
        ("PATCH", "/connectors/red-1/config"),
    ):
        refused = ask(server, "red", method, path, config)
        assert refused.status == 400
        assert "a connector that you may not change uses it" in refused.json()["message"]
        assert "blue" not in refused.json()["message"]
    own = {**CONFIG, "topics": "red-letters"}
    assert ask(server, "red", "PUT", "/connectors/red-2/config", own).status == 200
    change = {**config, LETTERS: "red-letters"}
    assert ask(server, "red", "PUT", "/connectors/red-1/config", change).status == 200
    assert ask(server, "root", "PUT", "/connectors/red-1/config", config).status == 200


def test_passwords_identify_users(server: RestServer) -> None:
    """Basic authentication, repeatedly; wrong and malformed credentials are refused."""

    def status(user: str, password: str) -> int:
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return server.send("GET", "/connectors", b"", {"Authorization": f"Basic {pair}"}).status

    assert [status("root", PASSWORD) for _ in range(20)] == [200] * 20
    assert status("root", PASSWORD + " ") == status("red", PASSWORD) == status("x", "") == 401
    for broken in ("Basic", "Basic !!!", "Basic //8=", "Digest x", "Bearer", ""):
        assert server.send("GET", "/", b"", {"Authorization": broken}).status == 401


def test_the_challenge_names_basic_only_if_users_have_passwords(tmp_path: Path) -> None:
    """Otherwise a browser would show its password dialog."""
    assert "Basic" in Users(users_file(tmp_path), SystemClock()).challenge
    file = tmp_path / "tokens.yaml"
    user = {"name": "red", "token": TOKENS["red"][1], "grants": GRANTS["red"]}
    file.write_text(yaml.safe_dump({"users": [user]}))
    assert Users(file, SystemClock()).challenge == 'Bearer realm="icefloe"'


def test_certificates_identify_users(tmp_path: Path) -> None:
    """By a common name that TLS has checked; an unknown one is refused."""
    users = Users(users_file(tmp_path), SystemClock())
    known = users.caller(None, "ci.example")
    assert isinstance(known, Caller)
    assert known.name == "machine"
    assert users.caller(None, "other.example") is None


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """New users are accepted and removed ones refused; an invalid file changes nothing."""
    file = users_file(tmp_path)
    users = Users(file, AdvancingClock())
    bearer, other = (f"Bearer {TOKENS[name][0]}" for name in ("red", "stranger"))

    def is_known(authorization: str) -> bool:
        users.refresh()
        return users.caller(authorization, None) is not None

    assert is_known(bearer)
    good = file.read_text()
    file.write_text("users: [")
    assert is_known(bearer)
    file.write_text(good.replace(TOKENS["red"][1], TOKENS["stranger"][1]))
    assert not is_known(bearer)
    assert is_known(other)
    file.unlink()
    assert is_known(other)


def basic(user: str, password: str) -> str:
    """The header ``Authorization`` of a password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_right_password_is_cached_for_some_minutes(tmp_path: Path) -> None:
    """A wrong one is hashed each time."""
    clock = AdvancingClock()
    users = Users(users_file(tmp_path), clock)
    right, wrong = basic("root", PASSWORD), basic("root", "guess")
    login = users.caller(right, None)
    assert isinstance(login, Login)
    assert not login.is_familiar
    caller = users.check(login)
    assert users.caller(right, None) is caller is not None
    clock.seconds += KNOWN_MS // 1000
    again = users.caller(right, None)
    assert isinstance(again, Login)
    assert again.is_familiar
    for _ in range(2):
        guess = users.caller(wrong, None)
        assert isinstance(guess, Login)
        assert not guess.is_familiar
        assert users.check(guess) is None


@pytest.mark.parametrize("change", ["removed", "other password", "other grants"])
def test_users_that_change_during_a_password_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The answer is that of the new users, and no old one is cached."""
    file = users_file(tmp_path)
    users = Users(file, AdvancingClock())
    login = users.caller(basic("root", PASSWORD), None)
    assert isinstance(login, Login)
    content = yaml.safe_load(file.read_text())
    if change == "removed":
        del content["users"][0]
    elif change == "other password":
        content["users"][0]["password"] = hashed_password("another")
    else:
        content["users"][0]["grants"] = [{"role": "read"}]
    real = hashlib.scrypt

    def slow(*arguments: Any, **more: Any) -> bytes:
        file.write_text(yaml.safe_dump(content))
        users.refresh()
        return real(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "scrypt", slow)
        caller = users.check(login)
    now = users.caller(basic("root", PASSWORD), None)
    if change == "other grants":
        assert caller is now is not None
        assert not caller.may("operate", None)
    else:
        assert caller is None
        assert isinstance(now, Login)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no list `users`"),
        ("users: []", "no list `users`"),
        ("users: [", "is not YAML"),
        ("users: [1]", "user 1 has no name"),
        ("users: [{name: 'a:b'}]", "user 1 has no name"),
        ("users: [{name: a}]", "no list `grants`"),
        ("users: [{name: a, grants: [{role: read}]}]", "neither password, token nor certificate"),
        ("users: [{name: a, grants: [{role: king}]}]", "role is one of read, operate, admin"),
        ("users: [{name: a, grants: [{role: read, connectorz: x}]}]", "unknown key 'connectorz'"),
        ("users: [{name: a, grants: [{role: read, connectors: []}]}]", "a pattern or a list"),
        ("users: [{name: a, pass: x, grants: [{role: read}]}]", "unknown key 'pass'"),
        ("users: [{name: a, password: hunter2, grants: [{role: read}]}]", "icefloe user password"),
        ("users: [{name: a, token: sha256:xyz, grants: [{role: read}]}]", "icefloe user token"),
        (
            (
                "users: [{name: a, certificate: c, grants: [{role: read}]},"
                " {name: a, certificate: d, grants: [{role: read}]}]"
            ),
            "it has the user 'a' twice",
        ),
    ],
)
def test_invalid_user_files_are_named(tmp_path: Path, content: str, message: str) -> None:
    """With the reason and without possible secrets."""
    file = tmp_path / "users.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message) as refused:
        Users(file, SystemClock())
    assert str(file) in str(refused.value)
    assert "hunter2" not in str(refused.value)
