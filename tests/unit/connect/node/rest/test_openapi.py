"""The OpenAPI document: every path operation, every status of each, every body's shape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import yaml
from fastapi import APIRouter
from fastapi.routing import APIRoute
from jsonschema import Draft202012Validator

from connect.clock import SystemClock
from connect.config.keys.connector_keys import CONNECTOR_CLASS
from connect.errors import InvariantViolation
from connect.node.node_requests import (
    ConflictError,
    Health,
    NodeInfo,
    OffsetPlan,
    ProbeState,
    UnavailableError,
)
from connect.node.rest import http_middleware, limits
from connect.node.rest.access import open_to_all, rule
from connect.node.rest.api_route import ApiRoute
from connect.node.rest.app import Api, ApiSettings, create_app
from connect.node.rest.auth import Users, new_token
from connect.node.rest.dependencies import RequestHandlers
from connect.node.rest.http_middleware import BODY_BYTES_MAX
from connect.node.rest.log_levels import LogLevels
from connect.protocol.offset_plan import OffsetTarget
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.operations import FakeOperations, FencedOperations
from tests.support.fakes.rest_server import Reply, RestServer

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
    ("POST", "/icefloe/v1/connectors/{name}/offsets/plan"): {"to": "earliest"},
    ("POST", "/icefloe/v1/connectors/{name}/control/rebase"): {"apply": True, "tables": ["db.t"]},
    ("POST", "/icefloe/v1/connectors/{name}/control/vtts/reset"): {"reason": "dated 2100"},
    ("POST", "/icefloe/v1/connectors/{name}/dead-letters/replay"): {"apply": True},
    ("POST", "/icefloe/v1/connectors/{name}/rewind"): {
        "offsets": [{"topic": "t", "partition": 0, "offset": 7}],
        "accept": ["records_gone"],
    },
    ("POST", "/icefloe/v1/connectors/{name}/migration/check"): CONFIG,
    ("POST", "/icefloe/v1/connectors/{name}/catalog/check"): {"config": CONFIG, "races": 1},
    ("POST", "/icefloe/v1/connectors/{name}/preview"): {"config": CONFIG, "records": 1},
}
TOKEN, ENTRY = new_token()
KNOWN = {
    "name": "one",
    "task": "0",
    "plugin": CONNECTOR_CLASS,
    "logger": "root",
    "table": "a.b",
    "file": "app.js",
    "partition": "0",
    "offset": "7",
}
UNKNOWN = {**KNOWN, "name": "unknown", "plugin": "Unknown", "logger": "unknown.logger", "file": "x"}


PROBES = {"/health", "/livez", "/readyz"}
"""Their 503 has a body of its own."""


class Operation(NamedTuple):
    """An operation of the document, and the answers it documents by status."""

    method: str
    path: str
    role: str
    statuses: Mapping[int, Mapping[str, Any]]


class StoppingHerder(FakeHerder):
    """A herder whose connectors are still being stopped, after a rewind that was begun."""

    def _require_stopped(self, name: str) -> None:
        raise ConflictError("still being stopped", connector=name)

    def plan_offsets(self, name: str, target: OffsetTarget) -> OffsetPlan:
        """A rewind is not finished."""
        raise ConflictError(f"a rewind to finish before {target.kind}", connector=name)


def _app(herder: Any, users: Users | None = None, **settings: bool) -> Api:
    node = NodeInfo("http://127.0.0.1:8083", "cluster")
    levels = LogLevels(SystemClock())
    return create_app(
        herder.handlers,
        node,
        levels,
        settings=ApiSettings(**settings),
        users=users,
        probe=lambda: ProbeState("down" if isinstance(herder, StartingHerder) else None, ()),
        connector_operations=FencedOperations()
        if isinstance(herder, StoppingHerder)
        else FakeOperations(),
    )


DOCUMENT = _app(FakeHerder(LogLevels(SystemClock()))).openapi()
OPERATIONS = [
    Operation(
        method.upper(),
        path,
        operation["x-icefloe-role"],
        {int(status): answer for status, answer in operation["responses"].items()},
    )
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]


def _validator(answer: Mapping[str, Any]) -> Draft202012Validator | None:
    """What a documented answer's body is held to; None where it has none."""
    content = answer.get("content", {}).get("application/json")
    if content is None:
        return None
    return Draft202012Validator({**content["schema"], "components": DOCUMENT["components"]})


class StartingHerder:
    """The parts of a node that is starting."""

    health = Health("starting", "starting")

    @property
    def handlers(self) -> Any:
        """What the API calls: this object, each time."""
        part: Any = self
        return RequestHandlers(part, part, part, part, part, part, part)

    def text(self) -> str:
        """There are some from the start."""
        return ""

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object, **__: object) -> None:
            raise UnavailableError("starting")

        return refuse


class LeaderlessHerder(FakeHerder):
    """A herder whose cluster is choosing a leader."""

    def node_to_ask(self, role: str, name: str | None) -> str | None:
        """No node leads."""
        del name
        if role == "leader":
            raise ConflictError("no known leader")
        return None


class FailedTableHerder(FakeHerder):
    """A herder with a failed table, and with tables that are maintained."""

    def request_maintenance(self, name: str, *, is_run: bool) -> Mapping[str, Any]:
        """It begins, or ends."""
        return {
            **self.show(name, "maintenance"),
            "state": "IDLE" if is_run else "RUNNING",
        }

    def decide(self, name: str, table: str, action: str) -> Mapping[str, Any]:
        """Something was given up."""
        self._get(name)
        return {"connector": name, "table": table, "action": action}


