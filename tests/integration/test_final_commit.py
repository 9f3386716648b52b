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
from tests.support.coordinator_harness import CoordinatorHarness, RunningCoordinator, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def rare(harness: CoordinatorHarness) -> CoordinatorHarness:
    """A round an hour: only the first one comes by itself, and it waits for its answer."""
    harness.set_long_timeout()
    harness.config = dataclasses.replace(harness.config, commit_interval_ms=3_600_000)
    return harness


def _stands(harness: CoordinatorHarness, admin: KafkaAdmin) -> tuple[int | None, int]:
    """Control offset of the group, and end of the control topic."""
    place = TopicPartition(harness.control, 0)
    return admin.committed(harness.config.control_group_id, [place])[place], admin.ends([place])[
        place
    ]


def test_last_announcements_are_committed_before_the_coordinator_ends(
    rare: CoordinatorHarness, admin: KafkaAdmin
) -> None:
    """One last round; then the control offset of the group is the end of the log."""
    with RunningCoordinator(rare.coordinator()):
        rare.answer(rare.start_commit(), 1)
        wait_until(lambda: rare.rows() == [1])
        rare.answer(uuid4(), 2, 3)
    assert rare.rows() == [1, 2, 3]
    assert rare.reported["kept"]["records"] == 0
    at, end = _stands(rare, admin)
    assert at == end
    assert rare.rounds[-1].valid_through_us is None


def test_a_stop_during_a_round_commits_the_answers_so_far(
    harness: CoordinatorHarness, admin: KafkaAdmin
) -> None:
    """The round is closed; no announcement is skipped."""
    harness.set_long_timeout()
    harness.layout = dataclasses.replace(
        harness.layout, tasks=(*harness.layout.tasks, (TopicPartition("other", 0),))
    )
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 1)
        wait_until(lambda: "kept" in harness.events)
    assert harness.rows() == [1]
    at, end = _stands(harness, admin)
    assert at == end


def test_a_stop_without_announcements_moves_the_group_to_the_end(
    harness: CoordinatorHarness, admin: KafkaAdmin
) -> None:
    """Otherwise retention could pass the group's offset while the connector is stopped."""
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 1)
        wait_until(lambda: len(harness.rounds) >= 1)
    at, end = _stands(harness, admin)
    assert at == end
    with RunningCoordinator(harness.coordinator()):
        harness.answer(harness.start_commit(), 2)
        wait_until(lambda: harness.rows() == [1, 2])


def test_announcements_that_cannot_be_committed_are_kept(
    rare: CoordinatorHarness, admin: KafkaAdmin
) -> None:
    """The table is missing at the end: the control offset stays before its announcement."""
    with RunningCoordinator(rare.coordinator()):
        rare.answer(rare.start_commit(), 1)
        wait_until(lambda: rare.rows() == [1])
        rare.drop(("db", "t"))
        rare.answer(uuid4(), 2)
    at, end = _stands(rare, admin)
    assert at is not None
    assert at < end
    assert rare.reported["kept"]["records"] == 1
    rare.reported.clear()  # what follows is reported by the second coordinator
    with RunningCoordinator(rare.coordinator()):
        wait_until(lambda: rare.reported.get("kept", {}).get("records") == 1)


def test_an_alarm_precedes_the_loss_of_uncommitted_announcements(
    harness: CoordinatorHarness,
) -> None:
    """It names them and the time left, and ends when they are committed."""
    _retain(harness, 20 * 60_000)
    harness.layout = dataclasses.replace(
        harness.layout, tasks=(*harness.layout.tasks, (TopicPartition("other", 0),))
    )
    harness.set_long_timeout()
    harness.poll_ms = 100
    with RunningCoordinator(harness.coordinator()):
        harness.age_ms = 15 * 60_000
        harness.answer(harness.start_commit(), 1)
        message = wait_until(lambda: harness.reported.get("retention", {}).get("message"))
        assert "1 announcements" in message
        assert harness.control in message
        assert 200 < harness.reported["retention"]["left_s"] <= 300
        harness.age_ms = 0
        harness.answer_as("other")
        wait_until(lambda: harness.reported["retention"]["message"] is None)
    assert harness.rows() == [1]


def _retain(harness: CoordinatorHarness, retention_ms: int) -> None:
    entry = ConfigEntry(
        "retention.ms", str(retention_ms), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, harness.control, incremental_configs=[entry])
    client = AdminClient({**harness.kafka, "log_level": 0})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(120)
