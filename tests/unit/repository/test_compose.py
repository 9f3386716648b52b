"""The container stack cannot run in these tests; its files must refer to each other correctly."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from connect.config.node.node_config import NodeConfig
from connect.operations.datagen.record_spec import read_spec
from connect.validation.parse import parse

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "compose"


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    """The compose file, parsed."""
    content: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return content


def test_services_wait_for_services_that_exist_and_have_a_health_check(
    stack: dict[str, Any],
) -> None:
    """Every dependency is a service; one that is waited for until healthy has a check."""
    services = stack["services"]
    for name, service in services.items():
        for other, dependency in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            if dependency["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{other} has no check"


def test_volumes_are_declared_and_used(stack: dict[str, Any]) -> None:
    """Named volumes exist, none is left over, and mounted files are in the repository."""
    used = set()
    for service in stack["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (COMPOSE / source).exists(), source
            else:
                used.add(source)
    assert used == set(stack["volumes"])


def test_addresses_name_services_and_their_ports(stack: dict[str, Any]) -> None:
    """Every ``service:port`` in settings, properties and connectors is a port of that service."""
    services = stack["services"]
    texts = [(COMPOSE / "node.properties").read_text()]
    texts += [path.read_text() for path in (COMPOSE / "connectors").iterdir()]
    texts += [json.dumps(service.get("environment", {})) for service in services.values()]
    own = {"broker:9093"}  # the controller's listener, used by the broker alone
    found = set()
    for text in texts:
        for name, port in re.findall(r"\b([a-z]+):(\d{4})\b", text):
            if f"{name}:{port}" not in own:
                assert port in services[name]["expose"], f"{name}:{port}"
                found.add(name)
    assert found == {"broker", "store", "catalog", "registry"}


def test_only_services_with_a_login_are_published_to_the_host(stack: dict[str, Any]) -> None:
    """On its loopback interface, with the password of .env; Grafana is in the node's network."""
    services = stack["services"]
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {
        "node": ["127.0.0.1:3000:3000"],
        "topics": ["127.0.0.1:8080:8080"],
        "notebook": ["127.0.0.1:8888:8888"],
    }
    assert services["grafana"]["network_mode"] == "service:node"
    assert services["topics"]["environment"]["AUTH_TYPE"] == "LOGIN_FORM"
    for name in ("grafana", "topics", "notebook"):
        assert any("UI_PASSWORD" in value for value in services[name]["environment"].values())
    assert "listeners=http://127.0.0.1:8083" in (COMPOSE / "node.properties").read_text()


def test_images_have_versions_and_digests(stack: dict[str, Any]) -> None:
    """Each image is named by tag and digest; the project's own are built from the repository."""
    services = stack["services"]
    text = (ROOT / "Dockerfile").read_text()
    stages = set(re.findall(r"^FROM \S+ AS (\w+)$", text, re.MULTILINE))
    built = {name for name, service in services.items() if "build" in service}
    assert built == {"node", "generator", "notebook"}
    for name in built:
        build = services[name]["build"]
        assert (COMPOSE / build["context"] / build["dockerfile"]).is_file()
        assert build["target"] in stages
        assert ":?" in build["args"]["PYTHON_DIGEST"]
    for name in services.keys() - built:
        assert re.fullmatch(
            r"[\w./-]+:[\w.-]*\d[\w.-]*@\$\{[A-Z]+_DIGEST:\?.+\}", services[name]["image"]
        )
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert all(base in stages or base.endswith("@${PYTHON_DIGEST}") for base in bases)
    assert bases[-1] == "node"  # what a build without a target makes


def test_every_digest_is_asked_for(tmp_path: Path) -> None:
    """The script prints a line for each image of the file; the registry is a stand-in."""
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho sha256:of-$4\n")
    docker.chmod(0o755)
    done = subprocess.run(
        [COMPOSE / "digests.sh"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        check=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines)
    text = (COMPOSE / "compose.yaml").read_text()
    assert set(found) == set(re.findall(r"\$\{([A-Z]+_DIGEST):", text))
    assert found["KAFKA_DIGEST"] == "sha256:of-apache/kafka:4.3.1"


def test_node_properties_are_good() -> None:
    """The node's own check finds nothing wrong and nothing without effect."""
    node = NodeConfig.load(COMPOSE / "node.properties", {})
    assert node.bootstrap_servers == "broker:9092"
    assert not node.warnings


@pytest.mark.parametrize(
    "path", sorted((COMPOSE / "connectors").glob("*.json")), ids=lambda p: p.stem
)
def test_connectors_are_good(path: Path) -> None:
    """Each connector parses, and its secrets are references."""
    content = json.loads(path.read_text())
    config = parse({"name": content["name"], **content["config"]})
    assert config.catalog_properties["s3.secret-access-key"] == "${env:STORE_PASSWORD}"


def test_the_generator_writes_what_the_connector_reads(stack: dict[str, Any]) -> None:
    """Its specification is valid, without an end, and for the connector's topic and converter."""
    command = stack["services"]["generator"]["command"]
    mounted = Path(command[command.index("-f") + 1])
    spec = read_spec(COMPOSE / "datagen" / mounted.name)
    connector = json.loads((COMPOSE / "connectors" / "payments.json").read_text())["config"]
    assert (spec.topic, spec.count, spec.format) == (connector["topics"], 0, "json")
    assert connector["value.converter"].endswith("JsonConverter")


def test_the_notebook_has_what_it_asks_for(stack: dict[str, Any]) -> None:
    """Every variable that it reads is set, and its libraries are in the lock of its image."""
    notebook = json.loads((COMPOSE / "notebooks" / "payments.ipynb").read_text())
    code = "\n".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code")
    variables = set(re.findall(r"environ\[\"(\w+)\"\]", code))
    assert variables
    assert variables <= stack["services"]["notebook"]["environment"].keys()
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    lock = (ROOT / "requirements" / "notebook.lock").read_text()
    assert "\njupyterlab==" in lock
    assert "\nduckdb==" in lock


def test_the_images_have_the_libraries_of_all_extras() -> None:
    """Those of datagen and OpenTelemetry too; versions of the notebook are those of the node."""
    node, notebook = (
        dict(
            re.findall(
                r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE
            )
        )
        for name in ("runtime.lock", "notebook.lock")
    )
    assert {"mimesis", "opentelemetry-exporter-otlp-proto-http"} <= node.keys()
    assert {n: v for n, v in notebook.items() if n in node and node[n] != v} == {}


def test_image_copies_what_the_package_holds() -> None:
    """The image contains all four packages."""
    text = (ROOT / "Dockerfile").read_text()
    for package in ("control_schemas", "connect", "worker", "coordinator"):
        assert f"COPY {package} {package}" in text
        assert f"!{package}" in (ROOT / ".dockerignore").read_text()
