"""Distributes the rows of a task's batches by table, before they are written.

Rules of this file:
- A batch that one Spark task reads is not distributed: it has one file for each table anyway.
- Row-level changes of a table cannot be divided during a batch. So they are distributed only once a
  batch has shown which tables are large.
- Nothing of a batch is left behind: neither its folder, nor what Spark kept of its rows.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from worker.batch.descriptors import DESCRIPTOR_DDL
from worker.batch.distribution import Distribution, TableShares
from worker.batch.pipeline_spec import PipelineSpec
from worker.pipeline.passed_writing import write_passed
from worker.spark.jvm import query_execution
from worker.spark.large_functions import deleted_with
from worker.spark.session import Session
from worker.task.read_ledger import OffsetRanges
from worker.task.source.source_blocks import SourceBlocks
from worker.task.source.source_reader import as_arrow
from worker.task.source.task_source import TaskSource

OnSpec = Callable[[PipelineSpec], DataFrame]
"""Returns the descriptors of a batch; where rows are distributed, with rows for other tasks."""


@dataclass(frozen=True, slots=True)
class RowDistribution:
    """The distribution of rows in the batches of one task.

    Args:
        session: waits for the worker's Spark session.
        is_row_level: whether records replace or delete rows by key.
        source: reads the batches.
    """

    session: Callable[[], Session]
    is_row_level: bool
    source: type[TaskSource] = SourceBlocks
    shares: TableShares = field(default_factory=TableShares)

    @property
    def may_enlarge(self) -> bool:
        """Whether Spark carries rows, which are larger than the records of small reads.

        Where records are read in blocks, Arrow batches have one row.
        """
        return self.source is not SourceBlocks and self.session().cluster is not None

    def descriptors(
        self, run: OnSpec, spec: PipelineSpec, ranges: OffsetRanges, *, is_small: bool
    ) -> Any:
        """Run a batch; return its descriptors as a ``pyarrow.Table``.

        Args:
            run: runs the pipeline.
            spec: of the batch.
            ranges: its source offsets.
            is_small: whether one Spark task reads it.
        """
        with self._of_batch(ranges, is_small=is_small) as distribution:
            if distribution is None:
                return as_arrow(run(spec))
            spec = replace(spec, distribution=distribution)
            made = run(spec)
            passed = made.repartitionById(distribution.task_count, "task")
            written = deleted_with(lambda: passed.mapInArrow(write_passed(spec), DESCRIPTOR_DDL))
            try:
                return as_arrow(written)
            finally:
                _forget_shuffles(written)

    @contextlib.contextmanager
    def _of_batch(self, ranges: OffsetRanges, *, is_small: bool) -> Iterator[Distribution | None]:
        session = self.session()
        read_tasks = self.source.spark_task_count(
            ranges, session.cores, is_ordered=self.is_row_level
        )
        if is_small or read_tasks == 1 or (self.is_row_level and not self.shares.are_known):
            yield None
            return
        folder = None
        if session.cluster is None:
            folder = tempfile.mkdtemp(prefix="passed-", dir=session.folder)
        try:
            yield self.shares.distribution(
                session.cores,
                read_tasks=read_tasks,
                records=ranges.record_count_max,
                folder=folder,
            )
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


def _forget_shuffles(rows: DataFrame) -> None:
    """Let Spark delete the files of an executed shuffle now, and not at a garbage collection."""
    with contextlib.suppress(Py4JError):  # the batch is done, or has another error
        query_execution(rows).toRdd().cleanShuffleDependencies(False)  # noqa: FBT003 - Spark's
