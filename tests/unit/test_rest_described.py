"""The API's description of itself: every endpoint, every status of each, every body's shape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter
from starlette.routing import Route

from connect.clock import SystemClock
from connect.config.declarations import CONNECTOR_CLASS
from connect.errors import InvariantViolation
from connect.rest import described, gate, limits
from connect.rest.app import ApiSettings, create_app
from connect.rest.auth import Users, new_token
from connect.rest.described import BY_ROUTE, ENDPOINTS, Described
from connect.rest.gate import BODY_BYTES_MAX
from connect.rest.herder_api import ConflictError, Health, NodeInfo, UnavailableError
from connect.rest.loggers import LogLevels
from connect.rest.routes import Answer, add_route
from tests.fakes.herder import FakeHerder
from tests.fakes.rest_server import Reply, RestServer

CONFIG = {
    "connector.class": CONNECTOR_CLASS,
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}
OFFSETS = {
    "offsets": [
        {"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 1}}
    ]
}
BODIES: Mapping[tuple[str, str], Any] = {
    ("POST", "/connectors"): {"name": "new", "config": CONFIG},
    ("PUT", "/connectors/{name}/config"): CONFIG,
    ("PATCH", "/connectors/{name}/config"): {"tasks.max": 2},
    ("PATCH", "/connectors/{name}/offsets"): OFFSETS,
    ("PUT", "/connector-plugins/{plugin}/config/validate"): CONFIG,
    ("PUT", "/admin/loggers/{logger}"): {"level": "warn"},
    ("POST", "/icefloe/v1/connectors/{name}/control/rebase"): {"apply": True, "tables": ["db.t"]},
    ("POST", "/icefloe/v1/connectors/{name}/control/vtts/reset"): {"reason": "dated 2100"},
}
TOKEN, ENTRY = new_token()
KNOWN = {
    "name": "one",
    "task": "0",
    "plugin": CONNECTOR_CLASS,
    "logger": "root",
    "table": "a.b",
    "file": "app.js",
}
UNKNOWN = {**KNOWN, "name": "nobody", "plugin": "Nobody", "logger": "nobody.at.all", "file": "x"}


class Down:
    """A herder of a node that is starting."""

    def health(self) -> Health:
        """It says so."""
        return Health("starting", "starting")

    def metrics_text(self) -> str:
        """There are some from the start."""
        return ""

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object, **__: object) -> None:
            raise UnavailableError("starting")

        return refuse


class Busy(FakeHerder):
    """A herder whose connectors are still being stopped."""

    def _must_be_stopped(self, name: str) -> None:
        raise ConflictError("still being stopped", connector=name)


class Leaderless(FakeHerder):
    """A herder whose cluster is choosing a leader."""

    def where(self, what: str, name: str | None) -> str | None:
        """Nobody leads."""
        del name
        if what == "leader":
            raise ConflictError("no known leader")
        return None


class Deciding(FakeHerder):
    """A herder with a failed table."""

    def decide_table(self, name: str, table: str, action: str) -> Mapping[str, Any]:
        """Something was given up."""
        self._get(name)
        return {"connector": name, "table": table, "action": action}


def _server(herder: Any, users: Users | None = None, **settings: bool) -> RestServer:
    node = NodeInfo("http://127.0.0.1:8083", "cluster")
    levels = LogLevels(SystemClock())
    app = create_app(herder, node, levels, settings=ApiSettings(**settings), users=users)
    return RestServer(app)


def _slowly(server: RestServer, endpoint: Described, path: str) -> Reply:
    """A body that never comes whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "BODY_S", 0.05)
        return server.send(endpoint.method, path, None, {"content-length": "9"})


def _ask(server: RestServer, endpoint: Described, path: str, **headers: str) -> Reply:
    body = BODIES.get((endpoint.method, endpoint.path))
    if body is None:
        return server.send(endpoint.method, path, None, headers)
    given = {"content-type": "application/json", **headers}
    return server.send(endpoint.method, path, json.dumps(body).encode(), given)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, RestServer]]:
    """APIs over herders in every state an endpoint can meet, and one that asks who calls."""
    grants = [{"role": "read", "connectors": "other-*"}]
    file = tmp_path_factory.mktemp("users") / "users.yaml"
    file.write_text(yaml.safe_dump({"users": [{"name": "u", "token": ENTRY, "grants": grants}]}))
    herders = {name: Deciding(LogLevels(SystemClock())) for name in ("up", "untracked")}
    herders["busy"] = Busy(LogLevels(SystemClock()))  # type: ignore[assignment]
    herders["leaderless"] = Leaderless(LogLevels(SystemClock()))  # type: ignore[assignment]
    for herder in herders.values():
        herder.create_connector("one", CONFIG)
    up, busy, down = (_server(h) for h in (herders["up"], herders["busy"], Down()))
    untracked = _server(herders["untracked"], is_tracking_topics=False)
    guarded = _server(herders["untracked"], Users(file, SystemClock()))
    leaderless = _server(herders["leaderless"])
    with up, untracked, busy, down, guarded, leaderless:
        yield {
            "up": up, "untracked": untracked, "busy": busy, "down": down, "guarded": guarded,
            "leaderless": leaderless,
        }  # fmt: skip


