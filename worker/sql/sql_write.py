"""Writes the rows of a query to data files: the writing half, after a query.

Rules of this file:
- The rows of one record are adjacent and stay together: all of them are written, or none.
- A record is counted once. It is dropped if the query returned no row for it. It is a dead letter
  if it was refused before, in or after the query.
- Rows have Spark's types. The reference path receives them as records with the query's schema.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect import failpoints
from connect.clock import Clock, SystemClock
from connect.errors import ConfigError, RecordError, RetriableError
from connect.model.records import (
    ConnectSchema,
    Date,
    Float32,
    KafkaRecord,
    SinkRecord,
    Struct,
    Timestamp,
)
from connect.records.record_path import ReferencePath
from connect.records.transforms.transform import DATE, DECIMAL, TIMESTAMP
from worker.batch.blocks import Block, joined, one_chunk
from worker.batch.descriptors import losses_row
from worker.batch.error_rows import reported
from worker.batch.pipeline_spec import PipelineSpec
from worker.batch.task_access_policy import under_policy
from worker.convert.table_columns import nulls
from worker.decode.decoded_rows import Columns
from worker.decode.json_types import guessed_fields
from worker.decode.registered_messages import unfit_tables
from worker.pipeline.column_path import has_own_names
from worker.pipeline.pipeline import PipelineTask, TaskOpening
from worker.pipeline.progress import DROPPED, WRITTEN
from worker.sql.row_transport import FAILED, OUTAGE, REFUSED, ROW, ColumnSplit, from_pieces
from worker.write.upsert_writer import RowOutput

_OF_RECORDS: Final = [
    "value",
    "key",
    "headers",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "size",
]
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NAIVE_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - deliberately without a zone
_MICRO: Final = dt.timedelta(microseconds=1)
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def write(spec: PipelineSpec, split: ColumnSplit) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return the function for ``df.mapInArrow(write(spec, split), DESCRIPTOR_DDL)``.

    Args:
        spec: as for ``worker.pipeline.pipeline.run``; its last transformation is the query.
            ``df`` has its rows, see ``worker.sql.row_transport.from_pieces``.
        split: the split of the query's columns.
    """
    return under_policy(partial(_write, queried(spec, split)))


def queried(spec: PipelineSpec, split: ColumnSplit) -> TaskOpening:
    """Return the function that opens the writing half; args as ``write``."""
    alias = spec.config.transforms[-1].alias
    config = dataclasses.replace(spec.config, transforms=())
    return partial(_opened, dataclasses.replace(spec, config=config), alias, split)


