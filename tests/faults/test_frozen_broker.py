"""A broker freezes for a while, and a child process is killed meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect.embedded.stack import Stack
from tests.faults.payments_stack import NODE
from tests.support.running_stack import RunningStack, numbered

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.timeout(900),
]

CONNECTORS = 4
BATCH = 50
# longer than the first attempt to take over a transactional id, shorter than the second: the unit
# has reported a failure and retries; a worker needs longer until its first attempt
FROZEN_S = {
    "coordinator": float(os.environ.get("FAULT_FROZEN_S", "50")),
    "worker": float(os.environ.get("FAULT_FROZEN_WORKER_S", "70")),
}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningStack]:
    """A stack for this module only, because its broker is frozen."""
    stack = Stack(tmp_path / "stack", node_properties=NODE)
    running: RunningStack | None = None
    try:
        stack.start_broker()
        stack.start_node()
        stack.wait_for_node()
        running = RunningStack(stack)
        yield running
    finally:
        if running is not None:
            running.close()
        stack.stop()


@pytest.mark.parametrize("victim", FROZEN_S)
def test_every_connector_continues_after_the_broker_was_frozen(
    running: RunningStack, victim: str
) -> None:
    """No unit runs twice, and none is missing, while its connector is RUNNING."""
    topics = {f"frozen{n}": running.topic("frozen") for n in range(CONNECTORS)}
    for name, topic in topics.items():
        running.table(f"db.{name}")
        running.create(name, config(running, name, topic))
        running.produce(topic, *numbered(0, BATCH))
    for name in topics:
        running.rows(f"db.{name}", BATCH, name)
    freeze(running, victim)
    for number in (1, 2):  # a unit that is about to be fenced may commit once more
        for topic in topics.values():
            running.produce(topic, *numbered(number * BATCH, BATCH))
        for name in topics:
            running.rows(f"db.{name}", (number + 1) * BATCH, name)
            running.wait_until(lambda name=name: is_running(running, name), lambda name=name: name)
    assert not fenced(running)


def config(running: RunningStack, name: str, topic: str) -> dict[str, str]:
    """Return a configuration with one table and a short commit interval."""
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


def freeze(running: RunningStack, victim: str) -> None:
    """Freeze the broker, and kill a child process of the node one second later."""
    broker = running.stack.broker
    assert broker is not None
    child = running.child(victim)
    broker.pause()
    try:
        time.sleep(1)
        child.kill()
        time.sleep(FROZEN_S[victim] - 1)
    finally:
        broker.resume()


def is_running(running: RunningStack, name: str) -> bool:
    """Whether the connector and its tasks are RUNNING."""
    status = running.status(name)
    return {part["state"] for part in (status["connector"], *status["tasks"])} == {"RUNNING"}


def fenced(running: RunningStack) -> list[str]:
    """Return the lines of the node's log that report a fenced coordinator or task.

    The tests expect none: the killed process has ended, and no connector changes its node.
    """
    log = running.stack.node_log_file.read_text("utf-8", "replace")
    return [line for line in log.splitlines() if '"code": "fenced"' in line]
