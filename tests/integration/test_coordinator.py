"""A coordinator against a real broker and catalog; the tests produce the tasks' answers."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer

from connect.clock import SystemClock
from connect.errors import DataLost, Fenced
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import ProducerMessage
from connect.model.layout import TopicPartition
from control_schemas.codec import encode
from control_schemas.events import (
    CommitComplete,
    CommitToTable,
    DataWritten,
    Event,
    StartCommit,
)
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import TableCommitted
from tests.support.coordinator_harness import (
    SCHEMA,
    CoordinatorHarness,
    RunningCoordinator,
    wait_until,
)
from tests.support.faulty_http import FaultyProxy
from tests.support.stack import RestCatalog, Topics, unique_name
from tests.support.tables import announced, reference, table_commit, written_file

pytestmark = pytest.mark.kafka


def test_rounds_become_snapshots(harness: CoordinatorHarness) -> None:
    """Two rounds become two snapshots with offsets and VTTS, and completions."""
    harness.set_long_timeout()
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 1, 2, 3)
        wait_until(lambda: harness.rows() == [1, 2, 3])
        harness.answer(harness.start_commit(), 4)
        wait_until(lambda: harness.rows() == [1, 2, 3, 4])
        wait_until(lambda: sum(isinstance(e.payload, CommitComplete) for e in harness.read()) >= 2)
    summary = harness.catalog.load(("db", "t")).current_snapshot().summary
    assert summary["kafka.connect.valid-through-ts"] == "2026-01-01T00:00:00.000Z"
    assert summary[harness.config.offsets_property]
    tables = [e.payload for e in harness.seen if isinstance(e.payload, CommitToTable)]
    assert len(tables) == 2
    admin = KafkaAdmin(harness.kafka)
    control = TopicPartition(harness.control, 0)
    stored = admin.committed(harness.config.control_group_id, [control])[control]
    admin.close()
    assert stored is not None
    assert stored > 0
    assert len(harness.rounds) >= 2


def _foreign(kafka: dict[str, str]) -> Producer:
    """Another connector's producer, whose transactions may stay open."""
    own = {"transactional.id": unique_name("foreign"), "transaction.timeout.ms": 600_000}
    producer = Producer({**kafka, **own, "log_level": 0})
    producer.init_transactions(120)
    return producer


def test_nothing_is_claimed_while_an_open_transaction_hides_announcements(
    kafka_properties: dict[str, str], topics: Topics, sql_catalog_properties: dict[str, str]
) -> None:
    """The control log is read to its end, not to the last stable offset."""
    control = topics.create("control", partitions=2)
    harness = CoordinatorHarness(
        kafka_properties, control, topics.create("source"), sql_catalog_properties
    )
    harness.set_long_timeout()
    foreign = _foreign(harness.kafka)
    foreign.begin_transaction()
    foreign.produce(control, b"of another connector", partition=1)
    assert foreign.flush(120) == 0
    group = harness.config.connect_group_id
    file = written_file(harness.table, [{"id": 7}])
    written = DataWritten(uuid4(), reference(harness.table), (file,), ())
    old = encode(Event(uuid4(), 0, group, written))
    harness.task_producer.transact([ProducerMessage(control, b"java", old, partition=1)])
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 1)
        wait_until(lambda: harness.rounds)
        assert harness.rows() == [1]
        assert (harness.rounds[0].is_partial, harness.rounds[0].valid_through_us) == (False, None)
        foreign.abort_transaction(120)

        def is_claimed() -> bool:
            harness.answer(harness.start_commit())
            return harness.rounds[-1].valid_through_us is not None

        wait_until(is_claimed)
    assert harness.rows() == [1, 7]
    harness.task_producer.close()
    harness.reader.close()
    harness.catalog.close()


def test_a_hanging_transaction_on_the_control_topic_is_reported(
    harness: CoordinatorHarness,
) -> None:
    """A metric reports it; announcements after it are committed when it ends."""
    harness.config = dataclasses.replace(harness.config, lso_stalled_ms=500)
    foreign = _foreign(harness.kafka)
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 1)
        wait_until(lambda: harness.rows() == [1])
        wait_until(lambda: harness.reported.get("stalled") == {"partitions": 0})
        commit_id = harness.start_commit()
        foreign.begin_transaction()
        foreign.produce(harness.control, b"of another connector", partition=0)
        assert foreign.flush(120) == 0
        harness.answer(commit_id, 2)
        wait_until(lambda: harness.reported["stalled"] == {"partitions": 1})
        assert harness.rows() == [1]
        foreign.abort_transaction(120)
        wait_until(lambda: harness.reported["stalled"] == {"partitions": 0})
        wait_until(lambda: harness.rows() == [1, 2])


def test_a_successor_continues_where_its_predecessor_stopped(harness: CoordinatorHarness) -> None:
    """Announcements made without a coordinator are committed once by the next one."""
    with RunningCoordinator(harness.coordinator()):
        commit = harness.start_commit()
        harness.answer(commit, 1)
        wait_until(lambda: harness.rows() == [1])
    harness.answer(commit, 2, 3)
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit())
        wait_until(lambda: harness.rows() == [1, 2, 3])