def _write(opening: TaskOpening, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    task, taken = opening(batches, None)
    return task.run(taken)


def _opened(
    spec: PipelineSpec,
    alias: str,
    split: ColumnSplit,
    batches: Iterator[pa.RecordBatch],
    output: RowOutput | None,
) -> tuple[PipelineTask, Iterator[Block]]:
    task = _QueriedTask(spec, alias, SystemClock(), output)
    tables = _whole_records(joined(from_pieces(batches, split), task.limits))
    return task, (QueriedBlock(table, alias, split) for table in tables)


def _whole_records(blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Split rows between records only."""
    waiting: pa.Table | None = None
    for block in blocks:
        table = block if waiting is None else pa.concat_tables([waiting, block])
        seqs = table.column("seq").to_numpy()
        cut = int(np.searchsorted(seqs, seqs[-1]))
        if cut:
            yield table.slice(0, cut)
        waiting = table.slice(cut)
    if waiting is not None and waiting.num_rows:
        yield waiting


@dataclass(frozen=True, slots=True)
class QueriedRecord(KafkaRecord):
    """A record with its rows from a query.

    Attributes:
        made: its rows, of the query's type.
        current_topic: its topic after transformations.
        error: the error with which it is refused; None otherwise.
    """

    made: tuple[pa.Scalar, ...] = ()
    current_topic: str = ""
    error: RecordError | None = None


class QueriedBlock(Block):
    """Rows of a query; ``records`` returns their records.

    Args:
        table: the query's result, see ``worker.sql.row_transport.from_pieces``.
        alias: alias of the transformation.
        split: the split of the query's columns.

    Attributes:
        firsts: positions of the first row of each record.
        of_record: per row the number of its record.
        state: state of each row; ``FAILED`` if the query failed.
        items: the rows' columns by name, null where there is no row.
        topics: topic of each row after transformations.
    """

    def __init__(self, table: pa.Table, alias: str, split: ColumnSplit) -> None:
        super().__init__(table.select(_OF_RECORDS))
        self._alias = alias
        seqs = table.column("seq").to_numpy()
        is_first = np.ones(self.count, np.bool_)
        is_first[1:] = seqs[1:] != seqs[:-1]
        self.firsts: Rows = np.flatnonzero(is_first)
        self.of_record: Rows = np.cumsum(is_first) - 1
        self.items = {
            item.name: one_chunk(table.column(str(i))) for i, item in enumerate(split.items)
        }
        self.state = table.column("state").to_numpy().copy()
        self.topics = one_chunk(table.column("current_topic"))
        self._errors = one_chunk(table.column("error"))
        self.losses = int(pc.sum(table.column("losses")).as_py() or 0)

    @property
    def kind(self) -> pa.DataType:
        """The type of the query's rows, a struct."""
        return pa.struct([(name, column.type) for name, column in self.items.items()])

    def of_firsts(self) -> Block:
        """Return a block with each record once."""
        if len(self.firsts) == self.count:
            return self
        return Block(self.table.take(pa.array(self.firsts)))

    def rows_of(self, records: Mask) -> Mask:
        """Return the mask of the rows of some records."""
        mask: Mask = records[self.of_record]
        return mask

    def records(self, places: Rows) -> Iterator[KafkaRecord]:
        """Yield the records with these first rows."""
        ends = np.append(self.firsts[1:], self.count)
        for place, record in zip(places.tolist(), super().records(places), strict=True):
            rows = range(place, int(ends[self.of_record[place]]))
            plain = {f.name: getattr(record, f.name) for f in dataclasses.fields(KafkaRecord)}
            topic = str(self.topics[place].as_py() or record.topic)
            yield QueriedRecord(
                **plain, made=self._made(rows), current_topic=topic, error=self._error(rows)
            )

    def _made(self, rows: range) -> tuple[pa.Scalar, ...]:
        columns = [column.slice(rows.start, len(rows)) for column in self.items.values()]
        whole = pa.StructArray.from_arrays(columns, fields=list(self.kind))
        return tuple(whole[i] for i, row in enumerate(rows) if self.state[row] == ROW)

    def outage(self) -> RecordError | RetriableError | ConfigError | None:
        """Return the error with which the reading half ended, if any."""
        places = np.flatnonzero(self.state == OUTAGE)
        return reported(self._errors[int(places[0])].as_py()) if len(places) else None

    def _error(self, rows: range) -> RecordError | None:
        for row in rows:
            if self.state[row] == REFUSED:
                error = reported(self._errors[row].as_py())
                assert isinstance(error, RecordError)
                return error
            if self.state[row] == FAILED:
                return RecordError(
                    "an expression of the query failed for the record; try_cast gives null for a "
                    "value of another form, and the transformation ParseTimestamp converts times",
                    stage="TRANSFORMATION",
                    code="sql_failed",
                    transform=self._alias,
                )
        return None


class _QueriedReference(ReferencePath):
    """The reference path over the rows that a query made."""

    def read(self, record: KafkaRecord) -> tuple[SinkRecord, ...]:
        assert isinstance(record, QueriedRecord)
        if record.error is not None:
            raise record.error
        return tuple(self._sink_record(record, row) for row in record.made)

    @staticmethod
    def _sink_record(record: QueriedRecord, row: pa.Scalar) -> SinkRecord:
        schema = connect_schema(row.type)
        try:
            value = _value(row.as_py(), schema)
        except (ValueError, OverflowError):
            raise RecordError(
                "a timestamp in the query's row is outside the years 1 to 9999",
                stage="TRANSFORMATION",
                code="sql_failed",
            ) from None
        return SinkRecord(
            record.current_topic,
            record.partition,
            record.offset,
            record.timestamp_ms,
            value=value,
            value_schema=schema,
        )


class _QueriedTask(PipelineTask):
    def __init__(
        self, spec: PipelineSpec, alias: str, clock: Clock, output: RowOutput | None
    ) -> None:
        super().__init__(spec, clock, _QueriedReference(spec.config), output)
        self._alias = alias
        self._block: QueriedBlock | None = None
        self._losses = 0
        alike = [tables.sample for tables in self._tables.alike]
        paths = self._columns.route_paths
        self._fields = guessed_fields((table.schema.fields for table in alike), paths)
        self._is_columnar = (
            not (spec.reference_only or spec.config.schema_case_insensitive)
            and bool(alike)
            and all(has_own_names(table) for table in alike)
        )

    def take(self, block: Block) -> None:
        """Process the rows of whole records; RecordError if a refused record is not tolerated."""
        assert isinstance(block, QueriedBlock)
        outage = block.outage()
        if outage is not None:
            raise outage
        self._block = block
        self._losses += block.losses
        outcome = np.full(block.count, DROPPED, np.int8)
        refused = np.zeros(len(block.firsts), np.bool_)
        refused[block.of_record[np.isin(block.state, (REFUSED, FAILED))]] = True
        slow = block.rows_of(refused)
        rows = np.flatnonzero((block.state == ROW) & ~slow)
        if not self._is_columnar:
            slow[rows] = True
        elif len(rows):
            outcome[rows] = WRITTEN
            decoded = self._decoded(block, rows)
            self._columns.write(
                block, decoded, outcome, slow, order=self._order.taken, spread=self._spread
            )
        failpoints.hit("W2")
        failpoints.hit("W14")
        one_by_one = np.unique(block.of_record[slow])
        firsts = block.firsts[one_by_one]
        self._write_records(block, firsts, outcome)
        of_records = np.minimum.reduceat(outcome, block.firsts)
        of_records[one_by_one] = outcome[firsts]
        self._progress.add(block.of_firsts(), of_records)
        self._end_block(block)

    def finish(self) -> Iterator[tuple[str, bytes]]:
        """Close all files and yield all descriptors."""
        if self._losses:
            yield losses_row(self._losses)
        yield from super().finish()

    def _spread(self, places: Rows, ambiguous: Mask) -> None:
        """Mark all rows of a record as ambiguous if one of them is."""
        assert self._block is not None
        records = np.zeros(len(self._block.firsts), np.bool_)
        records[self._block.of_record[places[ambiguous]]] = True
        ambiguous |= records[self._block.of_record[places]]

    def _decoded(self, block: QueriedBlock, rows: Rows) -> Columns:
        taken = None if len(rows) == block.count else pa.array(rows)
        by_name = {
            name: _wide(column if taken is None else column.take(taken))
            for name, column in block.items.items()
        }
        columns = [
            by_name[name] if name in by_name else nulls(len(rows), kind)
            for name, kind in self._fields.items()
        ]
        table = pa.Table.from_arrays(columns, names=list(self._fields))
        schema = connect_schema(block.kind)
        unfit = unfit_tables(schema, self._spec.config, self._tables.alike)
        nothing = np.empty(0, np.int64)
        topics = block.topics if taken is None else block.topics.take(taken)
        return Columns(table, rows, nothing, unfit, topics=topics)


def _wide(column: pa.Array) -> pa.Array:
    """Cast small integers to the integer type of table columns."""
    small = pa.types.is_int8(column.type) or pa.types.is_int16(column.type)
    return column.cast(pa.int32()) if small else column


# ------------------------------------------------------------------ Spark's types as Connect's

_SCHEMAS: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.string(): "string",
    pa.binary(): "bytes",
}


def connect_schema(kind: pa.DataType) -> ConnectSchema:
    """Return the schema of an Arrow type of Spark; each part is optional."""
    types = pa.types
    if types.is_struct(kind):
        fields = tuple((f.name, connect_schema(f.type)) for f in kind)
        return ConnectSchema("struct", optional=True, fields=fields)
    if types.is_map(kind):
        return ConnectSchema(
            "map",
            optional=True,
            key_schema=connect_schema(kind.key_type),
            value_schema=connect_schema(kind.item_type),
        )
    if types.is_list(kind):
        return ConnectSchema("array", optional=True, value_schema=connect_schema(kind.value_type))
    if types.is_decimal(kind):
        scale = {"scale": str(kind.scale)}
        return ConnectSchema("bytes", optional=True, name=DECIMAL, parameters=scale)
    if types.is_date(kind):
        return ConnectSchema("int32", optional=True, name=DATE)
    if types.is_timestamp(kind):
        return ConnectSchema("int64", optional=True, name=TIMESTAMP)
    return ConnectSchema(_SCHEMAS[kind], optional=True)


def _value(value: Any, schema: ConnectSchema) -> Any:
    """Return a value in the form of ``SinkRecord``."""
    if value is None:
        return None
    if schema.type == "struct":
        return Struct(schema, {n: _value(value[n], inner) for n, inner in schema.fields})
    if schema.type == "map":
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        key, item = schema.key_schema, schema.value_schema
        return {_value(k, key): _value(v, item) for k, v in value}
    if schema.type == "array":
        assert schema.value_schema is not None
        return [_value(item, schema.value_schema) for item in value]
    if schema.name == DATE:
        return Date(value.toordinal() - _EPOCH.toordinal())
    if schema.name == TIMESTAMP:
        micros = (value - (_NAIVE_EPOCH if value.tzinfo is None else _EPOCH)) // _MICRO
        return Timestamp(micros // 1000, micros % 1000 * 1000)
    return Float32(value) if schema.type == "float32" else value
