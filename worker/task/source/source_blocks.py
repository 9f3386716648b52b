"""Blocks of records, for connectors whose records only the pipeline processes.

Rules of this file:
- A stream of Spark's Kafka source only bounds the micro-batches of a query. Nothing reads its rows,
  so they have no columns, which Spark would generate code for in each batch.
- Few records are read in the thread of the task, by the consumers of Spark's JVM. A Spark job with
  its Python process takes many times as long as the work on them.
- Such a read may take what a consumer returns after the requested end. These records have arrived
  after the request for the end of the log, and would wait for the next commit.
- After any error there, Spark reads the same ranges again: it retries, its work can be cancelled,
  and its errors are mapped. Nothing was announced.
- Executors of a cluster may have what the driver has not, so there Spark reads everything.
- Each Spark task makes a file per table and partition value, so there is one task for each core.
- Where the order of records counts, one Spark task reads all of a partition.

Source:
    docs/decisions/0073-record-blocks.md and 0077-few-records-without-a-spark-job.md, with the
    measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamReader

from worker.batch.few_records import BatchRows, FewRecords
from worker.batch.record_blocks import blocks_of
from worker.spark.batch_sizing import IMBALANCE_MAX
from worker.spark.block_reader import FEW_BYTES, FEW_RECORDS, RangeOfPartition, RecordBlocks
from worker.spark.source_options import HEADERS_OPTION, stream_options
from worker.task.read_ledger import OffsetRanges, Offsets
from worker.task.source.task_source import SourceStream, TaskSource

log = structlog.get_logger("worker.task")
Spread = list[list[RangeOfPartition]]


@dataclass(slots=True)
class SourceBlocks(TaskSource):
    """The blocks of one task.

    Args:
        in_driver: whether few records may be processed in the driver.
    """

    in_driver: bool = False
    _blocks: RecordBlocks = field(init=False, repr=False)
    # each option is a call into the JVM, so those of the task are set once
    _streams: DataStreamReader | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Nothing is compiled or opened before the first read."""
        self._blocks = RecordBlocks(self.session, self.options, self.columns)

    def are_few(self, record_count: int) -> bool:
        """Return whether so many records are read without a Spark job."""
        return (
            self.in_driver
            and self.session.cluster is None
            and record_count <= FEW_RECORDS
            and self.sizes.is_small(record_count)
            and self.sizes.bytes_of(record_count) <= FEW_BYTES
        )

    @staticmethod
    def spark_task_count(ranges: OffsetRanges, cores: int, *, is_ordered: bool) -> int:
        """Return how many Spark tasks read a batch that is not small."""
        return len(spread(ranges, cores, is_ordered=is_ordered))

    def batch(self, ranges: OffsetRanges, *, may_pass_ends: bool = False) -> BatchRows:
        """Return the records of ranges; read them now if they are few."""
        is_few = self.are_few(ranges.record_count_max)
        few = self._few(ranges, may_pass_ends=may_pass_ends) if is_few else None
        return self.rows(ranges) if few is None else few

    def rows(self, ranges: OffsetRanges) -> DataFrame:
        """Return the blocks of ranges, which a Spark job reads."""
        is_small = self.sizes.is_small(ranges.record_count_max)
        cores = 1 if is_small else self.session.cores
        tasks = spread(ranges, cores, is_ordered=self.is_ordered)
        return self._blocks.rows(tasks, poll_records=self.sizes.poll_records(len(tasks)))

    def stream(
        self,
        starts: Offsets,
        records_max: int,
        *,
        is_small: bool,  # noqa: ARG002 - of the base; nothing reads the stream
    ) -> SourceStream:
        """Return a stream whose micro-batches are read as blocks."""
        if self._streams is None:
            options = {**self.options, HEADERS_OPTION: "false"}
            self._streams = self.session.spark.readStream.format("kafka").options(**options)
        rows = self._streams.options(**stream_options(starts, records_max)).load().select()
        return SourceStream(rows, lambda _, ranges: self.batch(ranges))

    def _few(self, ranges: OffsetRanges, *, may_pass_ends: bool) -> FewRecords | None:
        """Read ranges now; return None where a Spark task must read them."""
        (parts,) = spread(ranges, 1, is_ordered=self.is_ordered)
        poll_records = self.sizes.poll_records(1)
        try:
            read = self._blocks.read_few(
                parts, poll_records=poll_records, may_pass_ends=may_pass_ends
            )
        except Py4JError as error:
            log.info("few records not read, a Spark job reads them", error=type(error).__name__)
            return None
        if read is None:
            return None
        ends = {**ranges.ends, **read.ends}
        exact = replace(ranges, ends=ends)
        return FewRecords(tuple(blocks_of(read.payload)), ends, lambda: self.rows(exact))


def spread(ranges: OffsetRanges, cores: int, *, is_ordered: bool) -> Spread:
    """Return the ranges of each Spark task.

    Args:
        ranges: what to read.
        cores: number of Spark tasks that run in parallel.
        is_ordered: whether one Spark task must process each partition, in its order.
    """
    parts = [
        RangeOfPartition(place, ranges.starts[place], end)
        for place, end in sorted(ranges.not_empty().ends.items())
    ]
    if cores == 1:
        return [parts]
    return _whole(parts, cores) if is_ordered else _equal(parts, cores)


def _equal(parts: list[RangeOfPartition], cores: int) -> Spread:
    """Cut the ranges where a Spark task has its share."""
    left = sum(part.record_count_max for part in parts)
    tasks: Spread = []
    for number in range(cores, 0, -1):
        room = -(-left // number)
        taken: list[RangeOfPartition] = []
        while room and parts:
            first, *parts = parts
            cut = min(first.end, first.start + room)
            taken.append(RangeOfPartition(first.place, first.start, cut))
            if cut < first.end:
                parts = [RangeOfPartition(first.place, cut, first.end), *parts]
            room -= cut - first.start
            left -= cut - first.start
        if taken:
            tasks.append(taken)
    return tasks


def _whole(parts: list[RangeOfPartition], cores: int) -> Spread:
    """Give each partition to the task with the fewest records; the largest partitions first.

    If that leaves a core idle for long, each partition is a Spark task, for the next free core.
    """
    ordered = sorted(parts, key=lambda part: -part.record_count_max)
    tasks: Spread = [[] for _ in range(min(cores, len(parts)))]
    counts = [0] * len(tasks)
    for part in ordered:
        least = counts.index(min(counts))
        tasks[least].append(part)
        counts[least] += part.record_count_max
    if len(parts) > cores and max(counts) * cores > IMBALANCE_MAX * sum(counts):
        return [[part] for part in ordered]
    return tasks
