"""The run loop of a task that writes event-time aggregates to a topic.

Rules of this file:
- One streaming query runs all the time. Spark computes a batch in its own thread, and this thread
  publishes it: it saves the state, then sends results, dead letters and source offsets in one
  transaction. The next batch begins after that.
- A batch is published after Spark has noted it as committed in its checkpoint. So a saved state is
  never in the middle of a batch, and Spark never computes a published batch again.
- After any error the run ends. The next one restores the state for the committed offsets.
"""

from __future__ import annotations

import datetime as dt
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import structlog
from py4j.protocol import Py4JError
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from connect import failpoints
from connect.errors import DataLost, IcefloeError, RecordError, RetriableError
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from connect.records.dead_letter import message
from worker.aggregate.event_rows import Report, Reports, result_of
from worker.aggregate.state_checkpoint import StateCheckpoint
from worker.aggregate.window_query import KEY, VALUE, aggregated, output_mode
from worker.batch.descriptors import BatchResult, DeadLetter
from worker.batch.error_rows import DEAD_LETTERS_FULL
from worker.spark.source_options import parse_offsets
from worker.task.aggregates.event_stream import EventStream
from worker.task.dead_letters.dead_letter_limits import DeadLetterLimits
from worker.task.dead_letters.record_errors import RecordErrors, advised
from worker.task.read_ledger import OffsetRanges, Offsets, WrittenBatch
from worker.task.rounds.announcer import hit_stage
from worker.task.rounds.round_answers import STORE_OFFSETS_INTERVAL_MS
from worker.task.source.source_log import SourceLog
from worker.task.source.source_reader import as_arrow
from worker.task.task_context import TaskSetup
from worker.task.task_metrics import AggregateMetrics

POLL_S: Final = 0.2
LAG_INTERVAL_MS: Final = 5_000
NOTED_TIMEOUT_S: Final = 60.0
NOTED_POLL_S: Final = 0.01

