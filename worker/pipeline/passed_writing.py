"""Rows that other Spark tasks have read, into data files: the second ``mapInArrow`` of a batch.

Rules of this file:
- A task writes all rows that it receives, in the order in which each sender passed them on.
- A step of row-level changes ends only between blocks of a sender, so that the newest change of a
  key is found.
- Descriptors of other tasks are forwarded, also after an error: the driver deletes their files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connect import failpoints
from connect.clock import Clock, SystemClock
from connect.errors import ConfigError, RecordError, RetriableError
from worker.batch.descriptors import DESCRIPTOR_SCHEMA, file_rows, to_batch
from worker.batch.error_rows import error_row, is_reported
from worker.batch.passed_rows import MARKS, PASSED, PassedPart, ReceivedRows
from worker.batch.pipeline_spec import PipelineSpec
from worker.batch.task_access_policy import under_policy
from worker.write.parquet_writer import Writers, sizes_of
from worker.write.table_writers import TableWriters
from worker.write.upsert_writer import Changes, Descriptor, Marks


def write_passed(
    spec: PipelineSpec,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``df.mapInArrow(write_passed(spec), DESCRIPTOR_DDL)``.

    Args:
        spec: as for ``worker.pipeline.pipeline.run``, with a distribution. ``df`` has what ``run``
            yields, each row in the Spark task that it names.
    """
    return under_policy(partial(_write, spec))


def _write(
    spec: PipelineSpec, batches: Iterator[pa.RecordBatch], clock: Clock | None = None
) -> Iterator[pa.RecordBatch]:
    yield from PassedTask(spec, clock or SystemClock()).run(batches)


class PassedTask:
    """Writes what one Spark task receives.

    Args:
        spec: of the batch.
        clock: for the names of files.
    """

    def __init__(self, spec: PipelineSpec, clock: Clock) -> None:
        prefix = clock.new_timed_uuid()
        numbers = iter(range(1 << 62))
        names = lambda: f"{prefix}-{next(numbers):05d}.parquet"  # noqa: E731 - one line of wiring
        self._tables = TableWriters(spec.tables, names)
        self._received = ReceivedRows()
        self._output: _PassedAppends | _PassedChanges
        if spec.config.is_row_level:
            upsert = spec.config.upsert_enabled
            changes = Changes(self._tables, names, upsert=upsert, limits=spec.limits)
            self._output = _PassedChanges(self._tables, changes)
        else:
            self._output = _PassedAppends(self._tables, Writers(spec.limits))

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take all rows of ``PASSED_SCHEMA``.

        Yields:
            descriptors: those of other tasks, and of the files or the error of this one.
        """
        failed: tuple[str, bytes] | None = None
        try:
            for batch in batches:
                is_passed = pc.equal(batch.column(1), PASSED)
                forwarded = batch.filter(pc.invert(is_passed))
                if forwarded.num_rows:
                    yield _descriptors(forwarded)
                payloads = batch.column(2).filter(is_passed)
                failed = failed or self._attempt(partial(self._take, payloads))
            descriptors: list[Descriptor] = []
            failed = failed or self._attempt(partial(self._finish, descriptors))
        except BaseException:
            self._output.abort()  # Spark runs the task again: its files would be orphans
            raise
        yield to_batch(descriptors if failed is None else [failed])

    def _attempt(self, work: Callable[[], None]) -> Descriptor | None:
        """Return the descriptor of an error that the driver must know."""
        try:
            work()
        except (RecordError, RetriableError, ConfigError) as error:
            self._output.abort()
            if not is_reported(error):
                raise
            return error_row(error)
        return None

    def _take(self, payloads: pa.Array) -> None:
        for payload in payloads:
            self._output.add(self._received.part(payload.as_buffer()))

    def _finish(self, descriptors: list[Descriptor]) -> None:
        failpoints.hit("S1")
        failpoints.hit("S2")
        descriptors.extend(self._output.finish())
        descriptors.extend(self._received.descriptors())


class _PassedAppends:
    def __init__(self, tables: TableWriters, writers: Writers) -> None:
        self._tables = tables
        self._writers = writers

    def add(self, part: PassedPart) -> None:
        sizes = sizes_of(part.rows, part.bounds)
        if not part.are_on_disk:
            self._writers.pin(sum(sizes))
        for (name, _), start, end, size in _pieces(part, sizes):
            rows = part.rows.slice(start, end - start)
            self._writers.add(self._tables[name], rows, size, are_on_disk=part.are_on_disk)

    def finish(self) -> Iterator[Descriptor]:
        yield from file_rows((table.plan.name, file, 0) for table, file in self._writers.finish())

    def abort(self) -> None:
        self._writers.abort()


class _PassedChanges:
    def __init__(self, tables: TableWriters, changes: Changes) -> None:
        self._tables = tables
        self._changes = changes
        self._unfinished: set[str] = set()

    def add(self, part: PassedPart) -> None:
        columns = part.rows.num_columns - len(MARKS)
        values = part.rows.select(range(columns))
        marks = Marks(*(part.rows.column(columns + i).to_numpy() for i in range(len(MARKS))))
        assert tuple(part.rows.column_names[columns:]) == MARKS
        for (name, key_ids), start, end, size in _pieces(part, sizes_of(values, part.bounds)):
            self._changes.of(name).use_key(key_ids)
            rows = values.slice(start, end - start)
            self._changes.add(self._tables[name], rows, marks.of(slice(start, end)), size)
        if part.is_last:
            self._unfinished.discard(part.sender)
        else:
            self._unfinished.add(part.sender)
        if not self._unfinished:
            self._changes.end_step_if_large()

    def finish(self) -> Iterator[Descriptor]:
        yield from self._changes.finish()

    def abort(self) -> None:
        self._changes.abort()


def _pieces(
    part: PassedPart, sizes: list[int]
) -> Iterator[tuple[tuple[str, tuple[int, ...]], int, int, int]]:
    bounds = np.asarray(part.bounds).tolist()
    return zip(part.tables, bounds[:-1], bounds[1:], sizes, strict=True)


def _descriptors(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch(batch.columns[1:], schema=DESCRIPTOR_SCHEMA)
