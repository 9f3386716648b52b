"""Announces what a task has read: the answer of a round, a full backlog, the last pending batches.

Rules of this file:
- An announcement carries every pending batch and the offsets of every partition, in one
  transaction.
- A transaction may begin before its files are written, with the offsets after them. It is aborted
  if something else is announced.
- Files that are in no table are removed as orphans by their age, by maintenance or by operators. So
  a file is announced soon, with or without a round, and never when it is old: a frozen worker may
  wake after its pending files were removed.
- Stored offsets expire (``offsets.retention.minutes``), so they are stored again at intervals
  while no round asks for an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from connect.clock import Clock
from connect.errors import RetriableError
from worker.batch.few_records import BatchRows, FewRecords
from worker.task.read_ledger import ReadLedger
from worker.task.rounds.announcer import Announcer
from worker.task.rounds.answer_trace import AnswerTrace
from worker.task.rounds.task_rounds import TaskRounds
from worker.task.rounds.webhook_posts import WebhookPosts
from worker.task.source.source_log import SourceLog
from worker.task.task_metrics import TaskMetrics

STORE_OFFSETS_INTERVAL_MS = 600_000
ANNOUNCED_EARLY_MS = 21_600_000
"""Age of a pending batch from which it is announced without a round."""
FILE_AGE_MS_MAX = 72_000_000
"""20 hours. The removal of orphan files spares files that are a day older than an announcement."""


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
    _begun_ms: int = field(default=0, init=False)  # the last batch, wall clock
    _oldest_ms: int = field(default=0, init=False)  # the first batch that may be pending

    def __post_init__(self) -> None:
        self._stored_ms = self.clock.monotonic_ms()

    def prepare(self, rows: BatchRows) -> BatchRows:
        """Prepare the announcement of a batch that is about to become files.

        If its records are in memory and a round waits for them, the check of the topics is
        requested from the broker meanwhile.

        Args:
            rows: of the batch.

        Returns:
            The rows; if Spark reads them again, nothing is prepared.

        Raises:
            RetriableError: the request cannot be sent.
        """
        self.source.drop_request()
        self._begun_ms = self.clock.now_ms()
        if not self.ledger.pending:
            self._oldest_ms = self._begun_ms
        if self.rounds.requested is None or not isinstance(rows, FewRecords):
            return rows
        self.source.request_topic_ids()
        read = rows.as_rows

        def read_again() -> DataFrame:
            self.source.drop_request()
            return read()

        return replace(rows, as_rows=read_again)

    def announce(self) -> None:
        """Announce everything that is pending, as the answer of the requested round, if any.

        Without a requested round the announcement has a new id. The coordinator commits all
        announced data, and no round counts it as the completion of a task.

        Raises:
            DataLost: a source topic was deleted or created again.
            ConfigError, Fenced, RetriableError: as ``Announcer.announce``, ``TaskProducer.resume``
                and ``WebhookPosts.post``; ``files_too_old``: the pending files may have been
                removed as orphans.
        """
        if self._pending_age_ms > FILE_AGE_MS_MAX:
            raise RetriableError(
                "files waited for their announcement for too long and may have been removed as "
                "orphans: their records are read again",
                code="files_too_old",
            )
        self.announcer.producer.resume(self.ledger.announced_offsets)
        requested = self.rounds.requested
        commit_id = requested or self.clock.new_uuid()
        self.source.check_topics(self.ledger.next_offsets)
        answer = self.ledger.answer()
        started_ms = self.clock.monotonic_ms()
        posted = self.posts.post(answer)
        dead_letters = self.announcer.announce(commit_id, answer, posted.dead_letters)
        self.ledger.announced(answer)
        self._oldest_ms = self._begun_ms  # that batch may still run
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
        """Announce files that wait for long, store old offsets again, close an unused producer.

        Raises:
            IcefloeError: as ``announce``.
        """
        if self._pending_age_ms >= ANNOUNCED_EARLY_MS:
            self.announce()
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._stored_ms >= STORE_OFFSETS_INTERVAL_MS:
            self.announcer.producer.resume(self.ledger.announced_offsets)
            self.announcer.store_offsets(self.ledger.announced_offsets)
            self._stored_ms = now_ms
        if not (self.ledger.pending or self.ledger.lost):
            self.announcer.producer.close_if_idle()

    @property
    def _pending_age_ms(self) -> int:
        """Time since the oldest pending batch began, at least that of its files; wall clock."""
        return self.clock.now_ms() - self._oldest_ms if self.ledger.pending else 0
