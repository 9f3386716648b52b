"""Batches that never end are cancelled, and their tasks start again."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from connect import failpoints
from connect.errors import RetriableError
from tests.support.aggregate_harness import Aggregates, some
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from tests.support.task_harness import FakeBatchRunner, TaskHarness, opened, paths, wait_until
from tests.support.window_results import check_each_update_once
from worker.batch.few_records import BatchRows
from worker.spark.session import Session
from worker.sql.sql_expressions import spark_failures
from worker.task.source.source_reader import as_arrow

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]


@pytest.fixture
def harness(
    spark_session: Session, kafka_properties: dict[str, str], topics: Topics
) -> Iterator[TaskHarness]:
    """A task with one partition."""
    source, control = topics.create("source"), topics.create("control")
    harness = TaskHarness(spark_session, kafka_properties, source, control, 1)
    yield harness
    harness.close()


@dataclass
class LoopingRunner(FakeBatchRunner):
    """A runner whose Spark tasks loop for ever, until a file exists at their start."""

    gate: Path = Path()
    marks: Path = Path()

    def __post_init__(self) -> None:
        self.before = self.loop

    def loop(self, rows: BatchRows) -> None:
        """Loop until the file exists at the start."""
        assert isinstance(rows, DataFrame)
        if not self.gate.exists():
            self.marks.mkdir(exist_ok=True)
            with spark_failures():  # as the runner of a query
                as_arrow(rows.select("count").mapInArrow(looping(str(self.marks)), "count int"))


def looping(marks: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function of Spark tasks that leaves its process id and never ends."""

    def loop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pid = os.getpid()
        with open(f"{marks}/{pid}", "w"):  # noqa: PTH123 - runs in an executor
            for _ in itertools.count():
                time.sleep(0.02)  # as endless as without it, and takes no core
        yield from batches

    return loop


@pytest.mark.parametrize(("interval_ms", "failures"), [(1_000, 2), (5_000, 1)])
def test_a_batch_that_never_ends_is_cancelled_and_read_again(
    harness: TaskHarness, tmp_path: Path, interval_ms: int, failures: int
) -> None:
    """The task is FAILED until a batch ends, and each record is announced once.

    The Python worker of the batch ends, although its code never returns. A short interval reads
    in batches, a long one in queries.
    """
    harness.every(interval_ms)
    harness.overrides["icefloe.batch.timeout.ms"] = "4000"
    marks = tmp_path / "marks"
    harness.runner = LoopingRunner(gate=tmp_path / "gate", marks=marks)
    harness.produce(3)
    with harness.running() as task:
        wait_until(lambda: [state for state, _ in harness.states].count("FAILED") == failures)
        assert [state for state, _ in harness.states] == ["RUNNING", *["FAILED"] * failures]
        failed = harness.states[-1][1]
        assert isinstance(failed, RetriableError)
        assert (failed.code, failed.coordinates["task"]) == ("batch_timeout", 0)
        (tmp_path / "gate").touch()
        wait_until(lambda: task.metrics.batch.records_read == 3)
        assert paths(harness.round()[1]) == ["0:0-2"]
        assert task.metrics.batch.batch_timeouts >= failures
        assert harness.states[-1] == ("RUNNING", None)
    assert harness.committed()[0] == 3
    looped = [int(file.name) for file in marks.iterdir()]
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in looped))


@pytest.mark.matrix
def test_a_batch_of_aggregates_that_takes_too_long_is_computed_again(
    spark_session: Session, kafka_properties: dict[str, str], topics: Topics, tmp_path: Path
) -> None:
    """The query is stopped, the next attempt continues, and each result is sent once."""
    own = {
        "icefloe.aggregate.location": str(tmp_path / "state"),
        "icefloe.batch.timeout.ms": "10000",
    }
    aggregates = Aggregates(opened(spark_session), kafka_properties, topics, own)
    ended: list[BaseException | None] = []
    failpoints.configure("W1=delay:12000@1")
    try:
        with aggregates.running(ended) as task:
            aggregates.produce(*some(0))
            wait_until(aggregates.are_complete)
            assert task.metrics.batch.batch_timeouts == 1
    finally:
        failpoints.configure("")
    assert [getattr(error, "code", None) for error in ended] == ["batch_timeout"]
    check_each_update_once(aggregates.updates())
