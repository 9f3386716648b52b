"""Commands about one connector, the node and its cluster, on a real node with stub children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from connect.embedded.broker import Broker
from tests.support.running_node import TIMEOUT_S, RunningNode
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka
SECRET = "hunter2-canary"


@pytest.fixture(scope="module")
def node(broker: Broker, tmp_path_factory: Any) -> Iterator[RunningNode]:
    """A node without connectors."""
    node = RunningNode(tmp_path_factory.mktemp(unique_name("commands")), broker.bootstrap_servers)
    node.start()
    yield node
    node.close()


@pytest.fixture
def connector(node: RunningNode, topics: Topics) -> Iterator[str]:
    """A running connector with one task."""
    name = unique_name("one")
    answer = node.put(
        name, topics.create("orders"), iceberg_catalog_credential=SECRET, icefloe_debezium="mysql"
    )
    assert answer.status_code == 201, answer.text
    node.running(name, 1)
    yield name
    node.call("DELETE", f"/connectors/{name}")


def parsed(node: RunningNode, *arguments: str) -> Any:
    """A command's answer as JSON; its YAML form holds the same."""
    code, text = node.icefloe(*arguments, "-o", "json")
    assert code == 0, text
    code, other = node.icefloe(*arguments, "-o", "yaml")
    parsed_text = json.loads(text)
    listed = list(yaml.safe_load_all(other))
    assert (listed if isinstance(parsed_text, list) else listed[0]) == parsed_text
    return parsed_text


def test_describe_shows_all_about_a_connector(node: RunningNode, connector: str) -> None:
    """State, tasks, lag, last commit, valid-through time and the configuration, masked."""
    described = parsed(node, "describe", connector)
    assert (described["name"], described["type"], described["connector"]["state"]) == (
        connector,
        "sink",
        "RUNNING",
    )
    assert [task["state"] for task in described["tasks"]] == ["RUNNING"]
    assert described["lag"]["not_in_files"] == 0
    assert described["coordinator_process"] == "coordinator"
    assert (described["last_commit"], described["tables"], described["missing"]) == (None, [], {})
    assert described["config"]["iceberg.catalog.credential"] == "********"
    code, text = node.icefloe("describe", connector)
    assert code == 0
    for line in (
        "coordinator process: coordinator",
        "last commit: none since the node started",
        "valid through: -",
        "records not in files: 0",
        "iceberg.tables=db.t",
        "iceberg.tables.no-key=append (preset)",
    ):
        assert line in text.splitlines()
    assert SECRET not in text + json.dumps(described)
    assert node.icefloe("describe", connector, "-o", "name") == (0, f"{connector}\n")
    code, text = node.icefloe("describe", "no-such")
    assert (code, "no-such" in text) == (1, True)


def test_patch_changes_only_its_keys(node: RunningNode, connector: str, tmp_path: Path) -> None:
    """Values from arguments and files; null and ``--remove`` remove; the plan first if asked."""
    before = node.call("GET", f"/connectors/{connector}/config").json()
    change = ("patch", connector, "iceberg.control.commit.interval-ms=7000")
    code, text = node.icefloe(*change, "--dry-run")
    assert (code, "+ iceberg.control.commit.interval-ms: 7000" in text) == (1, True)
    assert node.call("GET", f"/connectors/{connector}/config").json() == before
    assert node.icefloe(*change)[0] == 0
    after = node.call("GET", f"/connectors/{connector}/config").json()
    assert after == {**before, "iceberg.control.commit.interval-ms": "7000"}
    assert node.icefloe(*change, "--dry-run")[0] == 0
    file = tmp_path / "keys.json"
    file.write_text(
        json.dumps(
            {
                "iceberg.control.commit.interval-ms": None,
                "iceberg.catalog.credential": f"{SECRET}2",
            }
        )
    )
    code, text = node.icefloe("patch", connector, "-f", str(file))
    assert (code, "iceberg.catalog.credential: ******** -> ********" in text) == (0, True)
    after = node.call("GET", f"/connectors/{connector}/config").json()
    assert after == {**before, "iceberg.catalog.credential": f"{SECRET}2"}
    assert node.icefloe("patch", connector, "--remove", "iceberg.catalog.credential")[0] == 0
    assert (
        "iceberg.catalog.credential"
        not in node.call("GET", f"/connectors/{connector}/config").json()
    )
    code, text = node.icefloe("patch", connector, "tasks.max=many")
    assert (code, "tasks.max" in text) == (1, True)


