"""Decides when a task announces during a read, and how many records may wait for a round.

Rules of this file:
- A round waits for a small read. In a backlog it waits for a batch, or for the end of the read,
  only if that takes a small part of the commit interval.
- Dead letters and rows for topics are held in memory. Too many bytes of them are announced
  without a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from connect.config.connector import ConnectorConfig
from worker.spark.batch_sizing import MESSAGE_BYTES_MAX, ReadSizes
from worker.task.read_ledger import Offsets, ReadLedger
from worker.task.rounds.task_rounds import TaskRounds
from worker.task.run.batch_turns import RunningBatch

ANSWER_SHARE: Final = 0.25  # of interval and timeout: how long an answer may wait for a read
LAST_ANSWER_SHARE: Final = 0.5  # the same, for a batch that reads to the end of the log
UNREAD_RECORDS: Final = 250_000  # may always wait for a round, if icefloe.drain.records is 0


@dataclass(frozen=True, slots=True)
class AnswerTiming:
    """The rules of one task.

    Args:
        config: its connector.
        rounds: the requested round.
        ledger: what is read and not announced.
        sizes: which reads are small, and how fast the task reads.
    """

    config: ConnectorConfig
    rounds: TaskRounds
    ledger: ReadLedger
    sizes: ReadSizes

    @property
    def unread_records_max(self) -> int:
        """How many records may wait for the next round: reading them must not make it late."""
        timely = self.sizes.speed.records_in(self._round_ms * ANSWER_SHARE)
        return self.config.drain_records or max(UNREAD_RECORDS, timely)

    def is_due_during(self, running: RunningBatch | None, ends: Offsets, now_ms: int) -> bool:
        """Return whether to announce while a batch is being written.

        Args:
            running: the batch; None before and after its files are written.
            ends: where the read ends.
            now_ms: monotonic clock.
        """
        requested_ms = self.rounds.requested_ms
        if running is None or self.rounds.requested is None or requested_ms is None:
            return False
        count = running.record_count
        if self.sizes.is_small(count):
            return False
        is_last = self.ledger.unread(ends) <= count
        wait_ms = self._round_ms * (LAST_ANSWER_SHARE if is_last else ANSWER_SHARE)
        left_ms = running.started_ms + self.sizes.speed.duration_ms(count) - now_ms
        return left_ms > wait_ms or now_ms - requested_ms > wait_ms

    def is_due_after(self, ended: RunningBatch, ends: Offsets, now_ms: int) -> bool:
        """Return whether to announce after a batch, in the middle of a read.

        Near the end of the read it is not due: the last records would miss a commit interval.

        Args:
            ended: the batch.
            ends: where the read ends.
            now_ms: monotonic clock.
        """
        if self.ledger.dead_letter_bytes + self.ledger.output_bytes > MESSAGE_BYTES_MAX:
            return True
        count = ended.record_count
        if self.rounds.requested is None or self.sizes.is_small(count):
            return False
        left_ms = self.ledger.unread(ends) * (now_ms - ended.started_ms) / count
        return left_ms > self._round_ms * ANSWER_SHARE

    @property
    def _round_ms(self) -> int:
        """How long a round may take: its interval, or its timeout if that is shorter."""
        return min(self.config.commit_interval_ms, self.config.commit_timeout_ms)
