"""Data that is gone, as an operator meets it: the trace says so, and there is a way out."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from connect.gateways.kafka_admin import KafkaAdmin
from connect.layout import TopicPartition
from tests.running_stack import RunningStack
from tests.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def _records(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"n{n}"} for n in range(first, first + count)]


def _admin(running: RunningStack) -> KafkaAdmin:
    return KafkaAdmin({"bootstrap.servers": running.stack.bootstrap_servers})


def _put(running: RunningStack, name: str, wish: str) -> None:
    assert running.api.put(f"/connectors/{name}/{wish}").is_success


def _icefloe(running: RunningStack, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "connect.cli", *arguments, "--server", running.stack.rest_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def _ids(running: RunningStack, table: str, connector: str, count: int) -> list[int]:
    return sorted(row["id"] for row in running.rows(table, count, connector))


def test_source_records_that_retention_took_are_passed_by_the_offsets_api(
    running: RunningStack,
) -> None:
    """The task stops with the range; the gap is allowed by setting the offset, and rows go on."""
    name, admin = unique_name("passed"), _admin(running)
    topic, table = running.topic("retention"), f"gone.{unique_name('t').replace('-', '_')}"
    place = TopicPartition(topic, 0)
    running.table(table)
    running.create(name, running.connector(topics=topic, iceberg__tables=table))
    running.produce(topic, *_records(0, 10))
    assert _ids(running, table, name, 10) == [*range(10)]
    _put(running, name, "stop")
    running.produce(topic, *_records(10, 20))
    admin.delete_records({place: 25})
    _put(running, name, "resume")
    cause = running.trace(name).partition("\n")[0]
    assert "source_data_lost" in cause
    assert "[10, 25)" in cause
    _put(running, name, "stop")
    partition = {"kafka_topic": topic, "kafka_partition": 0}
    body = {"offsets": [{"partition": partition, "offset": {"kafka_offset": 25}}]}
    change = f"/connectors/{name}/offsets"
    running.until(lambda: running.api.patch(change, json=body).is_success, lambda: "the offsets")
    _put(running, name, "resume")
    assert _ids(running, table, name, 15) == [*range(10), *range(25, 30)]
    running.produce(topic, *_records(30, 5))
    assert _ids(running, table, name, 20) == [*range(10), *range(25, 35)]
    assert running.status(name)["connector"]["state"] == "RUNNING"
    running.delete(name)
    admin.close()


def test_offsets_that_expired_while_it_was_stopped_are_set_by_the_operator(
    running: RunningStack,
) -> None:
    """Nothing is written again: the trace says where reading ended, and the operator sets that."""
    name, admin = unique_name("expired"), _admin(running)
    topic, table = running.topic("source"), f"gone.{unique_name('t').replace('-', '_')}"
    running.table(table)
    running.create(name, running.connector(topics=topic, iceberg__tables=table))
    running.produce(topic, *_records(0, 10))
    assert _ids(running, table, name, 10) == [*range(10)]
    _put(running, name, "stop")
    change = f"/connectors/{name}/offsets"
    running.until(lambda: running.api.get(change).is_success, lambda: "the stop")
    for group in (f"connect-{name}", f"connect-{name}-coord"):
        running.until(lambda g=group: _forgotten(admin, g), lambda: "the group's end")
    _put(running, name, "resume")
    cause = running.trace(name).partition("\n")[0]
    assert "offsets_lost" in cause
    assert f"{topic}-0 10" in cause
    running.produce(topic, *_records(10, 5))
    _put(running, name, "stop")
    partition = {"kafka_topic": topic, "kafka_partition": 0}
    body = {"offsets": [{"partition": partition, "offset": {"kafka_offset": 10}}]}
    running.until(lambda: running.api.patch(change, json=body).is_success, lambda: "the offsets")
    _put(running, name, "resume")
    assert _ids(running, table, name, 15) == [*range(15)]
    running.delete(name)
    admin.close()


def _forgotten(admin: KafkaAdmin, group: str) -> bool:
    admin.delete_group(group)
    return not admin.committed_all(group)


def test_a_control_topic_made_anew_is_rebased(running: RunningStack) -> None:
    """The connector stops; ``icefloe control rebase`` says what is given up, then does it."""
    name, admin = unique_name("rebased"), _admin(running)
    topic, table = running.topic("source"), f"gone.{unique_name('t').replace('-', '_')}"
    control = unique_name("control")
    running.table(table)
    config = running.connector(topics=topic, iceberg__tables=table)
    running.create(name, {**config, "iceberg.control.topic": control})
    running.produce(topic, *_records(0, 10))
    assert _ids(running, table, name, 10) == [*range(10)]
    admin.delete_topic(control)
    assert "control_log_reset" in running.trace(name).partition("\n")[0]
    code, said = _icefloe(running, "control", "rebase", name)
    assert code == 1
    assert "STOPPED" in said
    _put(running, name, "stop")
    running.until(
        lambda: _icefloe(running, "control", "rebase", name)[0] == 2, lambda: "what rebase says"
    )
    code, said = _icefloe(running, "control", "rebase", name, "--yes")
    assert code == 0
    assert "is given up" in said
    _put(running, name, "resume")
    running.produce(topic, *_records(10, 10))
    assert _ids(running, table, name, 20) == [*range(20)]
    assert running.status(name)["connector"]["state"] == "RUNNING"
    running.delete(name)
    admin.close()
