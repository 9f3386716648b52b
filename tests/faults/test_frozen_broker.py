"""A broker that answers nobody for a while, and a coordinator process that is killed meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect.embedded.stack import Stack
from tests.faults.chaos import NODE
from tests.running_stack import RunningStack, numbered

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.timeout(900),
]

CONNECTORS = 4
BATCH = 50
# longer than the first attempt to take over a transactional id, shorter than the second
FROZEN_S = float(os.environ.get("FAULT_FROZEN_S", "50"))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningStack]:
    """A stack of its own: its broker is frozen."""
    stack = Stack(tmp_path / "stack", node_properties=NODE)
    made: RunningStack | None = None
    try:
        stack.start_broker()
        stack.start_node()
        stack.wait_for_node()
        made = RunningStack(stack)
        yield made
    finally:
        if made is not None:
            made.close()
        stack.stop()


def test_every_connector_moves_again_after_the_broker_froze(running: RunningStack) -> None:
    """No connector stays RUNNING without a coordinator, and no operator is needed."""
    topics = {f"frozen{n}": running.topic("frozen") for n in range(CONNECTORS)}
    for name, topic in topics.items():
        running.table(f"db.{name}")
        running.create(name, config(running, name, topic))
        running.produce(topic, *numbered(0, BATCH))
    for name in topics:
        running.rows(f"db.{name}", BATCH, name)
    freeze(running)
    for topic in topics.values():
        running.produce(topic, *numbered(BATCH, BATCH))
    for name in topics:
        running.rows(f"db.{name}", 2 * BATCH, name)
        running.until(lambda name=name: is_running(running, name), lambda name=name: name)


def config(running: RunningStack, name: str, topic: str) -> dict[str, str]:
    """One table, fast rounds."""
    catalog = running.stack.catalog_properties
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": topic,
        "iceberg.tables": f"db.{name}",
        "iceberg.control.commit.interval-ms": "1000",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
    }


def freeze(running: RunningStack) -> None:
    """Freeze the broker, and kill the coordinator process one second later."""
    broker = running.stack.broker
    assert broker is not None
    coordinator = running.child("coordinator")
    broker.pause()
    try:
        time.sleep(1)
        coordinator.kill()
        time.sleep(FROZEN_S - 1)
    finally:
        broker.resume()


def is_running(running: RunningStack, name: str) -> bool:
    """Whether the connector and its tasks are RUNNING."""
    status = running.status(name)
    return {part["state"] for part in (status["connector"], *status["tasks"])} == {"RUNNING"}
