"""Texts of ``icefloe.start.*`` and of ``auto.offset.reset``."""

from __future__ import annotations

import pytest

from connect.config.start_position import (
    StartPosition,
    offsets_error,
    parse_duration,
    parse_offsets,
    parse_timestamp,
    reset_error,
    start_position,
    timestamp_error,
)
from connect.model.layout import TopicPartition


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1767323045678", 1_767_323_045_678),
        (" 0 ", 0),
        ("2026-01-02T03:04:05.678Z", 1_767_323_045_678),
        ("2026-01-02T04:04:05.678999+01:00", 1_767_323_045_678),
    ],
)
def test_valid_instants(text: str, timestamp_ms: int) -> None:
    """ISO-8601 with a zone, or milliseconds; fractions of a millisecond are cut off."""
    assert parse_timestamp(text) == timestamp_ms
    assert timestamp_error(text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("yesterday", "not an ISO-8601 instant"),
        ("", "not an ISO-8601 instant"),
        ("-1", "not an ISO-8601 instant"),  # Kafka's number for the end
        ("9" * 19, "not an ISO-8601 instant"),
        ("2026-01-02T03:04:05", "no time zone"),
        ("1969-12-31T23:59:59Z", "before 1970"),
    ],
)
def test_invalid_instants_are_refused(text: str, why: str) -> None:
    """An instant without a zone would depend on the machine."""
    assert why in (timestamp_error(text) or "")


def test_offsets_have_the_form_of_spark() -> None:
    """Topic, partition and offset, with Spark's numbers for start and end."""
    offsets = parse_offsets('{"orders":{"0":23,"1":-2},"users":{"7":-1}}')
    assert offsets == {
        TopicPartition("orders", 0): 23,
        TopicPartition("orders", 1): -2,
        TopicPartition("users", 7): -1,
    }
    assert parse_offsets("{}") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("orders:0:23", "not JSON"),
        ("earliest", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ('{"orders":23}', "not a JSON object"),
        ('{"orders":{"x":1}}', "not a partition number"),
        ('{"orders":{"-1":1}}', "not a partition number"),
        ('{"orders":{"0":-3}}', "orders-0 must be a number"),
        ('{"orders":{"0":"1"}}', "orders-0 must be a number"),
        ('{"orders":{"0":true}}', "orders-0 must be a number"),
        ('{"orders":{"0":9223372036854775808}}', "orders-0 must be a number"),
    ],
)
def test_invalid_offsets_are_refused(text: str, why: str) -> None:
    """The error names the partition if possible."""
    assert why in (offsets_error(text) or "")


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("PT1H", 3_600_000), ("P1DT2H3M4.5S", 93_784_500), ("pt0.001s", 1), ("P2D", 172_800_000)],
)
def test_valid_durations(text: str, duration_ms: int) -> None:
    """In the form of ``java.time.Duration``."""
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1h", "P1M", "PT-1H", "-PT1H", "PT1H "])
def test_invalid_durations_are_refused(text: str) -> None:
    """Months and negative durations; surrounding spaces are allowed."""
    assert (reset_error(f"by_duration:{text}") is None) == (text == "PT1H ")


def test_reset_policies() -> None:
    """The three names and the duration of Kafka 4; ``none`` is treated as earliest."""
    assert all(reset_error(text) is None for text in ("earliest", "latest", "none"))
    for text in ("", "oldest", "by_duration", "BY_DURATION:PT1H"):
        assert "either" in (reset_error(text) or "")
    assert start_position(None, None, None) == StartPosition()
    assert start_position(None, None, "none") == StartPosition()
    assert start_position("5", '{"t":{"0":1}}', " latest ") == StartPosition(
        5, {TopicPartition("t", 0): 1}, "latest"
    )
    assert start_position("", "", "by_duration:PT1S") == StartPosition(
        reset="by_duration", reset_duration_ms=1000
    )
