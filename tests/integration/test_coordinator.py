"""A coordinator against a real broker and catalog; the tasks' answers are produced by hand."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self
from uuid import UUID, uuid4

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from connect.clock import SystemClock
from connect.errors import DataLost, Fenced
from connect.gateways.catalog import CatalogGateway, open_catalog
from connect.gateways.kafka import LogReader, Message, TransactionalProducer
from connect.gateways.kafka_admin import KafkaAdmin
from connect.layout import Layout, TopicPartition
from control_schemas.codec import decode, encode
from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Event,
    EventHeaders,
    Payload,
    StartCommit,
    TopicPartitionOffset,
)
from control_schemas.headers import encode_headers
from coordinator.committer import Committer
from coordinator.effects import RoundEnded, TableCommitted
from coordinator.shell import ConnectorCoordinator, Wiring
from tests.stack import Topics, unique_name
from tests.tables import announced, connector, reference, table_commit, written_file

pytestmark = pytest.mark.kafka

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
WAIT_S = 30


class Bench:
    """One connector: its control topic, a table, and a hand that plays the tasks."""

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
        self.hand = TransactionalProducer(kafka, f"hand-{control}")
        self.hand.init()
        self.reader = LogReader(kafka)
        self.reader.assign({TopicPartition(control, 0): 0})
        self.seen: list[Event] = []
        self.answered: set[UUID] = set()
        self.position = 0

    def coordinator(self) -> ConnectorCoordinator:
        wiring = Wiring(
            kafka=self.kafka,
            node_group_id="icefloe",
            clock=SystemClock(),
            on_round=self.rounds.append,
            on_event=lambda kind, _: self.events.append(kind),
        )
        return ConnectorCoordinator(self.config, self.layout, wiring)

    def read(self) -> list[Event]:
        """Everything on the control topic so far."""
        self.seen += [decode(r.value or b"") for r in self.reader.poll(100)]
        return self.seen

    def start_commit(self) -> UUID:
        """The next StartCommit that was not answered yet."""

        def found() -> UUID | None:
            for event in self.read():
                payload = event.payload
                if isinstance(payload, StartCommit) and payload.commit_id not in self.answered:
                    return payload.commit_id
            return None

        commit_id = until(found)
        self.answered.add(commit_id)
        return commit_id

    def messages(self, *payloads: Payload) -> list[Message]:
        group = self.config.connect_group_id
        headers = encode_headers(EventHeaders(layout=1))
        return [
            Message(self.control, group.encode(), encode(Event(uuid4(), 0, group, p)), headers)
            for p in payloads
        ]

    def answer(self, commit_id: UUID, *ids: int) -> None:
        """Play the task: a file with these ids, and that everything is announced."""
        payloads: list[Payload] = []
        if ids:
            file = written_file(self.table, [{"id": i} for i in ids])
            payloads.append(DataWritten(commit_id, reference(self.table), (file,), ()))
        self.position += len(ids)
        stand = TopicPartitionOffset(self.partition.topic, 0, self.position, 1_767_225_600_000_000)
        self.hand.transact(
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


def until(found: Callable[[], Any]) -> Any:
    """Poll until there is something."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.02)
    raise TimeoutError


class Running:
    """A coordinator in a thread."""

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


@pytest.fixture
def bench(
    kafka_properties: dict[str, str],
    topics: Topics,
    sql_catalog_properties: dict[str, str],
) -> Iterator[Bench]:
    """A connector with a control topic and a table of its own."""
    control = topics.create("control")
    source = topics.create("source")
    made = Bench(kafka_properties, control, source, sql_catalog_properties)
    yield made
    made.hand.close()
    made.reader.close()
    made.catalog.close()


def test_rounds_reach_the_table(bench: Bench) -> None:
    """Two rounds of announcements become two snapshots with offsets and VTTS, and completions."""
    with Running(bench.coordinator()):
        bench.answer(bench.start_commit(), 1, 2, 3)
        until(lambda: bench.rows() == [1, 2, 3])
        bench.answer(bench.start_commit(), 4)
        until(lambda: bench.rows() == [1, 2, 3, 4])
        until(lambda: sum(isinstance(e.payload, CommitComplete) for e in bench.read()) >= 2)
    summary = bench.catalog.load(("db", "t")).current_snapshot().summary
    assert summary["kafka.connect.valid-through-ts"] == "2026-01-01T00:00:00.000Z"
    assert summary[bench.config.offsets_property]
    tables = [e.payload for e in bench.seen if isinstance(e.payload, CommitToTable)]
    assert len(tables) == 2
    admin = KafkaAdmin(bench.kafka)
    control = TopicPartition(bench.control, 0)
    stored = admin.committed(bench.config.control_group_id, [control])[control]
    admin.close()
    assert stored is not None
    assert stored > 0
    assert len(bench.rounds) >= 2


def test_a_successor_goes_on_where_the_last_one_stopped(bench: Bench) -> None:
    """Announcements made while no coordinator ran are committed by the next one, once."""
    with Running(bench.coordinator()):
        commit = bench.start_commit()
        bench.answer(commit, 1)
        until(lambda: bench.rows() == [1])
    bench.answer(commit, 2, 3)
    with Running(bench.coordinator()):
        bench.answer(bench.start_commit())
        until(lambda: bench.rows() == [1, 2, 3])


