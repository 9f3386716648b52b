"""Lists and audits the dependencies of a node: ``dependencies.py (sbom | audit)``.

``sbom`` writes the packages and jars of the lock files as CycloneDX JSON to build/sbom.cdx.json; it
needs no network. ``audit`` checks the packages for known vulnerabilities with pip-audit: status 1
if there are any. Without network it says so and returns status 0.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / "requirements" / "runtime.lock"
JARS = ROOT / "connect" / "jvm" / "jars.lock"
NODE_JARS = ("spark-kafka", "iceberg-spark", "iceberg-aws", "jdbc")  # as in the Dockerfile
AUDIT_LOCK = ROOT / "requirements" / "audit.lock"
AUDIT_VENV = ROOT / ".venv-audit"
REPORTS = ROOT / "build"
TIMEOUT_S = 300
_PACKAGE = re.compile(r"^(?P<name>[\w.-]+)(?:\[[^]]*\])?==(?P<version>[^\s\\;]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.-]*)\.jar")


def packages() -> Iterator[dict[str, Any]]:
    """Yield a component for each package, with the hashes of all its files."""
    found: dict[str, Any] = {}
    for line in PACKAGES.read_text("utf-8").splitlines():
        if match := _PACKAGE.match(line):
            if found:
                yield found
            name, version = match["name"].lower(), match["version"]
            found = _component(name, version, f"pkg:pypi/{name}@{version}")
        for digest in _HASH.findall(line):
            found["hashes"].append({"alg": "SHA-256", "content": digest})
    if found:
        yield found


def jars() -> Iterator[dict[str, Any]]:
    """Yield a component for each jar that a node loads."""
    locked = json.loads(JARS.read_text("utf-8"))
    files = {file: digest for part in NODE_JARS for file, digest in locked[part].items()}
    for file, digest in sorted(files.items()):
        match = _JAR.fullmatch(file)
        name, version = (match["name"], match["version"]) if match else (file, "")
        found = _component(name, version, f"pkg:generic/{name}@{version}?checksum=sha256:{digest}")
        found["hashes"].append({"alg": "SHA-256", "content": digest})
        yield found


def _component(name: str, version: str, purl: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [],
    }


def sbom() -> dict[str, Any]:
    """Return the CycloneDX document; it depends only on the lock files."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    version = re.search(r'^version = "([^"]+)"', project, re.MULTILINE)
    assert version is not None
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": "icefloe", "version": version[1]}
        },
        "components": [*packages(), *jars()],
    }


def audit() -> int:
    """Check for known vulnerabilities; return 1 if there are any."""
    report = REPORTS / "audit.json"
    report.unlink(missing_ok=True)
    try:
        if not (AUDIT_VENV / "bin" / "pip-audit").exists():
            venv.create(AUDIT_VENV, with_pip=True)
            _run("pip", "install", "--quiet", "--retries", "1", "--disable-pip-version-check",
                 "--require-hashes", "-r", str(AUDIT_LOCK))  # fmt: skip
        _run("pip-audit", "--requirement", str(PACKAGES), "--require-hashes", "--disable-pip",
             "--format", "json", "--output", str(report), "--progress-spinner", "off")  # fmt: skip
    except subprocess.TimeoutExpired:
        print(f"dependencies not audited: no answer within {TIMEOUT_S} s")
        return 0
    except subprocess.CalledProcessError as error:
        if not report.exists():
            last = (error.stderr or "").strip().splitlines()[-1:]
            print("dependencies not audited: the package index does not answer", *last)
            return 0
    found = json.loads(report.read_text("utf-8"))["dependencies"]
    known = [(p["name"], p["version"], v) for p in found for v in p.get("vulns", ())]
    for name, version, vulnerability in known:
        fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
        print(f"{name} {version}: {vulnerability['id']}, fixed in {fixed}")
    print(f"{len(found)} packages audited, {len(known)} known vulnerabilities")
    return 1 if known else 0


def _run(program: str, *arguments: str) -> None:
    command = [AUDIT_VENV / "bin" / program, *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)


def main() -> int:
    """See the module."""
    REPORTS.mkdir(exist_ok=True)
    match sys.argv[1:]:
        case ["sbom"]:
            file = REPORTS / "sbom.cdx.json"
            file.write_text(json.dumps(sbom(), indent=1) + "\n", "utf-8")
            print(file.relative_to(ROOT))
            return 0
        case ["audit"]:
            return audit()
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