def _server(herder: Any, users: Users | None = None, **settings: bool) -> RestServer:
    return RestServer(_app(herder, users, **settings))


def _slowly(server: RestServer, endpoint: Operation, path: str) -> Reply:
    """A body that never comes whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_middleware, "BODY_S", 0.05)
        return server.send(endpoint.method, path, None, {"content-length": "9"})


def _ask(server: RestServer, endpoint: Operation, path: str, **headers: str) -> Reply:
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
    herders = {name: FailedTableHerder(LogLevels(SystemClock())) for name in ("up", "untracked")}
    herders["busy"] = StoppingHerder(LogLevels(SystemClock()))  # type: ignore[assignment]
    herders["leaderless"] = LeaderlessHerder(LogLevels(SystemClock()))  # type: ignore[assignment]
    for herder in herders.values():
        herder.create("one", CONFIG)
    up, busy, down = (_server(h) for h in (herders["up"], herders["busy"], StartingHerder()))
    untracked = _server(herders["untracked"], is_tracking_topics=False)
    guarded = _server(herders["untracked"], Users(file, SystemClock()))
    leaderless = _server(herders["leaderless"])
    with up, untracked, busy, down, guarded, leaderless:
        yield {
            "up": up,
            "untracked": untracked,
            "busy": busy,
            "down": down,
            "guarded": guarded,
            "leaderless": leaderless,
        }


def _replies(endpoint: Operation, servers: Mapping[str, RestServer]) -> Iterator[Reply]:
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
    if 403 in endpoint.statuses:
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
    for name in ("new", "unknown"):
        up.send("DELETE", f"/connectors/{name}")
    up.json("PUT", "/connectors/one/config", CONFIG)
    up.send("PUT", "/connectors/one/resume")


@pytest.mark.parametrize("endpoint", OPERATIONS, ids=lambda e: f"{e.method} {e.path}")
def test_every_documented_status_is_reached_and_no_other(
    endpoint: Operation, servers: Mapping[str, RestServer]
) -> None:
    """Success, refusals, 404, 409, a node that is starting; bodies have their shape."""
    seen = set()
    for reply in _replies(endpoint, servers):
        seen.add(reply.status)
        answer = endpoint.statuses.get(reply.status)
        assert answer is not None, (reply.status, reply.content)
        is_error = reply.status >= 400 and (reply.status != 503 or endpoint.path not in PROBES)
        if is_error:
            assert reply.json()["error_code"] == reply.status
            assert reply.json()["message"]
        validator = _validator(answer)
        if validator is not None:
            validator.validate(reply.json())
        elif "content" not in answer:
            assert not reply.content
    assert seen == set(endpoint.statuses)


def test_every_route_is_in_the_document() -> None:
    """Nothing can be called that the document does not name."""
    routes = {
        (method, route.path)
        for route in _app(FakeHerder(LogLevels(SystemClock()))).routes
        for method in (getattr(route, "methods", None) or {"?"})
    }
    assert routes == {(e.method, e.path) for e in OPERATIONS}
    assert len(routes) > 40


def test_every_route_has_one_rule() -> None:
    """The route class refuses an operation without a rule; no other class is used."""
    app = _app(FakeHerder(LogLevels(SystemClock())))
    assert {type(route) for route in app.routes} == {ApiRoute}
    router = APIRouter(route_class=ApiRoute)
    with pytest.raises(InvariantViolation, match="has 0 rules"):
        router.get("/nowhere")(lambda: None)
    with pytest.raises(InvariantViolation, match="has 2 rules"):
        router.get("/nowhere", dependencies=[rule("read", "any"), open_to_all()])(lambda: None)


def test_a_rule_on_a_plain_route_admits_no_caller() -> None:
    """An operation that is not an ``ApiRoute`` fails instead of running without a check."""
    app = _app(FakeHerder(LogLevels(SystemClock())))
    app.add_api_route("/plain", lambda: "served", dependencies=[rule("admin", "node")])
    assert isinstance(app.routes[-1], APIRoute)
    with RestServer(app) as server:
        assert server.send("GET", "/plain").status == 500


def test_roles_follow_the_methods() -> None:
    """Reads need ``read``; that role alone cannot change anything."""
    reading = [e for e in OPERATIONS if e.role == "read"]
    assert {e.method for e in reading} == {"GET"}


def test_the_document_is_complete(servers: Mapping[str, RestServer]) -> None:
    """Every reference exists; parameters are declared; FastAPI's 422 is not used."""
    document = servers["up"].send("GET", "/icefloe/v1/openapi.json").json()
    assert document == DOCUMENT
    text = json.dumps(document)
    schemas = document["components"]["schemas"]
    for name in text.split('"#/components/schemas/')[1:]:
        assert name.split('"')[0] in schemas
    names = []
    for path, operations in document["paths"].items():
        for operation in operations.values():
            names.append(operation["operationId"])
            assert "422" not in operation["responses"]
            assert operation["description"]
            parameters = operation.get("parameters", [])
            named = [p["name"] for p in parameters if p["in"] == "path"]
            assert all("{" + name + "}" in path for name in named)
            assert path.count("{") == len(named)
    assert len(names) == len(set(names))
    assert "HTTPValidationError" not in schemas
