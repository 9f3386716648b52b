"""Runs one connector's kernel: effects become I/O, answers become inputs.

Rules of this file:
- One thread owns the kernel, the inbox and the producer. Table commits run in a pool; their
  outcomes come back through a queue.
- After any error the producer, the inbox and the kernel are thrown away together. A retriable
  error starts over from what Kafka and the tables say, with back-off; anything else is final.
"""

from __future__ import annotations

import contextlib
import queue
from dataclasses import dataclass, replace
from typing import Any, Self

import structlog

from connect import failpoints
from connect.config.connector import ConnectorConfig
from connect.errors import DataLost, IcefloeError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader, TransactionalProducer
from connect.gateways.kafka.kafka_properties import client_properties, overridden
from connect.model.layout import Layout, TopicPartition
from connect.model.records import KafkaRecord
from connect.processes.stop_signal import StopSignal
from connect.protocol.fencing import coordinator_transactional_id
from connect.protocol.java_sink_members import wait_until_left
from connect.protocol.offset_loss import OffsetLoss
from control_schemas.events import DataWritten
from coordinator.commit.multi_table_commit import RoundCommitter
from coordinator.commit.table_committers import CommitterSettings, open_committer
from coordinator.control_log_check import STOPS, ControlLogCheck
from coordinator.control_reader import ControlReader
from coordinator.control_topic_watch import ControlTopicWatch
from coordinator.coordinator_context import CoordinatorContext
from coordinator.inbox import Inbox, start_offsets
from coordinator.kernel.bounded_run import is_run_complete
from coordinator.kernel.commit_round import KernelSettings
from coordinator.kernel.effects import (
    CommitOutcome,
    CommitTables,
    CompletionSent,
    CurrentLogEnds,
    Effect,
    Envelope,
    Finish,
    InitialLogEnds,
    Input,
    LayoutChanged,
    RoundEnded,
    SendCompletion,
    SendStartCommit,
    Stop,
    TableDecided,
    TableDecision,
    TableFailed,
    Tick,
)
from coordinator.kernel.kernel import Kernel, Phase, quiet_ms
from coordinator.outbox import Outbox
from coordinator.round_trace import RoundTrace
from coordinator.uncommitted_report import answer_to, failed_tables

POLL_IDLE_MS = 100  # while a round is in flight, or nothing can end the wait
POLL_QUIET_MS_MAX = 5_000  # between rounds, until new secrets are noticed
POLL_BUSY_MS = 5
READ_END_MS = 2_000
FINISH_MS = 8_000  # below the wait of a successor, and of the herder, for this one
RESTART_MIN_MS = 200
RESTART_MAX_MS = 30_000
STALLED_INTERVALS = 3
STALLED_MARGIN_MS = 120_000  # longer than all requests of one attempt or one table's commit
FAILING_MS_MAX = 30_000  # after so long without a round the connector shows why

log = structlog.get_logger("coordinator")


