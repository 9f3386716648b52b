"""Records of one Spark task into data files: the body of ``mapInArrow``.

Rules of this file:
- Blocks of records go column by column. Records without a column form, and ambiguous ones, go
  through the record path (``worker.pipeline.record_fallback``). Both give the same rows.
- A task that needs a new table or column writes nothing: it deletes its files, and reads on only
  to find what else it needs.
- Each record of the input is counted once, with exactly one outcome.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connect import failpoints
from connect.clock import Clock, SystemClock
from connect.errors import ConfigError, RecordError, RetriableError
from connect.model.records import KafkaRecord
from connect.records.record_path import ReferencePath
from worker.batch.blocks import Block, blocks
from worker.batch.descriptors import (
    DESCRIPTOR_DDL,
    BatchResult,
    DeadLetter,
    collect,
    conflicts_row,
    dead_letter_batches,
    losses_row,
    schema_request_row,
    table_request_row,
    to_batch,
)
from worker.batch.error_rows import error_row, is_reported
from worker.batch.passed_rows import PassedRows
from worker.batch.pipeline_spec import PipelineLimits, PipelineSpec, TablePlan
from worker.batch.task_access_policy import under_policy
from worker.outputs.output_rows import AppendsWithOutputs
from worker.pipeline.column_writer import ColumnWriter
from worker.pipeline.progress import (
    BY_COLUMN,
    DROPPED,
    NO_COLUMN_FORM,
    NOT_CONVERTED,
    NOT_DECODED,
    Outcome,
    ProgressCounter,
)
from worker.pipeline.record_fallback import RecordPath
from worker.pipeline.topic_forms import column_form
from worker.write.change_order import ChangeOrder
from worker.write.distributed_writers import DistributedChanges, DistributedWriters
from worker.write.table_writer import FileNames, by_position
from worker.write.table_writers import TableWriters
from worker.write.upsert_writer import Appends, Changes, RowOutput

__all__ = [
    "DESCRIPTOR_DDL",
    "BatchResult",
    "PipelineLimits",
    "PipelineSpec",
    "TablePlan",
    "TaskOpening",
    "collect",
    "of_records",
    "run",
]

Rows = npt.NDArray[np.int64]
_RECORDS_AT_ONCE: Final = 2_000


def run(spec: PipelineSpec) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``df.mapInArrow(run(spec), DESCRIPTOR_DDL)``.

    Args:
        spec: what to do; ``df`` has the columns ``spec.columns()`` names.

    Returns:
        a picklable function. It takes record batches, writes files and yields descriptors, which
        ``collect`` puts together on the driver.
    """
    return under_policy(partial(_run, spec))


def _run(
    spec: PipelineSpec, batches: Iterator[pa.RecordBatch], clock: Clock | None = None
) -> Iterator[pa.RecordBatch]:
    task = PipelineTask(spec, clock or SystemClock())
    return task.run(blocks(batches, task.limits))


def of_records(spec: PipelineSpec) -> TaskOpening:
    """Return the function that opens the work on Kafka records; args as ``run``."""
    return partial(_opened, spec)


def _opened(
    spec: PipelineSpec, batches: Iterator[pa.RecordBatch], output: RowOutput | None
) -> tuple[PipelineTask, Iterator[Block]]:
    task = PipelineTask(spec, SystemClock(), output=output)
    return task, blocks(batches, task.limits)


