"""``icefloe offsets set`` against a real node and broker: the plan, the change, the refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.running_node import RunningNode
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka

HOUR_MS = 3_600_000
T0_MS = 1_767_323_045_000


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, kafka_properties: dict[str, str]
) -> Iterator[RunningNode]:
    """A node with stub children."""
    node = RunningNode(tmp_path_factory.mktemp("plan"), kafka_properties["bootstrap.servers"])
    node.start()
    yield node
    node.close()


class OffsetCommands:
    """``icefloe offsets set`` of one connector, and its offsets."""

    def __init__(self, node: RunningNode, name: str) -> None:
        self._node, self._name = node, name

    def __call__(self, *arguments: str) -> tuple[int, str]:
        return self._node.icefloe("offsets", "set", self._name, *arguments)

    def plan(self, *arguments: str) -> list[tuple[Any, ...]]:
        """The moves of a plan that changes nothing."""
        status, text = self(*arguments, "-o", "json")
        assert status in {0, 2}, text
        found = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]
        assert found["changed"] is False
        keys = ("partition", "from_offset", "to_offset", "reread", "skipped", "bounded_at")
        return [tuple(move[key] for key in keys) for move in found["offsets"]]

    def now(self) -> dict[int, int]:
        """Committed offsets by partition."""
        body = self._node.call("GET", f"/connectors/{self._name}/offsets").json()
        return {
            entry["partition"]["kafka_partition"]: int(entry["offset"]["kafka_offset"])
            for entry in body["offsets"]
        }


def test_offsets_move_to_what_the_plan_shows(
    node: RunningNode, topics: Topics, kafka_properties: dict[str, str], admin: KafkaAdmin
) -> None:
    """Every target, with what is read again and skipped; nothing changes without ``--yes``."""
    name = unique_name("plan")  # no other test has committed offsets in its group
    topic = topics.create("moved", partitions=2, retention_ms="-1")
    producer = Producer({**kafka_properties, "log_level": 0})
    for hour in range(3):
        producer.produce(topic, b"{}", partition=0, timestamp=T0_MS + hour * HOUR_MS)
    assert producer.flush(60) == 0
    node.put(name, topic)
    node.running(name, 1)
    offsets = OffsetCommands(node, name)

    assert offsets.plan("--to-latest") == [(0, None, 3, 0, 3, None), (1, None, 0, 0, 0, None)]
    status, text = offsets("--to-latest", "--yes")
    assert (status, "must be in the STOPPED state" in text) == (1, True)
    assert f"connector {name} must be STOPPED" in text
    assert node.call("PUT", f"/connectors/{name}/stop").status_code == 204
    node.wait_until(lambda: node.has_stopped(name))
    status, text = offsets("--to-latest", "--yes")
    assert status == 0, text
    assert "up to 3 records are skipped" in text
    assert offsets.now() == {0: 3, 1: 0}
    status, text = offsets("--to-latest")
    assert (status, "are there already" in text) == (0, True)

    status, text = offsets("--to-timestamp", str(T0_MS + 1))
    assert status == 2
    assert "up to 2 records are read again, and their rows are written a second time" in text
    assert f"icefloe rewind {name}" in text
    assert f"{topic}\t0\t3\t1\t2\t0" in text
    assert offsets.now() == {0: 3, 1: 0}
    assert offsets("--to-timestamp", "2026-01-02T03:04:05.001Z", "--yes")[0] == 0
    assert offsets.now() == {0: 1, 1: 0}

    admin.delete_records({TopicPartition(topic, 0): 1})
    only = ("--topic", topic, "--partition", "0")
    assert offsets.plan("--shift-by", "-5", *only) == [(0, 1, 1, 0, 0, "start")]
    assert offsets.plan("--shift-by", "1", *only) == [(0, 1, 2, 0, 1, None)]
    assert offsets.plan("--to-offset", "99", *only) == [(0, 1, 3, 0, 2, "end")]
    assert offsets.plan("--to-earliest", *only) == [(0, 1, 1, 0, 0, None)]
    assert offsets.plan("--by-duration", "PT1H", *only) == [(0, 1, 3, 0, 2, None)]
    assert offsets.now() == {0: 1, 1: 0}

    for arguments, message in (
        (("--to-earliest", "--topic", "other"), "reads no such partition of topic other"),
        (("--to-timestamp", "yesterday"), "'yesterday' is not a timestamp"),
        (("--by-duration", "1h"), "'1h' is not a duration"),
        (("--to-earliest", "--partition", "0"), "a partition needs its topic"),
    ):
        status, text = offsets(*arguments)
        assert (status, message in text) == (1, True), text
    assert offsets()[0] == offsets("--to-earliest", "--to-latest")[0] == 2
    node.call("DELETE", f"/connectors/{name}/offsets")
    status, text = offsets("--shift-by", "1")
    assert (status, f"{topic}-0 has no committed offset" in text) == (1, True)
    assert node.icefloe("offsets", "set", "unknown", "--to-latest")[0] == 1
