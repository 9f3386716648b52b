"""Several nodes' APIs: requests passed on and figures asked of others, in the caller's name."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from connect.clock import SystemClock
from connect.config.keys.connector_keys import CONNECTOR_CLASS
from connect.config.node.node_config import NodeConfig
from connect.node.node_requests import NodeInfo, ReportedStatus
from connect.node.rest.access import FOR_CERTIFICATE
from connect.node.rest.app import ApiSettings, create_app
from connect.node.rest.auth import Users, new_token
from connect.node.rest.log_levels import LogLevels
from connect.node.rest.transport import tls, trust_of_peers
from tests.support.certificates import certificate
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.rest_server import RestServer

OVERVIEW = "/icefloe/v1/overview"
TASKS = ("lag_records", "records_dead_lettered")


class ClusterHerder(FakeHerder):
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
            self.create(name, config)

    def status(self, name: str) -> ReportedStatus:
        """The coordinator on ``a``, tasks on ``a``, ``b`` and ``b``."""
        found = super().status(name)
        nodes = ("a", "b", "b")
        tasks = tuple(replace(t, worker_id=n) for t, n in zip(found.tasks, nodes, strict=True))
        return replace(found, worker_id="a", tasks=tasks)

    def nodes(self) -> Mapping[str, str | None]:
        """All of them."""
        return {**self.urls, self.me: None}

    def node_to_ask(self, role: str, name: str | None) -> str | None:
        """``b`` leads and has all coordinators."""
        del role, name
        return self.nodes()["b"]

    def sums(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Of tasks on each node, of the coordinator on ``a``."""
        displayed = [m for m in metrics if m in TASKS or self.me == "a"]
        return {name: dict.fromkeys(displayed, self.number) for name in ("orders", "secret")}

    def coordinator_process(self, name: str) -> str | None:
        """The second one, on ``a``."""
        del name
        return "coordinator-2" if self.me == "a" else None


class OtherNode:
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


def _server(herder: ClusterHerder, users: Users | None = None) -> RestServer:
    levels = LogLevels(SystemClock())
    return RestServer(create_app(herder.handlers, NodeInfo("http://n:1", "c"), levels, users=users))


@contextmanager
def _two(users: Users | None = None) -> Iterator[dict[str, RestServer]]:
    urls: dict[str, dict[str, str]] = {"a": {}, "b": {}}
    with ExitStack() as stack:
        servers = {
            me: stack.enter_context(_server(ClusterHerder(me, number, urls[me]), users))
            for me, number in (("a", 10.0), ("b", 1.0))
        }
        for me, other in (("a", "b"), ("b", "a")):
            urls[me][other] = f"http://127.0.0.1:{servers[other].port}"
        yield servers


def _displayed(server: RestServer, query: str = "", **headers: str) -> tuple[dict[str, Any], Any]:
    """Connector -> (not in files, in files), and whose figures are missing."""
    reply = server.send("GET", OVERVIEW + query, None, headers)
    assert reply.status == 200, reply.content
    body = reply.json()
    measurements = {
        c["name"]: (c["not_in_files"], c["in_files_not_committed"]) for c in body["connectors"]
    }
    return measurements, [node["worker_id"] for node in body["missing"]]


def test_every_node_returns_sums_over_all_nodes() -> None:
    """Metrics of all tasks, the coordinator's of its node; of one node on request."""
    with _two() as servers:
        for server in servers.values():
            assert _displayed(server) == ({"orders": (11, 10), "secret": (11, 10)}, [])
            letters = server.send("GET", "/icefloe/v1/connectors/orders/dead-letters").json()
            assert letters["records"] == 11
        assert _displayed(servers["b"], "?forward=false")[0]["orders"] == (1, None)


def test_every_node_names_the_process_of_a_coordinator() -> None:
    """As the node with the coordinator names it; null if that node is not asked, or is older."""

    def named(server: RestServer, query: str = "") -> list[str | None]:
        connectors = server.send("GET", OVERVIEW + query).json()["connectors"]
        return [connector["coordinator_process"] for connector in connectors]

    with _two() as servers:
        for server in servers.values():
            assert named(server) == ["coordinator-2", "coordinator-2"]
        assert named(servers["b"], "?forward=false") == [None, None]
    other = OtherNode()
    other.answers.append(JSONResponse({"connectors": [{"name": "orders"}]}))
    with RestServer(other.app()) as running:
        herder = ClusterHerder("b", 1, {"a": f"http://127.0.0.1:{running.port}"})
        with _server(herder) as server:
            assert named(server) == [None, None]


