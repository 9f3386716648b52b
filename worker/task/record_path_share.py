"""Warns of tasks that process many records one by one.

Rules of this file:
- An hour is judged when it has passed. A task that processes few records warns of nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import structlog

from worker.task.read_ledger import WrittenBatch

HOUR_MS: Final = 3_600_000
SHARE_MAX: Final = 0.01
RECORDS_MIN: Final = 1_000

CURES: Final = {
    "no_column_form": "replace the converters and transformations that have no column form",
    "not_decoded": "let the source send the fields of each topic in one order and with one type, "
    "decimals as texts or bytes, and choices of a number, a text and a boolean only",
    "not_converted": "give the columns of the table the types of the fields",
}

log = structlog.get_logger("worker.task")


@dataclass(slots=True)
class RecordPathShare:
    """Records of a task in the present hour, by the monotonic clock."""

    _since_ms: int | None = None
    _read: int = 0
    _alone: Counter[str] = field(default_factory=Counter)

    def add(self, batch: WrittenBatch, now_ms: int, **labels: object) -> None:
        """Count a batch; warn if the hour has passed and its share was too high.

        Args:
            batch: the batch.
            now_ms: monotonic clock.
            labels: for the log.
        """
        if self._since_ms is None:
            self._since_ms = now_ms
        self._read += batch.records_read
        for progress in batch.progress.values():
            self._alone.update(progress.alone)
        if now_ms - self._since_ms < HOUR_MS:
            return
        count = self._alone.total()
        if count >= RECORDS_MIN and count > SHARE_MAX * self._read:
            ((reason, _),) = self._alone.most_common(1)
            log.warning(
                "many records are processed one by one, which takes about ten times the CPU",
                records=count,
                share=round(count / self._read, 4),
                reason=reason,
                cure=CURES[reason],
                **labels,
            )
        self._since_ms, self._read = now_ms, 0
        self._alone.clear()
