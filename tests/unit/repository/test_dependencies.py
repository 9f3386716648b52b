"""The list of what a node is made of, and its audit without a network."""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.sources import modules, nodes

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / ".ci" / "dependencies.py"))


# Dependencies without an import statement in the packages, and what uses them.
NOT_IMPORTED = {
    "pandas": "pyspark's Arrow bridge imports it",
}
MODULES = {"google-re2": "re2", "grpcio-tools": "grpc_tools", "protobuf": "google.protobuf"}
MODULES |= {"psycopg2-binary": "psycopg2", "pyyaml": "yaml"}


def test_each_runtime_dependency_is_imported() -> None:
    """A dependency of pyproject.toml has an importer in the packages, or a stated reason."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = ("connect", "control_schemas", "coordinator", "worker")
    code = "\n".join(p.read_text() for name in packages for p in (ROOT / name).rglob("*.py"))
    names = set(re.findall(r"^[\w-]+", "\n".join(project["dependencies"]), re.MULTILINE))
    unused = {
        name
        for name in names - NOT_IMPORTED.keys()
        if not re.search(
            rf"^\s*(import|from) {re.escape(MODULES.get(name, name.replace('-', '_')))}\b",
            code,
            re.MULTILINE,
        )
    }
    assert unused == set()
    assert names >= NOT_IMPORTED.keys()


PACKAGES = ("connect", "control_schemas", "coordinator", "worker")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OF_TOOLS = {"build", "dev"}  # all other extras are of the product
CLIENTS = "tests/clients"  # in an environment of its own


def declared(extras: set[str]) -> dict[str, Requirement]:
    """Requirements of pyproject.toml with these extras, by canonical name."""
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in EXTRAS[extra])]
    requirements = [Requirement(text) for text in texts]
    return {canonicalize_name(r.name): r for r in requirements}


def imported(*folders: str) -> dict[str, set[str]]:
    """Files that import a module that is neither ours nor of Python, by its first name."""
    found = defaultdict(set)
    for path in modules(*folders):
        place = path.relative_to(ROOT).as_posix()
        for name in () if place.startswith(CLIENTS) else imports(path):
            top = name.partition(".")[0]
            if top not in {*PACKAGES, "tests"} | sys.stdlib_module_names:
                found[top].add(place)
    return found


def imports(path: Path) -> Iterator[str]:
    """Names of the modules that a file imports, also inside functions."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def undeclared(folders: tuple[str, ...], extras: set[str]) -> dict[str, list[str]]:
    """Files with imports of packages that none of these extras declares, by module."""
    known, distributions = declared(extras).keys(), packages_distributions()
    return {
        name: sorted(places)
        for name, places in imported(*folders).items()
        if not known & {canonicalize_name(one) for one in distributions.get(name, ())}
    }


def test_each_imported_package_is_declared() -> None:
    """Of the product, and of the tests with the extra dev: no package is there by chance."""
    assert undeclared(PACKAGES, EXTRAS.keys() - OF_TOOLS) == {}
    assert undeclared(("tests", ".ci", "examples"), set(EXTRAS)) == {}


@pytest.mark.parametrize("lock", ["dev", "runtime"])
def test_each_declared_package_is_locked_with_a_version_that_fits(lock: str) -> None:
    """The lock file says that pyproject.toml asks for it, as a new lock file would."""
    text = (ROOT / "requirements" / f"{lock}.lock").read_text()
    wanted = declared(set(EXTRAS) if lock == "dev" else EXTRAS.keys() - OF_TOOLS)
    del wanted["icefloe"]  # the extra `all` names the others
    for name, requirement in wanted.items():
        found = re.search(rf"^{name}==([^ ]+)(.*\n(?: +.*\n)*)", text, re.MULTILINE)
        assert found, name
        assert requirement.specifier.contains(found[1]), name
        assert "icefloe (pyproject.toml)" in found[2], name


@pytest.mark.parametrize("name", ["Makefile", "Dockerfile", "docs/how-to/upgrade.md"])
def test_a_lock_file_is_installed_as_it_is(name: str) -> None:
    """Nothing is resolved: for an extra, pip takes a newer version and refuses its check sum."""
    installs = re.findall(r"pip install .*\.lock", (ROOT / name).read_text("utf-8"))
    assert installs
    assert [one for one in installs if "--no-deps --require-hashes -r" not in one] == []


def test_everything_that_is_locked_is_listed() -> None:
    """Each package and jar of a node, with its version and check sums."""
    listed = SCRIPT["sbom"]()["components"]
    lock = (ROOT / "requirements" / "runtime.lock").read_text()
    names = re.findall(r"^([\w.-]+)", lock, re.MULTILINE)
    assert [one["name"] for one in listed if one["purl"].startswith("pkg:pypi/")] == names
    assert sum(len(one["hashes"]) for one in listed) > lock.count("sha256:")
    jars = json.loads((ROOT / "connect" / "jvm" / "jars.lock").read_text())
    digests = {
        digest
        for part in ("spark-kafka", "iceberg-spark", "iceberg-aws", "jdbc")
        for digest in jars[part].values()
    }
    jar_digests = {one["hashes"][0]["content"] for one in listed if "pkg:generic" in one["purl"]}
    assert jar_digests == digests
    assert all(one["version"] and one["hashes"] for one in listed)
    assert len({one["bom-ref"] for one in listed}) == len(listed)


@pytest.mark.parametrize(
    ("report", "status", "message"),
    [
        (None, 0, "not audited"),
        (
            {"dependencies": [{"name": "a", "version": "1", "vulns": []}]},
            0,
            "1 packages audited, 0",
        ),
        (
            {
                "dependencies": [
                    {"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}
                ]
            },
            1,
            "a 1: X-1, fixed in 2",
        ),
    ],
)
def test_an_audit(tmp_path: Path, report: dict[str, Any] | None, status: int, message: str) -> None:
    """Vulnerabilities are an error; an index that does not answer is reported and is no error."""
    for folder in (".ci", "requirements", ".venv-audit/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".ci" / "dependencies.py").write_text(
        (ROOT / ".ci" / "dependencies.py").read_text()
    )
    stand_in = tmp_path / ".venv-audit" / "bin" / "pip-audit"
    written = f"cat > {tmp_path}/build/audit.json <<'END'\n{json.dumps(report)}\nEND\n"
    stand_in.write_text(f"#!/bin/sh\n{written if report else 'echo no route >&2'}\nexit 1\n")
    stand_in.chmod(0o755)
    done = subprocess.run(
        [sys.executable, tmp_path / ".ci" / "dependencies.py", "audit"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == status, done.stderr
    assert message in done.stdout
