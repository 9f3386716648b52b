"""A node with two coordinator processes, and one with two commit processes for each connector, too.

Tests stop and kill some of them: the others commit, and no row is lost or doubled.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.armed_points import arm
from tests.support.processes import parent_of, still_running
from tests.support.running_stack import RunningStack, armed_stack, coordinator_process, pick

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NAMES = ("first", "second")  # of an empty node, each has a process of its own
PROCESSES = ("coordinator", "coordinator-2")
SPREAD = "spread"
TABLES = [f"db.t{n}" for n in range(6)]
ROWS = 60
WAIT_S = 150


@pytest.fixture(scope="module")
def armed_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder; files in it arm failpoints of the node's processes."""
    return tmp_path_factory.mktemp("armed")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, armed_files: Path) -> Iterator[RunningStack]:
    """A stack with two coordinator processes, and two commit processes for several tables."""
    processes = {
        "icefloe_coordinator_processes": "2",
        "icefloe_coordinator_commit_processes": "2",
    }
    with armed_stack(tmp_path_factory.mktemp("stack"), armed_files, **processes) as running:
        yield running


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


def of_command(running: RunningStack, module: str) -> list[psutil.Process]:
    """The node's processes that run a module.

    Without forks of them: a process that starts another one is there twice for a moment.
    """
    named = [process for process, given in running.processes() if given[-2:] == ["-m", module]]
    return [process for process in named if parent_of(process) not in named]


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


def commit_processes(running: RunningStack) -> list[psutil.Process]:
    """The processes that commit tables."""
    return of_command(running, "coordinator.commit_processes")


@pytest.mark.matrix
def test_kills_of_a_commit_process_and_of_its_coordinator_lose_and_repeat_no_row(
    node: RunningStack, armed_files: Path
) -> None:
    """Each in the middle of commits; a killed coordinator leaves no commit process."""
    topic = node.topic(SPREAD)
    numbers = itertools.count()

    def produce() -> int:
        """Write as many records to each table; return the number of rows that it then has."""
        first = next(numbers) * ROWS
        records = [{"id": n, "name": f"t{n % len(TABLES)}"} for n in range(first, first + ROWS)]
        node.produce(topic, *records)
        return (first + ROWS) // len(TABLES)

    def check(count: int) -> None:
        for index, table in enumerate(TABLES):
            expected = [(index + len(TABLES) * k,) for k in range(count)]
            assert pick(node.rows(table, count, SPREAD), "id") == expected

    for table in TABLES:
        node.table(table)
    routes = {f"iceberg.table.{t}.route-regex": t.removeprefix("db.") for t in TABLES}
    config = node.connector(
        topics=topic, iceberg__tables=",".join(TABLES), iceberg__tables__route_field="name"
    )
    count = produce()
    node.create(SPREAD, {**config, **routes})
    check(count)
    first = commit_processes(node)
    assert len(first) == 2
    coordinator = process_of(node, SPREAD)
    assert {parent_of(process) for process in first} == {coordinator}

    arm(armed_files, "C11", "crash")  # a commit is applied, its answer is not read
    count = produce()
    check(count)
    assert not still_running(first, WAIT_S)
    assert process_of(node, SPREAD) == coordinator
    node.wait_until(
        lambda: node.counts(SPREAD)["coordinator_restarts"], lambda: "the restart to be counted"
    )
    assert any("commit process lost" in _log(node, process) for process in PROCESSES)

    second = commit_processes(node)
    hanging = arm(armed_files, "C9", "hang")  # manifest list written, nothing sent
    count = produce()
    node.wait_until(lambda: not hanging.exists(), lambda: "a commit that hangs")
    coordinator.kill()
    assert not still_running(second, WAIT_S)
    check(count)
    assert process_of(node, SPREAD).pid != coordinator.pid

    status, output = node.icefloe("audit", SPREAD)
    assert status == 0, output
    node.delete(SPREAD)
    node.wait_until(lambda: not commit_processes(node), lambda: "the end of the commit processes")


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