log = structlog.get_logger("worker.task")


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A batch that Spark has computed.

    Attributes:
        number: Spark's number of the batch.
        results: keys and values of changed groups and windows.
        records: counts and dead letters of its records.
        started_ms: when it began (monotonic clock).
    """

    number: int
    results: pa.Table
    records: WrittenBatch
    started_ms: int


@dataclass(frozen=True, slots=True)
class ResultSender:
    """Sends each batch in one transaction.

    Args:
        producer: fenced; used by this sender only.
        topic: of the results.
        setup: the task.
    """

    producer: TransactionalProducer
    topic: str
    setup: TaskSetup

    def send(self, batch: FinishedBatch) -> int:
        """Send dead letters, results and source offsets; return the number of dead letters.

        Raises:
            ConfigError, Fenced, RetriableError: as ``TransactionalProducer.transact``.
        """
        letters = [
            letter
            for each in batch.records.dead_letters
            if (letter := self._dead_letter(each)) is not None
        ]
        self.producer.transact(
            self._messages(letters, batch.results),
            group_id=self.setup.config.connect_group_id,
            offsets=batch.records.ranges.ends,
            on_stage=hit_stage,
        )
        return len(letters)

    def store_offsets(self, offsets: Offsets) -> None:
        """Store source offsets without results; errors as ``send``."""
        self.producer.transact([], group_id=self.setup.config.connect_group_id, offsets=offsets)

    def _messages(
        self, letters: list[ProducerMessage], results: pa.Table
    ) -> Iterator[ProducerMessage]:
        yield from letters
        for part in results.to_batches():
            keys, values = part.column(KEY), part.column(VALUE)
            for key, value in zip(keys, values, strict=True):
                yield ProducerMessage(self.topic, key.as_py(), value.as_py())

    def _dead_letter(self, dead_letter: DeadLetter) -> ProducerMessage | None:
        setup = self.setup
        task = setup.assignment.task
        return message(dead_letter.record, dead_letter.error, setup.config, task_id=task)


@dataclass(slots=True)
class AggregateRun:
    """One run of a task that writes aggregates.

    Args:
        setup: the task.
        source: its partitions in Kafka.
        stream: the rows of its records.
        checkpoint: restored; saves the state of each batch.
        sender: sends results.
        errors: counts records that could not be processed.
        limits: stops the task when too many records are dead letters.
        positions: next source offset of each partition.
    """

    setup: TaskSetup
    source: SourceLog
    stream: EventStream
    checkpoint: StateCheckpoint
    sender: ResultSender
    errors: RecordErrors
    limits: DeadLetterLimits
    positions: dict[Any, int]
    _batches: queue.SimpleQueue[FinishedBatch | None] = field(
        default_factory=queue.SimpleQueue, init=False
    )
    _stored_ms: int = field(default=0, init=False)
    _lag_ms: int = field(default=0, init=False)
    _reports: ProgressReports = field(init=False)

    def __post_init__(self) -> None:
        self._reports = ProgressReports(self.setup)

    def serve(self) -> None:
        """Publish batches until a stop or new secrets.

        Raises:
            IcefloeError: as ``ConnectorTask.run_once``.
        """
        setup = self.setup
        self._stored_ms = setup.clock.monotonic_ms()
        with setup.stop.waking(lambda: self._batches.put(None)):
            if not self.positions:
                while not (setup.stop.is_stopping or setup.is_outdated):
                    setup.progress.made()
                    self._next_batch()
                return
            self._serve_query()

    def _serve_query(self) -> None:
        setup = self.setup
        computing = BatchComputing(
            setup, self.stream, self.checkpoint.local, self.positions, self._batches.put
        )
        started = computing.start()
        try:
            while not (setup.stop.is_stopping or setup.is_outdated):
                batch = self._next_batch()
                self._reports.take(started)
                if batch is not None:
                    self._publish(batch, started)
                if self.stream.is_outdated(started, is_between=batch is not None):
                    log.info("a static table changed, the task reads it", **setup.log_labels)
                    return
                if batch is not None:
                    setup.reports_work()
                    computing.release()
                else:
                    self._keep()
                self._check_progress(computing)
                with self.errors.counted():
                    computing.check(started)
        except DataLost as error:
            if "partition" not in error.coordinates:  # Spark does not name the partition
                self.source.check_positions(self.positions)
            raise error.at(connector=setup.config.name) from error
        except RetriableError as error:
            if error.code == DEAD_LETTERS_FULL:
                setup.bound.shrink()
            raise
        finally:
            computing.stop(started)

    def _next_batch(self) -> FinishedBatch | None:
        try:
            return self._batches.get(timeout=POLL_S)
        except queue.Empty:
            return None

    def _publish(self, batch: FinishedBatch, query: StreamingQuery) -> None:
        setup, records = self.setup, batch.records
        self.errors.tolerated(records)
        self.limits.add(records)
        failpoints.hit("A1")
        self._await_noted(batch.number, query)
        self.source.check_topics(records.ranges.ends)
        state = self.checkpoint.save(batch.number, records.ranges.ends)
        failpoints.hit("A2")
        now_ms = setup.clock.monotonic_ms()
        setup.metrics.add(records, started_ms=batch.started_ms, now_ms=now_ms)
        dead_letters = self.sender.send(batch)
        failpoints.hit("A3")
        self.positions.update(records.ranges.ends)
        self._reports.published = batch.number
        self.checkpoint.committed(state)
        self._stored_ms = setup.clock.monotonic_ms()
        setup.metrics.announcement.add(dead_letters, started_ms=now_ms, now_ms=self._stored_ms)
        self._reports.metrics.aggregate_results += batch.results.num_rows

    def _await_noted(self, number: int, query: StreamingQuery) -> None:
        """Wait until Spark has noted a batch as committed in its checkpoint.

        Raises:
            RetriableError: ``batch_not_committed``: it did not, and the query still runs.
        """
        noted = self.checkpoint.local / "commits" / str(number)
        pause = threading.Event()
        for _ in range(int(NOTED_TIMEOUT_S / NOTED_POLL_S)):
            if noted.exists():
                return
            if not query.isActive:
                break
            pause.wait(NOTED_POLL_S)
        raise RetriableError(
            f"Spark did not commit batch {number} in its checkpoint", code="batch_not_committed"
        )

    def _check_progress(self, computing: BatchComputing) -> None:
        """Raise ``batch_timeout`` if Spark computes a batch for too long: the query is stopped."""
        progress = self.setup.progress
        if not computing.is_computing:
            progress.made()
        elif progress.is_overdue(self.stream.session):
            self.setup.check_timeout()

    def _keep(self) -> None:
        """Measure the lag, and store the offsets again before they expire."""
        now_ms = self.setup.clock.monotonic_ms()
        if now_ms - self._stored_ms >= STORE_OFFSETS_INTERVAL_MS:
            self.sender.store_offsets(self.positions)
            self._stored_ms = now_ms
        if now_ms - self._lag_ms >= LAG_INTERVAL_MS:
            self._lag_ms = now_ms
            ends = self.source.ends(self.positions)
            lags = [end - self.positions[tp] for tp, end in ends.items()]
            self.setup.metrics.source.lag_records = sum(lags)
            self.setup.metrics.source.lag_records_partition_max = max(lags, default=0)


@dataclass(slots=True)
class ProgressReports:
    """Counts what Spark reports about batches.

    Args:
        setup: the task.
        published: number of the last published batch.
    """

    setup: TaskSetup
    published: int = -1
    _reported: int = field(default=-1, init=False)

    @property
    def metrics(self) -> AggregateMetrics:
        """The task's."""
        metrics = self.setup.metrics.aggregate
        assert metrics is not None
        return metrics

    def take(self, query: StreamingQuery) -> None:
        """Count the report about the last published batch, once there is one."""
        if self._reported >= self.published:
            return
        progress = query.lastProgress
        if progress is None or not progress.numInputRows or progress.batchId <= self._reported:
            return
        self._reported = progress.batchId
        metrics, operators = self.metrics, progress.stateOperators
        late = sum(each.numRowsDroppedByWatermark for each in operators)
        metrics.aggregate_late_rows += late
        metrics.aggregate_state_rows = sum(each.numRowsTotal for each in operators)
        metrics.aggregate_state_bytes = sum(each.memoryUsedBytes for each in operators)
        if watermark := progress.eventTime.get("watermark"):
            at = dt.datetime.fromisoformat(watermark)
            metrics.aggregate_watermark_timestamp_seconds = at.timestamp()
        if late:
            log.warning(
                "late records were dropped: their windows are closed",
                rows=late,
                **self.setup.log_labels,
            )


