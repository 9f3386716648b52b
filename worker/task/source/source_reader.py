"""Reads a task's partitions with Spark: offset ranges in, micro-batches out.

Rules of this file:
- Every micro-batch comes with the exact offset ranges it covers, never with the lowest and highest
  offset of its rows. Transaction markers, aborted records and compaction leave gaps.
- The commit interval selects how a small read runs. Below ``QUERY_INTERVAL_MS`` it is one batch
  read between two sets of offsets, else one streaming query with the ``availableNow`` trigger and
  ``foreachBatch``. A backlog is always a query. Both pass a DataFrame to the same callback.
- A ``TaskSource`` makes the DataFrames. This file decides which offsets they have, and when.
- A streaming query is used once. Its checkpoint is new and is removed afterwards. Positions are
  stored in Kafka; the checkpoint only shows where the current batch ends.
- A query reads to the end of the log. A bounded run ends before it, so it uses batch reads only.
- The size of a query's batches is fixed. When batches should have quite another size, the query
  ends after the current one, and the next query continues there.
- A stop does not interrupt Spark at once: the callback returns for batches that have not started.
  A batch that takes too long, also after a stop, is cancelled. Nothing of it is announced.
- While a query runs, the task's thread calls ``on_wait`` again and again. The callback runs in a
  thread of Spark at the same time.

Source:
    docs/decisions/0003-reads.md, with the measurements.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from connect import failpoints
from connect.errors import RetriableError
from connect.model.layout import TopicPartition
from worker.batch.few_records import BatchRows, FewRecords
from worker.spark.batch_sizing import ReadSizes
from worker.spark.session import Session
from worker.spark.source_options import (
    map_spark_error,
    parse_offsets,
)
from worker.task.read_ledger import OffsetRanges, Offsets
from worker.task.source.task_source import TaskSource

OnBatch: TypeAlias = Callable[[BatchRows, OffsetRanges], None]
"""Takes one micro-batch, already spread over the right number of Spark tasks, and its ranges."""

OnWait: TypeAlias = Callable[[], bool]
"""Called in the task's thread while a query runs; returns whether to cancel the current batch."""

QUERY_INTERVAL_MS = 5_000
"""Commit interval from which small reads are queries: their fixed cost is then below 2 %."""

MustCancel: TypeAlias = Callable[[], bool]
"""Returns whether to cancel the current batch; called from any thread."""

WAIT_S = 0.1  # between two calls of ``on_wait``
WATCH_S = 0.5  # between two calls of ``must_cancel``


