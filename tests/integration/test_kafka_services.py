"""A node at Kafka services that lack transactions or compaction."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from tests.support.limited_kafka import CREATE_TOPICS, TRANSACTION_REQUESTS, LimitedKafka
from tests.support.running_node import TIMEOUT_S, RunningNode
from tests.support.stack import unique_name

pytestmark = pytest.mark.kafka


def _ending(folder: Path, servers: str) -> str:
    """Start a node that must end by itself; return its log."""
    node = RunningNode(folder, servers, **{"group.id": unique_name("limited")})
    node.launch()
    try:
        assert node.process.wait(TIMEOUT_S) == 1
    finally:
        node.close()
    return _log(node)


@pytest.mark.parametrize(
    ("hidden", "policy", "says"),
    [
        (TRANSACTION_REQUESTS, "", "Icefloe needs transactions"),
        ((), "delete", "creates topics with cleanup.policy=delete"),
        ((), "compaction", "does not accept cleanup.policy=compact"),
    ],
)
def test_a_node_does_not_start_at_a_service_that_lacks_a_function(
    kafka_properties: dict[str, str],
    tmp_path: Path,
    hidden: Collection[int],
    policy: str,
    says: str,
) -> None:
    """It ends with status 1, the code ``kafka_service`` and what is missing."""
    broker = kafka_properties["bootstrap.servers"]
    with LimitedKafka(broker, hidden=hidden, policy=policy) as service:
        log = _ending(tmp_path, service.address)
    assert "kafka_service" in log
    assert says in log


def test_topics_may_be_created_by_the_operator(
    kafka_properties: dict[str, str], tmp_path: Path
) -> None:
    """A service that creates no topics for clients: the node waits for them, then starts."""
    admin = KafkaAdmin(kafka_properties)
    with LimitedKafka(kafka_properties["bootstrap.servers"], hidden={CREATE_TOPICS}) as service:
        node = RunningNode(tmp_path, service.address, **{"group.id": unique_name("given")})
        config, status = (node.properties[f"{each}.storage.topic"] for each in ("config", "status"))
        try:
            node.launch()
            for topic in (config, status):
                node.wait_until(
                    lambda topic=topic: f"refuses to create topic {topic}" in _log(node)
                )
                assert admin.ensure_topic(topic, 1, {"cleanup.policy": "compact"})
            node.wait_until(lambda: (found := node.health()) is not None and found.is_success)
        finally:
            node.close()
            admin.close()


def _log(node: RunningNode) -> str:
    file = node.folder / "node.log"
    return file.read_text() if file.exists() else ""