class ConnectorCoordinator:
    """The coordinator of a connector's ``layout``; ``run`` blocks until ``stop`` or an error."""

    def __init__(
        self, config: ConnectorConfig, layout: Layout, context: CoordinatorContext
    ) -> None:
        self._config = config
        self._context = context
        self.layout = layout
        self._inputs: queue.SimpleQueue[Input] = queue.SimpleQueue()
        self.stopping = StopSignal()
        self._failing_since_ms: int | None = None
        self._progress_at_ms = context.clock.monotonic_ms()

    @property
    def transactional_id(self) -> str:
        """``<group.id>-<connector>-coordinator``, with the connector's prefix if it has one."""
        config = self._config
        return coordinator_transactional_id(
            self._context.node_group_id, config.name, config.coordinator_transactional_prefix
        )

    def set_layout(self, layout: Layout) -> None:
        """The layout that is ready now; may be called from any thread."""
        self.layout = layout
        self._inputs.put(LayoutChanged(layout))
        self.stopping.wake()

    def decide(self, decision: TableDecision) -> None:
        """Take the operator's decision on a failed table; may be called from any thread."""
        self._inputs.put(decision)
        self.stopping.wake()

    def stop(self) -> None:
        """End after what is being done now; may be called from any thread."""
        self.stopping.request()

    @property
    def is_outdated(self) -> bool:
        """True once a secret was replaced."""
        renewal = self._context.secrets
        return renewal is not None and renewal.are_outdated()

    def _renew(self) -> None:
        """Take the secrets of now."""
        renewal = self._context.secrets
        if renewal is not None and (latest := renewal.latest()).config is not self._config:
            self._config = latest.config
            kafka = client_properties(latest.node, latest.config.kafka_overrides)
            self._context = replace(self._context, kafka=kafka)

    def round_ended(self) -> None:
        """It works: what failed before is over."""
        self._failing_since_ms = None
        self.progressed()

    def progressed(self) -> None:
        """An attempt began, a table's commit or a round ended, or there is nothing to do."""
        self._progress_at_ms = self._context.clock.monotonic_ms()

    def idle_ms(self) -> int:
        """Milliseconds since it last made progress; may be called from any thread."""
        return self._context.clock.monotonic_ms() - self._progress_at_ms

    @property
    def idle_ms_max(self) -> int:
        """After so long without progress it is stalled: a round ends in every interval."""
        rounds_ms = STALLED_INTERVALS * self._config.commit_interval_ms
        return rounds_ms + self._config.commit_timeout_ms + STALLED_MARGIN_MS

    def _report_recovery(self, error: RetriableError) -> None:
        now_ms = self._context.clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        if now_ms - self._failing_since_ms >= FAILING_MS_MAX:
            self._context.on_event("failing", {"error": error})

    def run(self) -> None:
        """Coordinate until stopped.

        Raises:
            Fenced: another coordinator of this connector runs.
            DataLost: control events that may hold announcements are gone.
            ConfigError: the configuration cannot work.
            InvariantViolation: a bug, or a second writer under our name.
        """
        delay_ms = RESTART_MIN_MS
        while not self.stopping.is_stopping:
            started_ms = self._context.clock.monotonic_ms()
            self.progressed()
            self._renew()
            if self._failing_since_ms is None:
                self._failing_since_ms = started_ms
            try:
                with _CoordinatorRun(self._config, self.layout, self._context, self) as attempt:
                    attempt.run(self._inputs)
            except RetriableError as e:
                if self._context.clock.monotonic_ms() - started_ms > RESTART_MAX_MS:
                    delay_ms = RESTART_MIN_MS
                log.warning("coordinator starts over", error=str(e), code=e.code, delay_ms=delay_ms)
                self._context.on_event("restart", {"code": e.code})
                self._report_recovery(e)
                self._context.waits_for(f"its next attempt after the error {e.code}")
                self.stopping.pause(delay_ms)
                delay_ms = min(delay_ms * 2, RESTART_MAX_MS)


