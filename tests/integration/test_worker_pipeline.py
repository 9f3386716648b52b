"""From a topic to rows in a table: the task with the real pipeline and the real coordinator."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from connect.clock import SystemClock
from connect.errors import CommitRefused, RecordError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import Layout, TopicPartition
from connect.validation.parse import parse
from coordinator.coordinator import ConnectorCoordinator
from coordinator.coordinator_context import CoordinatorContext as CoordinatorWiring
from coordinator.kernel.effects import RoundEnded
from tests.support.reading import committed_records
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from tests.support.task_harness import opened
from worker.spark.session import Session
from worker.task.batches.batch_runner import make_runner
from worker.task.task import ConnectorTask
from worker.task.task_context import TaskAssignment, TaskContext

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
ORDERS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "at", TimestamptzType(), required=False),
)


@dataclass
class RunningSink:
    """A whole connector: coordinator and task in threads, over a SQL catalog."""

    session: Session
    kafka: dict[str, str]
    catalog_properties: dict[str, str]
    topic: str
    control: str
    keys: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    rounds: list[RoundEnded] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    states: list[tuple[str, Exception | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.producer = Producer({**self.kafka, "linger.ms": 0, "log_level": 0})
        self.catalog: CatalogGateway = open_catalog("iceberg", self.catalog_properties)

    @contextlib.contextmanager
    def running(self, partitions: int = 1) -> Iterator[ConnectorTask]:
        """Both at work; stopped at the end."""
        config = parse(
            {
                "name": f"c-{self.topic}",
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                "topics": self.topic,
                "iceberg.tables": "db.orders",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                "iceberg.control.topic": self.control,
                "iceberg.control.commit.interval-ms": "1000",
                **{f"iceberg.catalog.{k}": v for k, v in self.catalog_properties.items()},
                **self.keys,
            }
        )
        tps = tuple(TopicPartition(self.topic, p) for p in range(partitions))
        coordinator = ConnectorCoordinator(
            config,
            Layout(config.name, 1, (tps,)),
            CoordinatorWiring(
                self.kafka, "node", SystemClock(), self.rounds.append, lambda *_: None
            ),
        )
        wiring = TaskContext(
            node=self.kafka,
            node_group_id="node",
            stored=None,
            session=opened(self.session),
            clock=SystemClock(),
            runner=make_runner,
            report=lambda state, error: self.states.append((state, error)),
            **self.sizes,
        )
        task = ConnectorTask(config, TaskAssignment(0, 1, tps), wiring)
        threads = [
            threading.Thread(target=self._guard, args=(part.run,)) for part in (coordinator, task)
        ]
        for thread in threads:
            thread.start()
        try:
            yield task
        finally:
            task.stop()
            threads[1].join(60)
            coordinator.stop()
            threads[0].join(60)

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as e:
            self.failures.append(e)

    def feed(self, *values: Any, partition: int = 0) -> None:
        """Produce records: JSON of what is no bytes."""
        for value in values:
            raw = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.producer.produce(self.topic, raw, partition=partition)
        self.producer.flush(120)

    def rows(self, table: str = "db.orders") -> list[dict[str, Any]]:
        """Committed rows."""
        return list(self.catalog.load(table.split(".")).scan().to_arrow().to_pylist())


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def sink(
    spark_session: Session,
    kafka_properties: dict[str, str],
    topics: Topics,
    sql_catalog_properties: dict[str, str],
) -> Iterator[RunningSink]:
    """A connector over one topic with one partition."""
    sink = RunningSink(
        spark_session,
        kafka_properties,
        sql_catalog_properties,
        topics.create("orders"),
        topics.create("control"),
    )
    yield sink
    sink.catalog.close()


def test_records_become_rows_once(sink: RunningSink, tmp_path: Path) -> None:
    """Produced records are in the table after a round, and once after restarts."""
    sink.catalog.create(("db", "orders"), ORDERS)
    sink.feed(*({"id": i, "name": f"n{i}", "at": "2026-01-02T03:04:05Z"} for i in range(100)))
    with sink.running():
        wait_until(lambda: any(r.ranges for r in sink.rounds))
        sink.feed(*({"id": i} for i in range(100, 150)))
        wait_until(lambda: sum(r.records_written for e in sink.rounds for r in e.ranges) == 150)
    assert not sink.failures
    assert sorted(row["id"] for row in sink.rows()) == list(range(150))
    assert {row["name"] for row in sink.rows()} == {f"n{i}" for i in range(100)} | {None}
    sink.feed({"id": 150})
    with sink.running():
        wait_until(lambda: len(sink.rows()) == 151)
    snapshot = sink.catalog.load(("db", "orders")).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["kafka.connect.valid-through-ts"]
    files = {p.name for p in tmp_path.rglob("*.parquet")}
    live = sink.catalog.load(("db", "orders")).inspect.files()["file_path"].to_pylist()
    assert files == {p.rpartition("/")[2] for p in live}


def test_a_missing_table_is_created_from_the_first_record(sink: RunningSink) -> None:
    """With auto-create; it contains the records that created it."""
    sink.keys["iceberg.tables.auto-create-enabled"] = "true"
    sink.feed({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    with sink.running():
        wait_until(lambda: any(r.ranges for r in sink.rounds))
    assert not sink.failures
    assert sorted((r["id"], r["name"]) for r in sink.rows()) == [(1, "a"), (2, "b")]


def test_new_fields_become_columns(sink: RunningSink) -> None:
    """A batch with a new field widens the table before it is announced."""
    sink.keys["iceberg.tables.evolve-schema-enabled"] = "true"
    sink.catalog.create(("db", "orders"), ORDERS)
    sink.feed({"id": 1})
    with sink.running():
        wait_until(lambda: any(r.ranges for r in sink.rounds))
        sink.feed({"id": 2, "city": "Basel"})
        wait_until(lambda: sum(r.records_written for e in sink.rounds for r in e.ranges) == 2)
    assert not sink.failures
    assert sorted((r["id"], r["city"]) for r in sink.rows()) == [(1, None), (2, "Basel")]


def test_a_refused_record_fails_the_task(sink: RunningSink) -> None:
    """Without tolerance: the error has the record's coordinates, nothing is committed."""
    sink.catalog.create(("db", "orders"), ORDERS)
    sink.feed({"id": 1}, b"{nonsense", {"id": 3})
    with sink.running():
        wait_until(lambda: bool(sink.failures))
    (error,) = sink.failures
    assert isinstance(error, RecordError)
    assert error.coordinates["offset"] == 1
    assert sink.rows() == []


