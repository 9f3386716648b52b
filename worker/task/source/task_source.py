"""The interface of a source of a task's micro-batches, and what both kinds share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from worker.batch.few_records import BatchRows
from worker.spark.batch_sizing import ReadSizes
from worker.spark.session import Session
from worker.task.read_ledger import OffsetRanges, Offsets


@dataclass(frozen=True, slots=True)
class SourceStream:
    """A stream of Spark's Kafka source, from some offsets to the end of the log.

    Attributes:
        rows: the stream. Spark bounds its micro-batches.
        batch: returns the records of a micro-batch, from the rows that Spark passes to
            ``foreachBatch``, and their offset ranges.
    """

    rows: DataFrame
    batch: Callable[[DataFrame, OffsetRanges], BatchRows]


@dataclass(slots=True)
class TaskSource(ABC):
    """Reads one task's micro-batches, for the whole run of the task.

    Args:
        session: the worker's session.
        options: options of the Kafka source, see ``source_options``.
        columns: columns of the source that the pipeline needs.
        sizes: how much is read at once.
        is_ordered: whether one Spark task must process each source partition, in its order.
    """

    session: Session
    options: Mapping[str, str]
    columns: tuple[str, ...]
    sizes: ReadSizes = field(default_factory=ReadSizes)
    is_ordered: bool = False

    @staticmethod
    @abstractmethod
    def spark_task_count(ranges: OffsetRanges, cores: int, *, is_ordered: bool) -> int:
        """Return how many Spark tasks read a batch that is not small.

        Args:
            ranges: what is read.
            cores: number of Spark tasks that run in parallel.
            is_ordered: as the attribute.
        """

    @abstractmethod
    def batch(self, ranges: OffsetRanges, *, may_pass_ends: bool = False) -> BatchRows:
        """Return the records of ranges, of which at least one is not empty.

        Args:
            ranges: what to read.
            may_pass_ends: whether few records may be more than that (``FewRecords.ends``).
        """

    @abstractmethod
    def stream(self, starts: Offsets, records_max: int, *, is_small: bool) -> SourceStream:
        """Return a stream for one query.

        Args:
            starts: next source offset of every partition.
            records_max: upper bound of the records of a micro-batch.
            is_small: whether one Spark task reads all that waits.
        """
