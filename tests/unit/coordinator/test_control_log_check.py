"""When announcements that are in no table become an alarm about the control topic's retention."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast
from uuid import UUID

import pytest

from connect.errors import ConfigError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from control_schemas.events import CommitComplete, Event, EventHeaders
from coordinator.control_log_check import ControlLogCheck
from coordinator.kernel.effects import Envelope

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS


class Topic:
    """Settings and bounds of one control topic, in place of a cluster."""

    def __init__(self, start: int = 0, end: int = 100, **settings: str) -> None:
        self._marks = start, end
        self._settings = {key.replace("_", "."): value for key, value in settings.items()}

    def topic_config(self, name: str) -> dict[str, str]:
        """Its settings, unless they may not be read."""
        if not self._settings:
            raise ConfigError(f"no right to describe {name}", code="kafka_refused")
        return self._settings

    def watermarks(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """First offset and end of each partition."""
        return dict.fromkeys(partitions, self._marks)


def kept(offset: int = 10, *, hours_ago: int = 1) -> Envelope:
    """An announcement; its payload does not matter."""
    made_us = (NOW_MS - hours_ago * HOUR_MS) * 1000
    event = Event(UUID(int=1), made_us, "connect-c", CommitComplete(UUID(int=2), None))
    return Envelope(event, EventHeaders(), 0, offset)


def time_left(topic: Topic, *announcements: Envelope) -> tuple[float | None, str | None]:
    """Return the seconds of retention that are left, and the alarm."""
    log = ControlLogCheck(cast("KafkaAdmin", topic), "control")
    found = log.retention(announcements, NOW_MS)
    return found["left_s"], found["message"]


def test_without_kept_announcements_there_is_no_alarm() -> None:
    """All announcements that retention deletes are committed."""
    assert time_left(Topic(retention_ms="1")) == (None, None)
    assert ControlLogCheck(None, "control").retention([kept()], NOW_MS)["message"] is None


@pytest.mark.parametrize(("hours", "is_alarm"), [(1, False), (5, False), (6, True), (11, True)])
def test_an_announcement_older_than_half_of_the_retention_is_an_alarm(
    hours: int, *, is_alarm: bool
) -> None:
    """The oldest announcement counts."""
    topic = Topic(retention_ms=str(10 * HOUR_MS))
    left_s, message = time_left(topic, kept(hours_ago=1), kept(hours_ago=hours))
    assert left_s == (10 - hours) * 3600
    assert (message is not None) == is_alarm


def test_without_a_known_retention_there_is_no_alarm() -> None:
    """The topic keeps everything, or its configuration cannot be read."""
    assert time_left(Topic(retention_ms="-1"), kept(hours_ago=10_000)) == (None, None)
    assert time_left(Topic(), kept(hours_ago=10_000)) == (None, None)


@pytest.mark.parametrize(
    ("start", "offset", "is_alarm"), [(0, 10, False), (50, 60, True), (50, 75, False)]
)
def test_the_oldest_quarter_of_a_topic_that_deletes_by_size_is_an_alarm(
    start: int, offset: int, *, is_alarm: bool
) -> None:
    """From the first deletion on."""
    topic = Topic(start, retention_ms="-1", retention_bytes="1000")
    left_s, message = time_left(topic, kept(offset))
    assert left_s is None
    assert (message is not None) == is_alarm
    if message is not None:
        assert "by size from offset 50" in message
