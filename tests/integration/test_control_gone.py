"""A control topic that lost something: the coordinator stops with a code and commits nothing."""

from __future__ import annotations

import dataclasses
import itertools
from uuid import uuid4

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate

from connect.errors import DataLost
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import TransactionalProducer
from connect.model.layout import TopicPartition
from control_schemas.events import DataWritten, StartCommit
from tests.support.coordinator_harness import CoordinatorHarness, RunningCoordinator, wait_until
from tests.support.tables import reference, written_file
from tests.support.topic_deletion import delete_topic

pytestmark = pytest.mark.kafka


@pytest.fixture
def control(harness: CoordinatorHarness) -> TopicPartition:
    """The control topic after two rounds; the table has rows 1 and 2."""
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 1)
        harness.answer(harness.start_commit(), 2)
        wait_until(lambda: harness.rows() == [1, 2])
        wait_until(lambda: len(harness.rounds) >= 2)
    return TopicPartition(harness.control, 0)


def _stopped(harness: CoordinatorHarness) -> DataLost:
    """How the coordinator ends; rounds are answered with new rows as long as it starts any."""
    numbers = itertools.count(100)
    with RunningCoordinator(harness.coordinator()) as running:

        def ended() -> BaseException | None:
            requests = [e.payload for e in harness.read() if isinstance(e.payload, StartCommit)]
            new = [p.commit_id for p in requests if p.commit_id not in harness.answered]
            if new and running.error is None:
                harness.answered.update(new)
                harness.answer(new[-1], next(numbers))
            return running.error

        error = wait_until(ended)
    assert isinstance(error, DataLost)
    return error


def test_expired_control_group_offsets_repeat_no_commit(
    harness: CoordinatorHarness, control: TopicPartition, admin: KafkaAdmin
) -> None:
    """Reading starts at the earliest event; the floor filters what the table has."""
    admin.delete_group(harness.config.control_group_id)
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 3)
        wait_until(lambda: harness.rows() == [1, 2, 3])
        wait_until(lambda: admin.committed(harness.config.control_group_id, [control])[control])


def test_a_connector_stops_when_offsets_of_both_groups_expired(
    harness: CoordinatorHarness, control: TopicPartition, admin: KafkaAdmin
) -> None:
    """The error names the last announcement; an operator sets an offset to continue."""
    for group in (harness.config.control_group_id, harness.config.connect_group_id):
        admin.delete_group(group)
    for _ in range(2):
        with RunningCoordinator(harness.coordinator()) as running:
            error = wait_until(lambda r=running: r.error)
        assert isinstance(error, DataLost)
        assert error.code == "offsets_lost"
        assert error.message.endswith(f"{harness.partition.topic}-0 2")
        assert "db.t" in error.message
    assert admin.committed(harness.config.control_group_id, [control]) == {control: None}
    admin.alter_offsets(harness.config.connect_group_id, {harness.partition: 2})
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 3)
        wait_until(lambda: harness.rows() == [1, 2, 3])


def test_a_gap_between_floor_and_log_stops_without_group_offsets(
    harness: CoordinatorHarness, control: TopicPartition, admin: KafkaAdmin
) -> None:
    """The announcements in the gap are unknown; the error contains the range."""
    admin.delete_group(harness.config.control_group_id)
    harness.answer(next(iter(harness.answered)), 3)
    # the transaction's marker may come a little later
    wait_until(lambda: admin.ends([control]) == admin.high_watermarks([control]))
    end = admin.ends([control])[control]
    admin.delete_records({control: end})
    for _ in range(2):
        error = _stopped(harness)
        assert error.code == "control_log_lost"
        assert f"..{end - 1} are gone" in error.message
    assert harness.rows() == [1, 2]


def test_a_floor_past_the_end_of_the_log_stops(
    harness: CoordinatorHarness, control: TopicPartition, admin: KafkaAdmin
) -> None:
    """A recreated topic is detected without a topic id, as with tables of the Java sink."""
    _forget_identity(harness)
    delete_topic(admin, control.topic)
    wait_until(lambda: control.topic not in admin.topics())
    admin.ensure_topic(control.topic, 1, replication_factor=1)
    harness.reader.assign({control: 0})
    error = _stopped(harness)
    assert error.code == "control_log_reset"
    assert "ends at" in error.message
    assert harness.rows() == [1, 2]


