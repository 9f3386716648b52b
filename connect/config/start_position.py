"""Where a connector starts to read: parsed values of ``icefloe.start.*`` and ``auto.offset.reset``.

Rules of this file:
- A committed source offset always wins over these settings.
- ``StartPosition.offsets`` applies to every partition that it names. ``timestamp_ms`` applies to
  the partitions of the first layout only (``SourceFloor.starts``). ``reset`` applies to the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from connect.model.layout import TopicPartition
from control_schemas import bounded_json

EARLIEST: Final = -2
"""Offset in ``icefloe.start.offsets`` that means the start of the log, as in Spark."""
LATEST: Final = -1
"""Offset in ``icefloe.start.offsets`` that means the end of the log, as in Spark."""
BY_DURATION: Final = "by_duration:"
OFFSETS_FORM: Final = '{"orders":{"0":23,"1":-2}}'

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONG_MAX = 2**63 - 1
_EPOCH_MS = re.compile(r"[0-9]{1,18}")
_DURATION = re.compile(
    r"P(?=.)(?:([0-9]{1,9})D)?(?:T(?=.)(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?"
    r"(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where partitions without a committed source offset start.

    Attributes:
        timestamp_ms: milliseconds since 1970 UTC, for the partitions of the first layout.
        offsets: next source offset by partition; ``EARLIEST`` and ``LATEST`` are allowed.
        reset: policy for all other partitions.
        reset_duration_ms: for ``by_duration``: how long before its first start a partition begins.
    """

    timestamp_ms: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    reset: Literal["earliest", "latest", "by_duration"] = "earliest"
    reset_duration_ms: int = 0


def start_position(timestamp: str | None, offsets: str | None, reset: str | None) -> StartPosition:
    """Return the settings of a connector.

    Args:
        timestamp: ``icefloe.start.timestamp``.
        offsets: ``icefloe.start.offsets``.
        reset: ``auto.offset.reset`` of the consumer; anything but ``latest`` and ``by_duration:``
            is the earliest offset.

    Raises:
        ValueError: a text cannot be parsed.
    """
    policy = (reset or "").strip()
    timestamp_ms = parse_timestamp(timestamp) if timestamp else None
    start = StartPosition(timestamp_ms, parse_offsets(offsets) if offsets else {})
    if policy == "latest":
        return StartPosition(start.timestamp_ms, start.offsets, "latest")
    if policy.startswith(BY_DURATION):
        duration_ms = parse_duration(policy[len(BY_DURATION) :])
        return StartPosition(start.timestamp_ms, start.offsets, "by_duration", duration_ms)
    return start


def parse_timestamp(text: str) -> int:
    """Return milliseconds since 1970 of an ISO-8601 instant with a zone, or of epoch milliseconds.

    Raises:
        ValueError: the text is neither, or is before 1970.
    """
    text = text.strip()
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "not an ISO-8601 instant such as 2026-01-02T03:04:05Z, and not milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        raise ValueError("the instant has no time zone; add Z or an offset such as +02:00")
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ValueError("the instant is before 1970")
    return milliseconds


def parse_duration(text: str) -> int:
    """Return the milliseconds of an ISO-8601 duration as Java writes it: ``P1DT2H3M4.5S``.

    Raises:
        ValueError: it is not such a duration, or is negative.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("not an ISO-8601 duration such as PT1H or P1DT12H")
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    seconds = float(match[4] or 0)
    return round(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Parse start offsets in the form of Spark's ``startingOffsets``, as ``OFFSETS_FORM``.

    Raises:
        ValueError: it has another form, or an offset below -2.
    """
    try:
        topics = bounded_json.loads(text)
    except ValueError:
        raise ValueError(f"not JSON in the form {OFFSETS_FORM}") from None
    if not isinstance(topics, dict) or not all(isinstance(p, dict) for p in topics.values()):
        raise ValueError(f"not a JSON object in the form {OFFSETS_FORM}")
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        for partition, offset in partitions.items():
            if not (partition.isascii() and partition.isdecimal() and len(partition) < 10):
                raise ValueError(f"{partition!r} of topic {topic} is not a partition number")
            if type(offset) is not int or not EARLIEST <= offset <= _LONG_MAX:
                raise ValueError(
                    f"the offset of {topic}-{partition} must be a number from 0, "
                    "-2 (earliest) or -1 (latest)"
                )
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def timestamp_error(text: str | None) -> str | None:
    """Check ``icefloe.start.timestamp``."""
    return _error(parse_timestamp, text)


def offsets_error(text: str | None) -> str | None:
    """Check ``icefloe.start.offsets``."""
    return _error(parse_offsets, text)


def reset_error(text: str | None) -> str | None:
    """Check the consumer's ``auto.offset.reset``, with the values of Kafka 4.3.

    Source:
        ``AutoOffsetResetStrategy`` of Kafka's clients.
    """
    if text in {"latest", "earliest", "none"}:
        return None
    if (text or "").startswith(BY_DURATION):
        return _error(parse_duration, (text or "")[len(BY_DURATION) :])
    return (
        "The value must be either 'earliest', 'latest', 'none' or of the format "
        "'by_duration:<PnDTnHnMn.nS.>'."
    )


def _error(parse: Callable[[str], object], text: str | None) -> str | None:
    try:
        parse(text or "")
    except ValueError as error:
        return str(error)
    return None