def test_delete_removes_a_connector(node: RunningNode, connector: str) -> None:
    """A missing one is an error, unless that is accepted."""
    for listing in (("get",), ("list",), ("get", "connectors"), ("status",), ("lag",)):
        code, text = node.icefloe(*listing, "-o", "name")
        assert (code, connector in text.splitlines()) == (0, True)
    assert isinstance(parsed(node, "get", "connectors"), list)
    assert parsed(node, "get", connector) == parsed(node, "get", "connectors", connector)[0]
    code, text = node.icefloe("delete", connector)
    assert (code, "run the command with --yes" in text) == (2, True)
    assert f"would delete {connector}" in text
    assert connector in node.icefloe("list", "-o", "name")[1].splitlines()
    assert node.icefloe("delete", connector, "--yes") == (0, f"{connector} deleted\n")
    code, text = node.icefloe("delete", connector, "--yes")
    assert (code, "not found" in text) == (1, True)
    done = node.icefloe("delete", connector, "--yes", "--ignore-not-found", "-o", "name")
    assert done == (0, f"{connector}\n")


def test_cluster_plugins_and_loggers_are_printed(node: RunningNode, connector: str) -> None:
    """The node's view of its cluster, plugins and log levels."""
    cluster = parsed(node, "cluster")
    (one,) = cluster["nodes"]
    assert (cluster["leader"], one["version"]) == (one["worker_id"], version("icefloe"))
    assert list(cluster["placements"]) == [connector]
    code, text = node.icefloe("cluster")
    cells = text.rstrip("\n").split("\t")
    assert (code, cells[0], cells[1], cells[4:6]) == (0, one["worker_id"], "leader", ["1", "1"])
    code, text = node.icefloe("cluster", "--placements")
    assert text == f"{connector}\t{one['worker_id']}\t{one['worker_id']}\n"
    classes = {plugin["class"]: plugin["type"] for plugin in parsed(node, "plugins")}
    sink = "org.apache.iceberg.connect.IcebergSinkConnector"
    assert classes[sink] == "sink"
    assert "transformation" in classes.values()
    assert "iceberg.tables" in {key["name"] for key in parsed(node, "plugins", sink)}
    assert node.icefloe("plugins", "no.Such")[0] == 1
    assert "root" in parsed(node, "loggers")
    code, text = node.icefloe("loggers", "herder", "DEBUG")
    assert (code, "herder\tDEBUG" in text) == (0, True)
    assert parsed(node, "loggers", "herder")["herder"]["level"] == "DEBUG"
    assert node.icefloe("loggers", "herder", "LOUD")[0] == 1
    assert node.icefloe("loggers", "herder", "INFO", "--scope", "cluster")[0] == 0
    node.wait_until(lambda: parsed(node, "loggers", "herder")["herder"]["level"] == "INFO")


def test_watch_prints_each_change(node: RunningNode, connector: str) -> None:
    """The rows change until Ctrl-C."""
    command = [sys.executable, "-m", "connect.cli.main", "status", "--watch", "--interval", "0.1"]
    # a child inherits that SIGINT is ignored, as it is in a shell's background job
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [*command, connector, "--server", node.url],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as watching:
        signal.signal(signal.SIGINT, before)
        try:
            assert watching.stdout is not None
            lines = watching.stdout
            assert [lines.readline().split("\t")[:3] for _ in range(2)] == [
                [connector, "", "RUNNING"],
                [connector, "0", "RUNNING"],
            ]
            assert node.icefloe("pause", connector)[0] == 0
            assert lines.readline().split("\t")[:3] == [connector, "", "PAUSED"]
            watching.send_signal(signal.SIGINT)
            assert watching.wait(TIMEOUT_S) == 128 + signal.SIGINT
        finally:
            watching.kill()
