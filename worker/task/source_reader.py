"""Reading a task's partitions: exact source ranges in, micro-batches out.

Rules of this file:
- Every micro-batch comes with the exact ranges it covers, never min and max of its rows:
  transaction markers, aborted records and compaction leave holes.
- A small read is one batch DataFrame between given offsets; a backlog is one streaming query with
  the ``availableNow`` trigger. Both hand the same DataFrame to the same callback.
- A streaming query is used once. Its checkpoint is new and is removed after it: positions live in
  Kafka, the checkpoint only tells the ends of the batch at hand.
- A stop never interrupts Spark: the callback returns at once for what has not begun.

Source:
    docs/decisions/0003-reads.md, with the measurements.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from connect import failpoints
from connect.model.layout import TopicPartition
from worker.spark.batch_sizing import ReadSizes
from worker.spark.session import Session, held_small
from worker.spark.source_options import (
    POLL_OPTION,
    assignment,
    map_spark_error,
    offsets_text,
    parse_offsets,
)
from worker.task.read_ledger import Offsets, Slice

Each: TypeAlias = Callable[[DataFrame, Slice], None]
"""Gets one micro-batch, already spread over the right number of Spark tasks, and its ranges."""

_HEADERS = "array<struct<key: string, value: binary>>"
_HEADER_BYTES = 16  # of offsets and the like, for each
_OF_ANY_SIZE = {"key": "binary", "value": "binary", "headers": _HEADERS}


@dataclass(frozen=True, slots=True)
class Drain:
    """Reads for one task.

    Args:
        session: the worker's session.
        options: options of the Kafka source, see ``source_options``.
        columns: columns of the source that the pipeline needs.
        pool: FAIR scheduler pool, one per connector.
        sizes: how much is read at once.
        is_ordered: whether each source partition must go through one Spark task, in its order.
    """

    session: Session
    options: Mapping[str, str]
    columns: tuple[str, ...]
    pool: str
    sizes: ReadSizes = field(default_factory=ReadSizes)
    is_ordered: bool = False

    def read(self, part: Slice, each: Each) -> None:
        """Read exactly ``part`` as one micro-batch.

        Raises:
            DataLost: records of the ranges are gone.
            RetriableError: Spark or the broker failed; nothing of the batch may be used.
        """
        moved = part.moved()
        if not moved.ends:
            return
        are_small = self.sizes.are_small
        reader = (
            self._spark(are_small=are_small)
            .read.format("kafka")
            .options(
                **self._options(moved.ends, is_small=self.sizes.is_small(part.record_count_max))
            )
            .option("startingOffsets", offsets_text(moved.starts))
            .option("endingOffsets", offsets_text(moved.ends))
        )
        try:
            self._hand_over(reader.load(), part, each, are_small=are_small)
        except (PySparkException, Py4JError) as e:
            raise map_spark_error(e) from e

    def read_on(self, part: Slice, each: Each, *, is_stopping: Callable[[], bool]) -> None:
        """``read`` what is small, else ``drain`` from where it starts.

        A query reads a record at least of each partition that moves. Where those may be too many
        for one batch, some partitions are read, then others. What is large is begun with a batch
        that tells how large the records are.
        """
        while self._begins_small(part):
            if is_stopping() or not part.record_count_max:
                return
            head = part.head(self.sizes.first_records)
            self.read(head, each)
            part = part.after(head)
        if self.sizes.is_small(part.record_count_max):
            self.read(part, each)
        else:
            self.drain(part.starts, each, is_stopping=is_stopping)

    def drain(self, starts: Offsets, each: Each, *, is_stopping: Callable[[], bool]) -> None:
        """Read from ``starts`` to the log's end as it is now, in bounded micro-batches.

        Args:
            starts: next source offset of every partition of the task.
            each: called in the query's thread; what it raises ends the drain and is raised here.
            is_stopping: asked before each micro-batch; once true, no further one begins.

        Raises:
            DataLost, RetriableError: as ``read``.
        """
        checkpoint = Path(tempfile.mkdtemp(prefix="drain-", dir=self.session.folder))
        are_small = self.sizes.are_small  # as the query is planned, so all its batches are read

        def hand_over(rows: DataFrame, part: Slice) -> None:
            self._hand_over(rows, part, each, are_small=are_small)

        call = _Call(starts, checkpoint, hand_over, is_stopping)
        stream = (
            self._spark(are_small=are_small)
            .readStream.format("kafka")
            .options(**self._options(starts, is_small=False))
            .option("startingOffsets", offsets_text(starts))
            .option("maxOffsetsPerTrigger", str(self.sizes.records_max))
            .load()
        )
        try:
            query = (
                stream.writeStream.foreachBatch(call)
                .option("checkpointLocation", checkpoint.as_uri())
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        except (PySparkException, Py4JError) as e:
            raise map_spark_error(e) from e
        finally:
            self.session.release_callbacks()
            shutil.rmtree(checkpoint, ignore_errors=True)
        if call.failure is not None:
            raise call.failure

    def _begins_small(self, part: Slice) -> bool:
        sizes = self.sizes
        is_known = sizes.are_known or sizes.is_small(part.record_count_max)
        return not is_known or sizes.records_max < len(part.ends)

    def _options(self, partitions: Offsets, *, is_small: bool) -> dict[str, str]:
        options = {**self.options, "assign": assignment(partitions)}
        polled = self.sizes.poll_records(len(partitions))
        if polled < int(options[POLL_OPTION]):
            options[POLL_OPTION] = str(polled)
            options["kafka.group.id"] += f"-{polled}"
        may_split = not is_small and not self.is_ordered
        if may_split and len(partitions) < self.session.cores:  # else cores would lie idle
            options["minPartitions"] = str(self.session.cores)
        return options

    def _spark(self, *, are_small: bool) -> SparkSession:
        return self.session.of_rows if are_small else self.session.spark

    def _hand_over(self, rows: DataFrame, part: Slice, each: Each, *, are_small: bool) -> None:
        """Choose pool and number of Spark tasks, then call back."""
        self.session.spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.pool)
        chosen = rows.select(*(_column(name, is_small=are_small) for name in self.columns))
        if self.sizes.is_small(part.record_count_max):
            chosen = chosen.coalesce(1)
        failpoints.hit("W1")
        each(chosen, part)
        failpoints.hit("W12")


class _Call:
    """The callback of one streaming query; its failure is kept and the query let run out.

    An exception out of foreachBatch would reach us as text in a StreamingQueryException, and Spark
    matches that text against patterns that overflow its stack on long ones.
    """

    def __init__(
        self,
        starts: Offsets,
        checkpoint: Path,
        hand_over: Callable[[DataFrame, Slice], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._at = dict(starts)
        self._checkpoint = checkpoint
        self._hand_over = hand_over
        self._is_stopping = is_stopping
        self.failure: Exception | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        if self.failure is not None or self._is_stopping():
            return
        try:
            ends = self._ends(batch_id)
            part = Slice(dict(self._at), ends)
            if part.record_count_max:
                self._hand_over(rows, part)
            self._at = ends
        except (PySparkException, Py4JError) as e:
            self.failure = map_spark_error(e)
            self.failure.__cause__ = e
        except Exception as e:  # a thread of Spark's: kept, raised by ``drain``
            self.failure = e

    def _ends(self, batch_id: int) -> dict[TopicPartition, int]:
        """The ends Spark wrote down before it called: final, whatever happens to the batch."""
        text = (self._checkpoint / "offsets" / str(batch_id)).read_text()
        return parse_offsets(text.splitlines()[-1])


def _column(name: str, *, is_small: bool) -> Column:
    """A column of the source; headers never null, what is to be small as small as it is to be.

    Where Spark asks for the size of the Arrow vectors after each row, Arrow fills the offsets of a
    list each time from the last one that is not null: with the square of the rows.
    """
    column, text = F.col(name), F.col(name)
    if name == "headers":
        column = F.coalesce(column, F.array().cast(_HEADERS))
        values = F.col("headers.value").cast("array<string>")
        text = F.concat_ws("", F.col("headers.key"), values)
    if is_small and name in _OF_ANY_SIZE:
        size = F.octet_length(text)
        if name == "headers":
            size = size + _HEADER_BYTES * F.size(column)
        column = held_small(column, size, _OF_ANY_SIZE[name])
    return column.alias(name)


def as_arrow(rows: DataFrame) -> Any:
    """Collect a small result as a ``pyarrow.Table``."""
    return rows.toArrow()
