"""A connector that goes back to an earlier commit, and whose processes end on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connect.errors import RetriableError
from tests.support.armed_points import arm as arm_point
from tests.support.running_stack import RunningStack, duckdb_rows, numbered
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

STEPS = [
    ("B1", "raise"),
    ("B6", "raise"),
    ("B2", "crash"),  # the node
    ("C11", "crash"),  # the coordinator process, after the catalog applied the first table
    ("B3", "crash"),
    ("B4", "raise"),
    ("B5", "raise"),
]


@pytest.fixture(autouse=True)
def _node_runs(running: RunningStack, armed: Path) -> Iterator[None]:
    """After the test nothing is armed, and the node runs."""
    yield
    for file in armed.iterdir():
        file.unlink(missing_ok=True)  # a process that reaches the point removes it, too
    try:
        running.stack.check()
    except RetriableError:  # the test failed after it had killed the node
        start_again(running)


@pytest.fixture
def arm(armed_folder: Path) -> Callable[[str, str], Path]:
    """Arms a failpoint with an action; the file that is removed when it acts."""

    def armed(point: str, action: str) -> Path:
        return arm_point(armed_folder, point, action)

    return armed


def start_again(running: RunningStack) -> None:
    """Start a node that has ended."""
    running.stack.start_node()
    running.stack.wait_for_node()


class Case:
    """A connector whose records go to two tables, after some commits of ten rows.

    Args:
        running: the stack.
        commits: how many.
    """

    def __init__(self, running: RunningStack, commits: int) -> None:
        self.running = running
        self.name = unique_name("rewound")
        self.topic = running.topic("source", partitions=2)
        self.tables = [f"rewound.{unique_name('t').replace('-', '_')}" for _ in range(2)]
        for table in self.tables:
            running.table(table)
        config = running.connector(topics=self.topic, iceberg__tables=",".join(self.tables))
        config["iceberg.control.topic"] = running.topic("control")
        running.create(self.name, config)
        self.snapshots = []
        for round_number in range(commits):
            ten = numbered(10 * round_number, 10)
            running.produce(self.topic, *ten, partition=round_number % 2)
            self.check(10 * round_number + 10)
            self.snapshots.append(self.head())

    def head(self) -> int:
        """Id of the first table's present snapshot."""
        snapshot = self.running.catalog.load_table(self.tables[0]).current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def check(self, count: int) -> None:
        """Wait for the rows; each is in both tables once."""
        for table in self.tables:
            rows = self.running.rows(table, count, self.name)
            assert sorted(row["id"] for row in rows) == [*range(count)]

    def rewind(self, *arguments: str) -> tuple[int, str]:
        """Call the command; its status and output."""
        return self.running.icefloe("rewind", self.name, *arguments)

    def trace(self) -> str:
        """The trace of the connector's state; empty if it has none."""
        return str(self.running.status(self.name)["connector"].get("trace", ""))


@pytest.mark.faults
def test_a_rewind_survives_a_crash_at_each_step(
    running: RunningStack, arm: Callable[[str, str], Path]
) -> None:
    """Nothing starts before the same command has finished; then each row is there once."""
    case = Case(running, 3)
    target = f"--to-snapshot={case.snapshots[0]}"
    status, output = case.rewind(target)
    assert status == 2, output
    assert f"source offset of {case.topic}-1: 10 -> 0" in output
    assert "30 rows become 10" in output
    running.wait_until_running(case.name)
    arm("B2", "raise")
    status, output = case.rewind(target, "--yes")
    assert status == 3, output
    running.wait_until(
        lambda: "its tables are being taken back" in case.trace(), lambda: "the state of a rewind"
    )
    status, output = case.rewind("--cancel", "--yes")
    assert status == 0, output
    running.wait_until(lambda: not case.trace(), lambda: f"no trace: {case.trace()}")
    running.request_state(case.name, "resume")
    running.produce(case.topic, *numbered(30, 2))
    case.check(32)
    place = [target]
    for point, action in STEPS:
        file = arm(point, action)
        status, output = case.rewind(*place, "--yes")
        assert (status, file.exists()) == (3, False), (point, output)
        place = []  # from now on it is begun
        if point == "B2":
            with pytest.raises(RetriableError, match="the node ended"):
                running.wait_until(lambda: False, lambda: "the end of the node")
            start_again(running)
        refused = running.api.put(f"/connectors/{case.name}/resume")
        assert refused.status_code == 409, (point, refused.text)
        if action == "crash":
            # without an answer of the coordinator process there is no new plan
            running.wait_until(
                lambda: case.rewind(target, "--replace")[0] == 2, lambda: "the coordinator process"
            )
    status, output = case.rewind(f"--to-snapshot={case.snapshots[1]}", "--yes")
    assert status == 1, output
    status, output = case.rewind("--cancel", "--yes")
    assert (status, "table_rewound" in output) == (1, True), output
    status, output = case.rewind("--yes")
    assert status == 0, output
    for table in case.tables:
        assert set(running.catalog.load_table(table).refs()) == {"main", f"icefloe-{case.name}"}
        assert running.catalog.load_table(table).scan().to_arrow().num_rows == 10
    running.request_state(case.name, "resume")
    running.produce(case.topic, *numbered(32, 3))
    case.check(35)
    status, output = running.icefloe("audit", case.name)
    assert status == 0, output
    running.delete(case.name)


