"""A connector whose tables are committed by two processes, which a test kills, and their parent."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.armed_points import arm
from tests.support.processes import parent_of, still_running
from tests.support.running_stack import ArmedStack, RunningStack, pick

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NAME = "spread"
TABLES = [f"db.t{n}" for n in range(6)]
ROWS = 60
WAIT_S = 150


@pytest.fixture
def armed_files(tmp_path: Path) -> Path:
    """A folder; files in it arm failpoints of the node's processes."""
    folder = tmp_path / "armed"
    folder.mkdir()
    return folder


@pytest.fixture
def spread(tmp_path: Path, armed_files: Path) -> Iterator[RunningStack]:
    """A stack with two commit processes for each connector, and a connector of six tables."""
    properties = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "icefloe.coordinator.commit.processes": "2",
    }
    with (
        ArmedStack(armed_files, tmp_path / "stack", node_properties=properties) as stack,
        contextlib.closing(RunningStack(stack)) as running,
    ):
        yield running


def of_command(running: RunningStack, module: str) -> list[psutil.Process]:
    """The node's processes that run a module.

    Without forks of them: a process that starts another one is there twice for a moment.
    """
    named = [process for process, given in running.processes() if given[-2:] == ["-m", module]]
    return [process for process in named if parent_of(process) not in named]


def test_kills_of_a_commit_process_and_of_its_coordinator_lose_and_repeat_no_row(
    spread: RunningStack, armed_files: Path
) -> None:
    """Each in the middle of commits; a killed coordinator leaves no commit process."""
    topic = spread.topic(NAME)
    numbers = itertools.count()

    def produce() -> int:
        """Write as many records to each table; return the number of rows that it then has."""
        first = next(numbers) * ROWS
        records = [{"id": n, "name": f"t{n % len(TABLES)}"} for n in range(first, first + ROWS)]
        spread.produce(topic, *records)
        return (first + ROWS) // len(TABLES)

    def check(count: int) -> None:
        for index, table in enumerate(TABLES):
            expected = [(index + len(TABLES) * k,) for k in range(count)]
            assert pick(spread.rows(table, count, NAME), "id") == expected

    for table in TABLES:
        spread.table(table)
    routes = {f"iceberg.table.{t}.route-regex": t.removeprefix("db.") for t in TABLES}
    config = spread.connector(
        topics=topic, iceberg__tables=",".join(TABLES), iceberg__tables__route_field="name"
    )
    count = produce()
    spread.create(NAME, {**config, **routes})
    check(count)
    (coordinator,) = of_command(spread, "coordinator")
    first = of_command(spread, "coordinator.commit_processes")
    assert len(first) == 2
    assert {parent_of(process) for process in first} == {coordinator}

    arm(armed_files, "C11", "crash")  # a commit is applied, its answer is not read
    count = produce()
    check(count)
    assert not still_running(first, WAIT_S)
    assert of_command(spread, "coordinator") == [coordinator]
    spread.wait_until(
        lambda: spread.counts(NAME)["coordinator_restarts"], lambda: "the restart to be counted"
    )
    assert "commit process lost" in _log(spread)

    second = of_command(spread, "coordinator.commit_processes")
    hanging = arm(armed_files, "C9", "hang")  # manifest list written, nothing sent
    count = produce()
    spread.wait_until(lambda: not hanging.exists(), lambda: "a commit that hangs")
    coordinator.kill()
    assert not still_running(second, WAIT_S)
    check(count)
    (successor,) = of_command(spread, "coordinator")
    assert successor.pid != coordinator.pid

    status, output = spread.icefloe("audit", NAME)
    assert status == 0, output
    spread.delete(NAME)
    spread.wait_until(
        lambda: not of_command(spread, "coordinator.commit_processes"),
        lambda: "the end of the commit processes",
    )


def _log(running: RunningStack) -> str:
    return next(
        text for file, text in running.logs().items() if Path(file).name == "coordinator.log"
    )
