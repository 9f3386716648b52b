"""``icefloe apply --prune`` from several folders, with a node in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from connect.clock import SystemClock
from connect.node.node_requests import NodeInfo
from connect.node.rest.app import create_app
from connect.node.rest.log_levels import LogLevels
from tests.support.command_line import CommandResult, icefloe
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.rest_server import RestServer


class Folders:
    """Folders with connectors, and a node.

    Args:
        server: the node.
        root: of the folders.
    """

    def __init__(self, server: RestServer, root: Path) -> None:
        self.server, self.root = server, root

    def write(self, folder: str, name: str) -> None:
        """Write the file of a connector."""
        config = {
            "name": name,
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": "orders",
            "iceberg.tables": "db.t",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "http://127.0.0.1:1",
        }
        (self.root / folder).mkdir(exist_ok=True)
        (self.root / folder / f"{name}.yaml").write_text(yaml.safe_dump(config))

    def apply(self, folder: str, *options: str) -> CommandResult:
        """Run the command for a folder."""
        url = f"http://127.0.0.1:{self.server.port}"
        return icefloe("apply", "-f", str(self.root / folder), "--server", url, *options)

    def names(self) -> list[str]:
        """Return the connectors of the node."""
        listed: list[str] = self.server.send("GET", "/connectors").json()
        return listed


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Folders]:
    """A folder ``first`` with an applied connector, and one ``second`` that is not applied."""
    levels = LogLevels(SystemClock())
    app = create_app(FakeHerder(levels).handlers, NodeInfo("http://n:1", "cluster"), levels)
    with RestServer(app) as server:
        made = Folders(server, tmp_path)
        made.write("first", "one")
        made.write("second", "two")
        assert made.apply("first").status == 0
        yield made


def test_a_second_folder_does_not_delete_the_connectors_of_the_first(folders: Folders) -> None:
    """Both have the default owner. Without a terminal nothing is changed, not even created."""
    done = folders.apply("second", "--prune")
    assert done.status == 2
    assert "- one" in done.stdout
    assert "from any folder: one. Apply each folder with an --owner of its own" in done.stderr
    assert "run the command with --yes" in done.stderr
    assert folders.names() == ["one"]
    assert folders.apply("second").status == 0
    assert folders.apply("second", "--prune").status == 2
    assert folders.names() == ["one", "two"]


def test_a_plan_without_deletions_needs_no_confirmation(folders: Folders) -> None:
    """Also with ``--prune``, for each command of the guide."""
    assert folders.apply("first", "--prune").status == 0
    folders.write("first", "three")
    assert folders.apply("first", "--prune").status == 0
    assert folders.names() == ["one", "three"]
    assert folders.apply("second", "--prune", "--dry-run").status == 1


@pytest.mark.parametrize("options", [("--yes",), ("-y",), ("--owner", "apply")])
def test_a_confirmed_deletion_is_made(folders: Folders, options: tuple[str, ...]) -> None:
    """With ``--yes``, or with an owner that is named."""
    assert folders.apply("second", "--prune", *options).status == 0
    assert folders.names() == ["two"]


def test_folders_with_owners_of_their_own_do_not_meet(folders: Folders) -> None:
    """Nothing is asked, and only connectors of the owner are deleted."""
    assert folders.apply("second", "--owner", "team").status == 0
    (folders.root / "second" / "two.yaml").unlink()
    folders.write("second", "three")
    assert folders.apply("second", "--prune", "--owner", "team").status == 0
    assert folders.names() == ["one", "three"]
