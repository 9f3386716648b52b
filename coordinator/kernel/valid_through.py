"""The valid-through timestamp (VTTS) of a round.

Rules of this file:
- A VTTS is claimed only when every expected partition gave a timestamp in the same round.
- A VTTS never goes back. An earlier claim stays true for the partitions that it covers, so a round
  may repeat it for them. A partition that was added later must catch up first; until then the
  round claims nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from connect.model.layout import TopicPartition
from control_schemas.events import DataComplete


def timestamps(
    completions: Iterable[DataComplete], *, until_us: int | None = None
) -> dict[TopicPartition, int | None]:
    """Return up to when each partition is read, microseconds UTC; the later completion wins.

    Args:
        completions: the answers of one round, in control order.
        until_us: a later timestamp is ignored, as if the partition gave none.
    """
    return {
        TopicPartition(a.topic, a.partition): a.timestamp_us
        if until_us is None or a.timestamp_us is None or a.timestamp_us <= until_us
        else None
        for completion in completions
        for a in completion.assignments or ()
    }


class ValidThroughClaims:
    """The last VTTS that was claimed, and what the next round may claim.

    Args:
        future_max_ms: how far a task's timestamp may be ahead of ``now_us``; None accepts every
            timestamp.

    Attributes:
        now_us: wall clock of the last tick, microseconds UTC.
        last_us: the last claimed VTTS, microseconds UTC.
        last_partitions: the source partitions that it covers; empty when unknown.
    """

    def __init__(self, future_max_ms: int | None) -> None:
        self.now_us = 0
        self.last_us: int | None = None
        self.last_partitions: frozenset[TopicPartition] = frozenset()
        self._future_max_ms = future_max_ms

    def next_us(
        self, completions: Iterable[DataComplete], expected: Collection[TopicPartition]
    ) -> int | None:
        """Return the VTTS that a covered round may claim; see ``valid_through``."""
        ahead_ms = self._future_max_ms
        until_us = None if ahead_ms is None else self.now_us + ahead_ms * 1000
        return valid_through(
            timestamps(completions, until_us=until_us),
            expected,
            last_us=self.last_us,
            last_expected=self.last_partitions,
        )

    def claimed(self, valid_through_us: int, partitions: frozenset[TopicPartition]) -> None:
        """A round claimed this VTTS for these partitions."""
        self.last_us, self.last_partitions = valid_through_us, partitions

    def read(self, valid_through_us: int) -> None:
        """An earlier round of the connector claimed this VTTS: never claim less."""
        self.last_us = max(self.last_us or 0, valid_through_us)

    def reset(self) -> None:
        """An operator reset the VTTS: earlier claims do not count."""
        self.last_us, self.last_partitions = None, frozenset()


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
    read_until = [read.get(tp) for tp in expected]
    known = [t for t in read_until if t is not None]
    if not known or len(known) < len(read_until):
        return None
    lowest_us = min(known) // 1000 * 1000
    if last_us is None or lowest_us >= last_us:
        return lowest_us
    return last_us if set(expected) <= set(last_expected) else None
