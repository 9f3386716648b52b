"""When the producer of a task is open, and in which order it is opened again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from connect.errors import InvariantViolation, RetriableError
from connect.model.layout import TopicPartition
from worker.task.rounds.task_producer import TaskProducer, idle_ms_of

IDLE_MS = 10_000
ANNOUNCED = {TopicPartition("t", 0): 7}


class SteppedClock:
    """A clock that the test moves."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        """Return the time."""
        return self.now_ms


class LoggedProducer:
    """Logs what a producer of Kafka is asked for."""

    transactional_id = "node-c-0"
    request_bytes_max = 100

    def __init__(self, calls: list[Any]) -> None:
        self._calls = calls
        calls.append("fence")

    def transact(self, messages: list[Any], **_: Any) -> None:
        """Log a transaction."""
        self._calls.append(list(messages))

    def close(self) -> None:
        """Log the end."""
        self._calls.append("close")


class Opened:
    """A task's producer with a logged client."""

    def __init__(self, idle_ms: int | None = IDLE_MS, error: Exception | None = None) -> None:
        self.calls: list[Any] = []
        self.clock = SteppedClock()
        self._error = error
        self.producer = TaskProducer(
            lambda: cast("Any", LoggedProducer(self.calls)),
            self._confirm,
            cast("Any", self.clock),
            idle_ms,
        )
        self.producer.open()

    def _confirm(self, announced: Any) -> None:
        self.calls.append(announced)
        if self._error is not None:
            raise self._error

    def idle_for(self, duration_ms: int) -> None:
        """Let time pass, and check the producer as the loop of a task does."""
        self.clock.now_ms += duration_ms
        self.producer.close_if_idle()

    def send(self) -> None:
        """Send a transaction as an announcement does."""
        self.producer.resume(ANNOUNCED)
        self.producer.transact([1], group_id="g", offsets={})


def test_a_producer_is_closed_when_it_is_not_used() -> None:
    """After the last transaction, not after the start; once."""
    opened = Opened()
    opened.idle_for(IDLE_MS - 1)
    opened.send()
    opened.idle_for(IDLE_MS - 1)
    assert opened.calls == ["fence", [1]]
    opened.idle_for(1)
    opened.idle_for(1)
    assert opened.calls == ["fence", [1], "close"]


def test_it_is_opened_again_with_the_fence_before_the_checks() -> None:
    """The place of the task is confirmed before it sends anything; once for each opening."""
    opened = Opened()
    opened.idle_for(IDLE_MS)
    del opened.calls[:]
    opened.send()
    opened.send()
    assert opened.calls == ["fence", ANNOUNCED, [1], [1]]


def test_a_task_that_lost_its_place_sends_nothing() -> None:
    """The error ends the run of the task, which closes the producer."""
    opened = Opened(error=RetriableError("moved", code="offsets_moved"))
    opened.idle_for(IDLE_MS)
    del opened.calls[:]
    with pytest.raises(RetriableError):
        opened.send()
    assert opened.calls == ["fence", ANNOUNCED, "close"]


def test_nothing_is_sent_without_opening() -> None:
    """A transaction without ``resume`` is a bug."""
    opened = Opened()
    opened.idle_for(IDLE_MS)
    with pytest.raises(InvariantViolation):
        opened.producer.transact([1], group_id="g", offsets={})


def test_rounds_that_are_close_keep_it_open() -> None:
    """From a minute on it is closed; with None it never is."""
    assert idle_ms_of(60_000, IDLE_MS) == IDLE_MS
    assert idle_ms_of(59_999, IDLE_MS) is None
    opened = Opened(idle_ms=None)
    opened.idle_for(10 * IDLE_MS)
    assert opened.calls == ["fence"]