class _CoordinatorRun:
    """Opens and closes everything for one session, and takes over the transactional id."""

    def __init__(
        self,
        config: ConnectorConfig,
        layout: Layout,
        context: CoordinatorContext,
        owner: ConnectorCoordinator,
    ) -> None:
        self._config = config
        self._context = context
        self.layout = layout
        self._owner = owner
        self._closing = contextlib.ExitStack()
        failpoints.hit("C1")
        self._producer = TransactionalProducer(
            overridden(context.kafka, {**config.producer_overrides, **config.kafka_overrides}),
            owner.transactional_id,
        )
        self._closing.callback(self._producer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        failpoints.hit("C16")
        self._closing.close()

    def run(self, inputs: queue.SimpleQueue[Input]) -> None:
        """Coordinate until the first error or the stop."""
        loop = self._open()
        if not self._owner.stopping.is_stopping:
            self._context.on_event("opened", {})
            try:
                loop.run(self.layout, inputs)
            except IcefloeError as e:
                loop.trace.failed(e.code)
                raise

    def _open(self) -> _CommitLoop:
        config, context, closing = self._config, self._context, self._closing
        log.info("coordinator starting", connector=config.name, layout=self.layout.number)
        context.waits_for("the broker to fence earlier coordinators of this connector")
        self._producer.init(topic=config.control_topic)
        failpoints.hit("C2")
        admin = closing.enter_context(context.admins.lend(context.kafka))
        groups = [config.control_group_id, *config.member_groups]
        wait_until_left(admin, groups, self._owner.stopping, context.clock, context.waits_for)
        context.waits_for("the control topic and its committed offsets")
        control = ControlLogCheck.of(admin, config.control_topic, self.layout)
        topic_id = control.check()
        positions, has_history = start_offsets(admin, config.control_topic, config.control_group_id)
        if not has_history:
            has_history = OffsetLoss(config, context.kafka, admin, context.clock).refuse_connector()
            first_read = {tp.partition: offset for tp, offset in positions.items()}
            control = replace(control, first_read=first_read)
        # not the last stable offset: old announcements may lie above an open transaction
        ends = {tp.partition: end for tp, end in admin.high_watermarks(list(positions)).items()}
        reader = self._control_reader(admin, list(positions))
        reports = _Reports(context)
        inbox = Inbox(reader, positions, config.connect_group_id, reports.malformed)
        closing.enter_context(self._owner.stopping.waking(inbox.wake))
        kernel = self._kernel()
        kernel.receive(InitialLogEnds(ends), context.clock.monotonic_ms())
        outbox = Outbox(
            self._producer,
            context.clock,
            topic=config.control_topic,
            group_id=config.connect_group_id,
            control_group_id=config.control_group_id,
        )
        context.waits_for("the catalog")
        committer = self._round_committer(control, topic_id, has_history=has_history)
        watch = ControlTopicWatch(config, context, admin, control)
        first = {tp.partition: offset for tp, offset in positions.items()}
        log.info("coordinator started", connector=config.name, positions=first, read_to=ends)
        owner = self._owner
        trace = RoundTrace(config.name, context.clock, context.on_spans)
        return _CommitLoop(
            kernel, inbox, outbox, committer, watch, reports, context, owner, trace, ends
        )

    def _control_reader(self, admin: KafkaAdmin, partitions: list[TopicPartition]) -> ControlReader:
        config, context = self._config, self._context
        reader = ControlReader(
            lambda: LogReader(context.kafka),
            lambda: context.control.subscribe(
                context.kafka,
                config.control_topic,
                config.connect_group_id,
                ends=lambda: admin.ends(partitions),
            ),
        )
        self._closing.callback(reader.close)
        return reader

    def _kernel(self) -> Kernel:
        config = self._config
        return Kernel(
            KernelSettings(
                task_id=f"{config.name}-0",
                commit_interval_ms=config.commit_interval_ms,
                commit_timeout_ms=config.commit_timeout_ms,
                kept_bytes_max=config.commit_kept_bytes_max,
                ranges_from=dict(self.layout.ranges_from),
                future_max_ms=config.vtts_future_max_ms,
            )
        )

    def _round_committer(
        self, control: ControlLogCheck, topic_id: str | None, *, has_history: bool
    ) -> RoundCommitter:
        config, context, closing = self._config, self._context, self._closing
        settings = CommitterSettings(
            config,
            control,
            topic_id,
            has_history=has_history,
            describes_tables=context.describes_tables,
        )
        committer, joint = open_committer(settings, context.clock, context.on_event, closing)
        threads = max(1, config.commit_threads)
        round_committer = RoundCommitter(committer, joint, threads=threads, name=config.name)
        closing.callback(round_committer.close)
        return round_committer


@dataclass(slots=True)
class _CommitLoop:
    """Reads the control topic, asks the kernel, and does what the kernel's effects ask for."""

    kernel: Kernel
    inbox: Inbox
    outbox: Outbox
    committer: RoundCommitter
    watch: ControlTopicWatch
    reports: _Reports
    context: CoordinatorContext
    owner: ConnectorCoordinator
    trace: RoundTrace
    read_to: dict[int, int] | None

    def run(self, layout: Layout, inputs: queue.SimpleQueue[Input]) -> None:
        """Loop until the stop or new secrets, then commit once more."""
        clock = self.context.clock
        self._receive(LayoutChanged(layout))
        self.context.waits_for("the events of earlier rounds in the control topic to be read")
        while not (self.owner.stopping.is_stopping or self.owner.is_outdated):
            self.watch.check(self.inbox.partitions, self.kernel.announcements)
            ends = self.watch.stalled_ends(self.inbox.partitions)
            if ends is not None:
                self._receive(CurrentLogEnds(ends))
            has_read = self._read(self._wait_ms())
            self._note_read()
            while not inputs.empty():
                self._receive(inputs.get())
            self._receive(Tick(clock.new_uuid(), clock.now_ms() * 1000))
            if not self.kernel.has_work():  # no round is due, so none is missing
                self.owner.progressed()
            self.reports.after_turn(self.kernel, has_read=has_read)
        try:
            self._finish()
        except RetriableError as e:
            log.warning("ended without a last commit", error=str(e), code=e.code)
        self.reports.uncommitted(self.kernel)

    def _read(self, wait_ms: int) -> bool:
        """Take events and outcomes; return whether the kept announcements may have changed."""
        is_busy = self.kernel.phase is Phase.COMMITTING
        received = self.inbox.poll(POLL_BUSY_MS if is_busy else wait_ms)
        for item in received:
            self._receive(item)
            if _is_written(item):
                failpoints.hit("C5")
        for outcome in self.committer.outcomes():
            self.trace.committed(outcome)
            _note(outcome)
            self.owner.progressed()
            self._receive(outcome)
        return is_busy or len(received) > 1  # the last item only says how far the log was read

    def _wait_ms(self) -> int:
        """Return how long to wait for events; while all is quiet, until the next tick counts."""
        free_ms = quiet_ms(self.kernel, self.context.clock.monotonic_ms())
        longest_ms = POLL_IDLE_MS
        if free_ms != 0 and self.read_to is None and self.inbox.may_wait:
            longest_ms = min(POLL_QUIET_MS_MAX, self.watch.due_in_ms())
        return max(1, min(longest_ms, free_ms or longest_ms))

    def _note_read(self) -> None:
        """Report once that everything is read that was in the control topic at the start."""
        positions = self.inbox.positions
        if self.read_to is not None and all(positions[p] >= e for p, e in self.read_to.items()):
            self.read_to = None
            self.context.waits_for(None)

    def _finish(self) -> None:
        """Commit what the tasks announced at their end, and store offsets behind our own events.

        Bounded: what is in no table then stays announced, and the next coordinator commits it.
        """
        kernel = self.kernel
        deadline_ms = self.context.clock.monotonic_ms() + FINISH_MS
        if self._read_to_end(deadline_ms):
            self._receive(Finish(self.context.clock.new_uuid()))
            if self._read_to_end(deadline_ms):
                # it begins when the transaction before it has its markers in the log
                self.outbox.store_offsets(stored := kernel.resumes_at)
                self._read_to_end(deadline_ms)
                if kernel.resumes_at != stored:
                    self.outbox.store_offsets(kernel.resumes_at)

    def _read_to_end(self, deadline_ms: int) -> bool:
        """Read to the present end of the control topic; return whether no commit is in flight.

        A transaction that a killed task left open hides the end: it is not waited for.
        """
        clock = self.context.clock
        while self.kernel.phase is Phase.COMMITTING and clock.monotonic_ms() < deadline_ms:
            self._read(POLL_BUSY_MS)
        ends = self.watch.ends(self.inbox.partitions)
        read_until_ms = min(deadline_ms, clock.monotonic_ms() + READ_END_MS)
        while clock.monotonic_ms() < read_until_ms:
            self._read(POLL_BUSY_MS)
            if all(self.inbox.positions[partition] >= end for partition, end in ends.items()):
                break
        return self.kernel.phase is not Phase.COMMITTING

    def _receive(self, kernel_input: Input) -> None:
        for effect in self.kernel.receive(kernel_input, self.context.clock.monotonic_ms()):
            for answer in self._act(effect):
                self._receive(answer)

    def _act(self, effect: Effect) -> list[Input]:
        match effect:
            case SendStartCommit():
                self.watch.refuse_other_sinks()
                with self.trace.step("start commit", effect.commit_id):
                    self.outbox.start_commit(effect, self.owner.layout.number)
            case CommitTables(commits):
                failpoints.hit("C6")
                self.trace.commits_begin(commits)
                self.committer.start(commits)
            case SendCompletion():
                with self.trace.step("complete", effect.commit_id):
                    self.outbox.completion(effect)
                return [CompletionSent(effect.commit_id)]
            case RoundEnded():
                self.trace.ended(effect)
                self.reports.round_ended(effect)
                self.owner.round_ended()
                if is_run_complete(
                    self.context.ends, effect, has_kept=not self.kernel.announcements.is_empty
                ):
                    self.context.on_event("completed", {"layout": self.owner.layout.number})
            case TableDecided():
                self.reports.decided(effect)
            case Stop(commit_id, message, coordinates):
                # a repeated StartCommit changes nothing, but only the id's holder can send it
                self.outbox.start_commit(SendStartCommit(commit_id), self.owner.layout.number)
                raise RetriableError(
                    f"{message}; this coordinator still holds the transactional id, so the commit "
                    "was a late one of a predecessor: the session starts again",
                    code="floor_moved",
                    **coordinates,
                )
        return []


class _Reports:
    """Reports to the process around the coordinator; unchanged states are reported once."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context = context
        self._failed_tables: list[dict[str, Any]] | None = None
        self._is_full = False
        self._is_to_report = False  # failed tables: a round ended, or the operator decided

    def after_turn(self, kernel: Kernel, *, has_read: bool) -> None:
        """Report what a turn of the loop changed.

        Args:
            kernel: of the connector.
            has_read: kept announcements may have changed.
        """
        if has_read:
            self.uncommitted(kernel)
            self._note_full(kernel)
        if self._is_to_report:
            self._is_to_report = False
            failed = failed_tables(kernel.failures.by_table, kernel.announcements.by_table)
            if failed != self._failed_tables:
                self._failed_tables = failed
                self._context.on_event("failed_tables", {"tables": failed})

    def uncommitted(self, kernel: Kernel) -> None:
        """Report how much is announced and in no table yet."""
        announced = kernel.announcements
        sizes = {"records": announced.records, "bytes": announced.size_bytes}
        self._context.on_event("kept", sizes)

    def round_ended(self, ended: RoundEnded) -> None:
        """Report a finished round."""
        self._context.on_round(ended)
        self._is_to_report = True

    def decided(self, effect: TableDecided) -> None:
        """Report the result of an operator's decision."""
        self._context.on_event("decided", {"request": effect.decision.request, **answer_to(effect)})
        self._is_to_report = True

    def malformed(self, record: KafkaRecord, reason: str) -> None:
        """Report a control event that cannot be read."""
        where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        log.warning("control event cannot be read; ignored", reason=reason, **where)
        self._context.on_event("malformed", where)

    def _note_full(self, kernel: Kernel) -> None:
        if kernel.is_full != self._is_full:
            self._is_full = kernel.is_full
            write = log.warning if self._is_full else log.info
            write(
                "announcements that wait for their tables reached iceberg.control.commit."
                "kept-max-bytes: the tasks get no StartCommit until some are committed"
                if self._is_full
                else "the tasks get StartCommit again",
                bytes=kernel.announcements.size_bytes,
                tables=[str(failure.table) for failure in kernel.failures.by_table.values()],
            )


def _is_written(kernel_input: Input) -> bool:
    return isinstance(kernel_input, Envelope) and isinstance(
        kernel_input.event.payload, DataWritten
    )


def _note(outcome: CommitOutcome) -> None:
    if isinstance(outcome, TableFailed):
        if outcome.code in STOPS:  # nothing of this round may move the group's offsets
            raise DataLost(outcome.message, code=outcome.code, table=str(outcome.table))
        log.error(
            "table not committed; its files wait",
            table=str(outcome.table),
            code=outcome.code,
            error=outcome.message,
        )
    failpoints.hit("C13")
