"""The run loop of a task, between a successful start and the stop or the first error.

Rules of this file:
- A round is answered after a read to the end of the log. In a backlog it is answered earlier, with
  the batches that are ready, so that no commit interval passes without data. If a batch takes long,
  its round is answered while it runs.
- While a query runs, its callback and the task's thread take turns (``batch_turns``).
- Nothing is read while too many announced rounds are not committed.
- A task that starts does not wait for a round to read the few records that are there. This read
  is slow, because Java loads classes and the tables are opened. A round then finds it done.
- After a small read, tables that are due are loaded between two rounds, so the next read does not
  wait for them. An idle task loads none.
- A producer that no round uses is closed when the source is polled.
- After an error the run ends: pending batches are not announced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from connect.errors import DataLost, RetriableError
from control_schemas.events import LostRange
from worker.batch.few_records import BatchRows
from worker.spark.session import Session
from worker.task.batches.batch_processor import BatchProcessor
from worker.task.read_ledger import OffsetRanges, Offsets, ReadLedger
from worker.task.rounds.control_listener import ControlListener
from worker.task.rounds.round_answers import RoundAnswers
from worker.task.rounds.task_rounds import TaskRounds
from worker.task.run.answer_timing import AnswerTiming
from worker.task.run.batch_turns import BatchTurns, RunningBatch
from worker.task.source.source_log import SourceLog
from worker.task.source.source_reader import SourceReader
from worker.task.task_context import TaskContext, TaskSetup

SOURCE_POLL_MS = 1_000
SOURCE_POLL_MS_MAX = 10_000  # while no records arrive
SOURCE_POLLS = 30  # at least so many in a commit interval, if that is long enough

log = structlog.get_logger("worker.task")


@dataclass(slots=True)
class _SourcePolls:
    """Polls of the source between rounds.

    Attributes:
        last_ms: time of the last poll (monotonic clock).
        pause_ms: time until the next one.
        has_read: whether a poll had the chance to read a backlog.
    """

    last_ms: int = 0
    pause_ms: int = SOURCE_POLL_MS
    has_read: bool = False


@dataclass(slots=True)
class TaskRun:
    """One run of a task.

    ``serve`` is the loop. Each pass calls one or two of these verbs:

    - ``receive`` takes events from the control topic.
    - ``answer_round`` reads to the end of the log and announces, once a round is requested.
    - ``read_backlog`` reads without a request, once enough records wait, and once at the start.
    - ``refresh_tables`` loads the tables that are due.
    - ``drain`` announces what is pending, after a stop request.

    Args:
        setup: the task.
        source: its partitions in Kafka.
        control: the coordinator's events.
        rounds: the rounds of the connector, as far as this task knows them.
        ledger: what is read and not announced.
        reader: reads offset ranges with Spark.
        batches: processes each micro-batch that the reader delivers.
        answers: announces the pending batches.
    """

    setup: TaskSetup
    source: SourceLog
    control: ControlListener
    rounds: TaskRounds
    ledger: ReadLedger
    reader: SourceReader
    batches: BatchProcessor
    answers: RoundAnswers
    _polls: _SourcePolls = field(default_factory=_SourcePolls, init=False)
    _reading_to: Offsets = field(default_factory=dict, init=False)
    _turns: BatchTurns = field(default_factory=BatchTurns, init=False)
    _has_read_little: bool = field(default=False, init=False)

    @property
    def _timing(self) -> AnswerTiming:
        config = self.setup.config
        return AnswerTiming(config, self.rounds, self.ledger, self.reader.sizes)

    def serve(self) -> None:
        """Serve rounds until a stop or new secrets, then announce what is pending.

        Raises:
            IcefloeError: as ``ConnectorTask.run_once``.
        """
        while not (self.setup.stop.is_stopping or self.setup.is_outdated):
            self.setup.progress.made()
            self.receive(self._control_poll_ms())
            if self.rounds.requested is not None:
                self.answer_round()
            elif self._now_ms() - self._polls.last_ms >= self._polls.pause_ms:
                self.read_backlog()
                self.answers.after_poll()
            elif self._has_read_little and self.rounds.is_between:
                self.refresh_tables()
        self.drain()

    def receive(self, timeout_ms: int) -> None:
        """Take the coordinator's events; wait up to ``timeout_ms`` for the first one."""
        self.control.poll(timeout_ms)
        self.setup.metrics.announcement.rounds_uncommitted = self.rounds.uncommitted_count

    def answer_round(self) -> None:
        """Read once more to the end of the log, then announce, if the round is still open."""
        if not self._is_held_back():
            self.answers.trace.read_begins()
            polled_at_ms = self.setup.clock.now_ms()
            # the end of the log includes records of open transactions, which cannot be read yet
            high_watermarks = self.source.high_watermarks()
            self._read(self._poll_source(high_watermarks))
            self.ledger.see_ends(high_watermarks, polled_at_ms=polled_at_ms)
        if self.rounds.requested is not None:
            self.answers.announce()

    def read_backlog(self) -> None:
        """Read to the end of the log if enough records wait, so that rounds stay short."""
        if self._is_held_back():
            self._polls.last_ms = self._now_ms()
            return
        ends = self._poll_source()
        if not (unread := self.ledger.unread(ends)):
            self.setup.reports_work()
        self._polls.pause_ms = poll_after_ms(
            self._polls.pause_ms, self.setup.config.commit_interval_ms, is_idle=not unread
        )
        is_early = not self._polls.has_read and bool(unread) and self.reader.sizes.is_small(unread)
        self._polls.has_read = True
        if is_early or unread >= self._timing.unread_records_max:
            self._read(ends)
        if is_early:
            self.receive(0)
            if self.rounds.requested is not None:
                self.answers.announce()  # reading what arrived meanwhile would be slow as well

    def refresh_tables(self) -> None:
        """Load tables that are due, after a small read.

        Raises:
            CommitRefused, ConfigError, RetriableError: as ``BatchRunner.refresh``.
        """
        self._has_read_little = False
        self.batches.runner.refresh()

    def drain(self) -> None:
        """Announce what is pending, so that the next task does not read it again."""
        if self.ledger.pending or self.ledger.lost:
            self.answers.announce()

    def pass_lost(self) -> bool:
        """Move positions past records that were deleted, if the connector continues after loss.

        Returns:
            Whether a position was moved.

        Raises:
            RetriableError: the broker does not answer.
        """
        if self.setup.config.fail_on_data_loss:
            return False
        lost = self.ledger.skip(self.source.log_starts_above(self.ledger.next_offsets))
        _log_lost(lost, self.setup)
        self.setup.losses.add(lost)
        return bool(lost)

    def _read(self, ends: Offsets) -> None:
        """Read to ``ends``; retry with other sizes when the results of a batch do not fit."""
        self._reading_to = ends
        sizes, runner = self.reader.sizes, self.batches.runner
        while (ranges := self.ledger.ranges_to(ends)).record_count_max:
            self.setup.progress.made()
            runner.refresh()
            sizes.may_enlarge = runner.may_enlarge
            try:
                self._read_ranges(ranges, ends)
            except RetriableError as error:
                if not sizes.adapt_to(error.code, ranges.record_count_max):
                    raise
            except DataLost as error:
                if "partition" not in error.coordinates:  # Spark does not name the partition
                    self.source.check_positions(self.ledger.next_offsets)
                if not self.pass_lost():
                    raise error.at(connector=self.setup.config.name) from error
                self.setup.reports_losses()
            else:
                self.setup.check_timeout()
                return

    def _read_ranges(self, ranges: OffsetRanges, ends: Offsets) -> None:
        sizes = self.reader.sizes
        cancels = partial(self.setup.must_cancel, self.reader.session)
        self._has_read_little = sizes.is_small(ranges.record_count_max)
        if not self.batches.runner.is_primed:
            first = ranges.head(sizes.first_records)
            self.reader.read_batch(first, self._process, must_cancel=cancels)
            self.setup.check_timeout()
            ranges = self.ledger.ranges_to(ends)
            # the first large batch of a backlog takes long: answer before it
            if self.rounds.requested is not None and not sizes.is_small(ranges.record_count_max):
                self.answers.announce()
        self.reader.read(
            ranges,
            self._process,
            is_stopping=self._starts_no_batch,
            on_wait=self._serve_while_reading,
            must_cancel=cancels,
        )

    def _process(self, rows: BatchRows, ranges: OffsetRanges) -> None:
        """Take one micro-batch of the reader; announce it at once where an answer is urgent."""
        started_ms = self._now_ms()
        self.setup.progress.made()
        with self._turns.of_callback():
            valid_through_ms = self.rounds.valid_through_ms
            rows = self.answers.prepare(rows)
            running = RunningBatch(ranges.record_count_max, started_ms)
            awaited = awaited_executors(self.reader.session, self.setup.context)
            with self._turns.writing(running), awaited:
                batch = self.batches.write(rows, ranges, valid_through_ms)
            self.answers.trace.wrote(running.record_count, started_ms=started_ms)
            self.batches.add(batch, started_ms=started_ms)
            self.setup.reports_work()
            self.receive(0)
            if self._timing.is_due_after(running, self._reading_to, self._now_ms()):
                self.answers.announce()

    def _starts_no_batch(self) -> bool:
        if self._turns.has_failed:
            return True
        with self._turns.of_callback():
            return self.setup.stop.is_stopping or self._is_held_back()

    def _serve_while_reading(self) -> bool:
        """Answer a round in the middle of a long batch; return whether to cancel the batch.

        Raises:
            IcefloeError: as ``RoundAnswers.announce``. No batch is added or announced after it.
        """
        with self._turns.of_thread() as has_turn:
            if has_turn:
                self.receive(0)
                if self._timing.is_due_during(
                    self._turns.running, self._reading_to, self._now_ms()
                ):
                    self.answers.announce()
        return self.setup.must_cancel(self.reader.session)

    def _poll_source(self, high_watermarks: Offsets | None = None) -> Offsets:
        """Return how far each partition can be read, and update the metrics of the source."""
        self._polls.last_ms = self._now_ms()
        stable = self.source.ends(self.ledger.next_offsets)
        metrics = self.setup.metrics.source
        if high_watermarks is not None:
            metrics.lso_stalled = self.source.stalled_count(
                stable, high_watermarks, self._polls.last_ms
            )
        ends = self.source.readable(stable)
        metrics.lag_records = self.ledger.unread(ends)
        metrics.lag_records_partition_max = self.ledger.unread_max(ends)
        return ends

    def _is_held_back(self) -> bool:
        """Return whether back-pressure forbids to read; log when that changes."""
        is_held_back = self.rounds.must_pause(self._now_ms(), has_pending=bool(self.ledger.pending))
        metrics = self.setup.metrics.source
        if is_held_back and not metrics.is_held_back:
            log.warning(
                "reading paused until the coordinator commits a round",
                uncommitted_rounds=self.rounds.uncommitted_count,
                **self.setup.log_labels,
            )
        elif metrics.is_held_back and not is_held_back:
            log.info("reading resumed", **self.setup.log_labels)
        if is_held_back != metrics.is_held_back:
            self.setup.context.waits_for("the coordinator to commit" if is_held_back else None)
        metrics.is_held_back = is_held_back
        return is_held_back

    def _control_poll_ms(self) -> int:
        """Return the time until the next poll of the source; events and a stop end the wait."""
        since_poll_ms = self._now_ms() - self._polls.last_ms
        return max(1, self._polls.pause_ms - since_poll_ms)

    def _now_ms(self) -> int:
        return self.setup.clock.monotonic_ms()


