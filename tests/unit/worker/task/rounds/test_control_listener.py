"""What a task's listener decodes, and what ends its wait."""

from __future__ import annotations

import threading
from uuid import UUID

import pytest

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
            refuse_other_sinks=lambda: None,
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


def test_a_round_of_another_sink_is_not_answered() -> None:
    """A StartCommit without headers is answered only while no other sink is a member."""
    log = ControlLog()
    feeds = ControlFeeds(log.open_reader)
    refusals: list[str] = []

    def refuse() -> None:
        refusals.append("asked")
        if len(refusals) > 1:
            raise RetriableError("another sink still runs", code="group_in_use")

    listener = ControlListener(
        feeds.subscribe({"a": "b"}, "control", "connect-c", ends=log.ends),
        TaskRounds(rounds_max=10, silence_ms_max=60_000),
        SystemClock(),
        group_id="connect-c",
        task=0,
        refuse_other_sinks=refuse,
    )

    def poll(count: int) -> None:
        wait_until(lambda: listener.poll(10) or listener.decoded >= count)

    log.append(start_commit("connect-c", 1), header="icefloe.coordinator")
    poll(1)
    assert (listener.rounds.requested, refusals) == (UUID(int=1), [])
    log.append(start_commit("connect-c", 2))
    poll(2)
    assert (listener.rounds.requested, refusals) == (UUID(int=2), ["asked"])
    log.append(start_commit("connect-c", 3))
    with pytest.raises(RetriableError, match="another sink"):
        poll(3)
    assert listener.rounds.requested == UUID(int=2)
    log.fail(RetriableError("the test ends"))
