"""Many connectors on one node: what each of them holds is bounded, and given back.

Each reads the same topic into its own table.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from connect.node.node_start import OPEN_FILES
from tests.support.running_stack import RunningStack, numbered, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

FIRST = 2  # they open what all connectors share; more if these have one coordinator process
COORDINATOR_PROCESSES = 2  # of ``running``
MORE = 8
ROWS = 20
QUIET_S = 30  # longer than an unused producer stays open, and than the pause of an idle task
# commit interval -> threads and file handles of a connector; idle tasks have no producer
BOUNDS = {"1000": (13, 23), "300000": (9, 13)}


def held(running: RunningStack) -> tuple[Counter[str], int]:
    """Threads by name, and the number of open file handles, of node, worker and coordinator.

    Without those of Spark's JVM: they are pools that all connectors share.
    """
    threads: Counter[str] = Counter()
    handles = 0
    for process, _ in running.processes():
        try:
            name = process.name()
            if name == "java":
                continue
            handles += process.num_fds()
            tasks = [*Path(f"/proc/{process.pid}/task").iterdir()]
        except (psutil.Error, OSError):
            continue  # it has just ended
        for task in tasks:
            try:
                threads[f"{name} {(task / 'comm').read_text().strip()}"] += 1
            except OSError:
                continue
    return threads, handles


@pytest.mark.parametrize("interval_ms", ["1000", pytest.param("300000", marks=pytest.mark.matrix)])
def test_a_connector_holds_few_threads_and_file_handles(
    running: RunningStack, interval_ms: str
) -> None:
    """Two producers and their threads, or one if it is idle; deleted connectors hold none.

    A deletion does not affect the others.
    """
    threads_max, handles_max = BOUNDS[interval_ms]
    is_idle = interval_ms != "1000"
    names: list[str] = []
    topic, control = running.topic("many"), unique_name("control")
    sent = numbered(0, ROWS)

    def start(count: int) -> None:
        some = [unique_name("many") for _ in range(count)]
        names.extend(some)
        for name in some:
            table = _table(name)
            running.table(table)
            more = {"iceberg.control.topic": control, "tasks.max": "10"}
            more["iceberg.control.commit.interval-ms"] = interval_ms
            running.create(name, {**running.connector(topics=topic, iceberg__tables=table), **more})
        for name in some:
            running.wait_until(
                lambda n=name: _states(running, n) == ["RUNNING"] * 11, lambda n=name: n
            )
        for name in () if is_idle else some:
            assert pick(running.rows(_table(name), ROWS, name), "id") == pick(sent, "id")

    running.produce(topic, *sent)
    start(FIRST)
    while _coordinator_processes(running, names) < COORDINATOR_PROCESSES:
        start(1)
    before, handles_before = _settled(running, QUIET_S * is_idle)
    start(MORE)
    after, handles_after = _settled(running, QUIET_S * is_idle)
    threads = (after.total() - before.total()) / MORE
    handles = (handles_after - handles_before) / MORE
    dropped = "" if is_idle else _delete_one(running, topic, names)
    running.delete(*(name for name in names if name != dropped))
    print(f"each connector: {threads} threads, {handles} handles")  # pytest -s
    assert threads <= threads_max, (after - before).most_common(20)
    assert handles <= handles_max
    limit = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    for process, _ in running.processes()[:4]:  # node, worker and coordinators
        assert process.rlimit(psutil.RLIMIT_NOFILE)[0] >= limit
    running.wait_until(
        lambda: held(running)[0].total() <= before.total(), lambda: str(held(running)[0])
    )


def _coordinator_processes(running: RunningStack, names: list[str]) -> int:
    """Return how many coordinator processes have a coordinator of these connectors."""
    connectors = running.api.get("/icefloe/v1/overview").json()["connectors"]
    return len({each["coordinator_process"] for each in connectors if each["name"] in names})


def _table(name: str) -> str:
    return f"many.{name.replace('-', '_')}"


def _delete_one(running: RunningStack, topic: str, names: list[str]) -> str:
    """Delete the first connector, and return its name; the others get more records."""
    dropped, *others = names
    running.stop(dropped)  # a deletion is answered when it is stored; until the end it may read on
    running.delete(dropped)
    running.produce(topic, *numbered(ROWS, ROWS))
    for name in others:
        rows = running.rows(_table(name), 2 * ROWS, name)
        assert pick(rows, "id") == [(n,) for n in range(2 * ROWS)]
    assert len(running.catalog.load_table(_table(dropped)).scan().to_arrow()) == ROWS
    assert set(others) <= set(running.api.get("/connectors").json())
    return dropped


def _states(running: RunningStack, name: str) -> list[str]:
    status = running.status(name)
    return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]


def _settled(running: RunningStack, quiet_s: int) -> tuple[Counter[str], int]:
    """What is held once no Kafka client is opened or closed: those that are not used are closed.

    Other threads come and go: each transaction has one for a moment. So the least is taken.

    Args:
        running: the stack.
        quiet_s: how long no client was opened or closed.
    """
    seen: list[tuple[float, Counter[str], int]] = []

    def is_settled() -> bool:
        seen.append((time.monotonic(), *held(running)))
        while _client_threads(seen[0][1]) != _client_threads(seen[-1][1]):
            seen.pop(0)
        return len(seen) >= 10 and seen[-1][0] - seen[0][0] >= quiet_s

    running.wait_until(is_settled, lambda: str(seen[-1]))
    threads = min((threads for _, threads, _ in seen), key=Counter.total)
    return threads, min(handles for _, _, handles in seen)


def _client_threads(threads: Counter[str]) -> int:
    return sum(count for name, count in threads.items() if "rdk:" in name)