@dataclass(slots=True)
class SourceReader:
    """Reads for one task.

    Args:
        source: makes the DataFrames.
        pool: FAIR scheduler pool, one per connector.
        commit_interval_ms: the connector's commit interval, which selects how small reads run.
        is_bounded: whether the ranges may end before the end of the log.
    """

    source: TaskSource
    pool: str
    commit_interval_ms: int = 0
    is_bounded: bool = False

    @property
    def session(self) -> Session:
        """The worker's session."""
        return self.source.session

    @property
    def sizes(self) -> ReadSizes:
        """How much is read at once."""
        return self.source.sizes

    def read(
        self,
        ranges: OffsetRanges,
        on_batch: OnBatch,
        *,
        is_stopping: Callable[[], bool],
        on_wait: OnWait = lambda: False,
        must_cancel: MustCancel = lambda: False,
    ) -> None:
        """Read the ranges: as one batch read, or as queries from their starts.

        A batch read is for small ranges of connectors with a short commit interval. A query reads
        to the current end of the log, so it may read more than the ranges. A bounded run is read
        as batch reads, one after the other.

        A backlog starts with small batches until the size of the records is known, and with batch
        reads until the speed is known: the size of a query's batches is fixed. A streaming query
        reads at least one record of each partition. Where the partitions are too many for
        one batch, this method reads some of them, then others.

        Args:
            ranges: what to read.
            on_batch: takes each micro-batch.
            is_stopping: checked before each micro-batch; once true, no other batch starts.
            on_wait: called while a query runs.
            must_cancel: as in ``read_batch``; ``on_wait`` decides it for a query.

        Raises:
            DataLost, RetriableError: as ``read_batch``.
        """
        while ranges.record_count_max and not is_stopping():
            head = self._head_of_batch_reads(ranges)
            if head is not None:
                starts = self.read_batch(head, on_batch, must_cancel=must_cancel)
                if starts == head.starts:
                    return
                ranges = ranges.starting_at(starts)
                continue
            starts = self.run_query(
                ranges.starts,
                on_batch,
                is_stopping=is_stopping,
                on_wait=on_wait,
                is_small=self.sizes.is_small(ranges.record_count_max),
            )
            if starts == ranges.starts:
                return
            ranges = ranges.starting_at(starts)

    def _head_of_batch_reads(self, ranges: OffsetRanges) -> OffsetRanges | None:
        """Return what one batch read should read of the ranges; None if a query should read."""
        if self._starts_small(ranges):
            return ranges.head(self.sizes.first_records)
        if self.is_bounded or self._measures_speed(ranges):
            return ranges.head(self.sizes.records_max)
        is_small = self.sizes.is_small(ranges.record_count_max)
        return ranges if is_small and self.commit_interval_ms < QUERY_INTERVAL_MS else None

    def read_batch(
        self,
        ranges: OffsetRanges,
        on_batch: OnBatch,
        *,
        must_cancel: MustCancel = lambda: False,
    ) -> Offsets:
        """Read ``ranges`` as one micro-batch.

        If they have few records, records after them may be in the batch, and in the ranges that the
        callback gets. A bounded run reads exactly the ranges.

        Args:
            ranges: what to read.
            on_batch: takes the micro-batch.
            must_cancel: called from another thread during the read; returns whether to cancel it.

        Returns:
            The next source offset of every partition; the starts if the batch was cancelled.

        Raises:
            DataLost: records of the ranges are gone.
            RetriableError: Spark or the broker failed; no result of the batch may be used.
        """
        if not ranges.record_count_max:
            return ranges.starts
        starts = ranges.starts
        jobs = _WatchedJobs(self.session, must_cancel)
        try:
            rows = self.source.batch(ranges, may_pass_ends=not self.is_bounded)
            if isinstance(rows, FewRecords):  # no job, and no code of users
                ranges = replace(ranges, ends=rows.ends)
                self._hand_over(rows, ranges, on_batch)
            else:
                with jobs:
                    self._hand_over(rows, ranges, on_batch)
        except (PySparkException, Py4JError, RetriableError) as e:
            if jobs.are_cancelled:
                return starts
            raise map_spark_error(e) from e
        return {**starts, **ranges.ends}

    def run_query(
        self,
        starts: Offsets,
        on_batch: OnBatch,
        *,
        is_stopping: Callable[[], bool],
        on_wait: OnWait = lambda: False,
        is_small: bool = False,
    ) -> Offsets:
        """Read from ``starts`` to the current end of the log, in bounded micro-batches.

        Args:
            starts: next source offset of every partition of the task.
            on_batch: called in the query's thread. Its exception ends the read and is raised by
                this method.
            is_stopping: checked before each micro-batch; once true, no other batch starts.
            on_wait: called while the query runs. Its exception cancels the current batch and is
                raised by this method.
            is_small: whether few records wait, so that one Spark task reads them.

        Returns:
            The next source offset of every partition, after the last batch.

        Raises:
            DataLost, RetriableError: as ``read_batch``.
        """
        checkpoint = Path(tempfile.mkdtemp(prefix="query-", dir=self.session.folder))
        records_max = self.sizes.records_max
        try:
            stream = self.source.stream(starts, records_max, is_small=is_small)

            def hand_over(rows: DataFrame, ranges: OffsetRanges) -> None:
                self._hand_over(stream.batch(rows, ranges), ranges, on_batch)

            callback = _BatchCallback(
                starts,
                checkpoint,
                hand_over,
                lambda: is_stopping() or self.sizes.has_outgrown(records_max),
            )
            query = (
                stream.rows.writeStream.foreachBatch(callback)
                .option("checkpointLocation", checkpoint.as_uri())
                .trigger(availableNow=True)
                .start()
            )
            self._wait_for(query, callback, on_wait)
        except (PySparkException, Py4JError) as e:
            raise map_spark_error(e) from e
        finally:
            self.session.release_callbacks()
            shutil.rmtree(checkpoint, ignore_errors=True)
        if callback.failure is not None:
            raise callback.failure
        return callback.next_offsets

    def _wait_for(self, query: StreamingQuery, callback: _BatchCallback, on_wait: OnWait) -> None:
        """Wait for the end of a query; cancel its current batch if ``on_wait`` requires that.

        A query is not stopped by its own ``stop``, which waits for ever while Python's callback
        waits for a job. Without its job, the callback returns.
        """
        has_ended = False
        try:
            while not (has_ended := bool(query.awaitTermination(WAIT_S))):
                if on_wait():
                    return
        finally:
            if not has_ended:
                callback.cancel()
                with contextlib.suppress(PySparkException, Py4JError):  # it had ended by an error
                    while not query.awaitTermination(WAIT_S):
                        # again and again: the job of the batch may begin after the first time
                        self.session.spark.sparkContext.cancelJobGroup(str(query.runId))

    def _starts_small(self, ranges: OffsetRanges) -> bool:
        sizes = self.sizes
        is_known = sizes.are_known or sizes.is_small(ranges.record_count_max)
        return not is_known or sizes.records_max < len(ranges.ends)

    def _measures_speed(self, ranges: OffsetRanges) -> bool:
        is_long = ranges.record_count_max > 2 * self.sizes.records_max
        return is_long and self.sizes.must_measure_speed

    def _hand_over(self, rows: BatchRows, ranges: OffsetRanges, on_batch: OnBatch) -> None:
        """Call back, with jobs in the pool of the connector."""
        if isinstance(rows, FewRecords):
            read = rows.as_rows
            rows = replace(rows, as_rows=lambda: self._in_pool(read()))
        else:
            rows = self._in_pool(rows)
        failpoints.hit("W1")
        on_batch(rows, ranges)
        failpoints.hit("W12")

    def _in_pool(self, rows: DataFrame) -> DataFrame:
        self.session.choose_pool(self.pool)
        return rows


