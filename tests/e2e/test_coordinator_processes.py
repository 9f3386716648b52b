"""A node with two coordinator processes: one is stopped and killed, the other commits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from connect.embedded.stack import Stack
from tests.support.running_stack import RunningStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NAMES = ("first", "second")  # the second is placed on the second process
PROCESSES = ("coordinator", "coordinator-2")


@pytest.fixture
def two(tmp_path: Path) -> Iterator[RunningStack]:
    """A stack with two coordinator processes, and a connector on each."""
    properties = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "icefloe.coordinator.processes": "2",
    }
    with (
        Stack(tmp_path, node_properties=properties) as stack,
        contextlib.closing(RunningStack(stack)) as running,
    ):
        for name in NAMES:
            running.table(f"db.{name}")
            topic = running.topic(name)
            running.produce(topic, {"id": 0, "name": topic})
            config = running.connector(topics=topic, iceberg__tables=f"db.{name}")
            running.create(name, config)
            running.wait_until_running(name)
        yield running


def process_of(running: RunningStack, connector: str) -> psutil.Process:
    """The coordinator process that runs a connector's coordinator, by its log."""
    started = f'"connector": "{connector}"'
    [name] = [
        name
        for name in PROCESSES
        if any(
            "coordinator started" in line and started in line
            for line in _log(running, name).splitlines()
        )
    ]
    assert f'"process": "{name}"' in _log(running, name)
    processes = [p for p, given in running.processes() if given[-2:] == ["-m", PROCESSES[0]]]
    [found] = [p for p in processes if f"/{name}.log" in {f"/{Path(f).name}" for f in _files(p)}]
    return found


def test_a_killed_coordinator_process_holds_up_its_own_connectors_only(two: RunningStack) -> None:
    """The other one commits meanwhile and is not started again; no row is lost or doubled."""
    topics = {name: two.rows(f"db.{name}", 1, name)[0]["name"] for name in NAMES}
    other, victim = process_of(two, "first"), process_of(two, "second")
    assert other.pid != victim.pid
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
    assert _log(two, PROCESSES[0]).count("coordinator started") == 1
    assert _restarts(two) == {"coordinator": 0, "coordinator-2": 1, "worker": 0}
    assert {c["name"]: c["coordinator_process"] for c in _connectors(two)} == dict(
        zip(NAMES, PROCESSES, strict=True)
    )
    nodes = two.api.get("/icefloe/v1/cluster").json()["nodes"]
    assert [node["ready"] for node in nodes] == [["coordinator", "coordinator-2", "worker"]]


def _connectors(running: RunningStack) -> list[dict[str, Any]]:
    connectors: list[dict[str, Any]] = running.api.get("/icefloe/v1/overview").json()["connectors"]
    return connectors


def _log(running: RunningStack, process: str) -> str:
    return next(
        text for file, text in running.logs().items() if Path(file).name == f"{process}.log"
    )


def _files(process: psutil.Process) -> list[str]:
    folder = Path(f"/proc/{process.pid}/fd")
    return [str(each.readlink()) for each in folder.iterdir() if each.name in {"1", "2"}]


def _restarts(running: RunningStack) -> dict[str, int]:
    return {
        sample.labels["process"]: int(sample.value)
        for family in text_string_to_metric_families(running.api.get("/metrics").text)
        for sample in family.samples
        if sample.name == "icefloe_child_restarts_total"
    }
