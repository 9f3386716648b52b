"""Event-time aggregates of a running stack: results, late data, restarts, crashes, reports."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.running_stack import RunningStack, armed_stack
from tests.support.stack import unique_name
from tests.support.window_results import (
    Key,
    Value,
    check_each_update_once,
    computed,
    event,
    updates,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
CRASHES = ("W4", "A2", "W8", "W10")
FUNCTIONS = (
    "n=count(*),total=sum(amount),least=min(amount),most=max(amount),mean=avg(amount),"
    "users=approx_distinct(user)"
)


@pytest.fixture(scope="module")
def armed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder; files in it arm failpoints of the node's processes."""
    return tmp_path_factory.mktemp("armed")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, armed_folder: Path) -> Iterator[RunningStack]:
    """A stack of this module alone: its processes are killed."""
    with armed_stack(tmp_path_factory.mktemp("stack"), armed_folder) as made:
        yield made


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The folder of states."""
    return tmp_path / "state"


def connector(state: Path, topic: str, results: str, **config: str) -> dict[str, str]:
    """A connector of aggregates by device, in windows of ten seconds."""
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": topic,
        "icefloe.format": "aggregate",
        "icefloe.aggregate.location": str(state),
        "icefloe.aggregate.columns": ("ts TIMESTAMP, device STRING, amount BIGINT, user STRING"),
        "icefloe.aggregate.time-field": "ts",
        "icefloe.aggregate.window": "10 seconds",
        "icefloe.aggregate.watermark": "1 hour",
        "icefloe.aggregate.group-by": "device",
        "icefloe.aggregate.functions": FUNCTIONS,
        "icefloe.aggregate.topic": results,
        "icefloe.aggregate.interval-ms": "200",
        **{f"icefloe.aggregate.{k.replace('_', '-')}": v for k, v in config.items()},
    }


def events(seed: int, count: int, *, first_s: int = 0) -> list[dict[str, Any]]:
    """Return random events of half a minute."""
    dice = random.Random(seed)
    devices = ("cam-1", "cam-2", "é/ü", None)
    return [
        event(
            first_s + dice.randrange(30),
            dice.choice(devices),
            dice.randrange(-50, 50),
            f"user-{dice.randrange(7)}",
        )
        for _ in range(count)
    ]


def results_of(
    running: RunningStack, topic: str, wanted: Mapping[Key, Value], who: str
) -> dict[Key, list[Value]]:
    """Wait until the newest values of a topic are the wanted ones; return all updates."""

    def inspect() -> dict[Key, list[Value]] | None:
        if topic not in running.stack_topics():
            return None
        found = updates(running.records(topic))
        return found if {k: v[-1] for k, v in found.items()} == wanted else None

    def displayed() -> str:
        found = updates(running.records(topic)) if topic in running.stack_topics() else {}
        last = {key: values[-1] for key, values in found.items()}
        return f"results of {who}: {running.status(who)}, {last} in place of {wanted}"

    return running.wait_until(inspect, displayed)


def test_results_are_those_of_the_records(running: RunningStack, state: Path) -> None:
    """Over partitions and restarts, in a compacted topic, and readable by a report."""
    name, topic, results = unique_name("agg"), running.topic("agg", 3), unique_name("results")
    running.create(name, connector(state, topic, results))
    sent = []
    for turn in range(4):
        more = events(turn, 60)
        for partition in range(3):
            running.produce(topic, *more[partition::3], partition=partition)
        sent += more
        found = results_of(running, results, computed(sent, 10), name)
        if turn == 1:
            running.request_state(name, "pause")
            running.request_state(name, "resume")
        if turn == 2:
            running.stop(name)
            running.request_state(name, "resume")
    check_each_update_once(found)
    assert max(len(values) for values in found.values()) > 1
    offsets = running.api.get(f"/connectors/{name}/offsets").json()["offsets"]
    assert {
        each["partition"]["kafka_partition"]: each["offset"]["kafka_offset"] for each in offsets
    } == {0: 80, 1: 80, 2: 80}
    status = running.status(name)
    assert (status["connector"]["state"], len(status["tasks"])) == ("RUNNING", 1)
    running.delete(name)


@pytest.mark.parametrize("point", CRASHES)
def test_a_crash_loses_and_repeats_no_update(
    running: RunningStack, state: Path, armed_folder: Path, point: str
) -> None:
    """Consumers that read committed records see each update once, also of a killed worker."""
    name, results = unique_name(f"agg-{point}").lower(), unique_name("results")
    topic = running.topic("agg-crash", 2)
    running.create(name, connector(state, topic, results))
    sent = events(1, 40)
    running.produce(topic, *sent)
    results_of(running, results, computed(sent, 10), name)
    (armed_folder / f".{point}").write_text("crash")
    (armed_folder / f".{point}").rename(armed_folder / point)
    for turn in range(1, 5):
        more = events(10 + turn, 40)
        running.produce(topic, *more, partition=turn % 2)
        sent += more
    running.wait_until(lambda: not (armed_folder / point).exists(), lambda: f"crash at {point}")
    found = results_of(running, results, computed(sent, 10), name)
    check_each_update_once(found)
    more = events(99, 40)
    running.produce(topic, *more)
    check_each_update_once(results_of(running, results, computed(sent + more, 10), name))
    running.delete(name)
