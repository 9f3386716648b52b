"""Layout changes under load by tasks, partitions and topics, and the interruption they cause."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from connect.model.layout import TopicPartition
from tests.faults.payments_stack import CONTROL_TOPIC, GROUP, NAME, PARTITIONS, TOPIC, TOPIC_CONFIG
from tests.faults.readback import ObservedAnnouncement, read_announced
from tests.faults.shared_stack import INTERVAL_MS, SharedStack

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.timeout(600),
]

ANNOUNCED_AFTER = 8  # of one to four tasks
MORE_PARTITIONS = 2
DAYS = 3


def interrupted_ms(seen: Iterable[ObservedAnnouncement]) -> int:
    """Longest time between two announcements of one partition under different layouts."""
    last: dict[TopicPartition, ObservedAnnouncement] = {}
    longest_ms = 0
    for now in seen:
        for place in now.places:
            before = last.get(place, now)
            if before.layout != now.layout:
                longest_ms = max(longest_ms, now.at_ms - before.at_ms)
            last[place] = now
    return longest_ms


@contextmanager
def change(shared: SharedStack, name: str) -> Iterator[None]:
    """Run a change under load; record the longest interruption of a partition."""
    run = shared.run
    servers = run.stack.bootstrap_servers
    with shared.fault(name):
        before = run.wait_until(run.ready_layout, "a layout").number
        yield

        def after() -> list[ObservedAnnouncement]:
            every = read_announced(servers, CONTROL_TOPIC)
            seen = [s for s in every if s.layout >= before]
            return seen if sum(s.layout > before for s in seen) >= ANNOUNCED_AFTER else []

        longest_ms = interrupted_ms(run.wait_until(after, "announcements after the change"))
        assert longest_ms, "no partition was read before and after"
        shared.interrupted_s[name] = max(0, longest_ms - INTERVAL_MS) / 1000


def task_states(shared: SharedStack) -> list[str]:
    """Return the states of the tasks."""
    return [task["state"] for task in shared.run.status()["tasks"]]


def test_a_change_of_tasks_max_loses_no_record(shared: SharedStack) -> None:
    """More tasks, one task, the old number again."""
    run = shared.run
    try:
        for count in (4, 1, 2):
            with change(shared, f"tasks.max {count}"):
                shared.config |= {"tasks.max": str(count), "icefloe.tasks.per.worker": str(count)}
                run.put(shared.config)
                run.wait_until(
                    lambda count=count: task_states(shared) == ["RUNNING"] * count, "the tasks"
                )
    finally:
        shared.config |= {"tasks.max": "2", "icefloe.tasks.per.worker": "2"}


def test_added_partitions_are_read_from_their_first_record(shared: SharedStack) -> None:
    """The partitions are added while records are produced."""
    run = shared.run
    admin = AdminClient({"bootstrap.servers": run.stack.bootstrap_servers, "log_level": 0})
    count = PARTITIONS + MORE_PARTITIONS
    with change(shared, "partitions added"):
        (done,) = admin.create_partitions([NewPartitions(TOPIC, count)]).values()
        done.result(60)
        run.wait_until(lambda: run.admin.topics().get(TOPIC) == count, "the partitions")
        new = [TopicPartition(TOPIC, p) for p in range(PARTITIONS, count)]
        shared.producer.add_partitions(*new)
        run.wait_until(lambda: all(run.admin.committed(GROUP, new).values()), "reading of them")


def test_topics_that_match_the_regex_come_and_go(shared: SharedStack) -> None:
    """New topics are read; topics that are read to their end are deleted."""
    run = shared.run
    for day in range(DAYS):
        topic = f"{TOPIC}-day-{day}"
        place = TopicPartition(topic, 0)
        with change(shared, f"topic {day} appears"):
            run.admin.ensure_topic(topic, 1, TOPIC_CONFIG)
            run.topics.append(topic)
            run.wait_until(lambda topic=topic: topic in run.admin.topics(), "the topic")
            shared.producer.add_partitions(place)
            run.wait_until(lambda at=place: run.admin.committed(GROUP, [at])[at], "reading of it")
            shared.producer.close_topic(topic)
            end = run.admin.watermarks([place])[place][1]
            run.wait_until(
                lambda at=place, end=end: run.admin.committed(GROUP, [at])[at] == end,
                "reading it to its end",
            )
        with change(shared, f"topic {day} disappears"):
            run.retire(topic)
            run.wait_until(
                lambda topic=topic: topic not in layout_topics(shared), "a layout without it"
            )


def test_interruptions_were_measured(
    shared: SharedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every change has a measured interruption, which is printed."""
    assert shared.interrupted_s
    file = os.environ.get("FAULT_FIGURES")
    if file:
        Path(file).write_text(json.dumps(shared.interrupted_s, indent=1) + "\n")
    with capsys.disabled():
        print(f"\ninterruptions of {NAME}, seconds beyond the interval of {INTERVAL_MS} ms:")
        for name, seconds in shared.interrupted_s.items():
            print(f"  {name}: {seconds:.1f}")


def layout_topics(shared: SharedStack) -> set[str]:
    """Return the topics of the ready layout."""
    layout = shared.run.ready_layout()
    return {tp.topic for tp in layout.partitions} if layout else set()
