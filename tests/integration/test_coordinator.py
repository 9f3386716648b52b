"""A coordinator against a real broker and catalog; the tests produce the tasks' answers."""

from __future__ import annotations

import dataclasses
from uuid import uuid4

import pytest
from confluent_kafka import Producer

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
from coordinator.commit.committer import Committer
from coordinator.kernel.effects import TableCommitted
from tests.support.coordinator_bench import SCHEMA, Bench, Running, until
from tests.support.faulty_http import FaultyProxy
from tests.support.stack import RestCatalog, Topics, unique_name
from tests.support.tables import announced, reference, table_commit, written_file

pytestmark = pytest.mark.kafka


def test_rounds_reach_the_table(bench: Bench) -> None:
    """Two rounds of announcements become two snapshots with offsets and VTTS, and completions."""
    bench.be_patient()
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


def _foreign(kafka: dict[str, str]) -> Producer:
    """Another connector's producer, whose transactions may stay open."""
    own = {"transactional.id": unique_name("foreign"), "transaction.timeout.ms": 600_000}
    producer = Producer({**kafka, **own, "log_level": 0})
    producer.init_transactions(30)
    return producer


def test_nothing_is_claimed_while_old_announcements_lie_above_an_open_transaction(
    kafka_properties: dict[str, str], topics: Topics, sql_catalog_properties: dict[str, str]
) -> None:
    """The control log goes to its end, not to the last stable offset."""
    control = topics.create("control", partitions=2)
    bench = Bench(kafka_properties, control, topics.create("source"), sql_catalog_properties)
    bench.be_patient()
    foreign = _foreign(bench.kafka)
    foreign.begin_transaction()
    foreign.produce(control, b"of another connector", partition=1)
    assert foreign.flush(30) == 0
    group = bench.config.connect_group_id
    file = written_file(bench.table, [{"id": 7}])
    written = DataWritten(uuid4(), reference(bench.table), (file,), ())
    old = encode(Event(uuid4(), 0, group, written))
    bench.hand.transact([ProducerMessage(control, b"java", old, partition=1)])
    with Running(bench.coordinator()):
        bench.answer(bench.start_commit(), 1)
        until(lambda: bench.rounds)
        assert bench.rows() == [1]
        assert (bench.rounds[0].is_partial, bench.rounds[0].valid_through_us) == (False, None)
        foreign.abort_transaction(30)

        def is_claimed() -> bool:
            bench.answer(bench.start_commit())
            return bench.rounds[-1].valid_through_us is not None

        until(is_claimed)
    assert bench.rows() == [1, 7]
    bench.hand.close()
    bench.reader.close()
    bench.catalog.close()


def test_a_hanging_transaction_on_the_control_topic_is_reported(bench: Bench) -> None:
    """Announcements behind it wait, and the metric says why; ended, they are committed."""
    bench.config = dataclasses.replace(bench.config, lso_stalled_ms=500)
    foreign = _foreign(bench.kafka)
    with Running(bench.coordinator()):
        bench.answer(bench.start_commit(), 1)
        until(lambda: bench.rows() == [1])
        until(lambda: bench.reported.get("stalled") == {"partitions": 0})
        commit_id = bench.start_commit()
        foreign.begin_transaction()
        foreign.produce(bench.control, b"of another connector", partition=0)
        assert foreign.flush(30) == 0
        bench.answer(commit_id, 2)
        until(lambda: bench.reported["stalled"] == {"partitions": 1})
        assert bench.rows() == [1]
        foreign.abort_transaction(30)
        until(lambda: bench.reported["stalled"] == {"partitions": 0})
        until(lambda: bench.rows() == [1, 2])


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
            for number in range(40):  # answer every round until the data is there
                bench.answer(bench.start_commit(), *((2,) if number == 0 else ()))
                if bench.rows() == [1, 2]:
                    break
            until(lambda: bench.rows() == [1, 2])


def test_a_late_commit_of_a_predecessor_is_no_second_coordinator(bench: Bench) -> None:
    """If the floor moved without a takeover of the transactional id, the coordinator restarts."""
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
            ProducerMessage(bench.control, None, b"not an event"),
            ProducerMessage(bench.control, None, None),
            ProducerMessage(bench.control, b"k", encode(other)),
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


def test_a_round_of_two_tables_is_one_request(
    kafka_properties: dict[str, str], topics: Topics, rest_catalog: RestCatalog
) -> None:
    """Where the operator says that the catalog is atomic; completions name both snapshots."""
    proxy = FaultyProxy(rest_catalog.uri)
    properties = {**rest_catalog.properties, "uri": proxy.uri}
    bench = Bench(kafka_properties, topics.create("control"), topics.create("source"), properties)
    other = bench.catalog.create(("db", unique_name("other")), SCHEMA)
    tables = (*bench.config.tables, ".".join(other.name()))
    bench.config = dataclasses.replace(bench.config, multi_table_commit=True, tables=tables)
    bench.be_patient()
    with Running(bench.coordinator()):
        commit_id = bench.start_commit()
        file = written_file(other, [{"id": 7}])
        bench.hand.transact(bench.messages(DataWritten(commit_id, reference(other), (file,), ())))
        bench.answer(commit_id, 1, 2)
        until(lambda: any(isinstance(e.payload, CommitComplete) for e in bench.read()))
    assert (proxy.transactions, proxy.commits) == (1, 1)
    assert bench.rows() == [1, 2]
    assert bench.catalog.load(other.name()).scan().to_arrow()["id"].to_pylist() == [7]
    reported = [e.payload for e in bench.seen if isinstance(e.payload, CommitToTable)]
    assert {t.table.identifier for t in reported} == {("db", "t"), other.name()}
    bench.catalog.drop(bench.table.name())
    bench.hand.close()
    bench.reader.close()
    bench.catalog.close()
    proxy.close()


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
