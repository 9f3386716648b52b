"""Kills and frozen workers of aggregates: each update is seen once, and results stay right."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.armed_points import arm
from tests.support.running_stack import RunningStack, armed_stack
from tests.support.stack import unique_name
from tests.support.window_results import (
    check_each_update_once,
    computed,
    event,
    updates,
)

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.timeout(900),
]
POINTS = ("W2", "W4", "A1", "A2", "W5", "W6", "W7", "W8", "W9", "W10", "A3", "W13")
KILLS = 4
FROZEN_S = 6.0


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder; files in it arm failpoints of the node's processes."""
    return tmp_path_factory.mktemp("armed")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, armed: Path) -> Iterator[RunningStack]:
    """A stack of this module alone: its processes are killed."""
    with armed_stack(tmp_path_factory.mktemp("stack"), armed) as made:
        yield made


class Signals:
    """A connector of aggregates in a stack, and what was sent to it.

    Args:
        running: the stack.
        state: folder of the state.
    """

    def __init__(self, running: RunningStack, state: Path) -> None:
        self._running = running
        self._dice = random.Random(7)
        self.name, self.results = unique_name("signals"), unique_name("results")
        self.topic = running.topic("signals", 2)
        self.sent: list[dict[str, Any]] = []
        own = {
            "location": str(state),
            "columns": "ts TIMESTAMP, device STRING, amount BIGINT, user STRING",
            "time-field": "ts",
            "window": "10 seconds",
            "watermark": "1 hour",
            "group-by": "device",
            "functions": (
                "n=count(*),total=sum(amount),least=min(amount),most=max(amount),"
                "mean=avg(amount),users=approx_distinct(user)"
            ),
            "topic": self.results,
            "interval-ms": "200",
        }
        running.create(
            self.name,
            {
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                "topics": self.topic,
                "icefloe.format": "aggregate",
                **{f"icefloe.aggregate.{key}": value for key, value in own.items()},
            },
        )

    def produce(self, count: int = 50) -> None:
        """Send random events to both partitions."""
        for partition in (0, 1):
            more = [
                event(
                    self._dice.randrange(60),
                    f"cam-{self._dice.randrange(3)}",
                    self._dice.randrange(100),
                    f"u{self._dice.randrange(5)}",
                )
                for _ in range(count)
            ]
            self._running.produce(self.topic, *more, partition=partition)
            self.sent += more

    def check(self) -> None:
        """Wait until the results are those of all events; check that each update is there once."""
        wanted = computed(self.sent, 10)

        def are_complete() -> bool:
            if self.results not in self._running.stack_topics():
                return False
            found = updates(self._running.records(self.results))
            return {key: values[-1] for key, values in found.items()} == wanted

        self._running.wait_until(
            are_complete, lambda: f"results: {self._running.status(self.name)}"
        )
        check_each_update_once(updates(self._running.records(self.results)))


@pytest.fixture(scope="module")
def signals(running: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Signals:
    """A connector with some results."""
    made = Signals(running, tmp_path_factory.mktemp("state"))
    made.produce()
    made.check()
    return made


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_each_step(
    running: RunningStack, signals: Signals, armed: Path, point: str
) -> None:
    """The worker dies once at the step, and its successor continues."""
    arm(armed, point, "crash")
    if point == "W13":
        assert running.api.post(f"/connectors/{signals.name}/tasks/0/restart").is_success
    deadline_s = time.monotonic() + 120
    while (armed / point).exists():
        assert time.monotonic() < deadline_s, f"no process reached {point}"
        signals.produce(10)
        time.sleep(0.5)
    signals.produce()
    signals.check()


def test_kills_at_any_time(running: RunningStack, signals: Signals) -> None:
    """SIGKILL, while records arrive, at times that no failpoint chose."""
    dice = random.Random(3)
    for _ in range(KILLS):
        signals.produce()
        time.sleep(dice.uniform(0, 3))
        with suppress(psutil.NoSuchProcess):
            running.child("worker").send_signal(signal.SIGKILL)
        signals.produce()
        signals.check()


def test_a_frozen_worker_continues(running: RunningStack, signals: Signals, armed: Path) -> None:
    """With its JVM, between the saved state and the transaction; records arrive meanwhile."""
    arm(armed, "A2", "delay:2000")
    signals.produce()
    running.wait_until(lambda: not (armed / "A2").exists(), lambda: "the failpoint A2")
    worker = running.child("worker")
    every = [worker, *worker.children(recursive=True)]
    for process in every:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    signals.produce()
    time.sleep(FROZEN_S)
    for process in reversed(every):
        with suppress(psutil.NoSuchProcess):
            process.resume()
    signals.check()
