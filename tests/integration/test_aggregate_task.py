"""A task of aggregates against a real broker and Spark: a frozen run, state on S3, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.accumulators import _accumulatorRegistry

from connect import failpoints
from connect.errors import Fenced
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.aggregate_harness import Aggregates, some
from tests.support.object_stores import S3Proxy, started
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from tests.support.task_harness import opened, wait_until
from tests.support.window_results import check_each_update_once, event
from worker.aggregate.window_query import STATE_MEMORY_MB
from worker.spark.session import Session

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
FROZEN_MS = 10_000
PARTS = 6
BUS = "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus"


@pytest.fixture
def aggregates(
    spark_session: Session, kafka_properties: dict[str, str], topics: Topics, tmp_path: Path
) -> Iterator[Aggregates]:
    """Aggregates with their state in a local folder."""
    location = {"icefloe.aggregate.location": str(tmp_path / "state")}
    yield Aggregates(opened(spark_session), kafka_properties, topics, location)
    failpoints.configure("")


def test_a_frozen_run_changes_nothing_of_its_successor(aggregates: Aggregates) -> None:
    """It stops between its saved state and the transaction, and continues later."""
    frozen: list[BaseException | None] = []
    successor: list[BaseException | None] = []
    failpoints.configure(f"A2=delay:{FROZEN_MS}@2")
    with aggregates.running(frozen):
        aggregates.produce(*some(0))
        wait_until(aggregates.are_complete)
        aggregates.produce(*some(3))
        with aggregates.running(successor):
            for n in range(4):
                aggregates.produce(*some(10 * n))
                wait_until(aggregates.are_complete)
            wait_until(lambda: bool(frozen))
            aggregates.produce(*some(5))
            wait_until(aggregates.are_complete)
    assert [type(error) for error in frozen] == [Fenced]
    assert successor == []
    with aggregates.running(successor):
        aggregates.produce(*some(8))
        wait_until(aggregates.are_complete)
    check_each_update_once(aggregates.updates())


@pytest.mark.matrix
def test_runs_leave_nothing_in_spark(aggregates: Aggregates, spark_session: Session) -> None:
    """Runs end with each renewal of a secret and each error, and a worker runs for months."""
    context: Any = spark_session.context
    ended: list[BaseException | None] = []
    kept: list[tuple[int, int]] = []
    for run in range(3):
        with aggregates.running(ended):
            aggregates.produce(*some(10 * run))
            wait_until(aggregates.are_complete)
        listeners = context._jsc.sc().listenerBus().findListenersByClass(_class(context, BUS))
        kept.append((len(_accumulatorRegistry), listeners.size()))
        assert all(not each.value for each in spark_session.accumulators)
    assert ended == []
    assert len(set(kept)) == 1


def _class(context: Any, name: str) -> Any:
    """Return a class as Spark's methods take it."""
    loaded = context._jvm.java.lang.Class.forName(name)
    return context._jvm.scala.reflect.ClassTag.apply(loaded)


@pytest.mark.matrix  # the default suite has state in a folder, and files of rows on S3
def test_state_on_s3_continues_after_a_restart(
    spark_session: Session, kafka_properties: dict[str, str], topics: Topics, tmp_path: Path
) -> None:
    """With the store's options of the connector; offsets and lag are those of the group."""
    with started(S3Proxy(tmp_path)) as store:
        own = {f"iceberg.catalog.{name}": value for name, value in store.properties.items()}
        own["icefloe.aggregate.location"] = f"{store.warehouse}/state"
        aggregates = Aggregates(opened(spark_session), kafka_properties, topics, own)
        ended: list[BaseException | None] = []
        for n in range(3):
            with aggregates.running(ended):
                aggregates.produce(*some(2 * n))
                wait_until(aggregates.are_complete)
        check_each_update_once(aggregates.updates())
        assert ended == []
        admin = KafkaAdmin(kafka_properties)
        partition = TopicPartition(aggregates.source, 0)
        committed = admin.committed(f"connect-{aggregates.source}", [partition])
        assert committed[partition] == len(aggregates.sent)
        admin.close()
        saved = sorted((tmp_path / "data").rglob("manifest-*.json"))
        assert len(saved) == 1, "older states are deleted"


@pytest.mark.parametrize("first", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_times_near_the_ends_of_int64_stop_nothing(aggregates: Aggregates, *, first: bool) -> None:
    """They are refused, and neither windows nor the watermark change."""
    aggregates.config["errors.tolerance"] = "all"
    ends = [9_223_372_036_854_775, -9_223_372_036_854_775, 253_402_300_800_000]
    ended: list[BaseException | None] = []
    with aggregates.running(ended):
        for n in range(3):
            refused = [{**some(n, 1)[0], "ts": end} for end in ends]
            if first:
                aggregates.produce(*refused, rows=())
            aggregates.produce(*some(2 * n))
            if not first:
                aggregates.produce(*refused, rows=())
            wait_until(aggregates.are_complete)
    assert ended == []
    check_each_update_once(aggregates.updates())


def test_the_memory_of_a_state_does_not_grow_with_its_parts(
    aggregates: Aggregates, spark_session: Session
) -> None:
    """Each part of a state has buffers of its own, and a connector may have 1,000 parts."""
    aggregates.config["icefloe.aggregate.state.partitions"] = str(PARTS)
    ended: list[BaseException | None] = []
    jvm: Any = spark_session.context._jvm
    memory = jvm.org.apache.spark.sql.execution.streaming.state.RocksDBMemoryManager
    with aggregates.running(ended):
        aggregates.produce(*(event(0, f"cam-{n}", n) for n in range(10 * PARTS)))
        wait_until(aggregates.are_complete)
        in_common, alone = (memory.getNumRocksDBInstances(shared) for shared in (True, False))
        used = memory.getMemBytesUsed()
    assert ended == []
    assert (in_common >= PARTS, alone) == (True, 0)
    assert used <= STATE_MEMORY_MB * 2**20
