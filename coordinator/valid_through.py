"""The valid-through timestamp (VTTS) of a round.

Rules of this file:
- A VTTS is claimed only when every expected partition gave a timestamp in this very round.
- It never goes back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from connect.layout import TopicPartition
from control_schemas.events import DataComplete


def timestamps(completions: Iterable[DataComplete]) -> dict[TopicPartition, int | None]:
    """Up to when each partition is read, microseconds UTC; the later completion wins.

    Args:
        completions: the answers of one round, in control order.
    """
    return {
        TopicPartition(a.topic, a.partition): a.timestamp_us
        for completion in completions
        for a in completion.assignments or ()
    }


def valid_through(
    read: Mapping[TopicPartition, int | None],
    expected: Collection[TopicPartition],
    *,
    last_us: int | None,
) -> int | None:
    """Return the instant up to which every source record is in the tables.

    Args:
        read: per partition up to when it is read in this round, microseconds UTC.
        expected: the partitions of the current layout.
        last_us: the last VTTS given.

    Returns:
        Microseconds UTC, whole milliseconds, not below ``last_us``; None when an expected
        partition gave no timestamp, or when there is none.

    Source:
        Iceberg Kafka Connect, CommitState; differs by coverage instead of count.
    """
    given = [read.get(tp) for tp in expected]
    known = [t for t in given if t is not None]
    if not known or len(known) < len(given):
        return None
    lowest_us = min(known) // 1000 * 1000
    return lowest_us if last_us is None else max(lowest_us, last_us)
