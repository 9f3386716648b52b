"""``icefloe up``: everything from one folder, in order, and on again."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from rich.console import Console

from connect.embedded.stack import Stack, run_up
from connect.errors import ConfigError
from connect.processes.child_process import free_port
from tests.support.processes import still_running

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

CONNECTOR = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "sql",
    "iceberg.catalog.uri": "${env:ICEFLOE_CATALOG_URI}",
    "iceberg.catalog.warehouse": "${env:ICEFLOE_CATALOG_WAREHOUSE}",
}


UP = """
import pathlib, sys
from connect.embedded import stack

def ready(started):
    print("ready", started.rest_url, flush=True)

folder, stub = pathlib.Path(sys.argv[1]), sys.argv[2:]
if stub:
    class Child(stack.ChildProcess):
        def __init__(self, name, command, **more):
            super().__init__(name, [sys.executable, *stub, command[-1]], **more)
    stack.ChildProcess = Child
sys.exit(stack.run_up(folder, broker_port=0, rest_port=0, on_ready=ready))
"""
STUB = str(Path(__file__).parents[1] / "support" / "stub_node.py")


@contextmanager
def up(folder: Path, *stub: str) -> Iterator[subprocess.Popen[str]]:
    """``icefloe up`` on a folder; it says where its API is when all of it runs.

    Args:
        folder: all data.
        stub: a script that takes the place of the node.
    """
    folder.mkdir(exist_ok=True)
    environ = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "STUB_DIR": str(folder),
    }
    with subprocess.Popen(
        [sys.executable, "-c", UP, str(folder), *stub],
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ready(started: subprocess.Popen[str]) -> tuple[str, list[psutil.Process]]:
    """Wait until all of it runs: its API, and every process below the command."""
    assert started.stdout is not None
    keyword, _, url = started.stdout.readline().strip().partition(" ")
    assert keyword == "ready"
    family = psutil.Process(started.pid).children(recursive=True)
    assert len(family) >= 2
    return url, family


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "stub",
    # the stack of tests/e2e has Spark, and leaves no process when it is stopped
    [pytest.param((STUB,), id="stub"), pytest.param((), id="spark", marks=pytest.mark.matrix)],
)
def test_up_stops_on_sigterm_and_leaves_no_process_after_sigkill(
    tmp_path: Path, stub: tuple[str, ...]
) -> None:
    """After SIGTERM the status is 0, and connectors continue with the next start."""
    folder = tmp_path / "state"
    with up(folder, *stub) as first:
        url, family = ready(first)
        answer = httpx.put(f"{url}/connectors/orders/config", json=CONNECTOR, timeout=60)
        assert answer.status_code == httpx.codes.CREATED, answer.text
        with pytest.raises(ConfigError) as caught:
            Stack(folder).start()
        assert caught.value.code == "state_in_use"
        first.send_signal(signal.SIGTERM)
        assert first.wait(120) == 0
    assert not still_running(family, 150)
    if stub:
        return
    with up(folder) as second:
        url, family = ready(second)
        assert httpx.get(f"{url}/connectors", timeout=60).json() == ["orders"]
        second.kill()
        second.wait(150)
    assert not still_running(family, 150)


def test_up_names_a_port_in_use(tmp_path: Path) -> None:
    """The code, a sentence with the port and exit status 2, without a traceback."""
    reported = io.StringIO()
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        port = listener.getsockname()[1]
        status = run_up(tmp_path, broker_port=0, rest_port=port, console=Console(file=reported))
    assert status == 2
    assert "port_in_use" in reported.getvalue()
    assert str(port) in reported.getvalue()
    assert "--rest-port" in reported.getvalue()
