"""A real node sends lineage events to real receivers: over HTTP, to a file, and to a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from connect.errors import ConfigError, RetriableError
from connect.gateways.kafka.kafka_clients import LogReader
from connect.gateways.openlineage import KafkaSender
from connect.model.layout import TopicPartition
from connect.model.lineage_event import LineageEvent
from tests.support.lineage_samples import LineageReceiver, described, round_ended
from tests.support.running_node import RunningNode
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka

API_KEY = "lineage-secret-83"


@pytest.fixture
def receiver() -> Iterator[LineageReceiver]:
    """The operator's receiver."""
    receiver = LineageReceiver()
    yield receiver
    receiver.close()


def node_of(folder: Path, kafka: dict[str, str], **options: str) -> RunningNode:
    """A node that sends lineage events, with these options of its transport."""
    transport = {f"icefloe.lineage.transport.{name}": value for name, value in options.items()}
    return RunningNode(
        folder,
        kafka["bootstrap.servers"],
        **{"icefloe.lineage.enabled": "true", "icefloe.lineage.interval.ms": "100", **transport},
    )


def test_runs_of_connectors_are_sent_over_http(
    tmp_path: Path, kafka_properties: dict[str, str], topics: Topics, receiver: LineageReceiver
) -> None:
    """Start, commits, failure, restart; a hanging receiver delays nothing; no secret in the log."""
    topic, servers = topics.create("lineage"), kafka_properties["bootstrap.servers"]
    events = [described(), round_ended(5, topic_records={topic: 5})]
    for event in events:
        del event["connector"]
    (tmp_path / "events-coordinator.json").write_text(json.dumps(events))
    node = node_of(tmp_path, kafka_properties, **{"url": receiver.url, "auth.apikey": API_KEY})
    receiver.may_answer.clear()
    try:
        node.start()
        node.put("c", topic)
        node.put("quiet", topic, icefloe_lineage_enabled="false")
        node.running("c", tasks=1)
        node.running("quiet", tasks=1)
        node.wait_until(lambda: receiver.headers)
        assert receiver.events == []
        receiver.may_answer.set()
        node.wait_until(lambda: receiver.kinds("c") == ["START", "RUNNING"])
        start, running = receiver.events
        assert start["run"]["runId"] == running["run"]["runId"]
        assert start["job"]["namespace"] == node.group_id
        assert [(i["namespace"], i["name"]) for i in start["inputs"]] == [
            (f"kafka://{servers}", topic)
        ]
        (table,) = running["outputs"]
        assert (table["namespace"], table["name"]) == ("s3://lake", "warehouse/db/t")
        assert table["outputFacets"]["outputStatistics"]["rowCount"] == 5
        assert table["facets"]["columnLineage"]["fields"].keys() == {"id", "items"}
        failure = {"code": "fenced", "retriable": False, "trace": "Fenced: by another\nstack"}
        (tmp_path / "fail-c-c").write_text(json.dumps(failure))
        assert node.call("POST", "/connectors/c/restart").status_code == 204
        node.wait_until(lambda: node.status("c")[0] == "FAILED")
        node.wait_until(lambda: receiver.kinds("c")[2:] == ["FAIL"])
        error = receiver.events[2]["run"]["facets"]["errorMessage"]
        assert (error["message"], error["stackTrace"]) == ("Fenced: by another", "stack")
        assert node.call("POST", "/connectors/c/restart").status_code == 204
        node.wait_until(lambda: receiver.kinds("c")[3:] == ["START", "RUNNING"])
        assert len({event["run"]["runId"] for event in receiver.events}) == 2
        assert node.end() == 0
        assert receiver.kinds("quiet") == []
        assert {headers["authorization"] for headers in receiver.headers} == {f"Bearer {API_KEY}"}
        assert API_KEY not in (tmp_path / "node.log").read_text()
    finally:
        node.close()


def test_runs_of_connectors_are_written_to_a_file(
    tmp_path: Path, kafka_properties: dict[str, str], topics: Topics
) -> None:
    """A run that fails while it works has the error; events that were sent are counted."""
    file = tmp_path / "events.jsonl"
    node = node_of(tmp_path, kafka_properties, type="file", log_file_path=str(file))
    failed = {"event": "state", "task": None, "generation": 10**9, "state": "FAILED"}
    failed |= {"sequence": 10**9, "ended": True, "trace": "DataLost: gone\nstack"}
    (tmp_path / "events-coordinator.json").write_text(json.dumps([failed]))

    def written() -> list[dict[str, Any]]:
        text = file.read_text() if file.exists() else ""
        return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]

    try:
        node.start()
        node.put("c", topics.create("lineage"))
        node.wait_until(lambda: [e["eventType"] for e in written()] == ["START", "FAIL"])
        error = written()[1]["run"]["facets"]["errorMessage"]
        assert (error["message"], error["stackTrace"]) == ("DataLost: gone", "stack")
        sent = 'icefloe_lineage_events_total{outcome="sent"} 2.0'
        node.wait_until(lambda: sent in node.call("GET", "/metrics").text)
        assert node.end() == 0
    finally:
        node.close()


def test_events_are_produced_to_a_topic(kafka_properties: dict[str, str], topics: Topics) -> None:
    """In order, with OpenLineage's key; a delivery that fails is an error."""
    topic = topics.create("lineage")
    sender = KafkaSender(kafka_properties, topic, 60)
    for kind in ("START", "COMPLETE"):
        sender.send(LineageEvent(kind, "g", "c", UUID(int=7), 0))
    reader = LogReader(kafka_properties)
    found = _read(reader, topic, 2)
    reader.close()
    assert [(record.key, json.loads(record.value)["eventType"]) for record in found] == [
        (b"run:g/c", "START"),
        (b"run:g/c", "COMPLETE"),
    ]
    large = LineageEvent("FAIL", "g", "c", UUID(int=7), 0, error="e" * 3_000_000)
    with pytest.raises(ConfigError) as refused:
        sender.send(large)
    assert refused.value.code == "lineage_refused"
    away = KafkaSender({"bootstrap.servers": "127.0.0.1:1"}, unique_name("away"), 1)
    with pytest.raises(RetriableError) as failed:
        away.send(LineageEvent("START", "g", "c", UUID(int=7), 0))
    assert failed.value.code == "lineage_unavailable"


def _read(reader: LogReader, topic: str, count: int) -> list[Any]:
    reader.assign({TopicPartition(topic, 0): 0})
    found: list[Any] = []
    while len(found) < count:  # the test's timeout bounds it
        found += reader.poll(100)
    return found
