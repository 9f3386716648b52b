"""A task of aggregates against a real broker and Spark: a frozen run, state on S3, restarts."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.accumulators import _accumulatorRegistry

from connect import failpoints
from connect.clock import SystemClock
from connect.errors import Fenced
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.validation.parse import parse
from tests.support.connector_json import aggregate_config
from tests.support.object_stores import S3Proxy, started
from tests.support.reading import committed_records
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from tests.support.task_harness import opened, wait_until
from tests.support.window_results import Key, Value, check_each_update_once, computed, event
from worker.spark.session import Session
from worker.task.task import ConnectorTask
from worker.task.task_context import TaskAssignment, TaskContext

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
FROZEN_MS = 10_000
BUS = "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus"


@dataclass
class Aggregates:
    """A connector of aggregates with one source partition, and its runs."""

    session: Future[Session]
    kafka: dict[str, str]
    topics: Topics
    config: dict[str, str]
    sent: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = self.topics.create("signals")
        self.results = self.topics.create("results")
        control = self.topics.create("control")
        self.config |= {
            "name": self.source,
            "topics": self.source,
            "iceberg.control.topic": control,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "icefloe.aggregate.topic": self.results,
            "icefloe.aggregate.interval-ms": "200",
            "icefloe.aggregate.window": "10 seconds",
            "icefloe.aggregate.slide": "",
            "icefloe.aggregate.columns": "ts TIMESTAMP, device STRING, amount INT, user STRING",
            "icefloe.aggregate.functions": (
                "n=count(*),total=sum(amount),least=min(amount),most=max(amount),"
                "mean=avg(amount),users=approx_distinct(user)"
            ),
        }

    def task(self, ended: list[BaseException | None]) -> ConnectorTask:
        """Return a run that is not started."""
        config = parse(aggregate_config(self.config))
        context = TaskContext(
            node=self.kafka,
            node_group_id="node",
            stored=None,
            session=self.session,
            clock=SystemClock(),
            runner=lambda *_: pytest.fail("aggregates write no files"),
            report=lambda _state, error: ended.append(error) if error else None,
        )
        return ConnectorTask(
            config, TaskAssignment(0, 1, (TopicPartition(self.source, 0),)), context
        )

    @contextlib.contextmanager
    def running(self, ended: list[BaseException | None]) -> Iterator[ConnectorTask]:
        """Run a task in a thread; stop it after the block. Its error is added to a list."""
        task = self.task(ended)

        def run() -> None:
            try:
                task.run()
            except Fenced as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield task
        finally:
            task.stop()
            thread.join(60)
            assert not thread.is_alive()

    def produce(self, *records: dict[str, Any]) -> None:
        """Send records."""
        producer = Producer({**self.kafka, "log_level": 0})
        for record in records:
            producer.produce(self.source, json.dumps(record).encode())
        assert producer.flush(30) == 0
        self.sent += records

    def updates(self) -> dict[Key, list[Value]]:
        """Return the committed updates of each key."""
        found: dict[Key, list[Value]] = {}
        for record in committed_records(self.kafka, TopicPartition(self.results, 0)):
            key = tuple(json.loads(record.key or b"").values())
            found.setdefault(key, []).append(json.loads(record.value or b""))
        return found

    def are_complete(self) -> bool:
        """Return whether the newest results are those of all records that were sent."""
        return {k: v[-1] for k, v in self.updates().items()} == computed(self.sent, 10)


@pytest.fixture
def aggregates(
    spark_session: Session, kafka_properties: dict[str, str], topics: Topics, tmp_path: Path
) -> Iterator[Aggregates]:
    """Aggregates with their state in a local folder."""
    location = {"icefloe.aggregate.location": str(tmp_path / "state")}
    yield Aggregates(opened(spark_session), kafka_properties, topics, location)
    failpoints.configure("")


def some(first: int, count: int = 6) -> list[dict[str, Any]]:
    """Return events of two devices."""
    return [event(n, f"cam-{n % 2}", n, f"u{n % 3}") for n in range(first, first + count)]


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
