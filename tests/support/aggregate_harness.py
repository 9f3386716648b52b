"""A connector of aggregates against a real broker and Spark: its task, what it reads and sends."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from connect.clock import SystemClock
from connect.errors import Fenced
from connect.model.layout import TopicPartition
from connect.validation.parse import parse
from tests.support.connector_json import aggregate_config
from tests.support.reading import committed_records
from tests.support.stack import Topics
from tests.support.window_results import Key, Value, computed, event
from worker.spark.session import Session
from worker.task.task import ConnectorTask
from worker.task.task_context import TaskAssignment, TaskContext


@dataclass
class Aggregates:
    """A connector of aggregates with one source partition, and its runs.

    Attributes:
        sent: rows of which the results are.
        starts: runs that have started.
    """

    session: Future[Session]
    kafka: dict[str, str]
    topics: Topics
    config: dict[str, str]
    sent: list[dict[str, Any]] = field(default_factory=list)
    starts: int = 0

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
            report=partial(self._report, ended),
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

    def produce(
        self, *records: dict[str, Any], rows: Sequence[dict[str, Any]] | None = None
    ) -> None:
        """Send records; results are those of the rows, without them of the records."""
        producer = Producer({**self.kafka, "log_level": 0})
        for record in records:
            producer.produce(self.source, json.dumps(record).encode())
        assert producer.flush(30) == 0
        self.sent += records if rows is None else rows

    def _report(
        self, ended: list[BaseException | None], state: str, error: BaseException | None
    ) -> None:
        self.starts += state == "RUNNING"
        if error is not None:
            ended.append(error)

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


def some(first: int, count: int = 6) -> list[dict[str, Any]]:
    """Return events of two devices."""
    return [event(n, f"cam-{n % 2}", n, f"u{n % 3}") for n in range(first, first + count)]
