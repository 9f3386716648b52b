"""Rows of the tables of a Spark task that reads: passed on to tasks that write, or written by it.

Rules of this file:
- The reading task writes rows of a large table, those above ``Distribution.rows_max``, and all
  rows once the disk has no room for more.
- Row-level changes of a table are passed on all together or not at all: the newest change of a key
  is found in one place. They are passed on at the end of a block, never in the middle of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from connect.errors import RetriableError
from control_schemas.events import ContentFile
from worker.batch.blocks import Block
from worker.batch.distribution import Distribution
from worker.batch.error_rows import DISK_FULL
from worker.batch.passed_rows import MARKS, PassedRows, PassedTable
from worker.batch.pipeline_spec import PipelineLimits
from worker.write.parquet_writer import Writers
from worker.write.table_writer import FileNames, TableWriter
from worker.write.upsert_writer import Changes, Descriptor, Marks

_PINNED_BYTES_MAX = 64 * 2**20


class DistributedWriters:
    """Passes rows on that are only added; see ``Writers``.

    Args:
        distribution: of the batch.
        passed: the rows of this task for others.
        tables: writers of the known tables by name.
        limits: of the writers.
    """

    def __init__(
        self,
        distribution: Distribution,
        passed: PassedRows,
        tables: Mapping[str, TableWriter],
        limits: PipelineLimits,
    ) -> None:
        self._distribution = distribution
        self._passed = passed
        self._tables = tables
        self._own = Writers(limits)
        self._bytes_max = limits.buffered_bytes_max
        self._counts: dict[tuple[str, str], int] = {}
        self._pinned_bytes = 0
        self._is_full = False

    def add(self, table: TableWriter, rows: pa.Table, size: int | None = None) -> None:
        """Take rows, whose columns are in the order of the table's."""
        if not rows.num_rows:
            return
        size = rows.nbytes if size is None else size
        name = table.plan.name
        if self._is_full:
            self._own.add(table, rows, size)
        elif name not in self._distribution.kept and self._may_pass((name, ""), rows.num_rows):
            self._pass(table, rows, size)
        elif not table.partitioner.is_partitioned:
            self._own.add(table, rows, size)
        else:
            mean = size / rows.num_rows
            for key, part in table.partitioner.split(rows):
                part_bytes = int(mean * part.num_rows)
                if self._may_pass((name, key.path), part.num_rows):
                    self._pass(table, part, part_bytes, key.path)
                else:
                    self._own.add(table, part, part_bytes)
        if self._passed.waiting_bytes >= self._bytes_max:
            self._flush()

    def pin(self, block_bytes: int) -> None:
        """Account for a block that added rows were cut from."""
        self._own.pin(block_bytes)
        self._pinned_bytes += block_bytes
        if self._pinned_bytes > self._passed.waiting_bytes + _PINNED_BYTES_MAX:
            self._flush()

    def finish(self) -> Iterator[tuple[TableWriter, ContentFile]]:
        """Pass on waiting rows, write those of this task, and end all files."""
        self._flush()
        yield from self._own.finish()

    def abort(self) -> None:
        """Delete every file of this task; rows that are passed on are not announced."""
        self._passed.abort()
        self._own.abort()

    def _may_pass(self, unit: tuple[str, str], rows: int) -> bool:
        counted = self._counts[unit] = self._counts.get(unit, 0) + rows
        return counted <= self._distribution.rows_max

    def _pass(self, table: TableWriter, rows: pa.Table, size: int, partition: str = "") -> None:
        name = table.plan.name
        task = self._distribution.task_of(name, partition)
        self._passed.add(task, table.columns_key, PassedTable(name, rows, size))

    def _flush(self) -> None:
        self._pinned_bytes = 0
        if self._passed.flush():
            return
        self._is_full = True
        for taken in self._passed.taken_back():
            self._own.add(self._tables[taken.name], taken.rows)


class DistributedChanges(Changes):
    """Passes row-level changes on.

    Args:
        distribution: of the batch.
        passed: the rows of this task for others.
        tables: as of ``Changes``.
        file_names: as of ``Changes``.
        upsert: as of ``Changes``.
        limits: as of ``Changes``.
        reports_keys: as of ``Changes``.
    """

    def __init__(
        self,
        distribution: Distribution,
        passed: PassedRows,
        tables: Mapping[str, TableWriter],
        file_names: FileNames,
        *,
        upsert: bool,
        limits: PipelineLimits,
        reports_keys: bool = False,
    ) -> None:
        super().__init__(
            tables, file_names, upsert=upsert, limits=limits, reports_keys=reports_keys
        )
        self._distribution = distribution
        self._passed = passed

    def add(
        self,
        table: TableWriter,
        rows: pa.Table,
        marks: Marks | None = None,
        size: int | None = None,
    ) -> None:
        """Take rows with their marks."""
        name = table.plan.name
        if name in self._distribution.kept:
            super().add(table, rows, marks, size)
            return
        assert marks is not None, "a row-level change has an operation and a place in the order"
        marked = rows
        for column, values in zip(
            MARKS, (marks.operations, marks.orders, marks.ranks), strict=True
        ):
            marked = marked.append_column(column, pa.array(values))
        size = rows.nbytes if size is None else size
        passed = PassedTable(name, marked, size, self.of(name).key_ids)
        self._passed.add(self._distribution.task_of(name), table.columns_key, passed)

    def end_block(self, block: Block, first: int) -> None:
        """Note that a block was taken; pass on its changes when they are many."""
        super().end_block(block, first)
        if self._passed.waiting_bytes >= self._bytes_max:
            self._flush()

    def finish(self) -> Iterator[Descriptor]:
        """Pass on all changes, and end the files of this task."""
        self._flush()
        yield from super().finish()

    def abort(self) -> None:
        """Delete what was written; changes that are passed on are not announced."""
        self._passed.abort()
        super().abort()

    def _flush(self) -> None:
        if not self._passed.flush():
            raise RetriableError(
                "the temporary folder of the worker has no room for the changes of a batch, which "
                "are distributed by table: free disk space, or set "
                "iceberg.tables.write-distribution-mode to none",
                code=DISK_FULL,
            )