def _log_lost(lost: Sequence[LostRange], setup: TaskSetup) -> None:
    for lost_range in lost:
        log.warning(
            "source records were deleted before they were read; the task continues after them",
            topic=lost_range.topic,
            partition=lost_range.partition,
            start_offset=lost_range.start_offset,
            end_offset=lost_range.end_offset,
            code="source_data_lost",
            **setup.log_labels,
        )


@contextlib.contextmanager
def awaited_executors(session: Session, context: TaskContext) -> Iterator[None]:
    """Show during the block that the task waits for an executor, if a cluster has none.

    Spark starts the job in any case: a cluster may start executors because tasks wait.
    """
    awaits = session.cluster is not None and not session.executor_count
    if awaits:
        context.waits_for(f"an executor: none is registered with {session.cluster}")
    yield
    if awaits:
        context.waits_for(None)


def poll_after_ms(last_ms: int, commit_interval_ms: int, *, is_idle: bool) -> int:
    """Return the time until the next poll of the source, between rounds.

    A task without records asks the broker less and less often: a hundred idle connectors would
    otherwise send a hundred requests a second. Each round polls the source as well.

    Args:
        last_ms: the time before the last poll.
        commit_interval_ms: of the connector.
        is_idle: the last poll saw no unread record.
    """
    if not is_idle:
        return SOURCE_POLL_MS
    longest_ms = min(commit_interval_ms // SOURCE_POLLS, SOURCE_POLL_MS_MAX)
    return max(SOURCE_POLL_MS, min(2 * last_ms, longest_ms))
