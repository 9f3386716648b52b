"""Two versions of Icefloe in one cluster, one node replaced after the other.

Rules of this file:
- The other version is a wheel of this tree with another number, in an environment of its own. It
  writes a field that this version does not know into every record of its state, and a header that
  it does not know into every control event.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

from connect.processes.ipc import VERSION
from tests.faults.extra_nodes import ExtraNodes, is_running, wait_for_progress
from tests.faults.payments_stack import connector, payments_stack
from tests.support.installed_wheel import Environment, build, run

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults]

ROOT = Path(__file__).parents[2]
OTHER = "0.0.9"
PACKAGED = ("pyproject.toml", "README.md", "LICENSE", "NOTICE")
PACKAGES = ("control_schemas", "connect", "worker", "coordinator")
RECORDS_PER_S = 2_000
RECORDS = 10_000_000  # more than the test needs
CHANGES = {
    "pyproject.toml": (f'version = "{VERSION}"', f'version = "{OTHER}"'),
    "connect/state/topic_records.py": (
        "    return json.dumps(value, separators",
        '    value = {**value, "icefloe.other": [1]}\n    return json.dumps(value, separators',
    ),
    "control_schemas/headers.py": (
        "    values = (\n",
        '    values = (\n        ("icefloe.other", {"added": 1}),\n',
    ),
}


@pytest.fixture
def other(tmp_path: Path) -> Environment:
    """An environment with the other version."""
    source = tmp_path / "source"
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in PACKAGED:
        shutil.copy(ROOT / name, source)
    for name, (present, changed) in CHANGES.items():
        text = (source / name).read_text()
        assert text.count(present) == 1, name
        (source / name).write_text(text.replace(present, changed))
    build(source, tmp_path, "wheel")
    (wheel,) = tmp_path.glob("*.whl")
    environment = Environment(tmp_path / "other", wheel)
    assert run(environment.program, "--version").strip() == OTHER
    return environment


@pytest.mark.timeout(900)
def test_nodes_are_upgraded_one_after_the_other(
    tmp_path: Path,
    other: Environment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both run tasks at the same time, and each takes over from the other: 0 lost, 0 twice."""
    began_s = time.monotonic()
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # else a node runs what is in the working folder
    with monkeypatch.context() as older:
        older.setattr(sys, "executable", str(other.python))
        opened = payments_stack(tmp_path / "state", connector(**{"tasks.max": "4"}))
        cluster = opened.__enter__()
    producer, extra_nodes = cluster.producer(RECORDS_PER_S), ExtraNodes(cluster)
    try:
        producer.start(RECORDS, RECORDS)
        cluster.wait_until(cluster.committed, "the first commit of the other version")
        extra_nodes.start("new")
        cluster.wait_until(lambda: extra_nodes.unit_count("new"), "work on the new node")
        versions = {node["version"] for node in extra_nodes.view()["nodes"]}
        assert versions == {OTHER, VERSION}
        cluster.wait_until(lambda: is_running(cluster), "all tasks running on both versions")
        wait_for_progress(cluster, "with both versions")

        old = cluster.stack._node
        assert old is not None
        assert old.stop(timeout_ms=90_000) == 0
        cluster.stack._node = None  # its end is no failure of the stack
        cluster.wait_until(
            lambda: extra_nodes.unit_count("new", seen_by="new") == 5, "take-over by the new node"
        )
        wait_for_progress(cluster, "after the other version drained")

        cluster.stack.start_node()
        cluster.stack.wait_for_node()
        cluster.wait_until(
            lambda: {node["version"] for node in extra_nodes.view()["nodes"]} == {VERSION},
            "one version",
        )
        cluster.wait_until(lambda: extra_nodes.unit_count("new") < 5, "work on the upgraded node")
        cluster.wait_until(lambda: is_running(cluster), "all tasks running after the upgrade")
        wait_for_progress(cluster, "after the upgrade")
        producer.stop()
        cluster.wait_until_committed(producer.rows)
        result = cluster.check_result()
        assert extra_nodes.view("new")["leader"]
    finally:
        producer.request_stop()
        extra_nodes.stop()
        opened.__exit__(None, None, None)
    assert not result.findings
    with capsys.disabled():
        print(f"\nrolling upgrade: {time.monotonic() - began_s:.0f} s; {result}")
