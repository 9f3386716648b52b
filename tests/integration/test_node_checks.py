"""``icefloe migrate --check`` and ``icefloe catalog check``, answered by a node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.command_line import CommandResult, icefloe
from tests.support.fakes.rest_catalog import MemoryCatalogServer
from tests.support.running_node import RunningNode
from tests.support.stack import Topics

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def node(
    kafka_properties: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningNode]:
    """A node with stub children, which grants some tables to one connector."""
    node = RunningNode(tmp_path_factory.mktemp("checks"), kafka_properties["bootstrap.servers"])
    node.properties["icefloe.grants.narrow"] = "shop\\.orders"
    node.start()
    yield node
    node.close()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MemoryCatalogServer]:
    """A REST catalog whose transactions are atomic."""
    server = MemoryCatalogServer(f"file://{tmp_path}/memory")
    server.start()
    yield server
    server.close()


class CheckCommands:
    """A connector's file, and commands about it."""

    def __init__(
        self, node: RunningNode, folder: Path, topic: str, catalog: dict[str, str]
    ) -> None:
        self._node = node
        self._file = folder / "connector.json"
        self.config = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": topic,
            "iceberg.tables": "shop.orders",
            "iceberg.control.topic": f"{topic}-control",
            **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
        }

    def run(self, *command: str, name: str = "checked") -> CommandResult:
        """A command with the file, asked of the node."""
        self._file.write_text(json.dumps({"name": name, "config": self.config}))
        return icefloe(*command, "-f", str(self._file), "--server", self._node.url)


@pytest.fixture
def checked(
    node: RunningNode, tmp_path: Path, topics: Topics, memory: MemoryCatalogServer
) -> CheckCommands:
    """A connector that the node does not have."""
    return CheckCommands(node, tmp_path, topics.create("checked"), memory.properties)


def test_a_migration_is_checked_by_the_node(
    checked: CheckCommands, kafka_properties: dict[str, str]
) -> None:
    """Safe at a first start; not safe with offsets behind the end; a wrong file is wrong usage."""
    safe = checked.run("migrate", "--check")
    assert safe.status == 0, safe.output
    assert safe.stdout.endswith("safe to start\n")
    admin = KafkaAdmin(kafka_properties)
    admin.alter_offsets("connect-checked", {TopicPartition(checked.config["topics"], 0): 5})
    admin.close()
    unsafe = checked.run("migrate", "--check", "-o", "json")
    assert unsafe.status == 1, unsafe.output
    findings = json.loads(unsafe.stdout)["findings"]
    assert {"source_log_reset"} <= {finding["code"] for finding in findings}
    checked.config["tasks.max"] = "many"
    wrong = checked.run("migrate", "--check")
    assert (wrong.status, "tasks.max" in wrong.stderr) == (2, True)


def test_a_catalog_is_checked_by_the_node(
    checked: CheckCommands, memory: MemoryCatalogServer
) -> None:
    """The same result as without a node, and no scratch table is left."""
    done = checked.run("catalog", "check", "--races", "3")
    assert done.status == 0, done.output
    assert "several tables: ATOMIC in every race" in done.stdout
    assert not memory.catalog.tables
    assert not memory.catalog.namespaces
    missing = checked.run("catalog", "check", "--races", "1", "--namespace", "none")
    assert (missing.status, "namespace none does not exist" in missing.stderr) == (2, True)


def test_scratch_tables_need_the_operators_grant(
    checked: CheckCommands, memory: MemoryCatalogServer
) -> None:
    """A connector with granted tables creates no other table, also for a check."""
    refused = checked.run("catalog", "check", "--races", "1", name="narrow")
    assert (refused.status, "icefloe.grants" in refused.stderr) == (2, True)
    assert not memory.catalog.namespaces


def test_a_catalog_that_does_not_answer_has_status_3(checked: CheckCommands) -> None:
    """The command has no result about the catalog."""
    checked.config["iceberg.catalog.uri"] = "http://127.0.0.1:9"
    for command in (("migrate", "--check"), ("catalog", "check")):
        done = checked.run(*command)
        assert done.status == 3, done.output
