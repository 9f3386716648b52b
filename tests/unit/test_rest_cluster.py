"""Several nodes' APIs: figures asked of others, with the caller's own credentials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from connect.clock import SystemClock
from connect.config.declarations import CONNECTOR_CLASS
from connect.rest.app import create_app
from connect.rest.auth import Users, new_token
from connect.rest.herder_api import ConnectorStatus, NodeInfo
from connect.rest.loggers import LogLevels
from tests.fakes.herder import FakeHerder
from tests.fakes.rest_server import RestServer

OVERVIEW = "/icefloe/v1/overview"
TASKS = ("lag_records", "records_dead_lettered")


class Placed(FakeHerder):
    """One of several nodes: knows the others, and has figures of what runs on it.

    Args:
        me: its worker id.
        number: its figures.
        urls: of the others, filled in later.
    """

    def __init__(self, me: str, number: float, urls: dict[str, str]) -> None:
        super().__init__(LogLevels(SystemClock()))
        self.me, self.number, self.urls = me, number, urls
        for name in ("orders", "secret"):
            config = {"connector.class": CONNECTOR_CLASS, "topics": "t", "tasks.max": "3"}
            self.create_connector(name, config)

    def status(self, name: str) -> ConnectorStatus:
        """The coordinator on ``a``, tasks on ``a``, ``b`` and ``b``."""
        found = super().status(name)
        nodes = ("a", "b", "b")
        tasks = tuple(replace(t, worker_id=n) for t, n in zip(found.tasks, nodes, strict=True))
        return replace(found, worker_id="a", tasks=tasks)

    def nodes(self) -> Mapping[str, str | None]:
        """All of them."""
        return {**self.urls, self.me: None}

    def figures(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Of tasks on each node, of the coordinator on ``a``."""
        shown = [m for m in metrics if m in TASKS or self.me == "a"]
        return {name: dict.fromkeys(shown, self.number) for name in ("orders", "secret")}


class Other:
    """Another node, whose answers the test chooses.

    Attributes:
        answers: one for each time it is asked, the last one again and again.
        asked: paths with their queries.
    """

    def __init__(self) -> None:
        self.answers: list[Response] = []
        self.asked: list[str] = []

    def app(self) -> Starlette:
        """What it serves."""
        return Starlette(routes=[Route(OVERVIEW, self._serve)])

    async def _serve(self, request: Request) -> Response:
        self.asked.append(f"{request.url.path}?{request.url.query}")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def _server(herder: Placed, users: Users | None = None) -> RestServer:
    levels = LogLevels(SystemClock())
    return RestServer(create_app(herder, NodeInfo("http://n:1", "c"), levels, users=users))


@contextmanager
def _two(users: Users | None = None) -> Iterator[dict[str, RestServer]]:
    urls: dict[str, dict[str, str]] = {"a": {}, "b": {}}
    with ExitStack() as stack:
        servers = {
            me: stack.enter_context(_server(Placed(me, number, urls[me]), users))
            for me, number in (("a", 10.0), ("b", 1.0))
        }
        for me, other in (("a", "b"), ("b", "a")):
            urls[me][other] = f"http://127.0.0.1:{servers[other].port}"
        yield servers


def _shown(server: RestServer, query: str = "", **headers: str) -> tuple[dict[str, Any], Any]:
    """Connector -> (not in files, in files), and whose figures are missing."""
    reply = server.send("GET", OVERVIEW + query, None, headers)
    assert reply.status == 200, reply.content
    body = reply.json()
    figures = {
        c["name"]: (c["not_in_files"], c["in_files_not_committed"]) for c in body["connectors"]
    }
    return figures, [node["worker_id"] for node in body["missing"]]


def test_every_node_adds_up_what_runs_on_all() -> None:
    """Tasks' figures of both, the coordinator's of its node; alone on request."""
    with _two() as servers:
        for server in servers.values():
            assert _shown(server) == ({"orders": (11, 10), "secret": (11, 10)}, [])
            letters = server.send("GET", "/icefloe/v1/connectors/orders/dead-letters").json()
            assert letters["records"] == 11
        assert _shown(servers["b"], "?forward=false")[0]["orders"] == (1, None)


def test_others_are_asked_in_the_callers_name(tmp_path: Path) -> None:
    """Who may read one connector gets figures of that one; a token travels, and nothing else."""
    token, entry = new_token()
    grants = [{"role": "read", "connectors": ["orders"]}]
    file = tmp_path / "users.yaml"
    file.write_text(yaml.safe_dump({"users": [{"name": "r", "token": entry, "grants": grants}]}))
    with _two(Users(file, SystemClock())) as servers:
        for server in servers.values():
            mine = {"authorization": f"Bearer {token}"}
            assert _shown(server, **mine) == ({"orders": (11, 10)}, [])
            assert server.send("GET", OVERVIEW).status == 401


@pytest.mark.parametrize(
    "answer",
    [
        JSONResponse({"error_code": 401, "message": "x"}, 401),
        JSONResponse({"connectors": 1}),
        JSONResponse([]),
        Response(b"<html>", media_type="text/html"),
    ],
)
def test_a_node_that_answers_something_else_is_named(answer: Response) -> None:
    """Its part is missing, so the sum is null; the rest is there, and it is asked again."""
    other = Other()
    other.answers.append(answer)
    with RestServer(other.app()) as running:
        herder = Placed("a", 10, {"b": f"http://127.0.0.1:{running.port}"})
        with _server(herder) as server:
            figures, missing = _shown(server)
            assert (figures["orders"], missing) == ((None, 10), ["b"])
            _shown(server)
    assert other.asked == [f"{OVERVIEW}?forward=false"] * 2


def test_a_node_that_is_away_is_left_alone_for_a_while() -> None:
    """No answer, or no address: named, and the others' figures are there."""
    other = Other()
    other.answers.append(JSONResponse({"connectors": []}))
    urls: dict[str, str] = {}
    with RestServer(other.app()) as running, _server(Placed("a", 10, urls)) as server:
        assert _shown(server)[1] == ["b"]
        urls["b"] = "http://127.0.0.1:1"  # nobody listens
        assert _shown(server)[1] == ["b"]
        urls["b"] = f"http://127.0.0.1:{running.port}"
        (missing,) = server.send("GET", OVERVIEW).json()["missing"]
        assert "asked again after" in missing["reason"]
    assert other.asked == []