def test_other_nodes_are_asked_with_the_callers_identity(tmp_path: Path) -> None:
    """A caller with a grant for one connector gets its values; only the token is forwarded."""
    token, entry = new_token()
    grants = [{"role": "read", "connectors": ["orders"]}]
    file = tmp_path / "users.yaml"
    file.write_text(yaml.safe_dump({"users": [{"name": "r", "token": entry, "grants": grants}]}))
    with _two(Users(file, SystemClock())) as servers:
        for server in servers.values():
            mine = {"authorization": f"Bearer {token}"}
            assert _displayed(server, **mine) == ({"orders": (11, 10)}, [])
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
def test_a_node_with_an_invalid_answer_is_named(answer: Response) -> None:
    """The sum is null, other values are returned, and it is asked again."""
    other = OtherNode()
    other.answers.append(answer)
    with RestServer(other.app()) as running:
        herder = ClusterHerder("a", 10, {"b": f"http://127.0.0.1:{running.port}"})
        with _server(herder) as server:
            measurements, missing = _displayed(server)
            assert (measurements["orders"], missing) == ((None, 10), ["b"])
            _displayed(server)
    assert other.asked == [f"{OVERVIEW}?forward=false"] * 2


def test_an_unavailable_node_is_not_asked_for_a_while() -> None:
    """It is named, and the values of the others are returned."""
    other = OtherNode()
    other.answers.append(JSONResponse({"connectors": []}))
    urls: dict[str, str] = {}
    with RestServer(other.app()) as running, _server(ClusterHerder("a", 10, urls)) as server:
        assert _displayed(server)[1] == ["b"]
        urls["b"] = "http://127.0.0.1:1"  # no process listens
        assert _displayed(server)[1] == ["b"]
        urls["b"] = f"http://127.0.0.1:{running.port}"
        (missing,) = server.send("GET", OVERVIEW).json()["missing"]
        assert "asked again after" in missing["reason"]
    assert other.asked == []


class Secured:
    """Two nodes with TLS; ``b`` leads. Users have certificates.

    Args:
        folder: for certificates and users.
        names: ``icefloe.rest.node.certificates``.
        node_days: how long the certificate of ``a`` holds.
    """

    def __init__(self, folder: Path, names: str, *, node_days: int = 1) -> None:
        self.folder = folder
        self.authority = certificate(folder, "authority")
        for name in ("ops.example", "reader.example"):
            certificate(folder, name, self.authority)
        self.token, entry = new_token()
        users = [
            {"name": "ops", "certificate": "ops.example", "grants": [{"role": "admin"}]},
            {"name": "reader", "certificate": "reader.example", "grants": [{"role": "read"}]},
            {"name": "robot", "token": entry, "grants": [{"role": "read"}]},
        ]
        (folder / "users.yaml").write_text(yaml.safe_dump({"users": users}))
        urls: dict[str, dict[str, str]] = {"a": {}, "b": {}}
        self.herders = {me: ClusterHerder(me, n, urls[me]) for me, n in (("a", 10.0), ("b", 1.0))}
        self.servers = {}
        for me, days in (("a", node_days), ("b", 1)):
            certificate(folder, f"{me}.example", self.authority, days=days)
            self.servers[me] = self._server(me, names)
        for me, other in (("a", "b"), ("b", "a")):
            urls[me][other] = self.url(other)

    def _server(self, me: str, names: str) -> RestServer:
        config = NodeConfig.from_properties(
            {
                "bootstrap.servers": "127.0.0.1:1",
                "group.id": "g",
                "config.storage.topic": "c",
                "status.storage.topic": "s",
                "listeners": "https://127.0.0.1:8443",
                "listeners.https.ssl.keystore.location": str(self.folder / f"{me}.example.pem"),
                "listeners.https.ssl.truststore.location": str(self.folder / "authority.pem"),
                "listeners.https.ssl.client.auth": "requested",
                "icefloe.rest.node.certificates": names,
            }
        )
        users, context = Users(self.folder / "users.yaml", SystemClock()), tls(config)
        app = create_app(
            self.herders[me].handlers,
            NodeInfo("https://localhost:1", "g"),
            LogLevels(SystemClock()),
            settings=ApiSettings.of(config),
            users=users,
            peers=trust_of_peers(config),
        )
        return RestServer(app, is_guarded=True, context=context)

    def url(self, node: str) -> str:
        """Where a node answers."""
        return f"https://localhost:{self.servers[node].port}"

    def call(self, node: str, who: str | None, method: str, path: str, **headers: str) -> Any:
        """Send a request with the certificate of a caller."""
        context = ssl.create_default_context(cafile=str(self.folder / "authority.pem"))
        if who is not None:
            context.load_cert_chain(self.folder / f"{who}.pem")
        with httpx.Client(verify=context) as client:
            return client.request(method, self.url(node) + path, headers=headers)

    def states(self) -> dict[str, str]:
        """Of the connector ``orders``, as each node's herder has it."""
        return {me: herder.status("orders").state for me, herder in self.herders.items()}

    def __enter__(self) -> Self:
        for server in self.servers.values():
            server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers.values():
            server.__exit__(None, None, None)


PAUSE = "/connectors/orders/pause"


