"""Many connectors on one node: what each of them holds is bounded, and given back."""

from __future__ import annotations

import resource
from collections import Counter
from pathlib import Path

import psutil
import pytest

from connect.processes.open_files import OPEN_FILES
from tests.support.running_stack import RunningStack
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

FIRST = 2  # they open what all connectors share
MORE = 8
THREADS_MAX = 13
HANDLES_MAX = 21


def held(running: RunningStack) -> tuple[Counter[str], int]:
    """Threads by name, and the number of open file handles, of node, worker and coordinator.

    Without those of Spark's JVM: they are pools that all connectors share.
    """
    threads: Counter[str] = Counter()
    handles = 0
    for process, _ in running.processes():
        try:
            if process.name() == "java":
                continue
            handles += process.num_fds()
            tasks = [*Path(f"/proc/{process.pid}/task").iterdir()]
        except (psutil.Error, OSError):
            continue  # it has just ended
        for task in tasks:
            try:
                threads[f"{process.name()} {(task / 'comm').read_text().strip()}"] += 1
            except (psutil.Error, OSError):
                continue
    return threads, handles


def test_a_connector_holds_few_threads_and_file_handles(running: RunningStack) -> None:
    """Two producers and their threads; deleted connectors hold none."""
    names = [unique_name("many") for _ in range(FIRST + MORE)]
    topic, control = running.topic("many"), unique_name("control")

    def start(some: list[str]) -> None:
        for name in some:
            table = f"many.{name.replace('-', '_')}"
            running.table(table)
            more = {"iceberg.control.topic": control, "tasks.max": "10"}
            running.create(name, {**running.connector(topics=topic, iceberg__tables=table), **more})
        for name in some:
            running.wait_until(
                lambda n=name: _states(running, n) == ["RUNNING"] * 11, lambda n=name: n
            )
        for name in some:
            assert len(running.rows(f"many.{name.replace('-', '_')}", 1, name)) == 1

    running.produce(topic, {"id": 1, "name": "a"})
    start(names[:FIRST])
    before, handles_before = _settled(running)
    start(names[FIRST:])
    after, handles_after = _settled(running)
    threads = (after.total() - before.total()) / MORE
    handles = (handles_after - handles_before) / MORE
    running.delete(*names)
    print(f"each connector: {threads} threads, {handles} handles")  # pytest -s
    assert threads <= THREADS_MAX, (after - before).most_common(20)
    assert handles <= HANDLES_MAX
    limit = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    for process, _ in running.processes()[:3]:
        assert process.rlimit(psutil.RLIMIT_NOFILE)[0] >= limit
    running.wait_until(
        lambda: held(running)[0].total() <= before.total(), lambda: str(held(running)[0])
    )


def _states(running: RunningStack, name: str) -> list[str]:
    status = running.status(name)
    return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]


def _settled(running: RunningStack) -> tuple[Counter[str], int]:
    """What is held once it no longer shrinks: clients that were used for a moment are closed."""
    seen: list[tuple[Counter[str], int]] = []

    def is_settled() -> bool:
        seen.append(held(running))
        last = [threads.total() for threads, _ in seen[-10:]]
        return len(last) == 10 and min(last) >= max(last) - 1

    running.wait_until(is_settled, lambda: str(seen[-1]))
    return seen[-1]
