"""Connectors from files through the command line, on a real node with stub children."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from connect.embedded.broker import Broker
from tests.support.command_line import icefloe
from tests.support.running_node import RunningNode
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka
SECRET = "hunter2-canary"
ROUNDS = "events-coordinator.json"
ROUND = {"event": "round", "commit_id": "1", "partial": False, "tables": []}


class Cli:
    """The command line against one node, and files to apply."""

    def __init__(self, node: RunningNode, topic: str, folder: Path) -> None:
        self.node, self.topic, self.folder = node, topic, folder
        folder.mkdir()

    def __call__(self, *arguments: str) -> tuple[int, str]:
        return self.node.icefloe(*arguments)

    @property
    def catalog(self) -> dict[str, str]:
        """Keys of a catalog that answers."""
        return {
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": f"sqlite:///{self.folder.parent}/catalog.db",
            "iceberg.catalog.warehouse": f"file://{self.folder.parent}/lake",
            "iceberg.tables.auto-create-enabled": "true",
        }

    def write(self, name: str, **config: str) -> None:
        """A connector's file."""
        body = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": self.topic,
            "iceberg.tables": "db.t",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "http://127.0.0.1:1",
            "iceberg.catalog.credential": SECRET,
            **config,
        }
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, "config": body}))

    def files(self, command: str, *arguments: str) -> tuple[int, str]:
        """A command over the whole folder."""
        return self(command, "-f", str(self.folder), *arguments)

    def names(self) -> set[str]:
        return set(self.node.call("GET", "/connectors").json())


@pytest.fixture(scope="module")
def node(broker: Broker, tmp_path_factory: Any) -> Iterator[RunningNode]:
    node = RunningNode(tmp_path_factory.mktemp(unique_name("gitops")), broker.bootstrap_servers)
    (node.folder / ROUNDS).write_text(json.dumps([ROUND]))
    node.start()
    yield node
    node.close()


