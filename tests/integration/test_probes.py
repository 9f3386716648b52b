"""Probes of a real node: what makes it live and ready, and what does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from connect.embedded.broker import Broker
from connect.processes.child_process import free_port
from tests.support.running_node import RunningNode

pytestmark = pytest.mark.kafka


def probes(node: RunningNode) -> tuple[int, int, list[str]]:
    """Statuses of ``/livez`` and ``/readyz``, and the reasons of the latter."""
    ready = node.call("GET", "/readyz")
    return node.call("GET", "/livez").status_code, ready.status_code, ready.json()["reasons"]


def children(node: RunningNode) -> list[psutil.Process]:
    """The node's child processes."""
    return psutil.Process(node.process.pid).children()


def test_a_node_is_ready_when_it_has_joined_and_its_children_are(tmp_path: Path) -> None:
    """Live at once; a broker's outage fails no probe; a child process that is down does."""
    port = free_port()
    own_broker = Broker(tmp_path / "broker", port=port)
    node = RunningNode(tmp_path, f"127.0.0.1:{port}")
    try:
        node.launch()
        node.wait_until(lambda: node.health() is not None)
        node.wait_until(lambda: probes(node) == (200, 503, ["the node has not joined its cluster"]))
        own_broker.start()
        node.wait_until(lambda: probes(node) == (200, 200, []))

        own_broker.pause()
        assert probes(node) == (200, 200, [])
        own_broker.resume()

        known = {child.pid for child in children(node)}
        for pid in known:
            os.kill(pid, signal.SIGKILL)
        node.wait_until(lambda: len({c.pid for c in children(node)} - known) == len(known))
        node.wait_until(lambda: probes(node) == (200, 200, []))
    finally:
        node.close()
        own_broker.stop()


@pytest.mark.matrix  # ``tests/unit/connect/config/test_node_config.py`` reads variables
def test_without_a_properties_file_the_environment_configures_a_node(
    broker: Broker, tmp_path: Path
) -> None:
    """Variables set every key; the logs of all processes are on standard output."""
    variables = {
        "ICEFLOE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "ICEFLOE_GROUP_ID": "from-environment",
        "ICEFLOE_CONFIG_STORAGE_TOPIC": "from-environment-config",
        "ICEFLOE_CONFIG_STORAGE_REPLICATION_FACTOR": "-1",
        "ICEFLOE_STATUS_STORAGE_TOPIC": "from-environment-status",
        "ICEFLOE_STATUS_STORAGE_REPLICATION_FACTOR": "-1",
        "ICEFLOE_LISTENERS": "http://127.0.0.1:0",
        "ICEFLOE_STATE_DIR": str(tmp_path / "state"),
        "CONNECT_ICEFLOE_LOG_OUTPUT": "stdout",  # as the image sets it
    }
    log, errors = tmp_path / "node.log", tmp_path / "errors.log"
    with log.open("wb") as output, errors.open("wb") as other:
        process = subprocess.Popen(
            [sys.executable, "-m", "connect.node"],
            env={**os.environ, **variables},
            stdout=output,
            stderr=other,
        )
    expected = {
        ("node", "node is ready"),
        ("coordinator", "coordinator process is ready"),
        ("worker", "waiting"),
    }
    try:
        while not expected <= {(e["process"], e["event"]) for e in events(log)}:
            assert process.poll() is None, log.read_text() + errors.read_text()
            time.sleep(0.1)  # the test's timeout bounds it
    finally:
        process.terminate()
        process.wait()
    assert errors.read_text() == ""
    assert not list((tmp_path / "state").glob("*.log"))
    assert list(events(log))[-1]["event"] == "node ends"


def events(log: Path) -> Iterator[dict[str, Any]]:
    """Every complete line of a log, which must be JSON."""
    for line in log.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


@pytest.mark.parametrize("is_early", [False, True])
def test_a_node_ends_when_its_child_has_another_version(
    kafka_properties: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_early: bool,
) -> None:
    """As after an installation into the environment of a running node: status 1, and the reason.

    The child may say so before the node has its parts.
    """
    monkeypatch.setenv("STUB_VERSION", "0.0.9")
    if is_early:
        monkeypatch.setenv("STUB_EVENT_FIRST", "")
    node = RunningNode(tmp_path, kafka_properties["bootstrap.servers"])
    try:
        node.launch()
        assert node.process.wait(150) == 1
        (ended,) = (e for e in events(tmp_path / "node.log") if e["event"] == "node ends")
        assert "0.0.9" in ended["error"]
        assert "start the node again" in ended["error"]
    finally:
        node.close()


def test_a_node_without_its_collector_works_and_ends(
    kafka_properties: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process listens where OpenTelemetry's variables say: ready, and status 0 at SIGTERM."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    servers = kafka_properties["bootstrap.servers"]
    node = RunningNode(tmp_path, servers, **{"icefloe.otel.enabled": "true"})
    try:
        node.start()
        node.wait_until(lambda: probes(node) == (200, 200, []))
        node.wait_until(lambda: "OpenTelemetry collector" in (tmp_path / "node.log").read_text())
        assert node.end() == 0
    finally:
        node.close()
