"""One reader of a control topic for all tasks: each gets what a reader of its own would give it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from connect.errors import ConfigError, InvariantViolation, RetriableError
from connect.model.layout import TopicPartition
from connect.protocol.control_feed import ControlFeeds, ControlSubscription, WaitingLimits
from tests.support.control_log import ControlLog, start_commit, wait_until

OTHER = TopicPartition("control", 1)


@pytest.fixture
def log() -> Iterator[ControlLog]:
    """A log; its readers end with the test."""
    yield (made := ControlLog())
    made.fail(RetriableError("the test ends"))


def subscribe(feeds: ControlFeeds, log: ControlLog, group: str) -> ControlSubscription:
    return feeds.subscribe({"a": "b"}, "control", group, ends=log.ends)


def feed_threads() -> list[threading.Thread]:
    """The threads of feeds that have not ended."""
    return [thread for thread in threading.enumerate() if thread.name == "control-control"]


def test_many_tasks_have_one_reader_and_get_their_own_events(log: ControlLog) -> None:
    """In order, without events of other groups and announcements."""
    feeds = ControlFeeds(log.open_reader)
    tasks = {group: subscribe(feeds, log, group) for group in ("connect-a", "connect-b")}
    for number in range(3):
        for group in tasks:
            log.append(start_commit(group, number))
        log.append(start_commit("connect-c", number))
        log.append(start_commit("connect-a", number), header="icefloe.layout")
    for place, task in enumerate(tasks.values()):
        found: list[int] = []
        while len(found) < 3:
            found += [record.offset for record in task.poll(1000)]
        assert found == [place, place + 4, place + 8]
        assert task.poll(0) == []
    assert len(log.readers) == 1


def test_a_task_gets_no_event_from_before_its_start(log: ControlLog) -> None:
    """And every one that follows, also if the feed reads it before the task knows its start."""
    feeds = ControlFeeds(log.open_reader)
    first = subscribe(feeds, log, "connect-a")
    log.append(start_commit("connect-a", 0))
    wait_until(lambda: first.poll(100))

    def ends() -> dict[TopicPartition, int]:
        log.append(start_commit("connect-a", 1))  # before the ends
        found = log.ends()
        log.append(start_commit("connect-a", 2))  # after them
        wait_until(lambda: len(seen) == 2 or seen.extend(r.offset for r in first.poll(100)))
        return found

    seen: list[int] = []
    second = feeds.subscribe({"a": "b"}, "control", "connect-a", ends=ends)
    assert [record.offset for record in second.poll(1000)] == [2]
    assert len(log.readers) == 1


def test_a_later_task_reads_new_partitions_of_the_control_topic(log: ControlLog) -> None:
    """Earlier tasks do not, and the feed continues where it is."""
    feeds = ControlFeeds(log.open_reader)
    first = subscribe(feeds, log, "connect-a")
    log.append(start_commit("connect-a"))
    assert len(wait_until(lambda: first.poll(100))) == 1
    log.records[OTHER] = []
    second = subscribe(feeds, log, "connect-b")
    log.append(start_commit("connect-a"), OTHER)
    log.append(start_commit("connect-b"), OTHER)
    log.append(start_commit("connect-a"))
    assert [record.partition for record in wait_until(lambda: second.poll(100))] == [1]
    assert [(r.partition, r.offset) for r in wait_until(lambda: first.poll(100))] == [(0, 1)]


@pytest.mark.parametrize(
    "error", [ConfigError("no ACL", topic="control"), RetriableError("gone", code="unavailable")]
)
def test_an_error_of_the_reader_is_that_of_every_task(log: ControlLog, error: Exception) -> None:
    """Each has an exception of its own; a task that starts again gets a new reader."""
    feeds = ControlFeeds(log.open_reader)
    tasks = [subscribe(feeds, log, "connect-a") for _ in range(2)]
    log.fail(error)
    raised = []
    for task in tasks:
        with pytest.raises(type(error)) as caught:
            wait_until(lambda t=task: t.poll(100))
        raised.append(caught.value)
        task.close()
    assert raised[0] is not raised[1]
    assert {str(one) for one in raised} == {str(error)}
    wait_until(lambda: log.readers[0].is_closed)
    log.error = None
    again = subscribe(feeds, log, "connect-a")
    log.append(start_commit("connect-a"))
    assert len(wait_until(lambda: again.poll(100))) == 1
    assert len(log.readers) == 2


def test_the_reader_is_closed_when_the_last_task_has_left(log: ControlLog) -> None:
    """Also if the task could not start, because the broker did not give the ends."""
    feeds = ControlFeeds(log.open_reader)
    tasks = [subscribe(feeds, log, "connect-a") for _ in range(2)]
    tasks[0].close()
    log.append(start_commit("connect-a"))
    assert wait_until(lambda: tasks[1].poll(100))
    tasks[1].close()
    wait_until(lambda: log.readers[0].is_closed)

    def no_ends() -> dict[TopicPartition, int]:
        raise RetriableError("no ends")

    with pytest.raises(RetriableError, match="no ends"):
        feeds.subscribe({"a": "b"}, "control", "connect-a", ends=no_ends)
    wait_until(lambda: all(reader.is_closed for reader in log.readers))
    wait_until(lambda: not feed_threads())


def test_tasks_with_other_clients_have_another_reader(log: ControlLog) -> None:
    """The properties of a connector may name another cluster or login."""
    feeds = ControlFeeds(log.open_reader)
    subscribe(feeds, log, "connect-a")
    feeds.subscribe({"a": "c"}, "control", "connect-a", ends=log.ends)
    wait_until(lambda: len(log.readers) == 2)


def test_events_that_wait_are_bounded(log: ControlLog) -> None:
    """The task starts again from its committed offsets."""
    task = subscribe(
        ControlFeeds(log.open_reader, limits=WaitingLimits(events=2)), log, "connect-a"
    )
    with log.changed:  # the reader polls all of them at once
        for _ in range(3):
            log.append(start_commit("connect-a"))
    with pytest.raises(RetriableError, match="more arrive"):
        wait_until(lambda: task.poll(100))


def test_a_reader_that_ends_by_a_bug_ends_its_tasks(log: ControlLog) -> None:
    """A task that waited for events without a reader would hang."""
    feeds = ControlFeeds(log.open_reader)
    task = subscribe(feeds, log, "connect-a")
    threading.excepthook, before = (lambda _: None), threading.excepthook
    try:
        log.fail(ZeroDivisionError())
        with pytest.raises(InvariantViolation):
            wait_until(lambda: task.poll(100))
        wait_until(lambda: not feed_threads())  # the thread calls the hook when it ends
    finally:
        threading.excepthook = before