def _replies(endpoint: Described, servers: Mapping[str, RestServer]) -> Iterator[Reply]:
    up, path = servers["up"], endpoint.path.format(**KNOWN)
    is_on_stopped = endpoint.path.endswith("/offsets") and endpoint.method != "GET"
    if is_on_stopped:
        up.send("PUT", "/connectors/one/stop")
    yield _ask(up, endpoint, path, **{"content-type": "nonsense"})
    yield _ask(up, endpoint, path, **{"content-type": "text/xml"})
    yield _ask(up, endpoint, path, accept="image/png")
    yield up.send(endpoint.method, path, b"x" * (BODY_BYTES_MAX + 1))
    yield _slowly(up, endpoint, path)
    if endpoint.method != "GET":
        yield _ask(up, endpoint, path, **{"sec-fetch-site": "cross-site"})
    yield _ask(servers["guarded"], endpoint, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "ATTEMPTS_MAX", 0)
        yield _ask(servers["guarded"], endpoint, path, authorization="Basic dTpndWVzcw==")
    if endpoint.role != "read" or endpoint.reach != "any":
        yield _ask(servers["guarded"], endpoint, path, authorization=f"Bearer {TOKEN}")
    for query in ("", "?includeTasks=true&onlyFailed=true&scope=cluster"):
        yield _ask(up, endpoint, path + query)
    for places in (UNKNOWN, {**KNOWN, "name": "new"}):
        yield _ask(up, endpoint, endpoint.path.format(**places))
    for other in ("untracked", "busy", "down", "leaderless"):
        yield _ask(servers[other], endpoint, path)
    for other in ("down", "leaderless"):
        yield _ask(servers[other], endpoint, path + "?scope=cluster")
    if endpoint.path == "/admin/loggers/{logger}" and endpoint.method == "PUT":
        yield up.json(endpoint.method, path, {"level": "loud"})
    for name in ("new", "nobody"):
        up.send("DELETE", f"/connectors/{name}")
    up.json("PUT", "/connectors/one/config", CONFIG)
    up.send("PUT", "/connectors/one/resume")


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: f"{e.method} {e.path}")
def test_every_described_status_is_reached_and_no_other(
    endpoint: Described, servers: Mapping[str, RestServer]
) -> None:
    """Success, refusals, absence, conflict, a node that is starting; bodies have their shape."""
    seen = set()
    for reply in _replies(endpoint, servers):
        seen.add(reply.status)
        is_error = reply.status >= 400 and (endpoint.path, reply.status) != ("/health", 503)
        if is_error:
            assert reply.json()["error_code"] == reply.status
            assert reply.json()["message"]
        elif endpoint.answer is not None and reply.content:
            TypeAdapter(endpoint.answer).validate_python(reply.json(), strict=True)
    assert seen == set(endpoint.all_statuses)


def test_every_route_is_described_and_every_description_has_a_route() -> None:
    """Nothing can be called that the document does not name, with the role it needs."""
    app = create_app(
        FakeHerder(LogLevels(SystemClock())), NodeInfo("http://a:1", "g"), LogLevels(SystemClock())
    )
    routes = {
        (method, route.path)
        for route in app.router.routes
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method != "HEAD"
    }
    assert routes == set(BY_ROUTE)
    with pytest.raises(InvariantViolation, match="not described"):
        add_route(app, "GET", "/nowhere", lambda _: Answer(200))


def test_roles_follow_the_methods() -> None:
    """Looking needs ``read``; nobody who may only read can change anything."""
    looking = [e for e in ENDPOINTS if e.role == "read"]
    assert {e.method for e in looking} == {"GET"}


def test_the_document_is_whole(servers: Mapping[str, RestServer]) -> None:
    """Every reference leads somewhere; every path's parameters are declared."""
    document = servers["up"].send("GET", "/icefloe/v1/openapi.json").json()
    text = json.dumps(document)
    schemas = document["components"]["schemas"]
    for name in text.split('"#/components/schemas/')[1:]:
        assert name.split('"')[0] in schemas
    assert document == described.openapi(document["info"]["version"])
    for path, operations in document["paths"].items():
        for operation in operations.values():
            named = [p["name"] for p in operation["parameters"] if p["in"] == "path"]
            assert all("{" + name + "}" in path for name in named)
            assert path.count("{") == len(named)
