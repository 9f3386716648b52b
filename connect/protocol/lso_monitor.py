"""Partitions that an open transaction of somebody else keeps from being read.

Rules of this file:
- Readers of committed records stop at the last stable offset (LSO). A transaction that nobody ends
  holds it, and with it everything behind, until the broker aborts it: that is told, not mended.
- Transactions that come and go are no stall: their LSO moves.
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
        stalled_ms: an LSO that stands still so long, with records behind it, is a stall.
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
        """Take a look; return how many partitions are stalled, and log what is new.

        Args:
            ends: LSO of each partition.
            high_watermarks: end of each log, asked for no later than ``ends``.
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
                "an open transaction holds the records behind it back; end it, or wait until the "
                "broker does (transaction.timeout.ms of its producer)",
                code="lso_stalled", connector=self.connector, topic=tp.topic,
                partition=tp.partition, last_stable_offset=ends[tp],
                waiting=high_watermarks[tp] - ends[tp],
            )  # fmt: skip
        for tp in sorted(self._reported - stalled):
            log.info(
                "records are no longer held back", connector=self.connector, topic=tp.topic,
                partition=tp.partition,
            )  # fmt: skip
        self._reported = stalled
        return len(stalled)
