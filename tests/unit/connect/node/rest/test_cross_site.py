"""What pages of other sites can make a browser do at a node; what the status page is made of."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from importlib.resources import files

import pytest

from connect.clock import SystemClock
from connect.node.node_requests import NodeInfo
from connect.node.rest.app import ApiSettings, create_app
from connect.node.rest.http_middleware import CrossOrigin, cross_site_refusal
from connect.node.rest.log_levels import LogLevels
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.rest_server import RestServer

PARTS = {
    file.name: file.read_text("utf-8") for file in (files("connect.node.rest") / "ui").iterdir()
}
HOST = "node.example:8083"
OWN, OTHER = f"http://{HOST}", "https://evil.example"


@pytest.mark.parametrize(
    ("headers", "is_served"),
    [
        ({}, True),
        ({"origin": OWN}, True),
        ({"origin": OTHER}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://node.example"}, False),
        ({"origin": OWN, "sec-fetch-site": "same-origin"}, True),
        ({"origin": "http://behind.a.proxy", "sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site", "origin": OWN}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "https://console.example"}, True),
    ],
)
def test_pages_of_other_sites_change_nothing(headers: dict[str, str], is_served: bool) -> None:
    """Headers of the browser decide; other clients send none; reads are allowed."""
    given = {"host": HOST, **headers}
    trusted = frozenset({"https://console.example"})
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        why = cross_site_refusal(method, given, trusted=trusted, hosts=None)
        assert (why is None) == is_served
        assert why is None or "access.control.allow.origin" in why
    for method in ("GET", "HEAD", "OPTIONS"):
        assert cross_site_refusal(method, given, trusted=trusted, hosts=None) is None
    assert (
        cross_site_refusal(
            "POST", {"host": HOST, "origin": OTHER}, trusted=frozenset("*"), hosts=None
        )
        is None
    )


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost:8083", True),
        ("a.localhost", True),
        ("127.0.0.1:8083", True),
        ("127.9.9.9", True),
        ("[::1]:8083", True),
        ("NODE.example.:8083", True),
        ("", True),
        ("evil.example:8083", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
    ],
)
def test_foreign_host_names_are_refused(host: str, is_own: bool) -> None:
    """Also for reads (DNS rebinding); the node's addresses and names are served."""
    names = frozenset({"node.example"})
    why = cross_site_refusal("GET", {"host": host}, trusted=frozenset(), hosts=names)
    assert (why is None) == is_own
    assert why is None or "rest.advertised.host.name" in why


@pytest.fixture(scope="module")
def server() -> Iterator[RestServer]:
    """The API without users; one origin may call."""
    herder = FakeHerder(LogLevels(SystemClock()))
    herder.create("orders", {"topics": "orders"})
    allowed = CrossOrigin.of("https://console.example", "GET,POST,PUT")
    settings = ApiSettings(cross_origin=allowed)
    info = NodeInfo("http://node.example:8083", "cluster")
    app = create_app(herder.handlers, info, LogLevels(SystemClock()), settings=settings)
    with RestServer(app) as running:
        yield running


def test_the_api_refuses_posts_of_other_sites(server: RestServer) -> None:
    """A form or script can send them without preflight; 403 with Kafka's body."""
    path = "/connectors/orders/restart"
    assert server.send("POST", path).status == 204
    refused = server.send("POST", path, b"", {"origin": OTHER, "sec-fetch-site": "cross-site"})
    assert (refused.status, refused.json()["error_code"]) == (403, 403)
    console = {"origin": "https://console.example", "sec-fetch-site": "cross-site"}
    allowed = server.send("POST", path, b"", console)
    assert allowed.status == 204
    assert allowed.headers["access-control-allow-origin"] == console["origin"]
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as rebound:
        rebound.sendall(b"GET /connectors HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert rebound.recv(1024).startswith(b"HTTP/1.1 403 ")


def test_the_overview_contains_the_role_of_the_caller(server: RestServer) -> None:
    """States, metrics, and null for missing values."""
    body = server.send("GET", "/icefloe/v1/overview").json()
    assert body["caller"] == {"name": "everybody", "node_role": "admin"}
    (connector,) = body["connectors"]
    assert (connector["name"], connector["state"], connector["role"]) == (
        "orders",
        "RUNNING",
        "admin",
    )
    assert (connector["tasks"], connector["reason"]) == ({"RUNNING": 1}, None)
    assert (connector["not_in_files"], connector["valid_through_ms"]) == (60, 60_000)
    server.send("PUT", "/connectors/orders/pause")
    (connector,) = server.send("GET", "/icefloe/v1/overview").json()["connectors"]
    assert (connector["state"], connector["not_in_files"], connector["valid_through_ms"]) == (
        "PAUSED",
        None,
        None,
    )
    server.send("PUT", "/connectors/orders/resume")


def test_the_page_loads_nothing_from_other_hosts(server: RestServer) -> None:
    """Its policy is strict for every file, and no text becomes HTML."""
    page = server.send("GET", "/ui")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert server.send("GET", "/ui/").content == page.content
    named = set(re.findall(r'(?:src|href)="(/[^"]*)"', page.content.decode()))
    imported = {
        f"/ui/{name}" for part in PARTS.values() for name in re.findall(r'"\./(\S+)"', part)
    }
    assert '"/ui/recovery.html#' in PARTS["dom.js"].replace("`", '"')
    pages = {"/ui/index.html", "/ui/recovery.html"}
    assert {f"/ui/{name}" for name in PARTS} == named | imported | pages
    for path in sorted(named | imported | pages):
        reply = server.send("GET", path)
        assert reply.status == 200
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
    assert server.send("GET", "/ui/nothing.js").status == 404
    assert server.send("GET", "/ui/..%2fapp.py").status == 400


def test_the_page_has_no_inline_script_or_style() -> None:
    """And no function that makes HTML of text."""
    assert "<script" not in PARTS["recovery.html"]
    html = PARTS["index.html"]
    assert re.findall(r"<script(?! type=\"module\" src=\"/ui/app.js\"></script>)", html) == []
    assert re.search(r"<style|\bstyle=|\son\w+=|https?://", html) is None
    for name, part in PARTS.items():
        if name.endswith(".js"):
            unsafe = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
            assert not [text for text in (*unsafe, "Function(", ".style") if text in part]
            assert "localStorage" not in part
        if name != "icon.svg":
            assert re.search(r"https?://(?!www\.w3\.org/2000/svg)", part) is None, name