class BatchComputing:
    """The streaming query, and its callback in a thread of Spark.

    Args:
        setup: the task.
        stream: the rows of its records.
        checkpoint: folder of Spark's checkpoint, with the restored state.
        starts: next source offset of each partition.
        finished: takes each batch.
    """

    def __init__(
        self,
        setup: TaskSetup,
        stream: EventStream,
        checkpoint: Path,
        starts: Offsets,
        finished: Any,
    ) -> None:
        self._setup = setup
        self._stream = stream
        self._session = stream.session
        self._checkpoint = checkpoint
        self._positions = dict(starts)
        self._finished = finished
        self._is_free = threading.Semaphore(1)
        self._is_stopping = threading.Event()
        self._reports: Accumulator[list[Report]] | None = None
        self.failure: Exception | None = None
        self.is_computing = False

    def start(self) -> StreamingQuery:
        """Start the query.

        Raises:
            RetriableError, DataLost: Spark or the broker failed.
        """
        self._reports = self._accumulator()
        self._session.choose_pool(self._setup.config.name)
        try:
            return self._started(self._stream.rows(self._positions, self._reports))
        except (PySparkException, Py4JError) as error:
            self._give_accumulator()
            # a trace must not show the text of Spark's error about a query
            raise self._stream.error(error) from (error if self._stream.query is None else None)

    def _started(self, rows: DataFrame) -> StreamingQuery:
        aggregation = self._stream.aggregation
        return (
            aggregated(rows, aggregation)
            .writeStream.foreachBatch(self._take)
            .outputMode(output_mode(aggregation))
            .option("checkpointLocation", self._checkpoint.as_uri())
            .trigger(processingTime=f"{aggregation.interval_ms} milliseconds")
            .start()
        )

    def release(self) -> None:
        """Let the next batch begin."""
        self._is_free.release()

    def check(self, query: StreamingQuery) -> None:
        """Raise the error that ended a batch or the query, if there is one."""
        if self.failure is not None:
            raise self.failure
        if query.isActive:
            return
        error = query.exception()
        if error is None:
            raise RetriableError("the streaming query has ended", code="query_ended")
        raise self._stream.error(error)

    def stop(self, query: StreamingQuery) -> None:
        """Stop the query; a batch that is under way is not published."""
        self._is_stopping.set()
        self._is_free.release()
        try:
            query.stop()
            self._session.forget_listeners()
        except (PySparkException, Py4JError) as error:
            log.warning("the streaming query did not stop", error=str(self._stream.error(error)))
        else:
            self._give_accumulator()
        finally:
            self._session.release_callbacks()

    def _accumulator(self) -> Accumulator[list[Report]]:
        try:
            used: Accumulator[list[Report]] = self._session.accumulators.pop()
        except IndexError:
            return self._session.context.accumulator([], Reports())
        return used

    def _give_accumulator(self) -> None:
        """Let another run use the accumulator; no task of this query adds to it any more."""
        reports, self._reports = self._reports, None
        if reports is not None:
            reports.value = []
            self._session.accumulators.append(reports)

    def _take(self, rows: DataFrame, number: int) -> None:
        """Compute a batch. An error is kept: Spark would take the exception apart as text."""
        self._is_free.acquire()
        if self._is_stopping.is_set() or self.failure is not None:
            return
        self.is_computing = True
        try:
            self._finished(self._computed(rows, number))
        except (PySparkException, Py4JError, IcefloeError, OSError) as error:
            if not self._is_stopping.is_set():
                self.failure = self._stream.error(error)
        finally:
            self.is_computing = False

    def _computed(self, rows: DataFrame, number: int) -> FinishedBatch:
        started_ms = self._setup.clock.monotonic_ms()
        log_file = self._checkpoint / "offsets" / str(number)
        ends = parse_offsets(log_file.read_text().splitlines()[-1])
        ranges = OffsetRanges(dict(self._positions), ends)
        reports = self._reports
        assert reports is not None
        reports.value = []
        failpoints.hit("W1")
        results = as_arrow(rows)
        result = result_of(reports.value)
        failpoints.hit("W4")
        self._refuse(result)
        self._positions = dict(ends)
        records = WrittenBatch(
            ranges,
            result.progress,
            dead_letters=result.dead_letters,
            rows=result.rows,
            truncated=result.losses,
        )
        return FinishedBatch(number, results, records, started_ms)

    def _refuse(self, result: BatchResult) -> None:
        """Raise the error of a batch whose records could not be processed."""
        error: IcefloeError | None = result.error
        if error is None:
            return
        if isinstance(error, RecordError):
            error = advised(error)
        raise error.at(connector=self._setup.config.name)
