"""One task: from taking over its transactional id to the stop.

Rules of this file:
- Order of a start: fence predecessors, make sure no newer layout exists, read the committed source
  offsets. Never the other way round.
- One thread owns everything here. The callback of a streaming query runs in a thread of Spark's,
  but only while the task's own thread waits for that query.
- After any error the producer and all pending batches are thrown away. A retriable error starts
  over from the committed source offsets, with back-off; anything else is final.
- Nothing is read while too many announced rounds are not known to be committed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import structlog
from pyspark.sql import DataFrame

from connect import failpoints
from connect.config.connector import ConnectorConfig
from connect.errors import CommitError, CommitRefused, DataLost, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader, TransactionalProducer, client_properties
from connect.protocol.java_sink_members import GROUP_IN_USE, committed_offsets, wait_until_left
from connect.protocol.lso_monitor import LsoMonitor
from connect.protocol.offset_loss import OffsetLoss
from worker.spark.batch_sizing import LETTER_BYTES_MAX, ReadSizes
from worker.spark.source_options import check_positions, source_options
from worker.task.announcer import Announcer
from worker.task.control_listener import ControlListener, ControlUpdate
from worker.task.dead_letter_limits import DeadLetterLimits
from worker.task.layout_check import check_layout
from worker.task.read_ledger import Backlog, Ledger, Offsets, Slice
from worker.task.record_errors import RecordErrors
from worker.task.source_reader import Drain
from worker.task.task_context import TaskAssignment, TaskContext
from worker.task.task_metrics import TaskMetrics
from worker.task.topic_identities import SourceTopics

LOOK_MS, LISTEN_MS = 1_000, 250
KEEP_MS = 600_000
RESTART_MIN_MS, RESTART_MAX_MS = 500, 30_000
FAILURES_UNTIL_REPORTED = 5
FAILING_MS_MAX = 30_000  # a broker that does not answer takes this long to fail once
ANSWER_SHARE = 0.25  # of interval and timeout: how long an answer may wait for a drain's end
RESET_LOOKS = 5  # a new leader may for a moment not know how far its log is committed

log = structlog.get_logger("worker.task")


@dataclass(slots=True)
class ConnectorTask:
    """One task of one connector; ``run`` blocks until ``stop`` or a final error."""

    config: ConnectorConfig
    assignment: TaskAssignment
    wiring: TaskContext
    measurements: TaskMetrics = field(default_factory=TaskMetrics)
    _stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def transactional_id(self) -> str:
        """``<group.id>-<connector>-<task>``."""
        return f"{self.wiring.node_group_id}-{self.config.name}-{self.assignment.task}"

    @property
    def is_stopping(self) -> bool:
        """True once ``stop`` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End after the batch that is being read; may be called from any thread."""
        self._stopping.set()

    def pause(self, duration_ms: int) -> None:
        """Wait, but not once ``stop`` was called."""
        self._stopping.wait(duration_ms / 1000)

    def run(self) -> None:
        """Read, write and announce until stopped.

        Raises:
            Fenced: another task of this id runs, or a newer layout exists.
            DataLost: source records are gone, with the range.
            RecordError: a record cannot be handled and nothing tolerates it.
            ConfigError, CommitRefused: an operator must act.
            InvariantViolation: a bug.
        """
        clock = self.wiring.clock
        failures = since_ms = 0
        while not self._stopping.is_set():
            announced = self.measurements.announcements
            if not failures:
                since_ms = clock.monotonic_ms()
            try:
                with contextlib.closing(_TaskRun(self)) as life:
                    life.live()
            except (RetriableError, CommitError) as e:
                if isinstance(e, CommitRefused):
                    raise
                if self.measurements.announcements > announced:
                    failures, since_ms = 0, clock.monotonic_ms()
                failures += 1
                is_long = clock.monotonic_ms() - since_ms >= FAILING_MS_MAX
                self.measurements.retries += 1
                doublings = 0 if e.code == GROUP_IN_USE else failures - 1  # that wait was long
                delay_ms = min(RESTART_MIN_MS * 2**doublings, RESTART_MAX_MS)
                log.warning(
                    "task starts over", error=str(e), code=e.code, delay_ms=delay_ms,
                    connector=self.config.name, task=self.assignment.task, at_ms=clock.now_ms(),
                )  # fmt: skip
                if failures >= FAILURES_UNTIL_REPORTED or is_long or e.code == GROUP_IN_USE:
                    self.wiring.report("FAILED", e)
                self.pause(delay_ms)


class _TaskRun:
    """From taking over the transactional id to the first error or the stop."""

    def __init__(self, owner: ConnectorTask) -> None:
        self._owner = owner
        self._config = owner.config
        self._wiring = owner.wiring
        self._clock = owner.wiring.clock
        self._measurements = owner.measurements
        self._partitions = owner.assignment.partitions
        self._asked: UUID | None = None
        self._answered: UUID | None = None
        self._looked_ms = 0
        self._stored_ms = self._clock.monotonic_ms()
        self._reading_to: Offsets = {}
        self._closing: list[Callable[[], None]] = []
        self._ratio = DeadLetterLimits.of(owner.config.errors)
        self._errors = RecordErrors(
            owner.config, owner.assignment.task, self._measurements, self._clock
        )
        self._measurements.begin(len(self._partitions), now_ms=self._clock.monotonic_ms())

    def close(self) -> None:
        """Let go of all connections; pending batches are forgotten."""
        while self._closing:
            self._closing.pop()()

    def live(self) -> None:
        """Start, then serve rounds until the owner stops."""
        self._open()
        self._wiring.report("RUNNING", None)
        while not self._owner.is_stopping:
            self._receive(self._listen_ms())
            if self._asked is not None:
                self._answer_fully()
            elif self._clock.monotonic_ms() - self._looked_ms >= LOOK_MS:
                self._read_if_much_waits()
                self._keep_offsets()
        self._leave()

    # ------------------------------------------------------------------ start

    def _open(self) -> None:
        node, config = self._wiring.node, self._config
        producer = TransactionalProducer(
            client_properties(
                node, config.producer_overrides, config.kafka_overrides, prefix="producer."
            ),
            self._owner.transactional_id,
        )
        self._closing.append(producer.close)
        failpoints.hit("W13")
        producer.init()
        self._floor = check_layout(self._wiring, config, self._owner.assignment)
        self._admin = KafkaAdmin(
            client_properties(
                node, config.consumer_overrides, config.kafka_overrides, prefix="admin."
            )
        )
        self._closing.append(self._admin.close)
        wait_until_left(self._admin, config.member_groups, self._owner, self._clock)
        self._topics = SourceTopics(
            self._admin,
            self._owner.assignment.own_topic_ids,
            is_named=config.topics_regex is None,
            on_missing=self._wiring.topic_missing,
        )
        self._runner = self._wiring.runner(config, self._owner.assignment)
        self._closing.append(self._runner.close)
        self._announcer = Announcer(
            producer,
            control_topic=config.control_topic,
            connect_group_id=config.connect_group_id,
            layout=self._owner.assignment.layout,
            task=self._owner.assignment.task,
            clock=self._clock,
            dead_letter=self._runner.dead_letter,
        )
        self._ledger = Ledger(
            self._positions(),
            out_of_order_ms=config.vtts_out_of_order_ms,
            idle_lag_ms=config.vtts_idle_lag_ms,
        )
        self._backlog = Backlog(
            rounds_max=config.max_uncommitted_rounds,
            silence_ms_max=config.max_uncommitted_rounds * config.commit_interval_ms
            + config.commit_timeout_ms,
        )
        self._backlog.received(self._clock.monotonic_ms())
        self._valid_through_ms: int | None = None
        self._stalls = LsoMonitor(config.lso_stalled_ms, config.name)
        self._drain = Drain(
            self._wiring.session,
            source_options(
                node,
                config.consumer_overrides,
                task=self._owner.transactional_id,
                has_headers="headers" in self._runner.columns,
            ),
            columns=self._runner.columns,
            pool=config.name,
            sizes=ReadSizes(self._wiring.small_records, self._wiring.batch_records),
            is_ordered=config.is_row_level,
        )
        reader = LogReader(client_properties(node, config.kafka_overrides, prefix="consumer."))
        self._closing.append(reader.close)
        self._control = ControlListener(
            reader, self._admin, topic=config.control_topic, group_id=config.connect_group_id
        )
        self._control.start_at_end()

    def _positions(self) -> Offsets:
        """Committed source offsets; of partitions never read, what ``auto.offset.reset`` says.

        The latter are stored at once: a crash before the first announcement must not make the
        next start begin elsewhere. A partition that was read before stops the task.
        """
        self._until_sure(lambda: self._topics.check({}))
        committed = committed_offsets(self._admin, self._config, self._partitions)
        marks = self._admin.watermarks(self._partitions)
        if missing := {tp: marks[tp] for tp, at in committed.items() if at is None}:
            kafka = client_properties(
                self._wiring.node, self._config.kafka_overrides, prefix="consumer."
            )
            lost = OffsetLoss(self._config, kafka, self._admin, self._clock)
            lost.refuse_partitions(missing, self._floor, dict(self._owner.assignment.topic_ids))
        is_latest = self._config.auto_offset_reset == "latest"
        fresh = {tp: marks[tp][1 if is_latest else 0] for tp, at in committed.items() if at is None}
        if fresh:
            self._announcer.store_offsets(fresh)
        positions = {tp: at for tp, at in committed.items() if at is not None} | fresh
        self._verify(positions)
        return positions

    def _verify(self, positions: Offsets) -> None:
        """Raise DataLost when the log does not hold the positions, and goes on not to."""
        ours = self._partitions
        self._until_sure(lambda: check_positions(positions, self._admin.watermarks(ours)))

    def _until_sure(self, check: Callable[[], None]) -> None:
        """A broker that has just started may not know everything yet."""
        for attempt in range(RESET_LOOKS):
            try:
                check()
            except DataLost as e:
                if e.code == "source_data_lost" or attempt == RESET_LOOKS - 1:
                    raise e.at(connector=self._config.name) from None
                self._owner.pause(LOOK_MS)
            else:
                return

    # ------------------------------------------------------------------ rounds

    def _keep_offsets(self) -> None:
        """Store the offsets again while no round asks for an answer: brokers forget them."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._stored_ms >= KEEP_MS:
            self._announcer.store_offsets(self._ledger.announced_offsets)
            self._stored_ms = now_ms

    def _listen_ms(self) -> int:
        since_poll = self._clock.monotonic_ms() - self._looked_ms
        return max(1, min(LISTEN_MS, LOOK_MS - since_poll))

    def _receive(self, timeout_ms: int) -> None:
        for received in self._control.poll(timeout_ms):
            if received.kind is ControlUpdate.Kind.START:
                if received.commit_id != self._answered:  # it is repeated for those who were late
                    self._asked = received.commit_id
                self._backlog.received(self._clock.monotonic_ms())
            else:
                waiting = received.waiting_of(self._owner.assignment.task)
                self._backlog.completed(received.commit_id, waiting)
                if received.valid_through_us is not None:
                    self._valid_through_ms = received.valid_through_us // 1000
                if self._asked == received.commit_id:
                    self._asked = None  # that round is over, the next one takes what we have
        self._measurements.malformed_events = self._control.malformed
        self._measurements.rounds_uncommitted = self._backlog.rounds

    def _answer_fully(self) -> None:
        """One last read to the log's end, then announce."""
        if not self._is_held_back():
            asked_at_ms = self._clock.now_ms()
            # records of an open transaction have arrived, though nobody may read them yet
            whole = self._admin.high_watermarks(self._partitions)
            self._read(self._inspect(whole))
            self._ledger.see_ends(whole, asked_at_ms=asked_at_ms)
        if self._asked is not None:
            self._announce(self._asked)

    def _read_if_much_waits(self) -> None:
        if self._is_held_back():
            self._looked_ms = self._clock.monotonic_ms()
            return
        ends = self._inspect()
        if self._ledger.unread(ends) >= self._config.drain_records:
            self._read(ends)

    def _is_held_back(self) -> bool:
        has_pending = bool(self._ledger.pending)
        held = self._backlog.is_full(self._clock.monotonic_ms(), has_pending=has_pending)
        if held and not self._measurements.is_held_back:
            log.warning(
                "reading stops until a round is committed", connector=self._config.name,
                task=self._owner.assignment.task, rounds=self._backlog.rounds,
            )  # fmt: skip
        self._measurements.is_held_back = held
        return held

    def _inspect(self, whole: Offsets | None = None) -> Offsets:
        """How far each log can be read; ``whole``: how far each goes."""
        self._looked_ms = self._clock.monotonic_ms()
        ends = self._admin.ends(self._partitions)
        next_offsets = self._ledger.next_offsets
        if any(end < next_offsets[tp] for tp, end in ends.items()):
            self._verify(next_offsets)
        if whole is not None:
            self._measurements.lso_stalled = self._stalls.inspect(ends, whole, self._looked_ms)
        self._measurements.lag_records = self._ledger.unread(ends)
        return ends

    def _read(self, ends: Offsets) -> None:
        """Read to ``ends``, again in another way where a batch cannot be kept as it was read."""
        self._reading_to = ends
        while (part := self._ledger.slice_to(ends)).record_count_max:
            self._runner.refresh()
            self._drain.sizes.may_enlarge = self._runner.may_enlarge
            try:
                self._read_part(part, ends)
            except RetriableError as e:
                if not self._drain.sizes.can_heed(e.code, part.record_count_max):
                    raise
            except DataLost as e:
                if "partition" not in e.coordinates:  # Spark does not say where
                    self._verify(self._ledger.next_offsets)
                raise e.at(connector=self._config.name) from e
            else:
                return

    def _read_part(self, part: Slice, ends: Offsets) -> None:
        if not self._runner.is_primed:
            self._drain.read(part.head(self._drain.sizes.first_records), self._batch)
            part = self._ledger.slice_to(ends)
            if self._asked is not None and not self._drain.sizes.is_small(part.record_count_max):
                self._announce(self._asked)  # a backlog's first large batch takes long
        self._drain.read_on(
            part, self._batch, is_stopping=lambda: self._owner.is_stopping or self._is_held_back()
        )

    def _batch(self, rows: DataFrame, part: Slice) -> None:
        started_ms = self._clock.monotonic_ms()
        with self._errors.counted():
            batch = self._runner.run(rows, part, self._valid_through_ms)
        self._errors.tolerated(batch)
        self._ratio.add(batch)
        self._ledger.add(batch)
        self._drain.sizes.add(batch.progress)
        self._measurements.add(batch, started_ms=started_ms, now_ms=self._clock.monotonic_ms())
        self._measurements.records_pending_partition_max = self._ledger.unannounced_max
        self._receive(0)
        if self._must_announce(part, self._clock.monotonic_ms() - started_ms):
            self._announce(self._asked or self._clock.new_uuid())  # an id of no round: ``_leave``

    def _must_announce(self, part: Slice, batch_ms: int) -> bool:
        """In a backlog the answer goes out with the batch at hand, not at the drain's end.

        Near the end it waits: the rest would miss an interval. Too many letters' bytes never wait.
        """
        if self._ledger.letter_bytes > LETTER_BYTES_MAX:
            return True
        if self._asked is None or self._drain.sizes.is_small(part.record_count_max):
            return False
        left_ms = self._ledger.unread(self._reading_to) * batch_ms / part.record_count_max
        longest_ms = min(self._config.commit_interval_ms, self._config.commit_timeout_ms)
        return left_ms > longest_ms * ANSWER_SHARE

    def _announce(self, commit_id: UUID) -> None:
        self._until_sure(lambda: self._topics.check(self._ledger.next_offsets))
        answer = self._ledger.answer()
        started_ms = self._clock.monotonic_ms()
        letters = self._announcer.announce(commit_id, answer)
        self._ledger.announced(answer)
        self._stored_ms = self._clock.monotonic_ms()
        self._measurements.announced(letters, started_ms, now_ms=self._clock.monotonic_ms())
        self._answered = self._asked or self._answered
        self._asked = None
        if answer.batches:
            self._backlog.announced(commit_id)
        self._measurements.rounds_uncommitted = self._backlog.rounds

    def _leave(self) -> None:
        """Announce what is pending, so that the next task need not read it again.

        The answer carries an id that no round has: the coordinator commits whatever is
        announced, whatever its id, and no round takes it for the completion of a task.
        """
        if self._ledger.pending:
            self._announce(self._asked or self._clock.new_uuid())