class _WatchedJobs:
    """Cancels the jobs that a thread starts in the block, once that is required.

    Args:
        session: the worker's session.
        must_cancel: called again and again from another thread.

    Attributes:
        are_cancelled: whether jobs were cancelled.
    """

    def __init__(self, session: Session, must_cancel: MustCancel) -> None:
        self._context = session.context
        self._must_cancel = must_cancel
        self._group = f"icefloe-read-{id(self)}"
        self._has_ended = threading.Event()
        self._watch = threading.Thread(target=self._run, name="batch-watch", daemon=True)
        self.are_cancelled = False

    def __enter__(self) -> Self:
        self._context.setJobGroup(self._group, "read of a task", interruptOnCancel=True)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._watch.join()  # a late cancellation would end the jobs of the next block

    def _run(self) -> None:
        while not self._has_ended.wait(WATCH_S):
            if self._must_cancel():
                self.are_cancelled = True
                with contextlib.suppress(Py4JError):  # Spark has ended
                    # again and again: the job of the batch may begin after the first time
                    self._context.cancelJobGroup(self._group)


class _BatchCallback:
    """The callback of one streaming query. It keeps its failure and lets the query end.

    An exception from ``foreachBatch`` would arrive as text in a StreamingQueryException. Spark
    matches that text against patterns that overflow its stack on long texts.
    """

    def __init__(
        self,
        starts: Offsets,
        checkpoint: Path,
        hand_over: Callable[[DataFrame, OffsetRanges], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self.next_offsets: Offsets = dict(starts)
        self._checkpoint = checkpoint
        self._hand_over = hand_over
        self._is_stopping = is_stopping
        self._is_cancelled = False
        self.failure: Exception | None = None

    def cancel(self) -> None:
        """Start no other batch, and expect the current one to fail."""
        self._is_cancelled = True

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        if self._is_cancelled or self.failure is not None or self._is_stopping():
            return
        try:
            ends = self._ends(batch_id)
            ranges = OffsetRanges(dict(self.next_offsets), ends)
            if ranges.record_count_max:
                self._hand_over(rows, ranges)
            self.next_offsets = ends
        except (PySparkException, Py4JError) as e:
            if not self._is_cancelled:
                self.failure = map_spark_error(e)
                self.failure.__cause__ = e
        except RetriableError as e:  # a query's error of Spark is mapped before
            if not self._is_cancelled:
                self.failure = e
        except Exception as e:  # in a thread of Spark: kept, and raised by ``run_query``
            self.failure = e

    def _ends(self, batch_id: int) -> dict[TopicPartition, int]:
        """Return the ends that Spark wrote before the call; they are final in any case."""
        text = (self._checkpoint / "offsets" / str(batch_id)).read_text()
        return parse_offsets(text.splitlines()[-1])


def as_arrow(rows: DataFrame) -> Any:
    """Collect a small result as a ``pyarrow.Table``."""
    return rows.toArrow()
