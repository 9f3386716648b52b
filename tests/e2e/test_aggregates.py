"""Event-time aggregates of a running stack: results, late data, restarts, crashes, reports."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.armed_points import arm
from tests.support.command_line import icefloe
from tests.support.running_stack import RunningStack
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
FUNCTIONS = (
    "n=count(*),total=sum(amount),least=min(amount),most=max(amount),mean=avg(amount),"
    "users=approx_distinct(user)"
)


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


def ordered(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events in the order of their times: none is late, in any batches."""
    return sorted(records, key=lambda each: str(each["ts"]))


def offsets_of(running: RunningStack, name: str) -> dict[int, int]:
    """Return the committed source offsets by partition, as the API shows them."""
    listed = running.api.get(f"/connectors/{name}/offsets").json()["offsets"]
    return {each["partition"]["kafka_partition"]: each["offset"]["kafka_offset"] for each in listed}


def wait_until_read(running: RunningStack, name: str, count: int) -> None:
    """Wait until a connector of one partition has committed so many records."""
    running.wait_until(
        lambda: offsets_of(running, name) == {0: count},
        lambda: f"{count} records: {running.status(name)}",
    )


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
    assert offsets_of(running, name) == {0: 80, 1: 80, 2: 80}
    status = running.status(name)
    assert (status["connector"]["state"], len(status["tasks"])) == ("RUNNING", 1)
    running.delete(name)


def test_a_query_before_aggregates_is_exactly_once(
    running: RunningStack, state: Path, armed_folder: Path
) -> None:
    """Computed columns, a filter, dead letters of failed casts, and a worker that is killed.

    Crashes at all other steps: ``tests/faults/test_aggregate_kills.py``.
    """
    name, results = unique_name("agg-sql"), unique_name("results")
    topic, letters = running.topic("agg-sql", 2), running.topic("letters")
    config = connector(state, topic, results) | {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": letters,
        "errors.deadletterqueue.max-ratio": "1",
        "transforms": "q",
        "transforms.q.type": "icefloe.transforms.Sql",
        "transforms.q.columns": "at STRING, camera STRING, cents STRING, user STRING",
        "transforms.q.query": (
            "SELECT CAST(r.at AS TIMESTAMP) AS ts, lower(r.camera) AS device, r.user, "
            "CAST(r.cents AS BIGINT) * 2 AS amount FROM records r WHERE r.camera LIKE 'CAM-%'"
        ),
    }
    running.create(name, config)
    rows: list[dict[str, Any]] = []
    for turn in range(6):
        if turn == 1:
            results_of(running, results, computed(rows, 10), name)
            arm(armed_folder, "A2", "crash")
        more = [each for each in events(turn, 40) if each["device"] in {"cam-1", "cam-2"}]
        rows += [{**each, "amount": 2 * each["amount"]} for each in more]
        records = [
            {
                "at": each["ts"],
                "camera": each["device"].upper(),
                "cents": str(each["amount"]),
                "user": each["user"],
            }
            for each in more
        ]
        bad = [{**records[0], "cents": "many"}, {**records[0], "at": "noon"}]
        dropped = [{**each, "camera": "DOOR"} for each in records]
        running.produce(topic, *records, *bad, *dropped, partition=turn % 2)
    running.wait_until(lambda: not (armed_folder / "A2").exists(), lambda: "crash at A2")
    found = results_of(running, results, computed(rows, 10), name)
    check_each_update_once(found)
    assert len(running.records(letters)) == 6 * 2
    running.delete(name)


def test_late_and_bad_records_are_counted_and_left_out(running: RunningStack, state: Path) -> None:
    """In sliding windows: behind the watermark, without an event time, not JSON, a wrong type."""
    name, topic, results = unique_name("agg-late"), running.topic("late"), unique_name("results")
    letters = running.topic("letters")
    config = connector(state, topic, results, slide="5 seconds", watermark="5 seconds") | {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": letters,
        "errors.deadletterqueue.max-ratio": "1",
    }
    running.create(name, config)
    first = ordered(events(1, 50))
    running.produce(topic, *first)
    results_of(running, results, computed(first, 10, 5), name)
    newer: list[dict[str, Any]] = []
    for second in (100, 101):  # the watermark of the first batch is used in the second one after it
        newer.append(event(second, "cam-1", 3))
        running.produce(topic, newer[-1])
        results_of(running, results, computed(first + newer, 10, 5), name)
    bad = [b"no json", {"device": "cam-1"}, event(101, "cam-1", 1) | {"amount": "much"}]
    late = [event(10, "cam-2", 1_000), event(20, "cam-1", 1_000)]
    newer.append(event(97, "cam-2", 7))
    running.produce(topic, *late, *bad, newer[-1])
    found = results_of(running, results, computed(first + newer, 10, 5), name)
    check_each_update_once(found)
    assert len(running.records(letters)) == len(bad)
    counted = ("aggregate_late_rows", "records_dead_lettered")
    expected = [2 * len(late), len(bad)]  # each late record is in two windows
    running.wait_until(
        lambda: [running.counts(name)[each] for each in counted] == expected,
        lambda: f"late rows: {running.counts(name)}",
    )
    running.delete(name)


def test_final_results_are_sent_once_and_reported(running: RunningStack, state: Path) -> None:
    """A closed window is sent with the next batch; a report reads the topic with SQL."""
    name, topic, results = unique_name("agg-final"), running.topic("final"), unique_name("results")
    running.create(name, connector(state, topic, results, emit="final", watermark="5 seconds"))
    first = ordered(events(1, 50))
    running.produce(topic, *first)
    for number, second in enumerate((100, 101, 102), len(first) + 1):
        running.produce(topic, event(second, "cam-1", 1))
        wait_until_read(running, name, number)
    found = results_of(running, results, computed(first, 10), name)
    assert {len(values) for values in found.values()} == {1}
    running.delete(name)
    query = state.parent / "report.sql"
    query.write_text("SELECT device, sum(n) AS n FROM r GROUP BY device ORDER BY device")
    options = [
        *("-f", str(query), "--bootstrap-server", running.stack.bootstrap_servers),
        *("-t", f"r={results}", "-o", "json", "--option", "value.converter.schemas.enable=false"),
        *("--option", "key.converter.schemas.enable=false"),
    ]
    done = icefloe("report", *options)
    assert done.status == 0, done.stderr
    by_device = Counter(each["device"] for each in first)
    assert {each["device"]: each["n"] for each in json.loads(done.stdout)} == by_device


def test_a_state_belongs_to_its_offsets(running: RunningStack, state: Path) -> None:
    """Offsets without state stop the task; a reset computes all windows again."""
    name, topic, results = unique_name("agg-moved"), running.topic("moved"), unique_name("results")
    running.create(name, connector(state, topic, results))
    sent = events(1, 30)
    running.produce(topic, *sent)
    results_of(running, results, computed(sent, 10), name)
    running.stop(name)
    running.set_offset(name, (topic, 0), 7)
    running.request_state(name, "resume")
    assert "aggregate_state_missing" in running.trace(name)
    running.stop(name)
    running.wait_until(
        lambda: running.api.delete(f"/connectors/{name}/offsets").is_success,
        lambda: "a reset of the offsets",
    )
    running.request_state(name, "resume")
    sent += events(2, 30)
    running.produce(topic, *sent[30:])
    results_of(running, results, computed(sent, 10), name)
    running.delete(name)