def test_a_silent_task_does_not_hold_back_the_others(bench: Bench) -> None:
    """After the timeout what is announced is committed, without a VTTS."""
    with Running(bench.coordinator()):
        commit = bench.start_commit()
        file = written_file(bench.table, [{"id": 7}])
        written = DataWritten(commit, reference(bench.table), (file,), ())
        bench.hand.transact(bench.messages(written))
        until(lambda: bench.rows() == [7])
        until(lambda: bench.rounds)
    assert bench.rounds[0].is_partial
    summary = bench.catalog.load(("db", "t")).current_snapshot().summary
    assert summary.get("kafka.connect.valid-through-ts") is None


def test_two_coordinators_one_is_fenced(bench: Bench) -> None:
    """The one that started later wins; the other stops as fenced and nothing is doubled."""
    with Running(bench.coordinator()) as first:
        bench.answer(bench.start_commit(), 1)
        until(lambda: bench.rows() == [1])
        with Running(bench.coordinator()):
            until(lambda: first.error)
            assert isinstance(first.error, Fenced)
            for number in range(40):  # answer whatever is asked until the data is there
                bench.answer(bench.start_commit(), *((2,) if number == 0 else ()))
                if bench.rows() == [1, 2]:
                    break
            until(lambda: bench.rows() == [1, 2])


def test_a_late_commit_of_a_predecessor_is_no_second_coordinator(bench: Bench) -> None:
    """A floor that moved while nobody took the transactional id over makes it start over."""
    with Running(bench.coordinator()) as running:
        bench.answer(bench.start_commit(), 1)
        until(lambda: bench.rows() == [1])
        admin = KafkaAdmin(bench.kafka)
        end = admin.ends([TopicPartition(bench.control, 0)])[TopicPartition(bench.control, 0)]
        admin.close()
        file = written_file(bench.table, [{"id": 2}])
        late = announced(reference(bench.table), [file], offset=end - 1)
        outcome = Committer(bench.catalog, bench.config, SystemClock()).commit(
            table_commit([late], until={0: end})
        )
        assert isinstance(outcome, TableCommitted)
        for _ in range(40):
            bench.answer(bench.start_commit(), *((3,) if 3 not in bench.rows() else ()))
            if 3 in bench.rows():
                break
        assert running.error is None
    assert bench.rows()[:2] == [1, 2]
    assert "restart" in bench.events


def test_foreign_and_broken_events_are_passed_over(bench: Bench) -> None:
    """Events of other groups and bytes that are none of ours stop nothing and are counted."""
    other = Event(uuid4(), 0, "connect-other", StartCommit(uuid4()))
    bench.hand.transact(
        [
            Message(bench.control, None, b"not an event"),
            Message(bench.control, None, None),
            Message(bench.control, b"k", encode(other)),
        ]
    )
    bench.seen = []
    bench.reader.assign({TopicPartition(bench.control, 0): 3})
    with Running(bench.coordinator()):
        bench.answer(bench.start_commit(), 5)
        until(lambda: bench.rows() == [5])
    assert bench.events.count("malformed") == 2


def test_a_dropped_table_waits_and_the_rest_goes_on(bench: Bench) -> None:
    """A table that is gone fails alone; the group's offsets stay before its announcements."""
    other = bench.catalog.create(("db", "u"), SCHEMA)
    with Running(bench.coordinator()):
        commit = bench.start_commit()
        bench.answer(commit, 1)
        until(lambda: bench.rows() == [1])
        gone = reference(other)
        gone_file = written_file(other, [{"id": 9}])
        bench.drop(("db", "u"))
        bench.hand.transact(bench.messages(DataWritten(commit, gone, (gone_file,), ())))
        bench.answer(bench.start_commit(), 2)
        until(lambda: bench.rows() == [1, 2])
        until(lambda: any(o.table.name == "u" for r in bench.rounds for o in r.outcomes))
    failed = [o for r in bench.rounds for o in r.outcomes if o.table.name == "u"]
    assert failed[0].code == "table_missing"
    control = TopicPartition(bench.control, 0)
    admin = KafkaAdmin(bench.kafka)
    stored = admin.committed(bench.config.control_group_id, [control])[control]
    end = admin.ends([control])[control]
    admin.close()
    assert stored is not None
    assert stored < end - 5


def test_control_events_that_are_gone_stop_the_coordinator(bench: Bench) -> None:
    """When retention passed the group's offset nothing is guessed."""
    bench.hand.transact(bench.messages(*[StartCommit(uuid4()) for _ in range(20)]))
    control = TopicPartition(bench.control, 0)
    admin = KafkaAdmin(bench.kafka)
    admin.alter_offsets(bench.config.control_group_id, {control: 100})
    with pytest.raises(DataLost) as e:
        bench.coordinator().run()
    assert e.value.code == "control_log_reset"
    admin.alter_offsets(bench.config.control_group_id, {control: 2})
    admin.delete_records({control: 10})
    with pytest.raises(DataLost) as e:
        bench.coordinator().run()
    assert e.value.code == "control_log_lost"
    admin.close()
