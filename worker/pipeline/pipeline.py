"""Records of one Spark task into data files: the body of ``mapInArrow``.

Rules of this file:
- Blocks of records go column by column; rows that a column form does not exist for, or for which
  it is in doubt, go through the reference (``worker.pipeline.record_fallback``). Both give the same
  rows.
- A task that asks for a table or a column writes nothing: its files are deleted, and it only looks
  on for what else to ask for.
- Every record of the input is counted once, under exactly one outcome.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect import failpoints
from connect.clock import Clock, SystemClock
from connect.errors import ConfigError, RecordError, RetriableError
from connect.model.layout import TopicPartition
from connect.records.record_path import ReferencePath
from connect.records.row_operations import Operation
from worker.batch.blocks import Block, blocks, one_chunk
from worker.batch.descriptors import (
    DESCRIPTOR_DDL,
    BatchResult,
    DeadLetter,
    PartitionProgress,
    collect,
    letter_batches,
    losses_row,
    progress_row,
    schema_request_row,
    table_request_row,
    to_batch,
)
from worker.batch.error_rows import error_row, is_reported
from worker.batch.pipeline_spec import PipelineLimits, PipelineSpec, TablePlan
from worker.decode.decoded_rows import Columns
from worker.pipeline.column_path import ColumnForm
from worker.pipeline.record_fallback import DEAD, DROPPED, WRITTEN, RecordPath
from worker.pipeline.table_group import Deleted, Part
from worker.write.operations import ColumnOperations
from worker.write.partitions import split_by_codes, take_rows
from worker.write.routes import ColumnRouter
from worker.write.table_writer import TableWriter
from worker.write.upsert_writer import Appends, Changes, Marks

__all__ = [
    "DESCRIPTOR_DDL",
    "BatchResult",
    "PipelineLimits",
    "PipelineSpec",
    "TablePlan",
    "collect",
    "run",
]

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Outcome = npt.NDArray[np.int8]
_RECORDS_AT_ONCE = 2_000


def run(spec: PipelineSpec) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``df.mapInArrow(run(spec), DESCRIPTOR_DDL)``.

    Args:
        spec: what to do; ``df`` has the columns ``spec.columns()`` names.

    Returns:
        a picklable function. Run on record batches it writes files and yields descriptors, which
        ``collect`` puts together on the driver.
    """
    return partial(_run, spec)


def _run(
    spec: PipelineSpec, batches: Iterator[pa.RecordBatch], clock: Clock | None = None
) -> Iterator[pa.RecordBatch]:
    task = PipelineTask(spec, clock or SystemClock())
    return task.run(blocks(batches, task.limits))


