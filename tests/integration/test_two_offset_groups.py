"""Source offsets of a connector of the older sink, which keeps them in two groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.running_node import RunningNode
from tests.support.stack import Topics

pytestmark = pytest.mark.kafka

TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"
OFFSETS = "/connectors/old/offsets"


@pytest.fixture
def node(
    tmp_path_factory: pytest.TempPathFactory, kafka_properties: dict[str, str]
) -> Iterator[RunningNode]:
    """A node with topics and a group of its own."""
    folder = tmp_path_factory.mktemp("two-groups")
    node = RunningNode(folder, kafka_properties["bootstrap.servers"])
    node.start()
    yield node
    node.close()


def test_a_reset_deletes_the_offsets_of_both_groups(node: RunningNode, topics: Topics) -> None:
    """A group in use refuses the whole reset."""
    topic = topics.create("old", partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin = KafkaAdmin(node.kafka)
    node.put("old", topic, connector_class=TABULAR)
    node.running("old", tasks=1)
    node.call("PUT", "/connectors/old/stop")
    node.wait_until(lambda: node.has_stopped("old"))
    committed = {"cg-control-old": {first: 6}, "connect-old": {first: 4, second: 2}}
    for group, offsets in committed.items():
        admin.alter_offsets(group, offsets)
    member = Consumer({**node.kafka, "group.id": "connect-old", "log_level": 0})
    member.subscribe([topic])
    node.wait_until(lambda: member.poll(0.1) is None and member.assignment())
    refused = node.call("DELETE", OFFSETS)
    assert (refused.status_code, "connect-old has members" in refused.text) == (400, True)
    member.close()
    assert {group: admin.committed_all(group) for group in committed} == committed
    # the broker may learn later that the member has left
    node.wait_until(lambda: node.call("DELETE", OFFSETS).status_code == 200)
    assert [admin.committed_all(group) for group in committed] == [{}, {}]
    admin.close()


def test_a_reset_offset_is_not_restored_from_the_other_group(
    node: RunningNode, topics: Topics
) -> None:
    """The partition has no offset in either group; other partitions keep theirs."""
    topic = topics.create("old", partitions=3)
    first, second, third = (TopicPartition(topic, p) for p in range(3))
    admin = KafkaAdmin(node.kafka)
    node.put("old", topic, connector_class=TABULAR)
    node.running("old", tasks=1)
    node.call("PUT", "/connectors/old/stop")
    node.wait_until(lambda: node.has_stopped("old"))
    admin.alter_offsets("cg-control-old", {first: 6, third: 3})
    admin.alter_offsets("connect-old", {first: 4, second: 2})
    partition = {"kafka_topic": topic, "kafka_partition": 0}
    change = {"offsets": [{"partition": partition, "offset": None}]}
    assert node.call("PATCH", OFFSETS, json=change).status_code == 200
    assert admin.committed_all("cg-control-old") == {second: 2, third: 3}
    assert admin.committed_all("connect-old") == {}
    admin.close()
