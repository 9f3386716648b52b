"""Topics deleted or recreated while a node runs, and offsets moved past lost records."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from control_schemas.codec import decode
from control_schemas.events import (
    DataComplete,
    EventHeaders,
    SourceRange,
    TopicPartitionOffset,
)
from control_schemas.headers import decode_headers, encode_headers
from tests.support.coordinator_harness import CoordinatorHarness, RunningCoordinator, wait_until
from tests.support.reading import committed_records
from tests.support.running_node import TIMEOUT_S, RunningNode
from tests.support.stack import Topics
from tests.support.topic_deletion import delete_topic

pytestmark = pytest.mark.kafka


@pytest.fixture
def node(
    tmp_path_factory: pytest.TempPathFactory, kafka_properties: dict[str, str]
) -> Iterator[RunningNode]:
    """A node with topics and a group of its own."""
    made = RunningNode(tmp_path_factory.mktemp("gone"), kafka_properties["bootstrap.servers"])
    made.start()
    yield made
    made.close()


def _recreate(admin: KafkaAdmin, topic: str, partitions: int = 1) -> str:
    """Delete and create a topic, unless another client created it first; return its new id."""
    old = admin.topic_id(topic)
    delete_topic(admin, topic)
    wait_until(lambda: admin.topic_id(topic) != old)
    admin.ensure_topic(topic, partitions, replication_factor=1)
    found: str = wait_until(lambda: admin.topic_id(topic))
    assert found != old
    return found


def _trace(node: RunningNode, name: str) -> str:
    found: str = node.wait_until(
        lambda: node.call("GET", f"/connectors/{name}/status").json()["connector"].get("trace")
    )
    return found


def _stop(node: RunningNode, name: str) -> None:
    assert node.call("PUT", f"/connectors/{name}/stop").status_code == 204
    node.wait_until(lambda: node.has_stopped(name))


def _messages(node: RunningNode, topic: str) -> list[Any]:
    """Return every announcement of moved offsets in a control topic, in order."""
    records = committed_records(node.kafka, TopicPartition(topic, 0))
    found = [decode_headers(record.headers).moved for record in records]
    return [moved for moved in found if moved is not None]


def test_a_recreated_control_topic_stops_the_connector(
    node: RunningNode, topics: Topics, admin: KafkaAdmin
) -> None:
    """The trace contains control_log_reset; connectors on other control topics continue."""
    node.put("c", topics.create("orders"))
    node.put("other", topics.create("other"), iceberg_control_topic=topics.create("control"))
    node.running("c", 1)
    node.running("other", 1)
    _recreate(admin, f"{node.group_id}-control")
    assert "control_log_reset" in _trace(node, "c")
    assert node.status("c")[0] == "FAILED"
    assert node.status("other") == ("RUNNING", ["RUNNING"])


def test_recreated_source_topics_are_read_when_their_offsets_are_set(
    node: RunningNode, topics: Topics, admin: KafkaAdmin
) -> None:
    """Tasks keep the old topic id until an operator moves or resets the offsets."""
    orders, users = topics.create("orders"), topics.create("users")
    ids = admin.topic_ids([orders, users])
    node.put("c", f"{orders},{users}")
    node.running("c", 1)
    known = dict(node.layouts("c")[0].topic_ids)
    assert {t: known[t] for t in ids} == ids
    new = _recreate(admin, orders)
    _stop(node, "c")
    assert dict(node.layouts("c")[0].topic_ids) == known
    offsets = {
        "offsets": [{"partition": {"kafka_topic": users, "kafka_partition": 0}, "offset": None}]
    }
    change = "/connectors/c/offsets"
    node.wait_until(lambda: node.call("PATCH", change, json=offsets).is_success)
    assert dict(node.layouts("c")[0].topic_ids) == known  # another topic's offsets say nothing
    assert node.call("DELETE", change).status_code == 200
    assert dict(node.layouts("c")[0].topic_ids) == {**known, orders: new}
    assert _messages(node, f"{node.group_id}-control") == [((users, 0),), ()]
    node.call("PUT", "/connectors/c/resume")
    node.running("c", 1)
    assert node.commands("worker", "c")[-1]["layout"]["topic_ids"] == {**known, orders: new}


def test_a_deleted_listed_topic_stops_only_its_task(
    node: RunningNode, topics: Topics, admin: KafkaAdmin
) -> None:
    """The layout keeps its partitions; after stop and resume, the trace names the topic."""
    orders, users = topics.create("orders"), topics.create("users")
    node.put("c", f"{orders},{users}")
    node.running("c", 1)
    delete_topic(admin, users)
    wait_until(lambda: users not in admin.topics())
    node.end()
    node.start()
    node.running("c", 1)
    assert users in {tp.topic for tp in node.layouts("c")[0].partitions}
    _stop(node, "c")
    node.call("PUT", "/connectors/c/resume")
    assert "source_topic_deleted" in _trace(node, "c")
    node.put("c", orders)
    node.wait_until(lambda: node.status("c")[0] == "RUNNING")


@pytest.mark.parametrize("dies", [(), ("layout",)])
def test_offsets_of_a_deleted_regex_topic_are_reset(
    node: RunningNode, topics: Topics, admin: KafkaAdmin, dies: tuple[str, ...]
) -> None:
    """The node announces the reset before the next layout is ready, also after a crash."""
    first = topics.create("day", partitions=1)
    gone = f"{first}-2"
    admin.ensure_topic(gone, 1)
    node.put("c", "", topics_regex=f"{first}.*")
    node.running("c", 1)
    node.wait_until(lambda: node.layouts("c")[0].partitions == {(first, 0), (gone, 0)})
    node.end()
    before = len(node.commands("worker", "c"))
    node.start(*dies)
    node.wait_until(
        lambda: len(node.commands("worker", "c")) > before
    )  # the node has read the topics
    delete_topic(admin, gone)
    if dies:
        assert node.process.wait(TIMEOUT_S) == -signal.SIGKILL
        assert _messages(node, f"{node.group_id}-control") == []
        node.start()
    node.wait_until(lambda: node.layouts("c")[0].number == node.layouts("c")[1] == 2)
    assert node.layouts("c")[0].partitions == {(first, 0)}
    message = () if dies else ((gone, 0),)  # of what there was before nothing is known: all
    assert _messages(node, f"{node.group_id}-control") == [message]


def test_a_missing_topic_makes_the_leader_read_the_topics(
    tmp_path: Path, kafka_properties: dict[str, str], topics: Topics, admin: KafkaAdmin
) -> None:
    """The layout changes without waiting for the next poll of all topics."""
    servers, hour = (
        kafka_properties["bootstrap.servers"],
        {"icefloe.metadata.refresh.ms": "3600000"},
    )
    node = RunningNode(tmp_path, servers, **{"group.id": topics.create("misses"), **hour})
    first = topics.create("misses", partitions=1)
    admin.ensure_topic(f"{first}-2", 1)
    try:
        node.start()
        node.put("c", "", topics_regex=f"{first}.*")
        node.running("c", 1)
        (tmp_path / "events-worker.json").write_text('[{"event": "topic_missing"}]')
        delete_topic(admin, f"{first}-2")
        wait_until(lambda: f"{first}-2" not in admin.topics())
        assert node.layouts("c")[1] == 1
        assert node.call("POST", "/connectors/c/tasks/0/restart").is_success
        node.wait_until(lambda: node.layouts("c")[1] == 2)
        assert node.layouts("c")[0].partitions == {(first, 0)}
    finally:
        node.close()


def _ranges(harness: CoordinatorHarness, start: int, end: int) -> None:
    """An announcement that says which offsets it is about."""
    commit_id = harness.start_commit()
    topic, partition = harness.partition
    stand = TopicPartitionOffset(topic, partition, end, 1_767_225_600_000_000)
    read = SourceRange(topic, partition, start, end, end - start, 0, 0, end - start, None)
    (message,) = harness.messages(DataComplete(commit_id, (stand,)))
    headers = encode_headers(EventHeaders(layout=1, ranges=(read,)))
    harness.task_producer.transact(
        [type(message)(message.topic, message.key, message.value, headers)]
    )


def test_a_gap_in_the_source_is_a_bug_unless_an_operator_moved_offsets(
    harness: CoordinatorHarness, node: RunningNode, topics: Topics
) -> None:
    """Only an announcement of the offsets API allows a gap between ranges."""
    node.put("c", topics.create("orders"), iceberg_control_topic=topics.create("gap-control"))
    node.running("c", 1)
    control = node.wait_until(lambda: node.commands("coordinator", "c"))[0]["config"][
        "iceberg.control.topic"
    ]
    _stop(node, "c")
    node.wait_until(lambda: node.call("DELETE", "/connectors/c/offsets").is_success)
    (moved,) = committed_records(node.kafka, TopicPartition(control, 0))
    with RunningCoordinator(harness.coordinator()) as running:
        _ranges(harness, 0, 10)
        (message,) = harness.messages(decode(moved.value or b"").payload)
        harness.task_producer.transact(
            [type(message)(message.topic, message.key, message.value, moved.headers)]
        )
        _ranges(harness, 50, 60)
        _ranges(harness, 60, 70)
        assert running.error is None
        _ranges(harness, 90, 99)
        wait_until(lambda: running.error)
        assert getattr(running.error, "code", None) == "source_gap"
