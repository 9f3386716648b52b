"""The valid-through timestamp (VTTS) of a round.

Rules of this file:
- A VTTS is claimed only when every expected partition gave a timestamp in this very round.
- It never goes back. A claim made before stays true for the partitions it was made for, so it may
  be repeated for them; for a partition that came later it may not, and nothing is claimed until
  that partition has caught up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from connect.model.layout import TopicPartition
from control_schemas.events import DataComplete


def timestamps(
    completions: Iterable[DataComplete], *, until_us: int | None = None
) -> dict[TopicPartition, int | None]:
    """Up to when each partition is read, microseconds UTC; the later completion wins.

    Args:
        completions: the answers of one round, in control order.
        until_us: a later timestamp is not believed: its partition gave none.
    """
    return {
        TopicPartition(a.topic, a.partition): a.timestamp_us
        if until_us is None or a.timestamp_us is None or a.timestamp_us <= until_us
        else None
        for completion in completions
        for a in completion.assignments or ()
    }


def valid_through(
    read: Mapping[TopicPartition, int | None],
    expected: Collection[TopicPartition],
    *,
    last_us: int | None,
    last_expected: Collection[TopicPartition],
) -> int | None:
    """Return the instant up to which every source record is in the tables.

    Args:
        read: per partition up to when it is read in this round, microseconds UTC.
        expected: the partitions of the current layout.
        last_us: the last VTTS given.
        last_expected: the partitions it was given for; empty when unknown.

    Returns:
        Microseconds UTC, whole milliseconds, not below ``last_us``; None when an expected
        partition gave no timestamp, when there is none, or when a partition that ``last_us`` was
        not given for is still behind it.

    Source:
        Iceberg Kafka Connect, CommitState; differs by coverage instead of count.
    """
    given = [read.get(tp) for tp in expected]
    known = [t for t in given if t is not None]
    if not known or len(known) < len(given):
        return None
    lowest_us = min(known) // 1000 * 1000
    if last_us is None or lowest_us >= last_us:
        return lowest_us
    return last_us if set(expected) <= set(last_expected) else None
