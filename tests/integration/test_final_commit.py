"""What a coordinator does at its end, and before the control topic forgets what it needs."""

from __future__ import annotations

import dataclasses
from uuid import uuid4

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from tests.support.coordinator_bench import Bench, Running, until

pytestmark = pytest.mark.kafka


@pytest.fixture
def rare(bench: Bench) -> Bench:
    """A round an hour: only the first one comes by itself."""
    bench.config = dataclasses.replace(bench.config, commit_interval_ms=3_600_000)
    return bench


def _stands(bench: Bench, admin: KafkaAdmin) -> tuple[int | None, int]:
    """Control offset of the group, and end of the control topic."""
    place = TopicPartition(bench.control, 0)
    return admin.committed(bench.config.control_group_id, [place])[place], admin.ends([place])[
        place
    ]


def test_what_tasks_announce_at_their_end_is_committed_before_the_coordinator_ends(
    rare: Bench, admin: KafkaAdmin
) -> None:
    """In one last round; then the group's control offset is the end of the log."""
    with Running(rare.coordinator()):
        rare.answer(rare.start_commit(), 1)
        until(lambda: rare.rows() == [1])
        rare.answer(uuid4(), 2, 3)
    assert rare.rows() == [1, 2, 3]
    assert rare.reported["kept"]["records"] == 0
    at, end = _stands(rare, admin)
    assert at == end
    assert rare.rounds[-1].valid_through_us is None


def test_an_end_in_the_middle_of_a_round_commits_what_was_answered(
    bench: Bench, admin: KafkaAdmin
) -> None:
    """A round that waits for others is closed; no announcement is passed."""
    bench.be_patient()
    bench.layout = dataclasses.replace(
        bench.layout, tasks=(*bench.layout.tasks, (TopicPartition("other", 0),))
    )
    with Running(bench.coordinator()):
        bench.answer(bench.start_commit(), 1)
        until(lambda: "kept" in bench.events)
    assert bench.rows() == [1]
    at, end = _stands(bench, admin)
    assert at == end


def test_an_end_without_news_leaves_no_event_behind_the_group(
    bench: Bench, admin: KafkaAdmin
) -> None:
    """Else retention would pass the group's offset while the connector is stopped."""
    with Running(bench.coordinator()):
        bench.answer(bench.start_commit(), 1)
        until(lambda: len(bench.rounds) >= 1)
    at, end = _stands(bench, admin)
    assert at == end
    with Running(bench.coordinator()):
        bench.answer(bench.start_commit(), 2)
        until(lambda: bench.rows() == [1, 2])


def test_what_cannot_be_committed_stays_announced(rare: Bench, admin: KafkaAdmin) -> None:
    """The table is gone at the end: the group's offset does not pass its announcement."""
    with Running(rare.coordinator()):
        rare.answer(rare.start_commit(), 1)
        until(lambda: rare.rows() == [1])
        rare.drop(("db", "t"))
        rare.answer(uuid4(), 2)
    at, end = _stands(rare, admin)
    assert at is not None
    assert at < end
    with Running(rare.coordinator()):
        until(lambda: rare.reported.get("kept", {}).get("records") == 1)


def test_the_control_topics_retention_is_an_alarm_before_it_loses_announcements(
    bench: Bench,
) -> None:
    """What no table holds is named with the time that is left; it ends when it is committed."""
    _retain(bench, 20 * 60_000)
    bench.layout = dataclasses.replace(
        bench.layout, tasks=(*bench.layout.tasks, (TopicPartition("other", 0),))
    )
    bench.be_patient()
    bench.poll_ms = 100
    with Running(bench.coordinator()):
        bench.age_ms = 15 * 60_000
        bench.answer(bench.start_commit(), 1)
        message = until(lambda: bench.reported.get("retention", {}).get("message"))
        assert "1 announcements" in message
        assert bench.control in message
        assert 200 < bench.reported["retention"]["left_s"] <= 300
        bench.age_ms = 0
        bench.answer_as("other")
        until(lambda: bench.reported["retention"]["message"] is None)
    assert bench.rows() == [1]


def _retain(bench: Bench, retention_ms: int) -> None:
    entry = ConfigEntry(
        "retention.ms", str(retention_ms), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, bench.control, incremental_configs=[entry])
    client = AdminClient({**bench.kafka, "log_level": 0})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(30)
