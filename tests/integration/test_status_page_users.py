"""The status page on a node with users, and what pages of other sites cannot do to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, expect

from connect.node.rest.auth import hashed_password, new_token
from tests.support.browsing import BrowserVisit
from tests.support.running_node import RunningNode
from tests.support.stack import Topics

pytestmark = pytest.mark.kafka

TOKEN, ENTRY = new_token()
PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def guarded(
    browser: Browser,
    kafka_properties: dict[str, str],
    topics: Topics,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningNode]:
    """A node that knows an operator of ``red-*`` by password, and a reader by token."""
    del browser
    folder = tmp_path_factory.mktemp("guarded")
    grants = [{"role": "operate", "connectors": "red-*"}, {"role": "read", "connectors": "blue-*"}]
    users = [
        {"name": "op", "password": hashed_password(PASSWORD, b"salt" * 4), "grants": grants},
        {"name": "reader", "token": ENTRY, "grants": [{"role": "read", "connectors": "red-*"}]},
        {"name": "root", "password": hashed_password("root"), "grants": [{"role": "admin"}]},
    ]
    (folder / "users.yaml").write_text(yaml.safe_dump({"users": users}))
    file = {
        "icefloe.rest.users.file": str(folder / "users.yaml"),
        "icefloe.local.paths.allowed": str(folder),
    }
    node = RunningNode(folder, kafka_properties["bootstrap.servers"], **file)
    node.api.auth = ("root", "root")
    node.start()
    topic = topics.create("guarded")
    for name in ("red-1", "blue-1", "green-1"):
        assert node.put(name, topic).status_code == 201
        node.running(name, 1)
    yield node
    node.close()


def test_without_a_token_or_password_nothing_is_shown(
    guarded: RunningNode, visit: Callable[..., BrowserVisit]
) -> None:
    """The page asks for a token, stores it in the tab only, and shows what its role allows."""
    seen = visit("about:blank")
    seen.decline_passwords()
    page = seen.page
    page.goto(f"{guarded.url}/ui")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.locator("#connectors tr")).to_have_count(0)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Use the token").click()
    expect(page.locator("#signin-why")).to_have_text("This node does not know that token.")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#connectors tr")).to_have_count(1)
    expect(page.locator("#caller")).to_have_text("signed in as reader")
    expect(page.locator("#nodes")).not_to_be_visible()
    page.get_by_role("link", name="red-1").click()
    expect(page.locator("#detail")).to_contain_text("need the role operate")
    expect(page.locator("#detail .state").first).to_have_text("running")
    assert page.locator("#detail").get_by_role("button").count() == 0
    script = "() => [Object.values(sessionStorage), Object.values(localStorage), document.cookie]"
    assert page.evaluate(script) == [[TOKEN], [], ""]
    assert TOKEN not in page.url
    other = seen.context.new_page()
    other.goto(f"{guarded.url}/ui")
    assert other.evaluate("sessionStorage.length") == 0
    page.get_by_role("button", name="Forget the token").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate(script) == [[], [], ""]


def test_with_a_password_the_buttons_follow_the_role(
    guarded: RunningNode, visit: Callable[..., BrowserVisit]
) -> None:
    """The browser answers the challenge; operate shows buttons, read does not."""
    known = {"username": "op", "password": PASSWORD}
    seen = visit(f"{guarded.url}/ui#/connectors/red-1", http_credentials=known)
    detail = seen.page.locator("#detail")
    expect(seen.page.locator("#connectors tr")).to_have_count(2)
    expect(seen.page.locator("#caller")).to_have_text("signed in as op")
    detail.get_by_role("button", name="Pause").click()
    seen.page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(detail.locator(".title .state")).to_have_text("paused")
    assert guarded.status("red-1")[0] == "PAUSED"
    detail.get_by_role("button", name="Resume").click()
    expect(detail.locator(".title .state")).to_have_text("running")
    seen.page.get_by_role("link", name="blue-1").click()
    expect(detail.get_by_role("heading", name="blue-1")).to_be_visible()
    expect(detail.locator("tbody .state").first).to_have_text("running")
    assert detail.get_by_role("button").count() == 0


class _ForeignSite(BaseHTTPRequestHandler):
    """Another site, whose page makes its visitor's browser post to a node."""

    target = ""

    def do_GET(self) -> None:
        """The page."""
        script = (
            f"const go = (init) => fetch('{self.target}', {{credentials: 'include', ...init}})"
            ".then(() => 'sent', () => 'stopped');"
            "Promise.all([go({method: 'POST', mode: 'no-cors'}), go({method: 'POST'}),"
            "go({method: 'POST', mode: 'no-cors', body: '{}'})]).then(() => "
            f"{{ document.body.innerHTML = '<form method=post action={self.target}></form>';"
            "document.forms[0].submit(); });"
        )
        body = f"<body><script>{script}</script></body>".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_another_sites_page_cannot_restart_a_connector(
    guarded: RunningNode, visit: Callable[..., BrowserVisit]
) -> None:
    """The browser sends the visitor's password, but each request is refused."""
    known = {"username": "root", "password": "root"}
    seen = visit(f"{guarded.url}/ui", http_credentials=known)
    expect(seen.page.locator("#connectors tr")).to_have_count(3)
    _ForeignSite.target = f"{guarded.url}/connectors/green-1/restart"
    answers: list[int] = []
    seen.page.on("response", lambda r: "green-1" in r.url and answers.append(r.status))
    reported = len(guarded.commands("coordinator", "green-1"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ForeignSite)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with seen.page.expect_navigation(url="**/green-1/restart"):
            seen.page.goto(f"http://127.0.0.1:{server.server_port}/")
        expect(seen.page.locator("body")).to_contain_text("A page of another site")
    finally:
        server.shutdown()
        server.server_close()
    assert len(answers) >= 3
    assert set(answers) == {403}
    assert len(guarded.commands("coordinator", "green-1")) == reported
    assert guarded.call("POST", "/connectors/green-1/restart").status_code == 204
    guarded.wait_until(lambda: len(guarded.commands("coordinator", "green-1")) > reported)