class PipelineTask:
    """Processes the records of one Spark task.

    Args:
        spec: what to do.
        clock: for the names of files.
        reference: replaces the record path of the spec's connector.
        output: takes the rows in place of files, for connectors whose records only add rows.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        clock: Clock,
        reference: ReferencePath | None = None,
        output: RowOutput | None = None,
    ) -> None:
        self._spec = spec
        self._reference = reference or ReferencePath(spec.config)
        prefix = clock.new_timed_uuid()  # the coordinator reads the age of a file from it
        numbers = iter(range(1 << 62))
        names = lambda: f"{prefix}-{next(numbers):05d}.parquet"  # noqa: E731 - one line of wiring
        self._tables = TableWriters(spec.tables, names)
        self._passed = (
            None
            if spec.distribution is None
            else PassedRows(spec.distribution, str(prefix), spec.limits.spilled_bytes_max)
        )
        changes = _changes(spec, self._tables, names, self._passed)
        self._output: RowOutput | Changes = (
            changes or output or _appends(spec, self._tables, self._passed)
        )
        self._records = RecordPath(spec, self._tables, self._reference, changes)
        self._columns = ColumnWriter(
            spec, self._tables, self._records, self._output, self._reference
        )
        self._form = column_form(
            spec,
            self._tables.alike,
            self._columns.paths,
            self._reference,
            uses_schema=self._columns.uses_schema,
        )
        rows = self._form.block_rows(spec.limits.block_rows, spec.limits.block_cells)
        self.limits = dataclasses.replace(spec.limits, block_rows=rows)
        self._progress = ProgressCounter(spec, clock.now_ms())
        self._order = ChangeOrder(spec.sources)
        self._last: KafkaRecord | None = None

    def run(self, taken: Iterable[Block]) -> Iterator[pa.RecordBatch]:
        """Take all blocks.

        Yields:
            descriptors of what was written, or of the error that ended the task. Where rows are
            distributed, with a task that forwards them, and with the rows for other tasks.
        """
        try:
            for block in taken:
                self.take(block)
                if self._passed is not None:
                    yield from self._passed.batches()
            rows, dead_letters = list(self.finish()), self.dead_letters
        except (RecordError, RetriableError, ConfigError) as error:
            self.abort()
            if not is_reported(error):
                raise
            rows, dead_letters = [error_row(error)], []
        except BaseException:
            self.abort()  # Spark runs the task again: its files would be orphans
            raise
        if self._passed is not None:
            yield from self._passed.batches()
        for batch in (to_batch(rows), *dead_letter_batches(dead_letters)):
            yield batch if self._passed is None else self._passed.framed(batch)

    def take(self, block: Block) -> None:
        """Take a block of records.

        Raises:
            RecordError: a record is refused, and refusals are not tolerated.
        """
        is_refused = block.holds(self._spec.refused)
        if is_refused is not None:
            refused = block.only(is_refused)
            outcome = np.zeros(refused.count, np.int8)
            self._write_records(refused, np.arange(refused.count), outcome)
            self._progress.add(refused, outcome, np.full(refused.count, NOT_DECODED, np.int8))
            block = block.only(~is_refused)
        self._take(block)

    def try_out(self, block: Block) -> None:
        """Take a block of records and delete what was written; errors as ``take``, and others."""
        try:
            self.take(block)
            result = collect(pa.Table.from_batches([to_batch(self.finish())]))
            for name, files in result.files.items():
                for file in files:
                    self._tables[name].discard(file.file_path)
        finally:
            self.abort()

    def _take(self, block: Block) -> None:
        outcome = np.zeros(block.count, np.int8)
        outcome[block.tombstones] = DROPPED
        slow = ~block.tombstones
        ranks = self._order.ranks(block)
        if self._spec.config.transforms:
            slow[:] = True  # transformations receive tombstones, and may make a row of one
        elif self._spec.config.is_row_level:
            slow[block.tombstones & block.has_key] = True
        alone = np.full(block.count, NOT_DECODED, np.int8)
        if not self._form.is_possible:
            alone[:] = NO_COLUMN_FORM
        for decoded in self._form.decode(block):
            alone[decoded.places] = NOT_CONVERTED
            slow[decoded.places] = False
            slow[decoded.unexpected] = True
            if decoded.dropped is not None:
                slow[decoded.dropped] = False
                outcome[decoded.dropped] = DROPPED
            self._columns.write(block, decoded, outcome, slow, order=self._order.taken, ranks=ranks)
        failpoints.hit("W2")
        failpoints.hit("W14")
        self._write_records(block, np.flatnonzero(slow), outcome, ranks)
        self._end_block(block)
        alone[~slow | block.tombstones] = BY_COLUMN
        self._progress.add(block, outcome, alone)

    def finish(self) -> Iterator[tuple[str, bytes]]:
        """End all files.

        Yields:
            the descriptors of everything but the dead letters.
        """
        yield from self._progress.descriptors()
        for table_request in self._records.requests.tables.values():
            yield table_request_row(table_request)
        for schema_request in self._records.requests.schemas.values():
            yield schema_request_row(schema_request)
        if self._reference.losses.sub_micro:
            yield losses_row(self._reference.losses.sub_micro)
        if self._records.moved.counts:
            yield conflicts_row(self._records.moved.counts)
        yield from self._output.finish()
        if self._passed is not None:
            yield self._passed.end()

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Refused records. ``dead_letter_batches`` empties the list."""
        return self._records.dead_letters

    def abort(self) -> None:
        """Delete what was written."""
        self._output.abort()

    def _write_records(
        self, block: Block, places: Rows, outcome: Outcome, ranks: Rows | None = None
    ) -> None:
        """Take records one by one."""
        for start in range(0, len(places), _RECORDS_AT_ONCE):
            if start and self._records.requests:
                return  # the batch runs again: a part of each block shows what else is missing
            part = places[start : start + _RECORDS_AT_ONCE]
            for place, record in zip(part.tolist(), block.records(part), strict=True):
                outcome[place] = self._records.take(
                    record,
                    order=self._order.taken + place,
                    rank=0 if ranks is None else int(ranks[place]),
                    before=partial(self._before, block, place),
                )
            for table, rows, marks in self._records.rows():
                if not self._records.requests:
                    self._output.add(table, by_position(rows), marks)

    def _before(self, block: Block, place: int) -> KafkaRecord | None:
        """Return the record that was read before the one at a place of a block."""
        if not place:
            return self._last
        return next(block.records(np.array([place - 1])))

    def _end_block(self, block: Block) -> None:
        if self._spec.config.is_row_level and block.count:
            self._last = next(block.records(np.array([block.count - 1])))
        first = self._order.taken
        self._order.taken += block.count
        if self._records.requests:
            self._output.abort()
        else:
            self._output.end_block(block, first)


TaskOpening: TypeAlias = Callable[
    [Iterator[pa.RecordBatch], RowOutput | None], tuple[PipelineTask, Iterator[Block]]
]
"""Opens the work of a Spark task: its record batches and an output in, its blocks out."""


def _changes(
    spec: PipelineSpec, tables: TableWriters, names: FileNames, passed: PassedRows | None
) -> Changes | None:
    """Return the output of a connector whose records replace and delete rows by key."""
    if not spec.config.is_row_level:
        return None
    options: dict[str, Any] = {
        "upsert": spec.config.upsert_enabled,
        "limits": spec.limits,
        "reports_keys": spec.reports_keys,
    }
    if spec.distribution is None or passed is None:
        return Changes(tables, names, **options)
    return DistributedChanges(spec.distribution, passed, tables, names, **options)


def _appends(spec: PipelineSpec, tables: TableWriters, passed: PassedRows | None) -> RowOutput:
    """Return the output of a connector whose records only add rows."""
    writers = None
    if spec.distribution is not None and passed is not None:
        writers = DistributedWriters(spec.distribution, passed, tables, spec.limits)
    if not spec.config.outputs:
        return Appends(spec.limits, writers)
    return AppendsWithOutputs(
        spec.limits, spec.config.outputs, writers, has_tables=spec.config.has_tables
    )
