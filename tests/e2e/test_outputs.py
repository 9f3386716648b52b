"""Outputs of a running stack: rows in topics and tables, dead letters, crashes of the worker."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.armed_points import arm
from tests.support.running_stack import RunningStack, numbered
from tests.support.stack import unique_name
from tests.support.webhook_server import WebhookServer

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
POINTS = ("W8", "W4", "W5", "W7", "W9", "W10", "W11")
KILLED = [pytest.param(point, marks=pytest.mark.faults) for point in POINTS]
SETTINGS = {
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.evolve-schema-enabled": "true",
}


def sent(running: RunningStack, topic: str, count: int, who: str) -> list[tuple[Any, Any]]:
    """Wait for that many committed messages of a topic; return their keys and values."""

    def inspect() -> list[Any] | None:
        if topic not in running.stack_topics():
            return None
        found = running.records(topic)
        return found if len(found) >= count else None

    found = running.wait_until(inspect, lambda: f"{count} rows in {topic}: {running.status(who)}")
    assert len(found) == count
    return [(record.key(), json.loads(record.value())) for record in found]


def test_a_stream_is_read_once_for_a_table_and_several_topics(running: RunningStack) -> None:
    """Each topic is created and gets the rows for which its condition holds; metrics count them."""
    name, topic = unique_name("outputs"), running.topic("outputs", partitions=2)
    large, names, table = unique_name("large"), unique_name("names"), unique_name("db.t")
    outputs = {
        "icefloe.outputs": "large,names",
        "icefloe.output.large.topic": large,
        "icefloe.output.large.where": "id >= `35`",
        "icefloe.output.large.key": "id",
        "icefloe.output.large.topic.partitions": "3",
        "icefloe.output.names.topic": names,
        "icefloe.output.names.where": "contains(name, '7')",
        "icefloe.output.names.columns": "name",
        "errors.tolerance": "all",
        "errors.deadletterqueue.max-ratio": "1",
        "errors.deadletterqueue.topic.name": running.topic("letters"),
    }
    config = running.connector(iceberg__tables=table, topics=topic, **SETTINGS) | outputs
    running.create(name, config)
    for partition in (0, 1):
        records = numbered(20 * partition, 20)
        running.produce(topic, *records, b"no json", partition=partition)
    assert len(running.rows(table, 40, name)) == 40
    expected = [(str(n).encode(), {"id": n, "name": f"n{n}"}) for n in range(35, 40)]
    assert sorted(sent(running, large, 5, name)) == expected
    assert sorted(row["name"] for _, row in sent(running, names, 4, name)) == [
        "n17",
        "n27",
        "n37",
        "n7",
    ]
    assert len({record.partition() for record in running.records(large)}) > 1
    running.wait_until(
        lambda: running.counts(name)["output_rows"] == 9, lambda: str(running.counts(name))
    )
    running.produce(topic, {"id": 50, "name": "x", "more": 1})
    assert sent(running, large, 6, name)[-1][1] in [
        {"id": 50, "name": "x", "more": 1},
        *(row for _, row in expected),
    ]
    running.delete(name)


def test_rows_to_a_webhook_that_fails_and_hangs(running: RunningStack, armed: Path) -> None:
    """No row is lost, other connectors continue, and a repeated row has the same id.

    The worker crashes in the transaction, after its posts. In the topic of another output each row
    is once, for a reader of committed records.
    """
    name, other, topic = unique_name("hook"), unique_name("other"), running.topic("hook", 2)
    table, alerts, copies = unique_name("db.t"), unique_name("other-out"), unique_name("copies")
    with contextlib.closing(WebhookServer()) as server:
        server.status = 503
        outputs = {
            "icefloe.outputs": "hook,copies",
            "icefloe.output.copies.topic": copies,
            "icefloe.output.copies.where": "id >= `10`",
            "icefloe.output.hook.webhook.url": server.url,
            "icefloe.output.hook.webhook.retry.ms": "500",
            "icefloe.output.hook.where": "id >= `5`",
        }
        config = running.connector(iceberg__tables=table, topics=topic, tasks__max="2", **SETTINGS)
        running.create(name, config | outputs)
        running.produce(topic, *numbered(0, 10))
        running.wait_until(lambda: server.headers, lambda: "a request")
        running.create(other, rows_only(topic, alerts))
        sent(running, alerts, 10, other)
        trace = "the webhook of icefloe.output.hook.webhook.url answered with HTTP 503"
        assert trace in running.trace(name)
        assert not server.messages
        server.may_answer.clear()
        server.status = 204
        running.produce(topic, *numbered(10, 10))
        sent(running, alerts, 20, other)
        server.may_answer.set()
        running.rows(table, 20, name)
        running.stop(other)  # it could be the one that reaches the point
        running.delete(other)
        arm(armed, "W8", "crash")  # after the posts, before the commit of the transaction
        for turn in range(2, 6):
            running.produce(topic, *numbered(10 * turn, 10), partition=turn % 2)
        running.wait_until(lambda: not (armed / "W8").exists(), lambda: "a crash at W8")
        assert sorted(row["id"] for row in running.rows(table, 60, name)) == list(range(60))
        rows = [row for message in server.messages for row in message["rows"]]
        offsets = {0: range(5, 40), 1: range(20)}
        ids = {f"{topic}/{part}/{n}/0" for part, each in offsets.items() for n in each}
        assert {row["id"] for row in rows} == ids
        assert {row["value"]["id"] for row in rows} == set(range(5, 60))
        found = sent(running, copies, 50, name)
        assert sorted(row["id"] for _, row in found) == list(range(10, 60))
    running.delete(name)


def rows_only(topic: str, alerts: str, **config: str) -> dict[str, str]:
    """A connector without tables."""
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "iceberg.control.commit.interval-ms": "1000",
        "topics": topic,
        "icefloe.format": "topic",
        "icefloe.rows.columns": "id BIGINT, name STRING",
        "icefloe.outputs": "alerts",
        "icefloe.output.alerts.topic": alerts,
        **{k.replace("__", "."): v for k, v in config.items()},
    }


def test_a_connector_without_tables(running: RunningStack, tmp_path: Path) -> None:
    """It has rounds, offsets, dead letters and a lag; a query joins files; it stops and resumes."""
    name, topic, alerts = unique_name("rows"), running.topic("rows"), unique_name("rows-out")
    pq.write_table(pa.table({"id": [1, 2], "place": ["one", "two"]}), tmp_path / "places.parquet")
    letters = running.topic("letters")
    settings = {
        "icefloe.rows.columns": "id BIGINT, place STRING",
        "transforms": "q",
        "transforms.q.type": "Sql",
        "transforms.q.columns": "id BIGINT, name STRING",
        "transforms.q.query": "select r.id, p.place from records r join places p on r.id = p.id",
        "transforms.q.table.places": str(tmp_path / "places.parquet"),
        "errors.tolerance": "all",
        "errors.deadletterqueue.max-ratio": "1",
        "errors.deadletterqueue.topic.name": letters,
    }
    running.create(name, rows_only(topic, alerts) | settings)
    running.produce(topic, *numbered(0, 10), b"no json")
    expected = [{"id": 1, "place": "one"}, {"id": 2, "place": "two"}]
    assert [row for _, row in sent(running, alerts, 2, name)] == expected
    assert len(running.records(letters)) == 1
    running.wait_until(
        lambda: running.counts(name)["rounds"] > 2, lambda: str(running.counts(name))
    )
    running.wait_until_running(name)
    running.stop(name)
    running.produce(topic, *numbered(0, 3))
    (place,) = running.api.get(f"/connectors/{name}/offsets").json()["offsets"]
    assert place["offset"] == {"kafka_offset": 11}
    running.request_state(name, "resume")
    assert [row for _, row in sent(running, alerts, 4, name)] == expected * 2
    assert running.api.get(f"/icefloe/v1/connectors/{name}/tables").json()["tables"] == []
    running.delete(name)


@pytest.mark.parametrize("point", KILLED)
def test_a_crash_without_tables_loses_and_repeats_no_row(
    running: RunningStack, armed: Path, point: str
) -> None:
    """For a reader of committed records."""
    name, topic = unique_name(f"rows-{point}").lower(), running.topic("r-crash", partitions=2)
    alerts = unique_name("rows-out")
    running.create(name, rows_only(topic, alerts, tasks__max="2"))
    running.produce(topic, *numbered(0, 50))
    sent(running, alerts, 50, name)
    arm(armed, point, "crash")
    for turn in range(1, 5):
        running.produce(topic, *numbered(50 * turn, 50), partition=turn % 2)
    running.wait_until(lambda: not (armed / point).exists(), lambda: f"a crash at {point}")
    found = sent(running, alerts, 250, name)
    assert sorted(row["id"] for _, row in found) == list(range(250))
    running.delete(name)


@pytest.mark.parametrize("point", KILLED)
def test_a_crash_loses_and_repeats_no_row(running: RunningStack, armed: Path, point: str) -> None:
    """For a reader of committed records, before, in and after the transaction."""
    name, topic = unique_name(f"outputs-{point}").lower(), running.topic("o-crash", partitions=2)
    alerts, table = unique_name("alerts"), unique_name("db.t")
    outputs = {
        "icefloe.outputs": "alerts",
        "icefloe.output.alerts.topic": alerts,
        "icefloe.output.alerts.where": "id >= `10`",
    }
    config = running.connector(iceberg__tables=table, topics=topic, tasks__max="2", **SETTINGS)
    running.create(name, config | outputs)
    running.produce(topic, *numbered(0, 50))
    sent(running, alerts, 40, name)
    arm(armed, point, "crash")
    for turn in range(1, 5):
        running.produce(topic, *numbered(50 * turn, 50), partition=turn % 2)
    running.wait_until(lambda: not (armed / point).exists(), lambda: f"a crash at {point}")
    found = sent(running, alerts, 240, name)
    assert sorted(row["id"] for _, row in found) == list(range(10, 250))
    assert sorted(row["id"] for row in running.rows(table, 250, name)) == list(range(250))
    running.delete(name)