def test_a_refused_record_becomes_a_dead_letter(
    sink: RunningSink, topics: Topics, kafka_properties: dict[str, str]
) -> None:
    """With tolerance: it is in the dead letter topic, other records are in the table."""
    dead = topics.create("dead")
    sink.keys.update(
        {
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": dead,
            "errors.deadletterqueue.context.headers.enable": "true",
        }
    )
    sink.catalog.create(("db", "orders"), ORDERS)
    sink.feed({"id": 1}, b"{nonsense", {"id": 3})
    with sink.running():
        wait_until(lambda: any(r.ranges for r in sink.rounds))
    assert not sink.failures
    assert sorted(row["id"] for row in sink.rows()) == [1, 3]
    (letter,) = committed_records(kafka_properties, TopicPartition(dead, 0))
    assert letter.value == b"{nonsense"
    headers = dict(letter.headers)
    assert headers["__connect.errors.offset"] == b"1"
    (source_range,) = next(r.ranges for r in sink.rounds if r.ranges)
    assert (
        source_range.records_read,
        source_range.records_written,
        source_range.records_dead_lettered,
    ) == (3, 2, 1)


def test_a_missing_table_fails_the_task(sink: RunningSink) -> None:
    """Without auto-create; the error names the table."""
    with sink.running():
        wait_until(lambda: bool(sink.failures))
    (error,) = sink.failures
    assert isinstance(error, CommitRefused)
    assert error.code == "table_missing"
    assert "db.orders" in str(error)


def test_group_offsets_are_those_of_the_java_sink(sink: RunningSink) -> None:
    """The source offsets are in the group from which the Java sink would continue."""
    sink.catalog.create(("db", "orders"), ORDERS)
    sink.feed({"id": 1}, {"id": 2})
    with sink.running():
        wait_until(lambda: any(r.ranges for r in sink.rounds))
    admin = KafkaAdmin(sink.kafka)
    tp = TopicPartition(sink.topic, 0)
    assert admin.committed(f"connect-c-{sink.topic}", [tp]) == {tp: 2}
    admin.close()