def test_a_silent_task_does_not_delay_other_tasks(harness: CoordinatorHarness) -> None:
    """After the timeout the announced files are committed, without a VTTS."""
    with RunningCoordinator(harness.coordinator()):
        commit = harness.start_commit()
        file = written_file(harness.table, [{"id": 7}])
        written = DataWritten(commit, reference(harness.table), (file,), ())
        harness.task_producer.transact(harness.messages(written))
        wait_until(lambda: harness.rows() == [7])
        wait_until(lambda: harness.rounds)
    assert harness.rounds[0].is_partial
    summary = harness.catalog.load(("db", "t")).current_snapshot().summary
    assert summary.get("kafka.connect.valid-through-ts") is None


def test_of_two_coordinators_the_older_one_is_fenced(harness: CoordinatorHarness) -> None:
    """Nothing is duplicated."""
    with RunningCoordinator(harness.coordinator()) as first:
        harness.answer(harness.start_commit(), 1)
        wait_until(lambda: harness.rows() == [1])
        with RunningCoordinator(harness.coordinator()):
            wait_until(lambda: first.error)
            assert isinstance(first.error, Fenced)
            for number in range(40):  # answer every round until the data is there
                harness.answer(harness.start_commit(), *((2,) if number == 0 else ()))
                if harness.rows() == [1, 2]:
                    break
            wait_until(lambda: harness.rows() == [1, 2])


def test_a_late_commit_of_a_predecessor_restarts_the_coordinator(
    harness: CoordinatorHarness,
) -> None:
    """The floor moved, but no process took over the transactional id."""
    with RunningCoordinator(harness.coordinator()) as running:
        harness.answer(harness.start_commit(), 1)
        wait_until(lambda: harness.rows() == [1])
        admin = KafkaAdmin(harness.kafka)
        end = admin.ends([TopicPartition(harness.control, 0)])[TopicPartition(harness.control, 0)]
        admin.close()
        file = written_file(harness.table, [{"id": 2}])
        late = announced(reference(harness.table), [file], offset=end - 1)
        outcome = Committer(harness.catalog, harness.config, SystemClock()).commit(
            table_commit([late], until={0: end})
        )
        assert isinstance(outcome, TableCommitted)
        for _ in range(40):
            harness.answer(harness.start_commit(), *((3,) if 3 not in harness.rows() else ()))
            if 3 in harness.rows():
                break
        assert running.error is None
    assert harness.rows()[:2] == [1, 2]
    assert "restart" in harness.events


def test_foreign_and_broken_events_are_skipped_and_counted(harness: CoordinatorHarness) -> None:
    """Events of other groups, and bytes that are no event."""
    other = Event(uuid4(), 0, "connect-other", StartCommit(uuid4()))
    harness.task_producer.transact(
        [
            ProducerMessage(harness.control, None, b"not an event"),
            ProducerMessage(harness.control, None, None),
            ProducerMessage(harness.control, b"k", encode(other)),
        ]
    )
    harness.seen = []
    harness.reader.assign({TopicPartition(harness.control, 0): 3})
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 5)
        wait_until(lambda: harness.rows() == [5])
    assert harness.events.count("malformed") == 2


def test_an_announcement_of_another_sink_stops_the_connector(harness: CoordinatorHarness) -> None:
    """A sink without Icefloe's headers, in the same group: both read the same records."""
    with RunningCoordinator(harness.coordinator()) as running:
        commit_id = harness.start_commit()
        file = written_file(harness.table, [{"id": 7}])
        written = DataWritten(commit_id, reference(harness.table), (file,), ())
        messages = harness.messages(written)
        harness.task_producer.transact([dataclasses.replace(m, headers=()) for m in messages])
        wait_until(lambda: running.error is not None)
    assert isinstance(running.error, Fenced)
    assert running.error.code == "group_in_use"
    assert harness.rows() == []


def test_no_round_starts_while_another_sink_is_a_member(harness: CoordinatorHarness) -> None:
    """Its tasks would answer a StartCommit. Rounds continue once it has left."""
    member = Consumer({**harness.kafka, "group.id": harness.config.connect_group_id})
    with RunningCoordinator(harness.coordinator()):
        harness.start_commit()
        member.subscribe([harness.partition.topic])
        while not member.assignment():
            member.poll(0.1)
        wait_until(lambda: harness.reported.get("restart", {}).get("code") == "group_in_use")
        before = len(harness.read())
        for _ in range(10):
            member.poll(0.1)
        assert not any(isinstance(e.payload, StartCommit) for e in harness.read()[before:])
        member.close()
        harness.answer(harness.start_commit(), 8)
        wait_until(lambda: harness.rows() == [8])