class PipelineTask:
    """What one Spark task does with its records.

    Args:
        spec: what to do.
        clock: for the names of files.
        reference: in the place of the spec's own.
    """

    def __init__(
        self, spec: PipelineSpec, clock: Clock, reference: ReferencePath | None = None
    ) -> None:
        self._spec = spec
        reference = reference or ReferencePath(spec.config)
        self._reference = reference
        prefix = clock.new_timed_uuid()  # the coordinator reads from it how old a file is
        numbers = iter(range(1 << 62))
        names = lambda: f"{prefix}-{next(numbers):05d}.parquet"  # noqa: E731 - one line of wiring
        self._tables = {plan.name: TableWriter(plan, names) for plan in spec.tables}
        self._changes: Changes | None = None
        self._output: Appends | Changes = Appends(spec.limits)
        if spec.config.is_row_level:
            upsert = spec.config.upsert_enabled
            self._changes = Changes(self._tables, names, upsert=upsert, limits=spec.limits)
            self._output = self._changes
        self._records = RecordPath(spec, self._tables, reference, self._changes)
        self._router = ColumnRouter(spec.config, reference.route)
        self._operations = ColumnOperations(spec.config)
        paths = (*self._router.paths, self._operations.path)
        uses_schema = self._router.uses_schema
        self._form = ColumnForm(
            spec, self._tables.values(), paths, reference, uses_schema=uses_schema
        )
        rows = self._form.block_rows(spec.limits.block_rows, spec.limits.block_cells)
        self.limits = dataclasses.replace(spec.limits, block_rows=rows)
        self._progress: dict[TopicPartition, PartitionProgress] = {}
        self._taken = 0
        self._believed_until_ms = clock.now_ms() + spec.config.vtts_future_max_ms

    def run(self, taken: Iterable[Block]) -> Iterator[pa.RecordBatch]:
        """Take all blocks; descriptors of what was written, or of the error that ended it."""
        try:
            for block in taken:
                self.take(block)
            rows, letters = list(self.finish()), self.dead_letters
        except (RecordError, RetriableError, ConfigError) as error:
            self.abort()
            if not is_reported(error):
                raise
            rows, letters = [error_row(error)], []
        except BaseException:
            self.abort()  # Spark tries the task again: its files would be orphans
            raise
        yield to_batch(rows)
        yield from letter_batches(letters)

    def take(self, block: Block) -> None:
        """Take a block of records; raises RecordError where one is not tolerated."""
        outcome = np.zeros(block.count, np.int8)
        outcome[block.tombstones] = DROPPED
        slow = ~block.tombstones
        if self._spec.config.transforms:
            slow[:] = True  # they see tombstones, and may make a row of one
        elif self._changes is not None:
            slow[block.tombstones & block.has_key] = True
        for decoded in self._form.decode(block):
            slow[decoded.places] = False
            slow[decoded.unexpected] = True
            if decoded.dropped is not None:
                slow[decoded.dropped] = False
                outcome[decoded.dropped] = DROPPED
            self._write_columns(block, decoded, outcome, slow)
        failpoints.hit("W2")
        failpoints.hit("W14")
        self._write_records(block, np.flatnonzero(slow), outcome)
        self._count(block, outcome)
        self._taken += block.count
        if self._records.requests:
            self._output.abort()
        else:
            self._output.end_block()

    def finish(self) -> Iterator[tuple[str, bytes]]:
        """End all files; the descriptors of everything but the dead letters."""
        for tp, progress in self._progress.items():
            yield progress_row(tp, progress)
        for table_request in self._records.requests.tables.values():
            yield table_request_row(table_request)
        for schema_request in self._records.requests.schemas.values():
            yield schema_request_row(schema_request)
        if self._reference.losses.sub_micro:
            yield losses_row(self._reference.losses.sub_micro)
        yield from self._output.finish()

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Records refused; whoever sends them on empties the list."""
        return self._records.dead_letters

    def abort(self) -> None:
        """Delete what was written."""
        self._output.abort()

    # -------------------------------------------------------------- by columns

    def _write_columns(self, block: Block, decoded: Columns, outcome: Outcome, slow: Mask) -> None:
        """Write the decoded rows; mark those as slow that the reference must take."""
        if not decoded.table.num_rows:
            slow[decoded.places] = True  # no table is known, so no column was decoded
            return
        topics = None
        if self._router.uses_topic and decoded.topics is not None:
            topics = decoded.topics
        elif self._router.uses_topic:
            topics = one_chunk(block.table.column("topic")).take(pa.array(decoded.places))
        routed = self._router.route(decoded.table, topics, decoded.schema_name)
        ambiguous = slow[decoded.places]
        codes = routed.codes
        if codes is None:
            codes = np.zeros(decoded.table.num_rows, np.int64)
        used = np.bincount(codes, minlength=len(routed.targets)) > 0
        targets = self._known_targets(routed.targets, used, codes, ambiguous, decoded.unfit)
        nowhere = np.array([target == () for target in targets])
        marks = self._marks(block, decoded, targets, codes, ambiguous)
        unit = self._spec.config.timestamp_unit
        parts = [
            Part.of(
                tables,
                members,
                decoded.table,
                codes,
                unit=unit,
                deleted=self._deleted(marks, tables),
            )
            for tables, members in self._classes(targets)
        ]
        for part in parts:
            part.add_ambiguous(ambiguous)
        self._spread(decoded.places, ambiguous)
        slow[decoded.places[ambiguous]] = True
        ambiguous = slow[decoded.places]  # a record's rows go together
        outcome[decoded.places[nowhere[codes] & ~ambiguous]] = DROPPED
        outcome[decoded.places[~nowhere[codes]]] = WRITTEN
        if not self._records.requests:
            for part in parts:
                self._write_part(part, targets, codes, ambiguous, marks)

    def _spread(self, places: Rows, ambiguous: Mask) -> None:
        """Add rows to the doubtful that must go with one of them; here a row is a record."""

    def _marks(
        self,
        block: Block,
        decoded: Columns,
        targets: list[tuple[str, ...] | None],
        codes: Rows,
        ambiguous: Mask,
    ) -> Marks | None:
        """What the decoded rows do; rows of tables whose key stays unknown are doubtful."""
        if self._changes is None:
            return None
        for code, target in enumerate(targets):
            unknown = [n for n in target or () if not self._changes.of(n).has_key]
            if not unknown:
                continue
            for record in block.records(decoded.places[codes == code][:1]):
                try:
                    self._records.learn_key(record, unknown)
                except RecordError:
                    ambiguous |= codes == code  # the reference says why
        operations, more = self._operations.of(decoded.table)
        if more is not None:
            ambiguous |= more
        return Marks(operations, self._taken + decoded.places)

    def _deleted(self, marks: Marks | None, tables: list[TableWriter]) -> Deleted | None:
        if marks is None or self._changes is None:
            return None
        known = [self._changes.of(table.plan.name) for table in tables]
        places = {place for changes in known for place in changes.key_places}
        return Deleted(marks.operations == Operation.DELETE, frozenset(places))

    def _known_targets(
        self,
        targets: tuple[tuple[str, ...] | None, ...],
        used: Mask,
        codes: Rows,
        ambiguous: Mask,
        unfit: frozenset[str],
    ) -> list[tuple[str, ...] | None]:
        """Targets all of whose tables take the rows as they are; rows for others are doubtful."""
        known: list[tuple[str, ...] | None] = []
        for code, target in enumerate(targets):
            is_known = target is not None and all(
                name in self._tables and name not in unfit for name in target
            )
            known.append(target if is_known and used[code] else None)
            if not is_known and used[code]:
                ambiguous |= codes == code
        return known

    def _classes(
        self, targets: list[tuple[str, ...] | None]
    ) -> list[tuple[list[TableWriter], Mask]]:
        """Tables with the same columns, and which targets have one of them."""
        classes: dict[tuple[str, ...], tuple[list[TableWriter], Mask]] = {}
        for code, target in enumerate(targets):
            for name in target or ():
                table = self._tables[name]
                tables, members = classes.setdefault(
                    table.columns_key, ([], np.zeros(len(targets), np.bool_))
                )
                if table not in tables:
                    tables.append(table)
                members[code] = True
        return list(classes.values())

    def _write_part(
        self,
        part: Part,
        targets: list[tuple[str, ...] | None],
        codes: Rows,
        ambiguous: Mask,
        marks: Marks | None,
    ) -> None:
        if part.rows is not None:
            codes, ambiguous = codes[part.rows], ambiguous[part.rows]
            marks = marks and marks.of(part.rows)
        rows = part.converted
        if ambiguous.any():
            rows, codes = rows.filter(pa.array(~ambiguous)), codes[~ambiguous]
            marks = marks and marks.of(~ambiguous)
        if not rows.num_rows:
            return
        order, bounds = split_by_codes(codes, len(targets))
        if order is not None:
            rows = take_rows(rows, order)
            marks = marks and marks.of(order)
        self._output.pin(rows.nbytes)
        for code, target in enumerate(targets):
            start, end = int(bounds[code]), int(bounds[code + 1])
            if end == start:
                continue
            columns = rows.slice(start, end - start).columns
            piece_marks = marks and marks.of(slice(start, end))
            for name in target or ():
                table = self._tables[name]
                if table in part.tables:
                    piece = pa.Table.from_arrays(columns, schema=table.arrow_schema)
                    self._output.add(table, piece, piece_marks)

    # -------------------------------------------------------------- record by record

    def _write_records(self, block: Block, places: Rows, outcome: Outcome) -> None:
        for start in range(0, len(places), _RECORDS_AT_ONCE):
            if start and self._records.requests:
                return  # the batch is run again: a part of each block tells what else is missing
            part = places[start : start + _RECORDS_AT_ONCE]
            for place, record in zip(part.tolist(), block.records(part), strict=True):
                outcome[place] = self._records.take(record, order=self._taken + place)
            for table, rows, marks in self._records.rows():
                if not self._records.requests:
                    self._output.add(table, rows, marks)

    def _count(self, block: Block, outcome: Outcome) -> None:
        stamps = block.timestamps_ms
        claimed_ms = pa.scalar(self._spec.valid_through_ms, pa.int64())
        is_dated = pc.greater_equal(stamps, 0)  # -1 is none
        is_late = pc.and_(is_dated, pc.less_equal(stamps, claimed_ms))
        is_future = pc.fill_null(pc.greater(stamps, self._believed_until_ms), False)  # noqa: FBT003 - Arrow's
        rows = pa.table(
            {
                "topic": block.table["topic"],
                "partition": block.table["partition"],
                "timestamp": pc.if_else(is_future, pa.scalar(None, pa.int64()), stamps),
                "future": is_future.cast(pa.int64()),
                "late": pc.fill_null(is_late, False).cast(pa.int64()),  # noqa: FBT003 - Arrow's
                "dropped": pa.array(outcome == DROPPED).cast(pa.int64()),
                "dead": pa.array(outcome == DEAD).cast(pa.int64()),
                "bytes": block.sizes,
            }
        )
        grouped = rows.group_by(["topic", "partition"], use_threads=False).aggregate(
            [
                ("timestamp", "max"),
                ("future", "sum"),
                ("late", "sum"),
                ("dropped", "sum"),
                ("dead", "sum"),
                ("bytes", "sum"),
                ([], "count_all"),
            ]
        )
        for row in grouped.to_pylist():
            tp = TopicPartition(row["topic"], row["partition"])
            read, dropped, dead = row["count_all"], row["dropped_sum"], row["dead_sum"]
            written, stamp = read - dropped - dead, row["timestamp_max"]
            progress = PartitionProgress(
                *(read, dropped, dead, written, stamp, row["bytes_sum"]),
                future=row["future_sum"],
                late=row["late_sum"],
            )
            self._progress[tp] = self._progress.get(tp, PartitionProgress()).plus(progress)
