"""Reads of a task in blocks: by Spark tasks, or in the driver where few records wait.

Rules of this file:
- Few records are read in the thread of the task, by the consumers of Spark's JVM. A Spark job with
  its Python process takes many times as long as the work on them.
- After any error there, Spark reads the same ranges again: it retries, its work can be cancelled,
  and its errors are mapped. Nothing was announced.
- Executors of a cluster may have what the driver has not, so there Spark reads everything.

Source:
    docs/decisions/0077-few-records-without-a-spark-job.md, with the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from worker.batch.few_records import BatchRows, FewRecords
from worker.batch.record_blocks import blocks_of
from worker.spark.batch_sizing import ReadSizes
from worker.spark.record_blocks import FEW_BYTES, FEW_RECORDS, OpenBlocks, RecordBlocks
from worker.spark.session import Session
from worker.task.range_spread import spread
from worker.task.read_ledger import OffsetRanges

log = structlog.get_logger("worker.task")


@dataclass(frozen=True, slots=True)
class BlockReads:
    """The reads of one task.

    Args:
        session: the worker's session.
        options: options of the Kafka source, see ``source_options``.
        columns: columns of the source that the pipeline needs.
        pool: FAIR scheduler pool, one per connector.
        sizes: how much is read at once.
        is_ordered: whether one Spark task must process each source partition, in its order.
        in_driver: whether few records may be processed in the driver.
    """

    session: Session
    options: Mapping[str, str]
    columns: tuple[str, ...]
    pool: str
    sizes: ReadSizes
    is_ordered: bool = False
    in_driver: bool = False
    _blocks: list[RecordBlocks] = field(default_factory=list, init=False, repr=False)
    _planned: list[OpenBlocks] = field(default_factory=list, init=False, repr=False)

    def are_few(self, record_count: int) -> bool:
        """Return whether so many records are read without a Spark job."""
        return (
            self.in_driver
            and self.session.cluster is None
            and record_count <= FEW_RECORDS
            and self.sizes.is_small(record_count)
            and self.sizes.bytes_of(record_count) <= FEW_BYTES
        )

    def plan(self) -> DataFrame:
        """Return the rows of the next small read, whose offsets are not known yet."""
        self._planned.clear()
        planned = self._record_blocks().open(poll_records=self.sizes.poll_records(1))
        self._planned.append(planned)
        return planned.rows

    def read(self, ranges: OffsetRanges) -> BatchRows:
        """Return the records of ranges; read them now if they are few."""
        few = self._few(ranges) if self.are_few(ranges.record_count_max) else None
        return self.rows(ranges) if few is None else few

    def rows(self, ranges: OffsetRanges) -> DataFrame:
        """Return the rows of ranges, over the right number of Spark tasks."""
        self.session.choose_pool(self.pool)
        is_small = self.sizes.is_small(ranges.record_count_max)
        cores = 1 if is_small else self.session.cores
        tasks = spread(ranges, cores, is_ordered=self.is_ordered)
        poll_records = self.sizes.poll_records(len(tasks))
        if is_small and len(tasks) == 1 and self._planned:
            planned = self._planned.pop()
            if planned.poll_records == poll_records:
                planned.set(tasks[0])
                return planned.rows
        return self._record_blocks().rows(tasks, poll_records=poll_records)

    def _few(self, ranges: OffsetRanges) -> FewRecords | None:
        """Read ranges now; return None where a Spark task must read them."""
        (parts,) = spread(ranges, 1, is_ordered=self.is_ordered)
        poll_records = self.sizes.poll_records(1)
        try:
            payload = self._record_blocks().read_few(parts, poll_records=poll_records)
        except Py4JError as error:
            log.info("few records not read, a Spark job reads them", error=type(error).__name__)
            return None
        if payload is None:
            return None
        return FewRecords(tuple(blocks_of(payload)), lambda: self.rows(ranges))

    def _record_blocks(self) -> RecordBlocks:
        if not self._blocks:
            self._blocks.append(RecordBlocks(self.session, self.options, self.columns))
        return self._blocks[0]
