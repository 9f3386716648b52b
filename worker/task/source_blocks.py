"""Blocks of records, for connectors whose records only the pipeline processes.

Rules of this file:
- A stream of Spark's Kafka source only bounds the micro-batches of a query. Nothing reads its rows,
  so they have no columns, which Spark would generate code for in each batch.
- A plan for the next small read is kept until such a read uses it, or another plan replaces it.

Source:
    docs/decisions/0073-record-blocks.md and 0071-reads-planned-between-rounds.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamReader

from worker.spark.record_blocks import OpenBlocks, RecordBlocks
from worker.spark.source_options import HEADERS_OPTION, stream_options
from worker.task.range_spread import spread
from worker.task.read_ledger import OffsetRanges, Offsets
from worker.task.task_source import SourceStream, TaskSource


@dataclass(slots=True)
class SourceBlocks(TaskSource):
    """The blocks of one task."""

    _blocks: RecordBlocks = field(init=False, repr=False)
    _planned: OpenBlocks | None = field(default=None, init=False, repr=False)
    # each option is a call into the JVM, so those of the task are set once
    _streams: DataStreamReader | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Nothing is compiled or opened before the first read."""
        self._blocks = RecordBlocks(self.session, self.options, self.columns)

    def plan(self) -> DataFrame:
        """Return the blocks of the next small batch; its ranges are set by ``batch``."""
        self._planned = None
        self._planned = self._blocks.open(poll_records=self.sizes.poll_records(1))
        return self._planned.rows

    def batch(self, ranges: OffsetRanges) -> DataFrame:
        """Return the blocks of ranges, by the plan if there is one for such a read."""
        is_small = self.sizes.is_small(ranges.record_count_max)
        cores = 1 if is_small else self.session.cores
        tasks = spread(ranges, cores, is_ordered=self.is_ordered)
        poll_records = self.sizes.poll_records(len(tasks))
        if is_small and self._planned is not None:
            planned, self._planned = self._planned, None
            if planned.poll_records == poll_records:
                planned.set(tasks[0])
                return planned.rows
        return self._blocks.rows(tasks, poll_records=poll_records)

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
