"""What a task's listener decodes, and what ends its wait."""

from __future__ import annotations

import threading

from connect.clock import SystemClock
from connect.errors import RetriableError
from connect.protocol.control_feed import ControlFeeds
from tests.support.control_log import ControlLog, start_commit, wait_until
from worker.task.rounds.control_listener import ControlListener
from worker.task.rounds.task_rounds import TaskRounds
from worker.task.task_context import TaskStop


def test_a_stop_ends_the_wait_for_events() -> None:
    """A task waits until its source is due, which may be for long."""
    log, stop = ControlLog(), TaskStop()
    events = ControlFeeds(log.open_reader).subscribe({"a": "b"}, "control", "g", ends=log.ends)
    waiting = threading.Thread(target=events.poll, args=(600_000,))
    with stop.waking(events.wake):
        waiting.start()
        stop.request()
        waiting.join(150)
    assert not waiting.is_alive()
    log.fail(RetriableError("the test ends"))


def test_events_of_other_connectors_are_not_decoded() -> None:
    """With 20 connectors of 5 rounds each, every task decodes its own 5 events."""
    log = ControlLog()
    feeds, groups = ControlFeeds(log.open_reader), [f"connect-c{n:02}" for n in range(20)]
    listeners = [
        ControlListener(
            feeds.subscribe({"a": "b"}, "control", group, ends=log.ends),
            TaskRounds(rounds_max=10, silence_ms_max=60_000),
            SystemClock(),
            group_id=group,
            task=0,
        )
        for group in groups
    ]
    for number in range(5):
        for group in groups:
            log.append(start_commit(group, number))

    def is_read() -> bool:
        for each in listeners:
            each.poll(10)
        return sum(each.decoded for each in listeners) >= 100

    wait_until(is_read)
    assert [each.decoded for each in listeners] == [5] * 20
    assert all(each.rounds.requested is not None for each in listeners)
    log.fail(RetriableError("the test ends"))
