"""Credentials of the node's environment and the store of a tenant's table without a catalog."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from connect.processes.ipc import VERSION, Channel

CANARY = "canary-of-the-environment"
CHILD = """
import os, sys
from connect.config.location_policy import EVERYWHERE
from connect.errors import IcefloeError
from connect.gateways.catalog.log_stores import open_logs
from connect.gateways.catalog_properties import FOLDER_ROOTS
from connect.processes.child_main import begin
from connect.processes.ipc import Channel

serving = begin("coordinator", Channel.inherited(int(sys.argv[1])))
for table_format in sys.argv[3:]:
    tables = open_logs(
        {
            "type": table_format, FOLDER_ROOTS[table_format]: f"s3://{table_format}/tables",
            "s3.endpoint": sys.argv[2],
            "s3.access-key-id": "tenant", "s3.secret-access-key": "tenants-own",
        },
        EVERYWHERE,
        lambda *_: None,
    )
    try:
        tables.load(("db", "t"))
    except IcefloeError as e:
        print(e.code)
print(serving.providers.resolve("${env:AWS_SESSION_TOKEN}"))
"""


class _Store(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        requests.append((self.path.split("/")[1].partition("?")[0], str(self.headers)))
        # a Delta log without files has no size that would be refused before Delta's own client asks
        is_size = "boto" in self.headers.get("user-agent", "").lower()
        is_listing = "list-type" in self.path
        body = b"<ListBucketResult/>" if is_size and is_listing else b""
        self.send_response((200 if is_listing else 404) if is_size else 403)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_HEAD = do_PUT = _answer  # noqa: N815 - the server's names

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


requests: list[tuple[str, str]] = []
"""Buckets and headers."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A store that notes the headers of requests."""
    requests.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Store) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("formats", "is_allowed"), [(("delta", "parquet"), False), (("delta",), True)]
)
def test_the_session_token_of_the_environment_stays_with_the_node(
    endpoint: str, tmp_path: Path, formats: tuple[str, ...], *, is_allowed: bool
) -> None:
    """Unless the operator allows it; a placeholder of the node's properties may name it."""
    properties = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "nodes",
        "config.storage.topic": "configs",
        "status.storage.topic": "states",
        "config.providers": "env",
        "config.providers.env.class": "EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "AWS_.*",
        "icefloe.state.dir": str(tmp_path),
        "icefloe.rest.users.file": str(tmp_path / "users.yaml"),
        "icefloe.hosts.allowed": "127.0.0.1",
        "icefloe.ambient.credentials.allowed": str(is_allowed).lower(),
    }
    ours, theirs = socket.socketpair()
    with theirs:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(theirs.fileno()), endpoint, *formats],
            pass_fds=[theirs.fileno()],
            env={"AWS_SESSION_TOKEN": CANARY, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.PIPE,
            text=True,
        )
    channel = Channel(ours)
    channel.send({"op": "configure", "version": VERSION, "properties": properties})
    output, _ = child.communicate(timeout=120)
    channel.close()
    assert output.splitlines()[-1] == CANARY, output
    for name in formats:
        of_format = [headers for bucket, headers in requests if bucket == name]
        assert of_format, output
        assert any(CANARY in headers for headers in of_format) is is_allowed
    assert json.dumps(requests).count("tenants-own") == 0
