"""Where a new connector starts, on a real broker: the leader fixes it, tasks start there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from connect.clock import SystemClock
from connect.config.start_position import StartPosition
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.protocol.start_offsets import first_offsets
from tests.support.leader_node import NAME, LeaderNode
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka

HOUR_MS = 3_600_000
T0_MS = 1_767_323_045_000


class TimedTopic:
    """A topic with two partitions, and its records' timestamps."""

    def __init__(self, kafka: dict[str, str], topics: Topics) -> None:
        self.topic = topics.create("source", partitions=2, retention_ms="-1")
        self._kafka = kafka
        self._producer = Producer({**kafka, "log_level": 0})

    def feed(self, partition: int, *timestamps_ms: int) -> None:
        """Write one record for each timestamp."""
        for timestamp_ms in timestamps_ms:
            self._producer.produce(self.topic, b"{}", partition=partition, timestamp=timestamp_ms)
        assert self._producer.flush(60) == 0

    def grow(self, admin: KafkaAdmin, count: int) -> None:
        """Add partitions."""
        client = AdminClient({**self._kafka, "log_level": 0})
        client.create_partitions([NewPartitions(self.topic, count)])[self.topic].result(60)
        deadline = time.monotonic() + 150
        while admin.topics()[self.topic] < count:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def at(self, *offsets: int) -> dict[TopicPartition, int]:
        """Offsets by partition."""
        return {TopicPartition(self.topic, p): at for p, at in enumerate(offsets)}


@pytest.fixture
def source(kafka_properties: dict[str, str], topics: Topics) -> TimedTopic:
    """Its first partition has records of three hours, its second none."""
    source = TimedTopic(kafka_properties, topics)
    source.feed(0, *(T0_MS + hour * HOUR_MS for hour in range(3)))
    return source


@pytest.fixture
def new_leader(
    kafka_properties: dict[str, str], topics: Topics, source: TimedTopic
) -> Iterator[Callable[..., LeaderNode]]:
    """Leaders of one cluster, each taking over from the one before."""
    storage, control = unique_name("config"), topics.create("control")
    leaders: list[LeaderNode] = []

    def leader(**start: str) -> LeaderNode:
        leaders.append(
            LeaderNode(
                kafka_properties,
                storage,
                source.topic,
                control,
                more={f"icefloe.start.{key}": text for key, text in start.items()},
            )
        )
        return leaders[-1]

    yield leader
    for started in leaders:
        started.close()


def _starts(leader: LeaderNode) -> dict[TopicPartition, int]:
    return dict(leader.store.get(NAME).source_floor.starts)


def test_a_timestamp_is_fixed_once_for_the_partitions_of_the_first_layout(
    new_leader: Callable[..., LeaderNode], source: TimedTopic
) -> None:
    """Later records and partitions do not change it; without a record it is the end.

    A leader that takes over, a new layout, a killed task: each finds the same offsets.
    """
    leader = new_leader(timestamp=str(T0_MS + 1))
    leader.create()
    assert _starts(leader) == source.at(1, 0)
    source.feed(1, T0_MS, T0_MS + HOUR_MS)
    leader.store_offsets(0, {0: 3})  # the task of partition 1 was killed before it stored any
    source.grow(leader.admin, 3)
    second = new_leader(timestamp=str(T0_MS + 2 * HOUR_MS))
    second.create()  # a changed key does not move a connector that has begun
    assert len(second.store.get(NAME).layout.partitions) == 3  # type: ignore[union-attr]
    assert _starts(second) == source.at(1, 0)
    second.deployer.keep_offsets()
    assert _starts(second) == source.at(1, 0)
    assert second.floor() == {0: 3}


def test_a_future_timestamp_is_the_end_at_the_first_start(
    new_leader: Callable[..., LeaderNode], source: TimedTopic
) -> None:
    """Records that come before the first task starts are read: the end was fixed before them."""
    leader = new_leader(timestamp="2100-01-01T00:00:00Z")
    leader.create()
    assert _starts(leader) == source.at(3, 0)
    source.feed(0, T0_MS)
    leader.converge()
    assert _starts(leader) == source.at(3, 0)


def test_nothing_is_fixed_for_a_connector_with_offsets(
    new_leader: Callable[..., LeaderNode], source: TimedTopic
) -> None:
    """Committed offsets win, also over a key that is added later; a reset makes it new."""
    leader = new_leader()
    leader.create()
    leader.store_offsets(0, {0: 2})
    assert _starts(leader) == {}
    second = new_leader(timestamp=str(T0_MS + 1))
    second.create()
    assert _starts(second) == {}
    second.request_state("STOPPED")
    second.changes.reset(NAME)
    second.request_state("STARTED")
    assert _starts(second) == source.at(1, 0)
    second.request_state("STOPPED")
    second.changes.reset(NAME)
    assert _starts(second) == {}


def test_a_timestamp_may_change_until_the_first_record_is_read(
    new_leader: Callable[..., LeaderNode], source: TimedTopic
) -> None:
    """An operator who corrects the key before the first start gets the new position."""
    new_leader(timestamp=str(T0_MS + 1)).create()
    second = new_leader(timestamp=str(T0_MS + HOUR_MS + 1))
    second.create()
    assert _starts(second) == source.at(2, 0)
    third = new_leader()
    third.create()
    assert _starts(third) == {}


def test_the_precedence_of_the_start_settings(
    kafka_properties: dict[str, str], source: TimedTopic
) -> None:
    """A named offset, then a fixed one, then the policy; a named offset ends with the log."""
    admin = KafkaAdmin(kafka_properties)
    try:
        source.feed(1, T0_MS)
        logs = admin.watermarks(source.at(0, 0))
        start = StartPosition(offsets=source.at(99), reset="latest")

        def found(start: StartPosition, fixed: dict[TopicPartition, int]) -> object:
            now_ms = T0_MS + 2 * HOUR_MS
            return first_offsets(start, logs, fixed=fixed, admin=admin, now_ms=now_ms)

        assert found(start, source.at(1)) == source.at(3, 1)
        assert found(replace(start, offsets=source.at(-2, -1)), {}) == source.at(0, 1)
        assert found(StartPosition(), source.at(1)) == source.at(1, 0)
        by_duration = StartPosition(reset="by_duration", reset_duration_ms=HOUR_MS)
        assert found(by_duration, {}) == source.at(1, 1)
        longest = replace(by_duration, reset_duration_ms=SystemClock().now_ms() * 2)
        assert found(longest, {}) == source.at(0, 0)
    finally:
        admin.close()
