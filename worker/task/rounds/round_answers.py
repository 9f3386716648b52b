"""Announces what a task has read: the answer of a round, a full backlog, the last pending batches.

Rules of this file:
- An announcement carries every pending batch and the offsets of every partition, in one
  transaction.
- A transaction may begin before its files are written, with the offsets after them. It is aborted
  if something else is announced.
- Stored offsets expire (``offsets.retention.minutes``), so they are stored again at intervals
  while no round asks for an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from connect.clock import Clock
from worker.batch.few_records import BatchRows, FewRecords
from worker.task.read_ledger import OffsetRanges, ReadLedger
from worker.task.rounds.announcer import Announcer
from worker.task.rounds.answer_trace import AnswerTrace
from worker.task.rounds.task_rounds import TaskRounds
from worker.task.rounds.webhook_posts import WebhookPosts
from worker.task.source.source_log import SourceLog
from worker.task.task_metrics import TaskMetrics

STORE_OFFSETS_INTERVAL_MS = 600_000


@dataclass(slots=True)
class RoundAnswers:
    """Announcements and stored offsets of one task.

    Args:
        announcer: sends the transactions.
        source: checked before each announcement.
        ledger: the pending batches.
        rounds: the requested round.
        metrics: count the announcements.
        posts: posts rows to webhooks.
        clock: time and ids.
        trace: collects the spans of the answers.
        commits_files: whether tables get what is announced; rows for topics wait for no commit.
    """

    announcer: Announcer
    source: SourceLog
    ledger: ReadLedger
    rounds: TaskRounds
    metrics: TaskMetrics
    posts: WebhookPosts
    clock: Clock
    trace: AnswerTrace
    commits_files: bool = True
    _stored_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._stored_ms = self.clock.monotonic_ms()

    def prepare(self, rows: BatchRows, ranges: OffsetRanges) -> BatchRows:
        """Prepare the announcement of a batch that is about to become files.

        If its records are in memory and a round waits for them, the check of the topics is
        requested from the broker meanwhile, and the source offsets are sent to it.

        Args:
            rows: of the batch.
            ranges: its source offsets.

        Returns:
            The rows; if Spark reads them again, nothing is prepared.

        Raises:
            Fenced, RetriableError: the requests cannot be sent.
        """
        self._drop_prepared()
        if self.rounds.requested is None or not isinstance(rows, FewRecords):
            return rows
        self.source.request_topic_ids()
        self.announcer.begin_early({**self.ledger.next_offsets, **ranges.ends})
        read = rows.as_rows

        def read_again() -> DataFrame:
            self._drop_prepared()
            return read()

        return replace(rows, as_rows=read_again)

    def announce(self) -> None:
        """Announce everything that is pending, as the answer of the requested round, if any.

        Without a requested round the announcement has a new id. The coordinator commits all
        announced data, and no round counts it as the completion of a task.

        Raises:
            DataLost: a source topic was deleted or created again.
            ConfigError, Fenced, RetriableError: as ``Announcer.announce``, ``TaskProducer.resume``
                and ``WebhookPosts.post``.
        """
        self.announcer.producer.resume(self.ledger.announced_offsets)
        requested = self.rounds.requested
        commit_id = requested or self.clock.new_uuid()
        self.source.check_topics(self.ledger.next_offsets)
        answer = self.ledger.answer()
        started_ms = self.clock.monotonic_ms()
        posted = self.posts.post(answer)
        dead_letters = self.announcer.announce(commit_id, answer, posted.dead_letters)
        self.ledger.announced(answer)
        has_batches = bool(answer.batches) and self.commits_files
        self.rounds.announced(commit_id, has_batches=has_batches)
        self._stored_ms = self.clock.monotonic_ms()
        self.trace.announced(
            requested,
            self.rounds.requested_ms,
            records=sum(source_range.records_read for source_range in answer.ranges),
            announce_ms=started_ms,
        )
        metrics = self.metrics.announcement
        metrics.source_offsets_lost += sum(lost_range.offsets for lost_range in answer.lost)
        self.metrics.outputs.add(
            answer.message_count - posted.refused, answer.message_bytes, posted.refused
        )
        metrics.add(dead_letters, started_ms=started_ms, now_ms=self._stored_ms)
        metrics.rounds_uncommitted = self.rounds.uncommitted_count

    def after_poll(self) -> None:
        """Store the announced offsets again if they are old, and close an unused producer.

        Raises:
            Fenced, RetriableError: as ``Announcer.announce`` and ``TaskProducer.resume``.
        """
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._stored_ms >= STORE_OFFSETS_INTERVAL_MS:
            self.announcer.producer.resume(self.ledger.announced_offsets)
            self.announcer.store_offsets(self.ledger.announced_offsets)
            self._stored_ms = now_ms
        if not (self.ledger.pending or self.ledger.lost):
            self.announcer.producer.close_if_idle()

    def _drop_prepared(self) -> None:
        self.source.drop_request()
        self.announcer.producer.drop_early()
