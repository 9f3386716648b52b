"""``icefloe migrate --check`` about several connectors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from connect.errors import ExitStatus
from tests.support.command_line import icefloe


class MigrationServer(ThreadingHTTPServer):
    """A node that finds connectors safe, unsafe, or does not know, by their names."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Answer a check."""
        self.rfile.read(int(self.headers["Content-Length"]))
        name = self.path.split("/")[-3]
        status, answer = 200, _report(name, is_safe=name != "payments")
        if name == "visits":
            status, answer = 503, {"error_code": 503, "message": "offsets of visits are pending"}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _report(name: str, *, is_safe: bool) -> dict[str, Any]:
    finding = {"code": "group_in_use", "unsafe": True, "text": "a member is in the group"}
    return {
        "connector": name,
        "group": f"connect-{name}",
        "groups": [],
        "control_topic": {},
        "tables": [],
        "starts": {},
        "findings": [] if is_safe else [finding],
        "safe": is_safe,
    }


@pytest.fixture(scope="module")
def server() -> Iterator[MigrationServer]:
    """The node, running."""
    server = MigrationServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def _folder(tmp_path: Path, *names: str) -> str:
    for name in names:
        config = {"connector.class": "org.apache.iceberg.connect.IcebergSinkConnector"}
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"name": name, "config": config}))
    return str(tmp_path)


def test_all_connectors_of_a_folder_are_checked(server: MigrationServer, tmp_path: Path) -> None:
    """One that is unsafe does not end the command; the last line names it."""
    folder = _folder(tmp_path, "orders", "payments")
    done = icefloe("migrate", "--check", "-f", folder, "--server", server.url)
    assert done.status == ExitStatus.NO
    assert "UNSAFE group_in_use: a member is in the group" in done.stdout
    assert done.stdout.endswith("1 of 2 connectors are safe to start; not safe: payments\n")


def test_a_connector_without_an_answer_is_named(server: MigrationServer, tmp_path: Path) -> None:
    """The others are checked, and the status is that of a missing answer."""
    folder = _folder(tmp_path, "orders", "payments", "visits")
    done = icefloe("migrate", "--check", "-f", folder, "--server", server.url)
    assert done.status == ExitStatus.NOT_ASKED
    assert "not checked: offsets of visits are pending" in done.stdout
    assert done.stdout.endswith("not safe: payments; not checked: visits\n")


def test_a_file_gives_an_object_and_a_folder_a_list(
    server: MigrationServer, tmp_path: Path
) -> None:
    """So the form does not depend on the number of files in a folder."""
    folder = _folder(tmp_path, "orders")
    asked = ("migrate", "--check", "-o", "json", "--server", server.url, "-f")
    assert json.loads(icefloe(*asked, f"{folder}/orders.json").stdout)["connector"] == "orders"
    assert [r["connector"] for r in json.loads(icefloe(*asked, folder).stdout)] == ["orders"]
