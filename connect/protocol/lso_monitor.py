"""Partitions that cannot be read because of an open transaction of another producer.

Rules of this file:
- Readers of committed records stop at the last stable offset (LSO). A transaction that stays open
  holds the LSO until the broker aborts it. Icefloe reports that, and does not abort it.
- Transactions that begin and end are no stall: the LSO advances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from connect.model.layout import TopicPartition

log = structlog.get_logger("stalls")


@dataclass(slots=True)
class LsoMonitor:
    """Watches the LSO of partitions.

    Args:
        stalled_ms: an LSO that does not advance for so long, with records after it, is a stall.
        connector: for the log.
    """

    stalled_ms: int
    connector: str
    _held: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    _reported: set[TopicPartition] = field(default_factory=set)

    def inspect(
        self,
        ends: Mapping[TopicPartition, int],
        high_watermarks: Mapping[TopicPartition, int],
        now_ms: int,
    ) -> int:
        """Return how many partitions are stalled, and log new and ended stalls.

        Args:
            ends: LSO of each partition.
            high_watermarks: end of each log, read before ``ends``.
            now_ms: monotonic clock.
        """
        for tp, end in ends.items():
            before = self._held.get(tp)
            if high_watermarks[tp] <= end:
                self._held.pop(tp, None)
            elif before is None or before[0] != end:
                self._held[tp] = (end, now_ms)
        stalled = {tp for tp, (_, since) in self._held.items() if now_ms - since >= self.stalled_ms}
        for tp in sorted(stalled - self._reported):
            log.warning(
                "records cannot be read because a transaction before them is open; end it, or "
                "wait until the broker aborts it (transaction.timeout.ms of its producer)",
                code="lso_stalled",
                connector=self.connector,
                topic=tp.topic,
                partition=tp.partition,
                last_stable_offset=ends[tp],
                waiting=high_watermarks[tp] - ends[tp],
            )
        for tp in sorted(self._reported - stalled):
            log.info(
                "records after the last stable offset can be read again",
                connector=self.connector,
                topic=tp.topic,
                partition=tp.partition,
            )
        self._reported = stalled
        return len(stalled)
