"""A coordinator on a real broker and catalog; the test acts as its tasks."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any, Self
from uuid import UUID, uuid4

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from connect.clock import SystemClock
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.kafka.kafka_clients import LogReader, ProducerMessage, TransactionalProducer
from connect.model.layout import Layout, TopicPartition
from connect.protocol.control_topic import OWN_PARTITION
from control_schemas.codec import decode, encode
from control_schemas.events import (
    DataComplete,
    DataWritten,
    Event,
    EventHeaders,
    Payload,
    StartCommit,
    TopicPartitionOffset,
)
from control_schemas.headers import encode_headers
from coordinator.coordinator import ConnectorCoordinator
from coordinator.coordinator_context import CoordinatorContext
from coordinator.kernel.effects import RoundEnded
from tests.support.pauses import growing_pauses
from tests.support.stack import unique_name
from tests.support.tables import connector, reference, written_file

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
WAIT_S = 120


class CoordinatorHarness:
    """One connector: its control topic, a table, and a producer that acts as its tasks."""

    def __init__(
        self, kafka: dict[str, str], control: str, source: str, properties: dict[str, str]
    ) -> None:
        self.kafka = kafka
        self.control = control
        self.properties = properties
        self.catalog: CatalogGateway = open_catalog("iceberg", properties)
        self.table: Table = self.catalog.create(("db", "t"), SCHEMA)
        config = connector(
            unique_name("co"),
            ["db.t"],
            **{
                "iceberg.control.topic": control,
                "iceberg.control.commit.interval-ms": "300",
                "iceberg.control.commit.timeout-ms": "2000",
            },
        )
        self.config = dataclasses.replace(config, catalog_properties=properties)
        self.partition = TopicPartition(source, 0)
        self.layout = Layout(config.name, 1, ((self.partition,),))
        self.rounds: list[RoundEnded] = []
        self.events: list[str] = []
        self.reported: dict[str, Any] = {}
        self.task_producer = TransactionalProducer(kafka, f"tasks-{control}")
        self.task_producer.init()
        self.reader = LogReader(kafka)
        self.reader.assign({TopicPartition(control, 0): 0})
        self.seen: list[Event] = []
        self.answered: set[UUID] = set()
        self.position = 0
        self.poll_ms = 60_000
        self.age_ms: int | None = None

    def set_long_timeout(self) -> None:
        """Set a commit timeout that no round reaches."""
        self.config = dataclasses.replace(self.config, commit_timeout_ms=1000 * WAIT_S)

    def coordinator(self) -> ConnectorCoordinator:
        wiring = CoordinatorContext(
            kafka=self.kafka,
            node_group_id="icefloe",
            clock=SystemClock(),
            on_round=self.rounds.append,
            on_event=self._on_event,
            poll_ms=self.poll_ms,
        )
        return ConnectorCoordinator(self.config, self.layout, wiring)

    def _on_event(self, kind: str, where: Any) -> None:
        self.events.append(kind)
        self.reported[kind] = where

    def read(self) -> list[Event]:
        """Return all events of the control topic so far."""
        self.seen += [decode(r.value or b"") for r in self.reader.poll(100)]
        return self.seen

    def start_commit(self) -> UUID:
        """Wait for the next StartCommit that is not answered yet; return its commit id."""

        def started_commit() -> UUID | None:
            for event in self.read():
                payload = event.payload
                if isinstance(payload, StartCommit) and payload.commit_id not in self.answered:
                    return payload.commit_id
            return None

        commit_id = wait_until(started_commit)
        self.answered.add(commit_id)
        return commit_id

    def messages(self, *payloads: Payload) -> list[ProducerMessage]:
        group = self.config.connect_group_id
        headers = encode_headers(EventHeaders(layout=self.layout.number))
        return [
            ProducerMessage(
                self.control, group.encode(), encode(event), headers, partition=OWN_PARTITION
            )
            for event in (Event(uuid4(), self._time_us(), group, payload) for payload in payloads)
        ]

    def _time_us(self) -> int:
        """Timestamp of events: 0, or ``age_ms`` ago if the test sets that."""
        age_ms = self.age_ms
        return 0 if age_ms is None else (SystemClock().now_ms() - age_ms) * 1000

    def answer_as(self, topic: str) -> None:
        """Answer the open round as the task of another source topic that has no records."""
        stand = TopicPartitionOffset(topic, 0, 0, None)
        requests = [e.payload for e in self.read() if isinstance(e.payload, StartCommit)]
        self.task_producer.transact(self.messages(DataComplete(requests[-1].commit_id, (stand,))))

    def answer(self, commit_id: UUID, *ids: int) -> None:
        """Answer as the task: a file with these ids, then DataComplete."""
        payloads: list[Payload] = []
        if ids:
            file = written_file(self.table, [{"id": i} for i in ids])
            payloads.append(DataWritten(commit_id, reference(self.table), (file,), ()))
        self.position += len(ids)
        stand = TopicPartitionOffset(self.partition.topic, 0, self.position, 1_767_225_600_000_000)
        self.task_producer.transact(
            self.messages(*payloads, DataComplete(commit_id, (stand,))),
            group_id=self.config.connect_group_id,
            offsets={self.partition: self.position},
        )

    def drop(self, identifier: tuple[str, ...]) -> None:
        properties = {k: v for k, v in self.properties.items() if k != "type"}
        SqlCatalog("iceberg", **properties).drop_table(identifier)

    def rows(self) -> list[int]:
        table = self.catalog.load(("db", "t"))
        return sorted(table.scan().to_arrow()["id"].to_pylist())


def wait_until(poll: Callable[[], Any]) -> Any:
    """Poll until the value is true; return it."""
    deadline, pauses = time.monotonic() + WAIT_S, growing_pauses()
    while time.monotonic() < deadline:
        value = poll()
        if value:
            return value
        next(pauses)
    raise TimeoutError


class RunningCoordinator:
    """Runs a coordinator in a thread while the block runs."""

    def __init__(self, coordinator: ConnectorCoordinator) -> None:
        self.coordinator = coordinator
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.coordinator.run()
        except BaseException as e:  # handed to the test
            self.error = e

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.coordinator.stop()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
