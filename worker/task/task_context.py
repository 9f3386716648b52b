"""What a task is made of: configuration, assignment, the worker around it, and its batch runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_clients import ProducerMessage
from connect.gateways.kafka.shared_admins import SharedAdmins
from connect.model.layout import TopicPartition
from connect.model.round_span import RoundSpan
from connect.processes.stop_signal import StopSignal
from connect.protocol.control_feed import ControlFeeds
from connect.state.connector_reader import ReadConnector
from connect.validation.secret_renewal import SecretRenewal
from worker.batch.few_records import BatchRows
from worker.spark.batch_sizing import BATCH_RECORDS, SMALL_RECORDS
from worker.spark.session import Session
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.record_path_share import RecordPathShare
from worker.task.reported_losses import ReportedLosses
from worker.task.task_metrics import TaskMetrics
from worker.task.task_progress import TaskProgress

SESSION_POLL_S = 0.1
BOUND_SHRINKS_BY = 8
BATCH_STOP_MS = 10_000
PRODUCER_IDLE_MS = 10_000


class BatchRunner(Protocol):
    """Turns micro-batches into complete files."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of Spark's Kafka source that the runner needs."""
        ...

    @property
    def is_primed(self) -> bool:
        """Whether the tables are known; if not, the first batch may run twice and must be small."""
        ...

    @property
    def takes_blocks(self) -> bool:
        """Whether ``run`` takes rows of blocks (``worker.batch.record_blocks``)."""
        ...

    @property
    def takes_few_records(self) -> bool:
        """Whether ``run`` takes the records of a small read (``worker.batch.few_records``)."""
        ...

    @property
    def may_enlarge(self) -> bool:
        """Whether a query may make rows of unknown size, as of the last ``refresh``."""
        ...

    def run(
        self,
        rows: BatchRows,
        ranges: OffsetRanges,
        valid_through_ms: int | None = None,
        *,
        is_small: bool = False,
    ) -> WrittenBatch:
        """Write the files of one micro-batch.

        Args:
            rows: its records.
            ranges: their source offsets.
            valid_through_ms: the last VTTS that the task received. A record with an equal or
                lower timestamp is late.
            is_small: whether one Spark task reads all of them.

        Raises:
            RecordError: a record cannot be processed and no tolerance is configured.
            CommitRefused: a table is missing or may not be written.
            RetriableError: Spark, the object store or the catalog failed.
        """
        ...

    def dead_letter(self, dead_letter: Any) -> ProducerMessage | None:
        """Return the message for the dead letter topic; None when dead letters are only counted."""
        ...

    def refresh(self) -> None:
        """Load the tables again when they are due; called before each read, in the task's thread.

        Catalog clients are per thread, so a batch in Spark's callback thread must not open one.
        """
        ...

    def close(self) -> None:
        """Close connections."""
        ...


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """The part of a layout that the leader assigned to a task; ``topic_ids`` as in the layout.

    ``ends`` are the end offsets of a bounded run; None when it is not bounded.
    """

    task: int
    layout: int
    partitions: tuple[TopicPartition, ...]
    topic_ids: tuple[tuple[str, str], ...] = ()
    ends: Mapping[TopicPartition, int] | None = None

    @property
    def own_topic_ids(self) -> dict[str, str]:
        """Name to topic id, of the topics that this task reads."""
        own = {tp.topic for tp in self.partitions}
        return {name: topic_id for name, topic_id in self.topic_ids if name in own}


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What a task needs from the worker process.

    Attributes:
        node: the node's properties, placeholders resolved.
        node_group_id: ``group.id`` of the node cluster, first part of the transactional id.
        stored: reads the stored state of a connector; None skips the layout check (tests).
        session: the worker's Spark session; tasks start while it is being opened.
        clock: time and ids.
        runner: makes the task's batch runner, from configuration, assignment and a function that
            waits for the session; called again after each retriable error.
        report: receives each state: RUNNING, with the source records that the task continued
            after without reading them, or FAILED with a retriable error after which it restarts.
        waits_for: called with what the task waits for, and with None when it works again.
        topic_missing: called when a topic that matched ``topics.regex`` was deleted.
        small_records: up to this many waiting records are one read, see
            ``worker.spark.batch_sizing``.
        batch_records: upper bound of a micro-batch in a backlog.
        producer_idle_ms: an unused producer is closed after this time, see
            ``worker.task.rounds.task_producer``.
        secrets: reads the secrets of configuration and node again; None keeps them.
        control: readers of the control topics, for all tasks of the process.
        admins: admin clients, for all tasks of the process.
        on_spans: receives the spans of each answer; None while the node exports no traces.
    """

    node: Mapping[str, str]
    node_group_id: str
    stored: ReadConnector | None
    session: Future[Session]
    clock: Clock
    runner: Callable[[ConnectorConfig, TaskAssignment, Callable[[], Session]], BatchRunner]
    report: Callable[[str, Exception | None], None]
    topic_missing: Callable[[], None] = lambda: None
    waits_for: Callable[[str | None], None] = lambda _: None
    small_records: int = SMALL_RECORDS
    batch_records: int = BATCH_RECORDS
    producer_idle_ms: int = PRODUCER_IDLE_MS
    secrets: SecretRenewal | None = None
    control: ControlFeeds = field(default_factory=ControlFeeds)
    admins: SharedAdmins = field(default_factory=SharedAdmins)
    on_spans: Callable[[Sequence[RoundSpan]], None] | None = None


class TaskStop(StopSignal):
    """The stop request of one task.

    Args:
        batch_ms: how long a stop waits for the end of a running batch.
    """

    def __init__(self, batch_ms: int = BATCH_STOP_MS) -> None:
        super().__init__()
        self._batch_ms = batch_ms
        self._seen_ms: int | None = None

    def must_cancel(self, now_ms: int) -> bool:
        """Return whether the stop has waited long enough for a running batch.

        The time counts from the first call that sees the request.

        Args:
            now_ms: monotonic clock.
        """
        if not self.is_stopping:
            return False
        if self._seen_ms is None:
            self._seen_ms = now_ms
        return now_ms - self._seen_ms >= self._batch_ms


@dataclass(slots=True)
class BatchBound:
    """Bound of the records of a batch, which shrinks when the results of a batch do not fit."""

    records: int = BATCH_RECORDS

    def shrink(self) -> None:
        """Read fewer records in a batch from now on."""
        self.records = max(1, self.records // BOUND_SHRINKS_BY)


@dataclass(frozen=True, slots=True)
class TaskSetup:
    """What all parts of one task share, for its whole life."""

    config: ConnectorConfig
    assignment: TaskAssignment
    context: TaskContext
    progress: TaskProgress
    metrics: TaskMetrics = field(default_factory=TaskMetrics)
    stop: TaskStop = field(default_factory=TaskStop)
    losses: ReportedLosses = field(default_factory=ReportedLosses)
    record_path: RecordPathShare = field(default_factory=RecordPathShare)
    bound: BatchBound = field(default_factory=BatchBound)

    def session(self) -> Session:
        """Wait until Spark runs; return its session.

        Raises:
            RetriableError: ``spark_not_started``: Spark did not start, so the process is about to
                end, or a stop was requested meanwhile.
        """
        opening = self.context.session
        if not opening.done():
            self.context.waits_for("the Spark session")
        while not opening.done() and not self.stop.is_stopping:
            self.progress.made()
            wait([opening], SESSION_POLL_S)
        if not opening.done() or opening.exception() is not None:
            reason = "the task was stopped" if self.stop.is_stopping else opening.exception()
            raise RetriableError(f"Spark has not started: {reason}", code="spark_not_started")
        return opening.result()

    def must_cancel(self, session: Session) -> bool:
        """Return whether to cancel the running batch; any thread may call it."""
        is_overdue = self.progress.is_overdue(session)
        return self.stop.must_cancel(self.clock.monotonic_ms()) or is_overdue

    def reports_work(self) -> None:
        """Note that a batch ended or no record waits; after a timeout the task is RUNNING again."""
        if self.progress.has_worked():
            self.reports_losses()

    def reports_losses(self) -> None:
        """Show the task as RUNNING, with what was lost."""
        self.context.report("RUNNING", self.losses.error())

    def check_timeout(self) -> None:
        """Raise the error of a batch that was cancelled because it did not end.

        Raises:
            RetriableError: ``batch_timeout``.
        """
        try:
            self.progress.check()
        except RetriableError as error:
            raise error.at(**self.log_labels) from None

    @property
    def is_outdated(self) -> bool:
        """Whether a secret was replaced since the task was set up."""
        renewal = self.context.secrets
        return renewal is not None and renewal.are_outdated()

    def renewed(self) -> TaskSetup:
        """Return the setup with the secrets of now."""
        if self.context.secrets is None:
            return self
        latest = self.context.secrets.latest()
        if latest.config is self.config:
            return self
        return replace(self, config=latest.config, context=replace(self.context, node=latest.node))

    @property
    def transactional_id(self) -> str:
        """``<group.id>-<connector>-<task>``."""
        return f"{self.context.node_group_id}-{self.config.name}-{self.assignment.task}"

    @property
    def clock(self) -> Clock:
        """Time and ids."""
        return self.context.clock

    @property
    def log_labels(self) -> dict[str, Any]:
        """Fields that every log line of the task carries."""
        return {"connector": self.config.name, "task": self.assignment.task}
