"""Every directory of ``examples`` is complete, valid and listed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from connect.embedded.demo import TABLES, demo_connector
from connect.jvm import jars
from connect.operations.datagen.record_spec import read_spec
from connect.validation.cross_key_rules import check_sink
from connect.validation.parse import parse

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
NAMES = sorted(
    folder.name
    for folder in EXAMPLES.iterdir()
    if folder.is_dir() and folder.name not in {"icefloe-state", "__pycache__"}
)
CONNECTORS = sorted(
    file for file in EXAMPLES.glob("*/*.json") if file.name not in {"datagen.json", "source.json"}
)
GENERATORS = sorted(EXAMPLES.glob("*/datagen.json"))


@pytest.mark.parametrize("path", CONNECTORS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_connector_is_accepted(path: Path) -> None:
    """It parses without error or warning; ``connector.json`` is called like the directory."""
    content = json.loads(path.read_text())
    assert path.stem != "connector" or content["name"] == path.parent.name
    assert parse({"name": content["name"], **content["config"]}).name == content["name"]
    assert check_sink(content["config"]).warnings == []


def test_connectors_have_different_names() -> None:
    """A user can run all examples on one node."""
    names = [json.loads(path.read_text())["name"] for path in CONNECTORS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", GENERATORS, ids=lambda path: path.parent.name)
def test_a_specification_of_records_is_accepted(path: Path) -> None:
    """It ends by itself."""
    assert read_spec(path).count > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_readme_names_every_file_and_shows_a_result(name: str) -> None:
    """Its links lead to files, and it has commands with output."""
    folder = EXAMPLES / name
    page = (folder / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)#:]+)[^):]*\)", page)
    assert [link for link in links if not (folder / link).exists()] == []
    assert re.search(r"^```text\n", page, re.MULTILINE)
    for file in folder.iterdir():
        assert file.name == "README.md" or file.name in page, file.name


@pytest.mark.parametrize("list_", ["examples/README.md", "docs/examples.md"])
def test_the_lists_have_every_example(list_: str) -> None:
    """And no others."""
    page = (ROOT / list_).read_text("utf-8")
    assert sorted(re.findall(r"^\| \[?`([a-z-]+)`", page, re.MULTILINE)) == NAMES


DATABASES = [
    ("debezium-postgres", "postgres", "debezium-postgres", "connector-postgres"),
    ("debezium-mysql", "mariadb", "debezium-mariadb", "connector-mariadb"),
]


@pytest.mark.parametrize(("name", "service", "group", "jar"), DATABASES)
def test_containers_and_connectors_of_a_database_fit(
    name: str, service: str, group: str, jar: str
) -> None:
    """Addresses, users, files and Debezium's version are those of the test with real servers."""
    folder = EXAMPLES / name
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert services.keys() == {service, "connect"}
    database, worker = services[service], services["connect"]
    source = json.loads((folder / "source.json").read_text())["config"]
    port = source["database.port"]
    assert database["ports"] == [f"{source['database.hostname']}:{port}:{port}"]
    users = database["environment"].values()
    assert {source["database.password"], source.get("database.dbname", "shop")} <= set(users)
    assert (folder / database["volumes"][0].partition(":")[0]).is_file()
    assert all("healthcheck" in each for each in services.values())
    environment = worker["environment"]
    address = environment["CONNECT_LISTENERS"]
    page = (folder / "README.md").read_text("utf-8")
    assert f" {address}/connectors" in page
    assert address in " ".join(worker["healthcheck"]["test"])
    assert address.endswith(f":{environment['ADVERTISED_PORT']}")
    version = worker["image"].rpartition(":")[2]
    assert f"debezium-{jar}-{version}.jar" in jars.read_lock()[group]
    topics = re.escape(source["topic.prefix"])
    assert json.loads((folder / "connector.json").read_text())["config"]["topics.regex"].startswith(
        topics
    )


def test_demo_runs_the_example_that_people_see() -> None:
    """The demo's connector is the one in ``examples``; its tables are those that are checked."""
    connector = demo_connector()
    assert connector == json.loads((EXAMPLES / "payments-fanout" / "connector.json").read_text())
    config = parse({"name": connector["name"], **connector["config"]})
    assert set(config.tables) == set(TABLES.values())
    assert config.route_field == "kind"