def test_a_connector_is_loaded_again(
    running: RunningStack, arm: Callable[[str, str], Path]
) -> None:
    """One command empties the tables and reads the topics from their beginning.

    It may take the place of a rewind that has taken one of two tables back.
    """
    case = Case(running, 2)
    arm("B3", "raise")
    status, output = case.rewind(f"--to-snapshot={case.snapshots[0]}", "--yes")
    assert status == 3, output
    status, output = case.rewind("--reload", "--replace", "--yes")
    assert status == 0, output
    running.request_state(case.name, "resume")
    case.check(20)
    running.wait_until_running(case.name)
    running.produce(case.topic, *numbered(20, 5), partition=1)
    case.check(25)
    running.delete(case.name)


def test_another_writers_rows_refuse_a_rewind(running: RunningStack) -> None:
    """The plan names its snapshot; nothing is changed, and the connector runs on."""
    case = Case(running, 2)
    table = running.catalog.load_table(case.tables[1])
    table.append(table.scan(limit=1).to_arrow())
    foreign = running.catalog.load_table(case.tables[1]).current_snapshot()
    assert foreign is not None
    status, output = case.rewind(f"--to-snapshot={case.snapshots[0]}", "--yes")
    assert status == 1, output
    assert f"foreign_commit: snapshot {foreign.snapshot_id} (append" in output
    running.wait_until_running(case.name)
    status, output = case.rewind("--to-timestamp", "2020-01-01T00:00:00Z")
    assert status == 1, output
    assert "no commit of the connector" in output
    running.delete(case.name)


def test_a_table_with_changes_of_rows_goes_back(running: RunningStack) -> None:
    """Deletes after the commit leave with its rows; a reload begins at the configured offset."""
    name, topic = unique_name("changed"), running.topic("changes")
    table = f"rewound.{unique_name('t').replace('-', '_')}"
    running.table(table)
    config = running.connector(
        topics=topic,
        iceberg__tables=table,
        iceberg__tables__upsert_mode_enabled="true",
        iceberg__tables__default_id_columns="id",
    )
    config["icefloe.start.offsets"] = json.dumps({topic: {"0": 2}})

    def changed(first: int, count: int, text: str) -> None:
        rows = [{"id": n, "name": text} for n in range(first, first + count)]
        running.produce(topic, *rows)

    def wait_for(*texts: tuple[int, str]) -> None:
        wanted = [text for count, text in texts for _ in range(count)]

        def inspect() -> bool:
            rows = duckdb_rows(running.catalog.load_table(table), "id", "name")
            ids = {number for number, _ in rows}
            return sorted(text for _, text in rows) == wanted and len(ids) == len(rows)

        running.wait_until(inspect, lambda: f"{wanted} in {table}")

    changed(0, 12, "a")
    running.create(name, config)
    wait_for((10, "a"))
    before = running.catalog.load_table(table).current_snapshot()
    assert before is not None
    changed(2, 5, "b")
    changed(20, 5, "b")
    wait_for((5, "a"), (10, "b"))
    running.stop(name)
    status, output = running.icefloe("rewind", name, f"--to-snapshot={before.snapshot_id}", "--yes")
    assert status == 0, output
    wait_for((10, "a"))
    running.request_state(name, "resume")
    wait_for((5, "a"), (10, "b"))
    changed(3, 2, "c")
    wait_for((5, "a"), (8, "b"), (2, "c"))
    status, output = running.icefloe("rewind", name, "--reload", "--yes")
    assert (status, "icefloe.start.offsets" in output) == (0, True), output
    wait_for((5, "a"), (8, "b"), (2, "c"))
    status, output = running.icefloe("audit", name)
    assert status == 0, output
    running.delete(name)
