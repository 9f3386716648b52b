"""Layouts that change under load: tasks, partitions, topics; how long that interrupts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from connect.model.layout import TopicPartition
from tests.faults.arena import INTERVAL_MS, Arena
from tests.faults.chaos import CONTROL_TOPIC, GROUP, NAME, PARTITIONS, TOPIC, TOPIC_CONFIG
from tests.faults.readback import AnnouncedSeen, read_announced

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.timeout(600),
]

ANNOUNCED_AFTER = 8  # of one to four tasks
MORE_PARTITIONS = 2
DAYS = 3


def interrupted_ms(seen: Iterable[AnnouncedSeen]) -> int:
    """Longest time between two announcements of one partition under different layouts."""
    last: dict[TopicPartition, AnnouncedSeen] = {}
    longest_ms = 0
    for now in seen:
        for place in now.places:
            before = last.get(place, now)
            if before.layout != now.layout:
                longest_ms = max(longest_ms, now.at_ms - before.at_ms)
            last[place] = now
    return longest_ms


@contextmanager
def change(arena: Arena, name: str) -> Iterator[None]:
    """A change under load; notes for how long it kept a partition's records waiting."""
    run = arena.run
    servers = run.stack.bootstrap_servers
    with arena.fault(name):
        before = run.wait_until(run.ready_layout, "a layout").number
        yield

        def after() -> list[AnnouncedSeen]:
            every = read_announced(servers, CONTROL_TOPIC)
            seen = [s for s in every if s.layout >= before]
            return seen if sum(s.layout > before for s in seen) >= ANNOUNCED_AFTER else []

        longest_ms = interrupted_ms(run.wait_until(after, "announcements after the change"))
        assert longest_ms, "no partition was read before and after"
        arena.interrupted_s[name] = max(0, longest_ms - INTERVAL_MS) / 1000


def tasks(arena: Arena) -> list[str]:
    """States of the tasks."""
    return [task["state"] for task in arena.run.status()["tasks"]]


def test_tasks_max_changes(arena: Arena) -> None:
    """More tasks, one task, the old number again."""
    run = arena.run
    try:
        for count in (4, 1, 2):
            with change(arena, f"tasks.max {count}"):
                arena.config |= {"tasks.max": str(count), "icefloe.tasks.per.worker": str(count)}
                run.put(arena.config)
                run.wait_until(lambda count=count: tasks(arena) == ["RUNNING"] * count, "the tasks")
    finally:
        arena.config |= {"tasks.max": "2", "icefloe.tasks.per.worker": "2"}


def test_partitions_are_added(arena: Arena) -> None:
    """Records of the new partitions are read, from their first on."""
    run = arena.run
    admin = AdminClient({"bootstrap.servers": run.stack.bootstrap_servers, "log_level": 0})
    count = PARTITIONS + MORE_PARTITIONS
    with change(arena, "partitions added"):
        (done,) = admin.create_partitions([NewPartitions(TOPIC, count)]).values()
        done.result(60)
        run.wait_until(lambda: run.admin.topics().get(TOPIC) == count, "the partitions")
        new = [TopicPartition(TOPIC, p) for p in range(PARTITIONS, count)]
        arena.production.open(*new)
        run.wait_until(lambda: all(run.admin.committed(GROUP, new).values()), "reading of them")


def test_a_topic_per_day(arena: Arena) -> None:
    """Topics appear under the regex; read to their end they disappear."""
    run = arena.run
    for day in range(DAYS):
        topic = f"{TOPIC}-day-{day}"
        place = TopicPartition(topic, 0)
        with change(arena, f"topic {day} appears"):
            run.admin.ensure_topic(topic, 1, TOPIC_CONFIG)
            run.topics.append(topic)
            run.wait_until(lambda topic=topic: topic in run.admin.topics(), "the topic")
            arena.production.open(place)
            run.wait_until(lambda at=place: run.admin.committed(GROUP, [at])[at], "reading of it")
            arena.production.shut(topic)
            end = run.admin.watermarks([place])[place][1]
            run.wait_until(
                lambda at=place, end=end: run.admin.committed(GROUP, [at])[at] == end,
                "reading it to its end",
            )
        with change(arena, f"topic {day} goes"):
            run.retire(topic)
            run.wait_until(
                lambda topic=topic: topic not in read_topics(arena), "a layout without it"
            )


def test_interruptions_were_measured(arena: Arena, capsys: pytest.CaptureFixture[str]) -> None:
    """Every change has its figure."""
    assert arena.interrupted_s
    file = os.environ.get("FAULT_FIGURES")
    if file:
        Path(file).write_text(json.dumps(arena.interrupted_s, indent=1) + "\n")
    with capsys.disabled():
        print(f"\ninterruptions of {NAME}, seconds beyond the interval of {INTERVAL_MS} ms:")
        for name, seconds in arena.interrupted_s.items():
            print(f"  {name}: {seconds:.1f}")


def read_topics(arena: Arena) -> set[str]:
    """Topics of the layout that is ready."""
    layout = arena.run.ready_layout()
    return {tp.topic for tp in layout.partitions} if layout else set()
