"""Waiting for another sink's tasks to leave a group, against a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from connect.clock import SystemClock
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.protocol.java_sink_members import LEAVE_TIMEOUT_MS, POLL_MS, wait_until_left
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka


class SteppedClock(SystemClock):
    """Monotonic time that passes only in a pause."""

    def __init__(self, on_pause: Callable[[], object] = lambda: None) -> None:
        self.passed_ms = 0
        self._on_pause = on_pause

    def monotonic_ms(self) -> int:
        """What was paused so far."""
        return self.passed_ms

    @property
    def is_stopping(self) -> bool:
        """A time before the start means stop."""
        return self.passed_ms < 0

    def pause(self, duration_ms: int) -> None:
        """Let time pass."""
        self.passed_ms += duration_ms
        self._on_pause()


@pytest.fixture
def group() -> str:
    """Name of the member's group."""
    return unique_name("moved")


@pytest.fixture(params=["classic", "consumer"])
def member(
    request: pytest.FixtureRequest, group: str, kafka_properties: dict[str, str], topics: Topics
) -> Iterator[Consumer]:
    """A member of a group, as a task of the Java sink is one, in either group protocol."""
    consumer = Consumer(
        {
            **kafka_properties,
            "group.id": group,
            "group.protocol": request.param,
            "client.id": "java-task",
        }
    )
    consumer.subscribe([topics.create("moved")])
    while not consumer.assignment():  # the test's timeout bounds it
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def wait(admin: KafkaAdmin, clock: SteppedClock, *groups: str) -> None:
    wait_until_left(admin, groups, clock, clock)


def test_a_group_without_members_is_not_waited_for(admin: KafkaAdmin) -> None:
    """A group that was never used has no members, and the wait ends at once."""
    clock = SteppedClock()
    wait(admin, clock, "never-used", "never-used-coord")
    assert clock.passed_ms == 0


def test_a_member_that_stays_is_named(admin: KafkaAdmin, member: Consumer, group: str) -> None:
    """Nothing starts while another sink is in the group, and the error names its members."""
    clock, waits = SteppedClock(), set[str]()
    with pytest.raises(RetriableError, match=f"group {group} has 1 members, first java-task at"):
        wait_until_left(admin, [group], clock, clock, waits.add)
    (reason,) = waits
    assert reason.startswith(f"1 members of consumer group {group} to leave, the first is java-")
    assert clock.passed_ms == LEAVE_TIMEOUT_MS
    assert member.assignment()


def test_the_wait_ends_with_the_last_member(
    admin: KafkaAdmin, member: Consumer, group: str
) -> None:
    """The wait ends with the last member."""
    member.unsubscribe()
    clock = SteppedClock(lambda: member.poll(0.1))  # the client leaves when it is next asked
    wait(admin, clock, "never-used", group)


def test_offset_commits_of_a_former_member_are_refused(
    kafka_properties: dict[str, str], member: Consumer, group: str
) -> None:
    """Its offsets need its membership, so the wait is a fence."""
    place = member.assignment()[0]
    at_first, later = (TopicPartition(place.topic, place.partition, n) for n in (1, 2))
    membership = member.consumer_group_metadata()
    producer = Producer({**kafka_properties, "transactional.id": group, "log_level": 0})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([at_first], membership, 120)
    producer.commit_transaction(120)
    member.close()
    producer.begin_transaction()
    with pytest.raises(KafkaException):
        producer.send_offsets_to_transaction([later], membership, 120)


def test_a_stop_ends_the_wait(admin: KafkaAdmin, member: Consumer, group: str) -> None:
    """A stop request ends the wait, although the group has members."""
    clock = SteppedClock()
    clock.passed_ms = -POLL_MS
    wait(admin, clock, group)
    assert clock.passed_ms == -POLL_MS
    assert member.assignment()
