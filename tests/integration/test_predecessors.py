"""Waiting for another sink's tasks to leave a group, against a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer

from connect.clock import SystemClock
from connect.errors import RetriableError
from connect.gateways.kafka_admin import KafkaAdmin
from connect.predecessors import LEAVE_TIMEOUT_MS, LOOK_MS, wait_until_left
from tests.stack import Topics

pytestmark = pytest.mark.kafka


class SteppedClock(SystemClock):
    """Monotonic time that passes when somebody pauses."""

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
def admin(kafka_properties: dict[str, str]) -> Iterator[KafkaAdmin]:
    """An admin client of the session's broker."""
    client = KafkaAdmin(kafka_properties)
    yield client
    client.close()


@pytest.fixture
def member(kafka_properties: dict[str, str], topics: Topics) -> Iterator[Consumer]:
    """A member of group ``moved``, as a task of the Java sink is one."""
    consumer = Consumer({**kafka_properties, "group.id": "moved", "client.id": "java-task"})
    consumer.subscribe([topics.create("moved")])
    while not consumer.assignment():  # the test's timeout bounds it
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def wait(admin: KafkaAdmin, clock: SteppedClock, *groups: str) -> None:
    wait_until_left(admin, groups, clock, clock)


def test_groups_without_members_are_not_waited_for(admin: KafkaAdmin) -> None:
    """A group that nobody ever used has no members."""
    clock = SteppedClock()
    wait(admin, clock, "never-used", "never-used-coord")
    assert clock.passed_ms == 0


def test_a_member_that_stays_is_named(admin: KafkaAdmin, member: Consumer) -> None:
    """While another sink is in the group nothing starts, and the error says who it is."""
    clock = SteppedClock()
    with pytest.raises(RetriableError, match=r"group moved has 1 members, first java-task at"):
        wait(admin, clock, "moved")
    assert clock.passed_ms == LEAVE_TIMEOUT_MS
    assert member.assignment()


def test_a_group_is_free_once_its_members_left(admin: KafkaAdmin, member: Consumer) -> None:
    """The wait ends with the last member."""
    member.unsubscribe()
    clock = SteppedClock(lambda: member.poll(0.1))  # the client leaves when it is next asked
    wait(admin, clock, "never-used", "moved")


def test_a_stop_ends_the_wait(admin: KafkaAdmin, member: Consumer) -> None:
    """Whoever is asked to stop does not wait for others."""
    clock = SteppedClock()
    clock.passed_ms = -LOOK_MS
    wait(admin, clock, "moved")
    assert clock.passed_ms == -LOOK_MS
    assert member.assignment()
