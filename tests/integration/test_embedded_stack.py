"""``icefloe up``: everything from one folder, in order, and on again."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from rich.console import Console

from connect.embedded.child import free_port
from connect.embedded.stack import Stack, run_up
from connect.errors import ConfigError

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

CONNECTOR = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "sql",
    "iceberg.catalog.uri": "${env:ICEFLOE_CATALOG_URI}",
    "iceberg.catalog.warehouse": "${env:ICEFLOE_CATALOG_WAREHOUSE}",
}


def test_second_start_on_the_folder_goes_on(tmp_path: Path) -> None:
    """A connector that was created is there after everything was ended and started again."""
    with Stack(tmp_path / "state") as stack:
        answer = httpx.put(f"{stack.rest_url}/connectors/orders/config", json=CONNECTOR, timeout=30)
        assert answer.status_code == httpx.codes.CREATED, answer.text
        with pytest.raises(ConfigError) as caught:
            Stack(tmp_path / "state").start()
        assert caught.value.code == "state_in_use"
    with Stack(tmp_path / "state") as stack:
        found = httpx.get(f"{stack.rest_url}/connectors", timeout=30).json()
        assert found == ["orders"]


def test_up_ends_everything_when_asked(tmp_path: Path) -> None:
    """SIGTERM: exit status 0 and no process left."""
    code = (
        "import sys, pathlib\n"
        "from connect.embedded.stack import run_up\n"
        "def ready(stack): print('ready', stack.rest_url, flush=True)\n"
        f"sys.exit(run_up(pathlib.Path({str(tmp_path / 'state')!r}), broker_port=0, rest_port=0,"
        " on_ready=ready))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        assert up.stdout.readline().startswith("ready")
        family = psutil.Process(up.pid).children(recursive=True)
        assert len(family) >= 2
        up.send_signal(signal.SIGTERM)
        assert up.wait(120) == 0
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive


def test_up_says_which_port_is_taken(tmp_path: Path) -> None:
    """No traceback: the code and a sentence with the port, exit status 1."""
    import socket

    told = io.StringIO()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        status = run_up(tmp_path, broker_port=0, rest_port=port, console=Console(file=told))
    assert status == 1
    assert "port_in_use" in told.getvalue()
    assert str(port) in told.getvalue()


def test_everything_dies_with_a_killed_up(tmp_path: Path) -> None:
    """SIGKILL of the command leaves neither broker nor node nor Spark."""
    code = (
        "import sys, time, pathlib\n"
        "from connect.embedded.stack import Stack\n"
        f"stack = Stack(pathlib.Path({str(tmp_path / 'state')!r})).start()\n"
        "print('ready', flush=True)\n"
        "time.sleep(120)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        assert up.stdout.readline().startswith("ready")
        family = psutil.Process(up.pid).children(recursive=True)
        os.kill(up.pid, signal.SIGKILL)
        up.wait(60)
    _, alive = psutil.wait_procs(family, timeout=90)
    assert not alive
