"""Wheel and source distribution, built and installed with and without the large packages."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

import httpx
import pytest

from connect.processes.child_process import free_port
from tests.support.installed_wheel import TIMEOUT_S, Environment, build, pip, run

ROOT = Path(__file__).parents[2]
UI = ROOT / "connect" / "node" / "rest" / "ui"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("connect", "control_schemas", "coordinator", "worker")
LARGE = ("pyspark", "py4j", "pyarrow", "pyiceberg", "pandas", "numpy", "confluent_kafka", "duckdb")

# every command that asks a node, run in one process: each start of Python costs a second
CLIENT = """
import json, sys
from typer.testing import CliRunner
from connect.cli import main
from connect.errors import IcefloeError

found = {}
for arguments in json.loads(sys.argv[1]):
    main.add_commands(arguments)
    done = CliRunner().invoke(main.app, arguments)
    known = isinstance(done.exception, IcefloeError)
    text = done.stderr + (str(done.exception) if done.exception is not None else "")
    found[" ".join(arguments)] = [done.exception.exit_status if known else done.exit_code, text]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it alone."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "sdist")
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as packed:
        packed.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    build(unpacked, folder, "wheel")
    (wheel,) = folder.glob("*.whl")
    return source, wheel


@pytest.fixture(scope="module")
def full(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel with all dependencies, which `make setup` has installed by their hashes."""
    return Environment(tmp_path_factory.mktemp("env") / "full", built[1])


@pytest.fixture(scope="module")
def light(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel with the packages of requirements/cli.lock alone."""
    folder = tmp_path_factory.mktemp("light")
    names = re.findall(r"^([\w.-]+)==", (ROOT / "requirements/cli.lock").read_text(), re.MULTILINE)
    for name in names:
        installed = distribution(name)
        entries = {file.parts[0] for file in installed.files or () if ".." not in file.parts}
        for entry in entries - {"__pycache__"}:
            if not (folder / entry).exists():
                (folder / entry).symlink_to(Path(str(installed.locate_file(entry))))
    return Environment(tmp_path_factory.mktemp("env") / "light", built[1], folder)


def tracked(*folders: str) -> set[str]:
    """Return the files of the repository in these folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def test_the_wheel_has_every_file_of_the_packages_and_the_notices(built: tuple[Path, Path]) -> None:
    """Byte for byte, built from the source distribution, without other files."""
    with zipfile.ZipFile(built[1]) as packed:
        names = set(packed.namelist())
        for file in UI.iterdir():
            assert packed.read(f"connect/node/rest/ui/{file.name}") == file.read_bytes()
    info = {name for name in names if ".dist-info/" in name}
    assert {name for name in names - info if not name.endswith("/")} == tracked(*PACKAGES)
    assert {name.rpartition("/")[2] for name in info} >= {"LICENSE", "NOTICE", "entry_points.txt"}


def test_the_source_distribution_has_the_lock_files(built: tuple[Path, Path]) -> None:
    """And what the build needs, without tests and local files."""
    with tarfile.open(built[0]) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    for name in ("LICENSE", "NOTICE", "CHANGELOG.md", "pyproject.toml"):
        assert name in names
    assert {n for n in names if n.startswith("requirements/")} == tracked("requirements")
    known = tracked()
    assert [n for n in names if n != "PKG-INFO" and n not in known] == []
    assert not any(name.startswith("tests/") for name in names)


def test_the_changelog_has_the_version() -> None:
    """A section for the version, or for unreleased changes."""
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] in {"Unreleased", PROJECT["version"]}


@pytest.mark.parametrize("kind", ["full", "light"])
def test_the_program_starts(kind: str, request: pytest.FixtureRequest) -> None:
    """The entry point prints the version of the wheel and the help."""
    env: Environment = request.getfixturevalue(kind)
    assert run(env.program, "--version").strip() == PROJECT["version"]
    assert "standalone" in run(env.program, "--help")


def test_the_locked_versions_meet_the_requirements(full: Environment) -> None:
    """Every requirement of the wheel."""
    done = subprocess.run([*pip(full.python), "check"], capture_output=True, text=True, check=False)
    assert not [line for line in done.stdout.splitlines() if line.startswith("icefloe ")]


@pytest.mark.matrix  # the default suite has the wheel's files and program, and other nodes
def test_an_installed_node_starts_and_drains(full: Environment, tmp_path: Path) -> None:
    """Without a broker it is alive and not ready; SIGTERM ends it with status 0."""
    port = free_port()
    properties = {
        "bootstrap.servers": f"127.0.0.1:{free_port()}",
        "group.id": "installed",
        "config.storage.topic": "configs",
        "status.storage.topic": "states",
        "listeners": f"http://127.0.0.1:{port}",
        "icefloe.state.dir": str(tmp_path / "state"),
    }
    file = tmp_path / "node.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    log = tmp_path / "node.log"
    command = [str(full.python), "-m", "connect.node", "--properties", str(file)]
    with log.open("wb") as output:
        node = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_alive(port):
            assert node.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.1)
        assert httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60).status_code == 503
        node.send_signal(signal.SIGTERM)
        assert node.wait(TIMEOUT_S) == 0, log.read_text()
    finally:
        node.kill()
        node.wait()


def is_alive(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def test_a_client_needs_no_large_package(light: Environment, tmp_path: Path) -> None:
    """Every client command works without them until it finds no node at the address."""
    for name in LARGE:
        assert "ModuleNotFoundError" in run(light.python, "-c", f"import {name}", status=1)
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"name": "c", "connector.class": "IcebergSink", "topics": "t"}))
    server = ("--server", f"http://127.0.0.1:{free_port()}")
    commands = [[*arguments, *server] for arguments in asking(str(file))]
    results = json.loads(run(light.python, "-c", CLIENT, json.dumps(commands)))
    for arguments, (status, text) in results.items():
        assert (arguments, status) == (arguments, 3), text
        assert "no node answers" in text


def asking(file: str) -> Iterable[list[str]]:
    """Return commands of a client, each with the arguments that it needs."""
    yield from (
        [name] for name in ("get", "list", "status", "lag", "cluster", "plugins", "loggers")
    )
    yield from ([name, "c"] for name in ("describe", "audit", "pause", "resume", "stop"))
    yield from ([name, "-f", file] for name in ("validate", "diff", "apply", "preview"))
    yield from (
        ["restart", "c"],
        ["delete", "c", "--yes"],
        ["patch", "c", "tasks.max=2"],
        ["offsets", "show", "c"],
        ["tables", "list", "c"],
        ["dlq", "list", "c"],
    )


def test_a_command_names_the_package_that_is_missing(light: Environment, tmp_path: Path) -> None:
    """Wrong usage with the remedy, not a stack trace."""
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"name": "c", "connector.class": "IcebergSink", "topics": "t"}))
    output = run(light.program, "validate", "-f", file, status=2)
    assert "is not installed" in output
    assert "pip install icefloe" in output
    assert "Traceback" not in output
