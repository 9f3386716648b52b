"""schemathesis against a node: requests made from the API's own description."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.running_node import RunningNode
from tests.support.stack import Topics

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
PROGRAM = Path(os.environ.get("CLIENTS") or ROOT / ".venv-clients") / "bin" / "st"
EXAMPLES = os.environ.get("SCHEMA_EXAMPLES")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
SETTINGS = """\
[parameters]
"path.name" = "one"
"path.task" = 0
"path.plugin" = "org.apache.iceberg.connect.IcebergSinkConnector"
"""


@pytest.mark.parametrize(
    ("phases", "examples"),
    [("fuzzing", "2"), pytest.param("coverage,fuzzing", "3", marks=pytest.mark.matrix)],
)
def test_no_request_causes_a_5xx(
    kafka_properties: dict[str, str],
    topics: Topics,
    tmp_path_factory: pytest.TempPathFactory,
    phases: str,
    examples: str,
) -> None:
    """Valid and invalid requests: only documented statuses and bodies."""
    if not PROGRAM.exists():
        pytest.fail("the clients are not installed: make clients")
    folder = tmp_path_factory.mktemp("schema")
    node = RunningNode(folder, kafka_properties["bootstrap.servers"])
    (folder / "decided.json").write_text('{"state": "not_failed"}')
    (folder / "schemathesis.toml").write_text(SETTINGS)
    try:
        node.start()
        node.put("one", topics.create("schema"))
        node.running("one", 1)
        done = subprocess.run(
            [
                *(PROGRAM, "run", f"{node.url}/icefloe/v1/openapi.json", "--url", node.url),
                *("--phases", phases, "--max-examples", EXAMPLES or examples),
                *("--generation-deterministic", "--continue-on-failure", "--no-color"),
                *("--checks", ",".join(CHECKS), "--request-timeout", "60"),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        assert node.call("GET", "/health").status_code == 200
        assert "Traceback" not in (folder / "node.log").read_text()
    finally:
        node.close()