def test_a_dropped_table_does_not_delay_other_tables(harness: CoordinatorHarness) -> None:
    """Only this table fails; the control offsets stay before its announcements."""
    other = harness.catalog.create(("db", "u"), SCHEMA)
    with RunningCoordinator(harness.coordinator()):
        commit = harness.start_commit()
        harness.answer(commit, 1)
        wait_until(lambda: harness.rows() == [1])
        dropped = reference(other)
        gone_file = written_file(other, [{"id": 9}])
        harness.drop(("db", "u"))
        harness.task_producer.transact(
            harness.messages(DataWritten(commit, dropped, (gone_file,), ()))
        )
        harness.answer(harness.start_commit(), 2)
        wait_until(lambda: harness.rows() == [1, 2])
        wait_until(lambda: any(o.table.name == "u" for r in harness.rounds for o in r.outcomes))
    failed = [o for r in harness.rounds for o in r.outcomes if o.table.name == "u"]
    assert failed[0].code == "table_missing"
    control = TopicPartition(harness.control, 0)
    admin = KafkaAdmin(harness.kafka)
    stored = admin.committed(harness.config.control_group_id, [control])[control]
    end = admin.ends([control])[control]
    admin.close()
    assert stored is not None
    assert stored < end - 5


def test_a_round_of_two_tables_is_one_request(
    kafka_properties: dict[str, str], topics: Topics, rest_catalog: RestCatalog
) -> None:
    """If the operator declares the catalog atomic; completions name both snapshots."""
    proxy = FaultyProxy(rest_catalog.uri)
    properties = {**rest_catalog.properties, "uri": proxy.uri}
    harness = CoordinatorHarness(
        kafka_properties, topics.create("control"), topics.create("source"), properties
    )
    other = harness.catalog.create(("db", unique_name("other")), SCHEMA)
    tables = (*harness.config.tables, ".".join(other.name()))
    harness.config = dataclasses.replace(harness.config, multi_table_commit=True, tables=tables)
    harness.set_long_timeout()
    with RunningCoordinator(harness.coordinator()):
        commit_id = harness.start_commit()
        file = written_file(other, [{"id": 7}])
        harness.task_producer.transact(
            harness.messages(DataWritten(commit_id, reference(other), (file,), ()))
        )
        harness.answer(commit_id, 1, 2)
        wait_until(lambda: any(isinstance(e.payload, CommitComplete) for e in harness.read()))
    assert (proxy.transactions, proxy.commits) == (1, 1)
    assert harness.rows() == [1, 2]
    assert harness.catalog.load(other.name()).scan().to_arrow()["id"].to_pylist() == [7]
    reported = [e.payload for e in harness.seen if isinstance(e.payload, CommitToTable)]
    assert {t.table.identifier for t in reported} == {("db", "t"), other.name()}
    harness.catalog.drop(harness.table.name())
    harness.task_producer.close()
    harness.reader.close()
    harness.catalog.close()
    proxy.close()


def test_deleted_control_events_stop_the_coordinator(harness: CoordinatorHarness) -> None:
    """Retention passed the offset of the group."""
    harness.task_producer.transact(harness.messages(*[StartCommit(uuid4()) for _ in range(20)]))
    control = TopicPartition(harness.control, 0)
    admin = KafkaAdmin(harness.kafka)
    admin.alter_offsets(harness.config.control_group_id, {control: 100})
    with pytest.raises(DataLost) as e:
        harness.coordinator().run()
    assert e.value.code == "control_log_reset"
    admin.alter_offsets(harness.config.control_group_id, {control: 2})
    admin.delete_records({control: 10})
    with pytest.raises(DataLost) as e:
        harness.coordinator().run()
    assert e.value.code == "control_log_lost"
    admin.close()


CASELESS = """
create table iceberg_tables (
    catalog_name varchar not null,
    table_namespace varchar not null collate nocase,
    table_name varchar not null collate nocase,
    metadata_location varchar,
    previous_metadata_location varchar,
    iceberg_type varchar,
    primary key (catalog_name, table_namespace, table_name)
)
"""


def test_a_table_has_the_files_of_both_names_in_a_catalog_that_ignores_case(
    kafka_properties: dict[str, str], topics: Topics, sql_catalog_properties: dict[str, str]
) -> None:
    """One commit of a round has them; the floor of one name would pass the files of the other."""
    path = sql_catalog_properties["uri"].removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(CASELESS)
    control, source = topics.create("control", partitions=2), topics.create("source")
    harness = CoordinatorHarness(kafka_properties, control, source, sql_catalog_properties)
    harness.set_long_timeout()
    harness.config = dataclasses.replace(harness.config, tables=("db.t", "db.T"))
    names = [dataclasses.replace(reference(harness.table), name=name) for name in ("t", "T", "t")]
    assert harness.catalog.load(("db", "T")).metadata.table_uuid == names[0].table_uuid
    with RunningCoordinator(harness.coordinator()):
        for offset in range(0, 6, 3):
            commit_id = harness.start_commit()
            written = [
                DataWritten(commit_id, name, (written_file(harness.table, [{"id": number}]),), ())
                for number, name in enumerate(names, offset)
            ]
            harness.task_producer.transact(harness.messages(*written))
            harness.answer(commit_id)
            wait_until(lambda end=offset + 3: harness.rows() == list(range(end)))
    harness.task_producer.close()
    harness.reader.close()
    harness.catalog.close()
