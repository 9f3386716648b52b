"""A node with two coordinator processes.

One is stopped and killed: the other one commits, and no row is lost or doubled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.running_stack import RunningStack, coordinator_process

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NAMES = ("first", "second")  # of an empty node, each has a process of its own
PROCESSES = ("coordinator", "coordinator-2")


@pytest.fixture
def two(running: RunningStack) -> Iterator[RunningStack]:
    """A connector on each coordinator process."""
    node = running
    node.wait_until(lambda: not _connectors(node), lambda: f"no connector: {_connectors(node)}")
    for name in NAMES:
        node.table(f"db.{name}")
        topic = node.topic(name)
        node.produce(topic, {"id": 0, "name": topic})
        config = node.connector(topics=topic, iceberg__tables=f"db.{name}")
        node.create(name, config)
        node.wait_until_running(name)
    yield node
    node.delete(*NAMES)


def process_name(running: RunningStack, connector: str) -> str:
    """The name of the coordinator process that runs a connector's coordinator, by its log."""
    [name] = [name for name in PROCESSES if _starts(running, name, connector)]
    return name


def process_of(running: RunningStack, connector: str) -> psutil.Process:
    """The coordinator process that runs a connector's coordinator, by its log."""
    name = process_name(running, connector)
    assert f'"process": "{name}"' in _log(running, name)
    return coordinator_process(running, name)


def test_a_killed_coordinator_process_holds_up_its_own_connectors_only(two: RunningStack) -> None:
    """The other one commits meanwhile and is not started again; no row is lost or doubled."""
    topics = {name: two.rows(f"db.{name}", 1, name)[0]["name"] for name in NAMES}
    names = {name: process_name(two, name) for name in NAMES}
    other, victim = (process_of(two, name) for name in NAMES)
    assert other.pid != victim.pid
    restarts = _restarts(two)
    answer = two.api.post("/icefloe/v1/connectors/second/tables/db.second/retry")
    assert answer.status_code == 409, answer.text
    assert "has no failed commit" in answer.text  # its own process answers
    victim.suspend()
    for topic in topics.values():
        two.produce(topic, *({"id": n, "name": "while stopped"} for n in range(1, 101)))
    two.rows("db.first", 101, "first")
    table = two.catalog.load_table("db.second").scan().to_arrow()
    assert table.num_rows == 1
    victim.kill()
    for topic in topics.values():
        two.produce(topic, *({"id": n, "name": "after the kill"} for n in range(101, 201)))
    for name in NAMES:
        rows = two.rows(f"db.{name}", 201, name)
        assert sorted(row["id"] for row in rows) == list(range(201))
    assert process_of(two, "first").pid == other.pid
    assert _starts(two, names["first"], "first") == 1
    assert _restarts(two) - restarts == Counter({names["second"]: 1})
    assert {c["name"]: c["coordinator_process"] for c in _connectors(two)} == names
    nodes = two.api.get("/icefloe/v1/cluster").json()["nodes"]
    assert [node["ready"] for node in nodes] == [["coordinator", "coordinator-2", "worker"]]


def _connectors(running: RunningStack) -> list[dict[str, Any]]:
    connectors: list[dict[str, Any]] = running.api.get("/icefloe/v1/overview").json()["connectors"]
    return connectors


def _log(running: RunningStack, process: str) -> str:
    return next(
        text for file, text in running.logs().items() if Path(file).name == f"{process}.log"
    )


def _starts(running: RunningStack, process: str, connector: str) -> int:
    """How often a process has started a connector's coordinator."""
    named = f'"connector": "{connector}"'
    lines = _log(running, process).splitlines()
    return sum("coordinator started" in line and named in line for line in lines)


def _restarts(running: RunningStack) -> Counter[str]:
    """Restarts by the node, by process."""
    return Counter(
        {
            sample.labels["process"]: int(sample.value)
            for family in text_string_to_metric_families(running.api.get("/metrics").text)
            for sample in family.samples
            if sample.name == "icefloe_child_restarts_total"
        }
    )
