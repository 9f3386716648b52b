"""Data that is gone, as an operator meets it: the trace says so, and there is a way out."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.running_stack import RunningStack, numbered
from tests.support.stack import unique_name
from tests.support.topic_deletion import delete_topic

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture
def admin(running: RunningStack) -> Iterator[KafkaAdmin]:
    """The cluster."""
    made = KafkaAdmin({"bootstrap.servers": running.stack.bootstrap_servers})
    yield made
    made.close()


def _ids(running: RunningStack, table: str, connector: str, count: int) -> list[int]:
    return sorted(row["id"] for row in running.rows(table, count, connector))


def test_the_offsets_api_skips_deleted_source_records(
    running: RunningStack, admin: KafkaAdmin
) -> None:
    """The task fails and names the range; it continues after the operator sets the offset."""
    name = unique_name("passed")
    topic, table = running.topic("retention"), f"gone.{unique_name('t').replace('-', '_')}"
    place = TopicPartition(topic, 0)
    running.table(table)
    running.create(name, running.connector(topics=topic, iceberg__tables=table))
    running.produce(topic, *numbered(0, 10))
    assert _ids(running, table, name, 10) == [*range(10)]
    running.stop(name)
    running.produce(topic, *numbered(10, 20))
    admin.delete_records({place: 25})
    running.request_state(name, "resume")
    cause = running.trace(name).partition("\n")[0]
    assert "source_data_lost" in cause
    assert "[10, 25)" in cause
    running.stop(name)
    running.set_offset(name, place, 25)
    running.request_state(name, "resume")
    assert _ids(running, table, name, 15) == [*range(10), *range(25, 30)]
    running.produce(topic, *numbered(30, 5))
    assert _ids(running, table, name, 20) == [*range(10), *range(25, 35)]
    running.wait_until_running(name)
    running.delete(name)


def test_a_connector_that_continues_reports_lost_records(
    running: RunningStack, admin: KafkaAdmin
) -> None:
    """The range is in status, metric, snapshot and audit; a restart removes the message.

    The announced range includes the lost one, so the coordinator finds no gap.
    """
    name = unique_name("continues")
    topic, table = running.topic("retention"), f"gone.{unique_name('t').replace('-', '_')}"
    running.table(table)
    config = running.connector(topics=topic, iceberg__tables=table)
    running.create(name, {**config, "icefloe.fail-on-data-loss": "false"})
    running.produce(topic, *numbered(0, 10))
    assert _ids(running, table, name, 10) == [*range(10)]
    running.stop(name)
    running.produce(topic, *numbered(10, 20))
    admin.delete_records({TopicPartition(topic, 0): 25})
    running.request_state(name, "resume")
    assert _ids(running, table, name, 15) == [*range(10), *range(25, 30)]
    running.wait_until_running(name, f"{topic}-0 [10, 25)")
    lost = running.catalog.load_table(table).current_snapshot().summary["icefloe.data-loss"]
    assert json.loads(lost) == {"ranges": [[topic, 0, 10, 25]], "more": 0, "offsets": 15}
    running.wait_until(
        lambda: running.counts(name)["source_offsets_lost"] == 15, lambda: "the metric"
    )
    code, output = running.icefloe("audit", name, "-o", "json")
    assert code == 0, output
    assert json.loads(output)["sources"][0]["lost"] == 15
    assert running.api.post(f"/connectors/{name}/tasks/0/restart").is_success
    running.wait_until(
        lambda: not running.status(name)["tasks"][0].get("trace"), lambda: "the restart"
    )
    running.produce(topic, *numbered(30, 1))
    assert len(_ids(running, table, name, 16)) == 16
    running.delete(name)


@pytest.mark.matrix
def test_a_connector_that_continues_reads_a_recreated_topic(
    running: RunningStack, admin: KafkaAdmin
) -> None:
    """The new topic is read from its start, and what is lost of the former one is named.

    Rows of the former topic stay, and no row of the new one is missing or there twice.
    """
    name = unique_name("again")
    topic, table = running.topic("source"), f"gone.{unique_name('t').replace('-', '_')}"
    running.table(table)
    config = running.connector(topics=topic, iceberg__tables=table)
    running.create(name, {**config, "icefloe.fail-on-data-loss": "false"})
    running.produce(topic, *numbered(0, 10))
    assert _ids(running, table, name, 10) == [*range(10)]
    delete_topic(admin, topic)
    running.wait_until(lambda: topic not in admin.topics(), lambda: "the deletion")
    admin.ensure_topic(topic, 2, replication_factor=1)
    running.produce(topic, *numbered(100, 30))
    assert _ids(running, table, name, 40) == [*range(10), *range(100, 130)]
    running.wait_until_running(name, f"{topic}-0 from 10 on (the topic was created again)")
    table_now = running.catalog.load_table(table)
    lost = [
        json.loads(s.summary["icefloe.data-loss"])
        for s in table_now.snapshots()[1:]
        if s.summary and "icefloe.data-loss" in s.summary.additional_properties
    ]
    assert [topic, 0, 10, None] in [one for found in lost for one in found["ranges"]]
    running.wait_until(
        lambda: running.counts(name)["source_topics_recreated"] == 1, lambda: "the metric"
    )
    code, output = running.icefloe("audit", name, "-o", "json")
    assert code == 0, output
    assert "was deleted and created again" in output
    running.produce(topic, *numbered(130, 5))
    assert _ids(running, table, name, 45) == [*range(10), *range(100, 135)]
    running.delete(name)


@pytest.mark.matrix
def test_a_connector_that_continues_needs_no_operator_for_expired_offsets(
    running: RunningStack, admin: KafkaAdmin
) -> None:
    """Source and control offsets are gone: it continues after its last announcement."""
    name = unique_name("forgotten")
    topic, table = running.topic("source"), f"gone.{unique_name('t').replace('-', '_')}"
    running.table(table)
    config = running.connector(topics=topic, iceberg__tables=table)
    running.create(name, {**config, "icefloe.fail-on-data-loss": "false"})
    running.produce(topic, *numbered(0, 10))
    assert _ids(running, table, name, 10) == [*range(10)]
    _stop_without_offsets(running, admin, name)
    running.produce(topic, *numbered(10, 5))
    running.request_state(name, "resume")
    assert _ids(running, table, name, 15) == [*range(15)]
    running.wait_until_running(name, f"{topic}-0 10")
    running.wait_until_running(name)
    running.delete(name)


@pytest.mark.matrix
def test_an_operator_sets_offsets_that_expired_during_a_stop(
    running: RunningStack, admin: KafkaAdmin
) -> None:
    """Nothing is written again: the trace has the last position."""
    name = unique_name("expired")
    topic, table = running.topic("source"), f"gone.{unique_name('t').replace('-', '_')}"
    running.table(table)
    running.create(name, running.connector(topics=topic, iceberg__tables=table))
    running.produce(topic, *numbered(0, 10))
    assert _ids(running, table, name, 10) == [*range(10)]
    _stop_without_offsets(running, admin, name)
    running.request_state(name, "resume")
    cause = running.trace(name).partition("\n")[0]
    assert "offsets_lost" in cause
    assert f"{topic}-0 10" in cause
    running.produce(topic, *numbered(10, 5))
    running.stop(name)
    running.set_offset(name, (topic, 0), 10)
    running.request_state(name, "resume")
    assert _ids(running, table, name, 15) == [*range(15)]
    running.delete(name)


def _stop_without_offsets(running: RunningStack, admin: KafkaAdmin, name: str) -> None:
    """Stop a connector and delete its source and control offsets."""
    running.stop(name)
    for group in (f"connect-{name}", f"connect-{name}-coord"):
        running.wait_until(lambda g=group: _forgotten(admin, g), lambda: "the group's end")


def _forgotten(admin: KafkaAdmin, group: str) -> bool:
    admin.delete_group(group)
    return not admin.committed_all(group)


@pytest.mark.matrix
def test_a_rebase_continues_with_a_recreated_control_topic(
    running: RunningStack, admin: KafkaAdmin
) -> None:
    """``icefloe control rebase`` names lost announcements and rebases the floor."""
    name = unique_name("rebased")
    topic, table = running.topic("source"), f"gone.{unique_name('t').replace('-', '_')}"
    control = unique_name("control")
    running.table(table)
    config = running.connector(topics=topic, iceberg__tables=table)
    running.create(name, {**config, "iceberg.control.topic": control})
    running.produce(topic, *numbered(0, 10))
    assert _ids(running, table, name, 10) == [*range(10)]
    delete_topic(admin, control)
    assert "control_log_reset" in running.trace(name).partition("\n")[0]
    code, output = running.icefloe("control", "rebase", name)
    assert code == 1
    assert "STOPPED" in output
    running.stop(name)
    assert running.icefloe("control", "rebase", name)[0] == 2  # it says what is given up
    code, output = running.icefloe("control", "rebase", name, "--yes")
    assert code == 0
    assert "that were not committed are given up" in output
    running.request_state(name, "resume")
    running.produce(topic, *numbered(10, 10))
    assert _ids(running, table, name, 20) == [*range(20)]
    running.wait_until_running(name)
    running.delete(name)