def test_a_caller_with_a_certificate_may_ask_any_node(tmp_path: Path) -> None:
    """Nodes forward the identity of the caller: changes, reads and values by its grants."""
    with Secured(tmp_path, "a.example, b.example") as nodes:
        assert nodes.call("a", "ops.example", "PUT", PAUSE).status_code == 202
        assert nodes.states() == {"a": "RUNNING", "b": "PAUSED"}
        assert nodes.call("a", "reader.example", "PUT", PAUSE).status_code == 403
        assert nodes.call("a", None, "PUT", PAUSE).status_code == 401
        body = nodes.call("a", "reader.example", "GET", OVERVIEW).json()
        assert body["missing"] == []
        assert {c["not_in_files"] for c in body["connectors"]} == {11}
        tables = nodes.call("a", "reader.example", "GET", "/icefloe/v1/connectors/orders/tables")
        assert tables.status_code == 200


def test_only_a_node_may_forward_the_identity_of_a_caller(tmp_path: Path) -> None:
    """Other certificates, none, another authority, or a token are refused."""
    with Secured(tmp_path, "a.example, b.example") as nodes:
        forged = {FOR_CERTIFICATE: "ops.example"}
        for who in ("reader.example", "ops.example", None):
            refused = nodes.call("b", who, "PUT", PAUSE, **forged)
            assert refused.status_code == 403
            assert "icefloe.rest.node.certificates" in refused.json()["message"]
        mine = {"authorization": f"Bearer {nodes.token}"}
        for who in ("a.example", None):
            robots = nodes.call("b", who, "PUT", PAUSE, **forged, **mine)
            assert (robots.status_code, "robot" in robots.text) == (403, True)
        unknown = {FOR_CERTIFICATE: "unknown.example"}
        assert nodes.call("b", "a.example", "PUT", PAUSE, **unknown).status_code == 401
        assert nodes.call("b", "a.example", "PUT", PAUSE).status_code == 401  # a node is no user
        remote = tmp_path / "other-authority"
        remote.mkdir()
        certificate(remote, "a.example", certificate(remote, "authority"))
        (remote / "a.example.pem").rename(tmp_path / "forged.pem")
        with pytest.raises(httpx.TransportError):
            nodes.call("b", "forged", "PUT", PAUSE, **forged)
        assert nodes.states() == {"a": "RUNNING", "b": "RUNNING"}


def test_a_forged_identity_header_is_not_forwarded(tmp_path: Path) -> None:
    """It has no effect at either node."""
    with Secured(tmp_path, "a.example, b.example") as nodes:
        forged = {FOR_CERTIFICATE: "ops.example"}
        assert nodes.call("a", "reader.example", "PUT", PAUSE, **forged).status_code == 403
        mine = {"authorization": f"Bearer {nodes.token}"}
        assert nodes.call("a", "ops.example", "PUT", PAUSE, **forged, **mine).status_code == 403
        assert nodes.states() == {"a": "RUNNING", "b": "RUNNING"}


def test_a_node_that_speaks_tls_sends_no_credentials_in_the_clear(tmp_path: Path) -> None:
    """An address without TLS is not asked, neither for a change nor for values."""
    other = OtherNode()
    other.answers.append(JSONResponse({"connectors": []}))
    with Secured(tmp_path, "a.example, b.example") as nodes, RestServer(other.app()) as plain:
        nodes.herders["a"].urls["b"] = f"http://127.0.0.1:{plain.port}"
        refused = nodes.call("a", "ops.example", "PUT", PAUSE)
        assert (refused.status_code, "does not use TLS" in refused.text) == (503, True)
        assert nodes.call("a", "ops.example", "GET", OVERVIEW).json()["missing"]
    assert other.asked == []


def test_an_expired_certificate_of_a_node_is_refused(tmp_path: Path) -> None:
    """TLS refuses it: nothing is changed, and values of the other node are missing."""
    with Secured(tmp_path, "a.example, b.example", node_days=-1) as nodes:
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        context.load_cert_chain(tmp_path / "a.example.pem")
        named = {FOR_CERTIFICATE: "ops.example"}
        with httpx.Client(verify=context) as client, pytest.raises(httpx.TransportError):
            client.put(nodes.url("b") + PAUSE, headers=named)
        assert nodes.states() == {"a": "RUNNING", "b": "RUNNING"}


def test_without_the_setting_the_answer_names_the_node_to_ask(tmp_path: Path) -> None:
    """409 with the address; the overview says why values are missing."""
    with Secured(tmp_path, "") as nodes:
        refused = nodes.call("a", "ops.example", "PUT", PAUSE)
        assert refused.status_code == 409
        assert nodes.url("b") in refused.json()["message"]
        (missing,) = nodes.call("a", "ops.example", "GET", OVERVIEW).json()["missing"]
        assert missing["worker_id"] == "b"
        assert "icefloe.rest.node.certificates" in missing["reason"]
        named = {FOR_CERTIFICATE: "ops.example"}
        assert nodes.call("b", "a.example", "PUT", PAUSE, **named).status_code == 403
        assert nodes.states() == {"a": "RUNNING", "b": "RUNNING"}