def test_a_rebase_continues_after_a_recreated_control_topic(
    harness: CoordinatorHarness, control: TopicPartition, admin: KafkaAdmin
) -> None:
    """The recreated topic stops the coordinator; after the rebase it commits rows again."""
    old = admin.topic_id(control.topic)
    assert old is not None
    harness.layout = dataclasses.replace(harness.layout, topic_ids=((control.topic, old),))
    delete_topic(admin, control.topic)
    wait_until(lambda: control.topic not in admin.topics())
    admin.ensure_topic(control.topic, 1, replication_factor=1)
    new = admin.topic_id(control.topic)
    assert new is not None
    harness.reader.assign({control: 0})
    assert _stopped(harness).code == "control_log_reset"
    harness.layout = dataclasses.replace(
        harness.layout, number=2, topic_ids=((control.topic, new),), abandoned=(old,)
    )
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 3)
        wait_until(lambda: harness.rows() == [1, 2, 3])
        harness.answer(harness.start_commit(), 4)
        wait_until(lambda: harness.rows() == [1, 2, 3, 4])
    with RunningCoordinator(harness.coordinator()):  # its floors are of the new topic by now
        harness.answer(harness.start_commit(), 5)
        wait_until(lambda: harness.rows() == [1, 2, 3, 4, 5])


def test_added_control_partitions_are_read(
    harness: CoordinatorHarness, control: TopicPartition, admin: KafkaAdmin
) -> None:
    """The coordinator restarts; announcements of a sink that ran in between count."""
    harness.poll_ms = 500
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 3)
        wait_until(lambda: harness.rows() == [1, 2, 3])
        client = AdminClient({**harness.kafka, "log_level": 0})
        client.create_partitions([NewPartitions(control.topic, 3)])[control.topic].result(120)
        wait_until(lambda: admin.topics()[control.topic] == 3)
        wait_until(lambda: harness.reported.get("restart") == {"code": "control_partitions_added"})
        wait_until(lambda: harness.events[harness.events.index("restart") :].count("opened"))
        harness.answer(harness.start_commit(), 4)  # our own events stay where they were
        wait_until(lambda: harness.rows() == [1, 2, 3, 4])
    _announced_in_last_partition(harness, 5)
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 6)
        wait_until(lambda: harness.rows() == [1, 2, 3, 4, 5, 6])
    at = admin.committed(harness.config.control_group_id, [TopicPartition(control.topic, 2)])
    assert all(at.values())


def _announced_in_last_partition(harness: CoordinatorHarness, number: int) -> None:
    """Announce a file in the last partition of the topic, as a sink with random keys does."""
    file = written_file(harness.table, [{"id": number}])
    (message,) = harness.messages(DataWritten(uuid4(), reference(harness.table), (file,), ()))
    other = TransactionalProducer(harness.kafka, f"other-{harness.control}")
    other.init()
    other.transact([dataclasses.replace(message, partition=2, headers=())])
    other.close()


def test_a_compacted_control_topic_is_refused(
    harness: CoordinatorHarness, control: TopicPartition, admin: KafkaAdmin
) -> None:
    """All events of a connector have the same key: compaction would keep one of them."""
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, control.topic, incremental_configs=[entry])
    client = AdminClient({**harness.kafka, "log_level": 0})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(120)
    wait_until(lambda: admin.topic_config(control.topic)["cleanup.policy"] == "compact")
    assert _stopped(harness).code == "control_log_compacted"


def _forget_identity(harness: CoordinatorHarness) -> None:
    """Remove what a table remembers of the control topic, as if Java had written it."""
    table = harness.catalog.load(("db", "t"))
    name = f"icefloe.topic-id.{harness.control}.{harness.config.connect_group_id}"
    assert name in table.properties
    uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
    harness.catalog.commit(table, (uuid,), (RemovePropertiesUpdate(removals=[name]),))