@pytest.fixture
def cli(node: RunningNode, topics: Topics, tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(node, topics.create("orders"), tmp_path / "connectors")
    yield cli
    for name in cli.names():
        node.call("DELETE", f"/connectors/{name}")


def test_apply_converges(cli: Cli) -> None:
    """Create, repeat, change, prune: exit codes for CI, no secrets, other connectors unchanged."""
    cli.write("foreign")
    assert cli.files("apply", "--owner", "others")[0] == 0
    (cli.folder / "foreign.yaml").unlink()
    cli.write("one", **cli.catalog)
    cli.write("two", **cli.catalog)
    code, text = cli.files("diff")
    assert (code, "+ one" in text, "2 to create" in text) == (1, True, True)
    code, text = cli.files("apply", "--dry-run")
    assert (code, cli.names()) == (1, {"foreign"})
    code, text = cli.files("apply", "--wait", "150")
    assert (code, text) == (0, "created one, running\ncreated two, running\n")
    assert cli.names() == {"foreign", "one", "two"}
    assert cli.files("diff")[0] == cli.files("apply")[0] == 0
    second = {"iceberg.tables": "db.u", "iceberg.catalog.credential": f"{SECRET}2"}
    cli.write("one", **cli.catalog, **second)
    (cli.folder / "two.yaml").unlink()
    code, text = cli.files("diff", "--prune")
    assert code == 1
    assert "~ iceberg.tables: db.t -> db.u" in text
    assert "iceberg.catalog.credential: ******** -> ******** (changed)" in text
    assert "- two" in text
    code, displayed = cli.files("diff", "--prune", "-o", "json")
    actions = {a["connector"]: a["action"] for a in json.loads(displayed)["actions"]}
    assert actions == {"one": "update", "two": "prune"}
    code, done = cli.files("apply", "--prune", "--yes", "--wait", "150")
    assert code == 0, done
    assert done.startswith("updated one, running\n    ~ iceberg.catalog.credential: ")
    assert "    ~ iceberg.tables: db.t -> db.u\n" in done
    assert "deleted two\n" in done
    assert cli.names() == {"foreign", "one"}
    assert SECRET not in text + displayed + done
    cli.write("foreign")
    code, text = cli.files("apply")
    assert code == 1
    assert "'foreign' in" in text
    assert "belongs to the owner 'others'" in text


def test_one_invalid_file_stops_the_whole_apply(cli: Cli) -> None:
    """Each error names file, connector and key."""
    for number in range(20):
        cli.write(f"c{number:02}")
    cli.write("c03", **{"iceberg.of-a-later-version": "1"})
    cli.write("c07", **{"icefloe.tablez": "db.t"})
    cli.write("c11", **{"tasks.max": "many"})
    code, text = cli.files("apply")
    assert code == 2
    assert cli.names() == set()
    assert "c07.yaml: c07: icefloe.tablez:" in text
    assert "warning: " in text
    assert "c03.yaml: c03: iceberg.of-a-later-version has no effect: Unknown" in text
    assert "c11.yaml: c11: tasks.max:" in text
    assert "nothing was changed" in text
    assert cli.files("diff")[0] == 2
    done = icefloe("validate", "-f", str(cli.folder))
    assert done.status == 1
    assert "c07: icefloe.tablez:" in done.stderr
    assert "c03: iceberg.of-a-later-version has no effect" in done.stderr


def test_a_key_of_a_later_sink_is_a_warning(cli: Cli) -> None:
    """The connector is applied; the warning names file and key; validate --strict refuses it."""
    cli.write("later", **{"iceberg.of-a-later-version": "1"})
    code, text = cli.files("apply")
    assert code == 0
    assert "warning: " in text
    assert "later.yaml: later: iceberg.of-a-later-version has no effect: Unknown" in text
    assert cli.names() == {"later"}
    assert cli.files("validate", "--no-remote")[0] == 0
    assert cli.files("validate", "--no-remote", "--strict")[0] == 1


def test_validate_checks_live_services_and_apply_does_not(cli: Cli) -> None:
    """If the catalog does not answer, validate reports it, and apply succeeds."""
    cli.write("one")
    code, text = cli.files("validate")
    assert code == 1
    assert "one: iceberg.catalog.uri: Asked the rest catalog at http://127.0.0.1:1" in text
    assert SECRET not in text
    assert "not asked" not in text
    note = "not asked: brokers, catalog, object store, schema registries; omit --no-remote\n"
    assert cli.files("validate", "--no-remote") == (0, f"1 connector(s) are valid\n{note}")
    assert cli.files("apply")[0] == 0
    assert cli.names() == {"one"}


def test_apply_that_waits_asks_as_validate_does(cli: Cli) -> None:
    """If the catalog does not answer, apply --wait changes nothing and gives the reason."""
    cli.write("one")
    code, text = cli.files("apply", "--wait", "150")
    assert code == 2
    assert "one: iceberg.catalog.uri: Asked the rest catalog at http://127.0.0.1:1" in text
    assert "nothing was changed" in text
    assert cli.names() == set()


def test_apply_that_waits_ends_when_a_task_has_failed(cli: Cli) -> None:
    """The status is 1, the reason is there, and the output says what was done."""
    (cli.node.folder / "fail-one-0").write_text('{"code": "gone", "retriable": false}')
    cli.write("one", **cli.catalog)
    code, text = cli.files("apply", "--wait", "150")
    assert code == 1
    assert "created one, failed\n" in text
    assert "error: one: FAILED: Stub: gone" in text
    assert "to create" not in text


def test_apply_that_waits_waits_until_tasks_have_read(cli: Cli) -> None:
    """RUNNING alone is not enough: the tasks of this configuration have answered a round."""
    rounds = cli.node.folder / ROUNDS
    content = rounds.read_text()
    try:
        rounds.write_text(json.dumps([{**ROUND, "partial": True}]))
        cli.write("one", **cli.catalog)
        code, text = cli.files("apply", "--wait", "2")
        assert code == 1
        assert "created one, not ready" in text
        assert "after 2 s: one: its tasks have not read yet; the last round ended by" in text
        table = {"table": "db.t", "code": "table_missing", "message": "gone"}
        rounds.write_text(json.dumps([{**ROUND, "tables": [table]}]))
        cli.write("one", **cli.catalog, **{"tasks.max": "2"})
        code, text = cli.files("apply", "--wait", "150")
        assert (code, "one: FAILED: db.t: table_missing: gone" in text) == (1, True)
    finally:
        rounds.write_text(content)
    cli.write("one", **cli.catalog)
    code, text = cli.files("apply", "--wait", "150", "-o", "json")
    (action,) = json.loads(text)["actions"]
    assert (code, action["action"], action["applied"]) == (0, "update", True)
    assert action["state"] == "running"


def test_control_commands_use_their_endpoints(cli: Cli) -> None:
    """Get, status, pause, resume, stop, restart and offsets."""
    cli.write("one", **cli.catalog)
    assert cli.files("apply", "--wait", "150")[0] == 0
    code, text = cli("get", "one", "-o", "yaml")
    assert code == 0
    assert SECRET not in text
    assert yaml.safe_load(text)["config"]["iceberg.tables"] == "db.t"
    masked = cli.folder.parent / "masked.yaml"
    masked.write_text(text)
    code, output = cli("apply", "-f", str(masked))
    assert (code, "iceberg.catalog.credential is masked" in output) == (2, True)
    assert (
        yaml.safe_load(cli("get", "one", "-o", "yaml", "--reveal")[1])["config"][
            "iceberg.catalog.credential"
        ]
        == SECRET
    )
    cli.node.wait_until(lambda: "one\t\tRUNNING" in cli("status")[1])
    cli.node.wait_until(lambda: cli("lag") == (0, "one\t0\t0\t-\n"))
    assert cli("lag", "one", "--partitions") == (0, f"one\t{cli.topic}\t0\t-\t0\t0\n")
    (reported,) = json.loads(cli("lag", "-o", "json")[1])
    assert (reported["connector"], len(reported["partitions"])) == ("one", 1)
    assert cli("pause", "one")[0] == 0
    cli.node.wait_until(
        lambda: json.loads(cli("status", "-o", "json")[1])[0]["connector"]["state"] == "PAUSED"
    )
    assert cli.files("apply", "--wait", "150")[0] == 0, "a paused connector stays paused"
    assert cli("resume", "one")[0] == cli("restart", "one", "--include-tasks")[0] == 0
    cli.node.running("one", 1)
    assert cli("restart", "one", "--task", "0")[0] == 0
    assert cli("stop", "one")[0] == 0
    cli.node.wait_until(lambda: cli.node.has_stopped("one"))
    wanted = {
        "offsets": [
            {
                "partition": {"kafka_topic": cli.topic, "kafka_partition": 0},
                "offset": {"kafka_offset": 0},
            }
        ]
    }
    file = cli.folder.parent / "offsets.json"
    file.write_text(json.dumps(wanted))
    alter = ("offsets", "alter", "one", "-f", str(file))
    code, text = cli(*alter)
    assert (code, f"{cli.topic}\t0\t-\t0\n" in text) == (2, True)
    assert "run the command with --yes" in text
    assert cli("offsets", "show", "one")[1] == ""
    code, text = cli(*alter, "--yes")
    assert code == 0, text
    assert json.loads(cli("offsets", "show", "one", "-o", "json")[1]) == wanted
    assert cli("offsets", "show", "one")[1].strip() == f"{cli.topic}\t0\t0"
    code, text = cli("offsets", "reset", "one")
    assert (code, f"{cli.topic}\t0\t0\t-\n" in text) == (2, True)
    assert json.loads(cli("offsets", "show", "one", "-o", "json")[1]) == wanted
    assert cli("offsets", "reset", "one", "--yes")[0] == 0
    assert cli("offsets", "show", "one")[1] == ""
    code, text = cli("get", "no-such")
    assert (code, "there is no connector 'no-such'" in text) == (1, True)
    code, text = cli("pause", "no-such")
    assert (code, "no-such" in text) == (1, True)


def test_an_unreachable_server_is_one_clear_line(tmp_path: Path) -> None:
    """Also an invalid server; there is no traceback."""
    for server, status, message in (
        ("http://127.0.0.1:1", 3, "no node answers"),
        ("nowhere", 2, "is no URL"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "connect.cli.main", "status", "--server", server],
            capture_output=True,
            text=True,
            check=False,
            timeout=150,
            env={"ICEFLOE_PROFILES": str(tmp_path / "none.yaml"), "PATH": ""},
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == status
        assert message in done.stderr
        assert "Traceback" not in done.stderr
