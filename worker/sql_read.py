"""Records into rows of the view ``records``: the half of the pipeline before a query.

Rules of this file:
- Every record leaves at least one row, in the order of the records, so that the half behind the
  query can count it: without a value where transformations dropped it, with its error where it was
  refused.
- The value's fields become columns by the rules for columns of a table; the view is such a table.
- A record's bytes travel with its first row, and only where it may become a dead letter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from connect.errors import ConfigError, RecordError, RetriableError
from connect.reference import ReferencePath
from connect.transforms.sql import SqlPlan
from connect.transforms.sql_columns import spark_type
from control_schemas.events import TableReference
from worker.blocks import Block, blocks, one_chunk
from worker.forms import ColumnForm
from worker.parts import Part
from worker.plan import PipelineSpec, TablePlan
from worker.records import to_arrow
from worker.tables import TableWriter
from worker.told_errors import error_row

ROW, DROPPED, REFUSED, OUTAGE = 0, 1, 2, 3
"""What a row of the view stands for: a row, or a record without one and why."""

ORIGIN: Final = "__origin"
KAFKA: Final = "kafka"
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ORIGIN_TYPE: Final = pa.struct(
    [
        ("seq", pa.int64()),
        ("state", pa.int8()),
        ("error", pa.binary()),
        ("topic", pa.string()),
        ("losses", pa.int64()),
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("headers", _HEADERS),
    ]
)
_ORIGIN_DDL: Final = (
    "STRUCT<seq: BIGINT, state: TINYINT, error: BINARY, topic: STRING, losses: BIGINT, "
    "value: BINARY, key: BINARY, headers: ARRAY<STRUCT<key: STRING, value: BINARY>>>"
)
_KAFKA_DDL: Final = "STRUCT<topic: STRING, partition: INT, offset: BIGINT, timestamp: TIMESTAMP>"
_STAMP: Final = pa.timestamp("us", "UTC")
_PRIMITIVES: Final[Mapping[Any, pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us"),
}
_RECORDS_AT_ONCE: Final = 10_000
Places = npt.NDArray[np.int64]


def read(spec: PipelineSpec, plan: SqlPlan) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return the function for ``df.mapInArrow(read(spec, plan), view_ddl(plan))``.

    Args:
        spec: as for ``worker.pipeline.run``; its last transformation is the query.
        plan: the query's.
    """
    config = dataclasses.replace(
        spec.config,
        transforms=spec.config.transforms[:-1],
        evolve_schema_enabled=False,
        route_field=None,
    )
    inner = dataclasses.replace(spec, config=config, tables=(_view(plan),), absent=frozenset())
    return partial(_read, inner, spec.config.transforms[-1].alias, spec.has_dead_letters)


def view_ddl(plan: SqlPlan) -> str:
    """The view's columns, those that no query sees included, in Spark's SQL."""
    columns = [f"`{f.name}` {spark_type(f.field_type)}" for f in plan.columns.fields]
    return ", ".join([f"{ORIGIN} {_ORIGIN_DDL}", f"{KAFKA} {_KAFKA_DDL}", *columns])


def spark_arrow(kind: IcebergType) -> pa.DataType:
    """The Arrow type in which Spark takes a column."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ListType):
        return pa.list_(spark_arrow(kind.element_type))
    if isinstance(kind, MapType):
        return pa.map_(spark_arrow(kind.key_type), spark_arrow(kind.value_type))
    if isinstance(kind, StructType):
        return pa.struct([(f.name, spark_arrow(f.field_type)) for f in kind.fields])
    return _PRIMITIVES.get(type(kind), _STAMP)


def _view(plan: SqlPlan) -> TablePlan:
    return TablePlan(
        name="records",
        reference=TableReference("", (), "records", UUID(int=0)),
        schema_json=plan.columns.model_dump_json(),
        spec_json=UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
        location="file:///records",  # nothing is written there
        properties={},
        io_properties={},
    )


def _read(
    spec: PipelineSpec, alias: str, has_dead_letters: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    reading = _Reading(spec, alias, has_dead_letters=has_dead_letters)
    try:
        for block in blocks(batches, spec.limits):
            yield from reading.take(block)
    except (RetriableError, ConfigError) as error:
        if not error.code.startswith("registry_"):
            raise
        yield reading.outage(error)


@dataclass(slots=True)
class _Rows:
    """Rows of some records: positions of these in the block, topics and columns of those."""

    places: Places
    topics: pa.Array
    columns: list[pa.Array]


class _Reading:
    def __init__(self, spec: PipelineSpec, alias: str, *, has_dead_letters: bool) -> None:
        self._config = spec.config
        self._alias = alias
        self._has_dead_letters = has_dead_letters
        self._reference = ReferencePath(spec.config)
        self._table = TableWriter(spec.tables[0], lambda: "")
        self._form = ColumnForm(spec, [self._table], (), self._reference)
        self._types = [spark_arrow(f.field_type) for f in self._table.schema.fields]
        self._names = [f.name for f in self._table.schema.fields]
        self._seq = 0
        self._lost = 0

    def take(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The rows of a block of records."""
        state = np.full(block.count, DROPPED, np.int8)
        slow = np.ones(block.count, np.bool_) if self._config.transforms else ~block.tombstones
        found: list[_Rows] = []
        for decoded in self._form.decode(block):
            slow[decoded.places] = False
            slow[decoded.unexpected] = True
            if decoded.dropped is not None:
                slow[decoded.dropped] = False
            if not decoded.table.num_rows:
                slow[decoded.places] = True
                continue
            codes = np.zeros(decoded.table.num_rows, np.int64)
            unit = self._config.timestamp_unit
            part = Part.of([self._table], np.ones(1, np.bool_), decoded.table, codes, unit=unit)
            doubt = slow[decoded.places]
            part.add_doubt(doubt)
            slow[decoded.places[doubt]] = True
            doubt = slow[decoded.places]  # a record's rows go together
            keep = pa.array(~doubt)
            places = decoded.places[~doubt]
            topics = decoded.topics
            topics = _topics(block, places) if topics is None else topics.filter(keep)
            columns = [one_chunk(c) for c in part.converted.filter(keep).columns]
            found.append(_Rows(places, topics, columns))
            state[places] = ROW
        errors: dict[int, bytes] = {}
        for start in range(0, int(slow.sum()), _RECORDS_AT_ONCE):
            places = np.flatnonzero(slow)[start : start + _RECORDS_AT_ONCE]
            found.append(self._one_by_one(block, places, errors))
            state[found[-1].places] = ROW
        state[list(errors)] = REFUSED
        yield from self._assembled(block, state, errors, found).to_batches()
        self._seq += block.count

    def outage(self, error: RetriableError | ConfigError) -> pa.RecordBatch:
        """One row that says why no further record can be read."""
        origin = {"seq": self._seq, "state": OUTAGE, "error": error_row(error)[1]}
        none = [pa.nulls(1, kind) for kind in self._types]
        columns = [pa.array([origin], _ORIGIN_TYPE), pa.nulls(1, _kafka_type()), *none]
        return pa.record_batch(columns, names=[ORIGIN, KAFKA, *self._names])

    def _one_by_one(self, block: Block, places: Places, errors: dict[int, bytes]) -> _Rows:
        rows: list[dict[str, Any]] = []
        topics: list[str] = []
        origins: list[int] = []
        for place, record in zip(places.tolist(), block.records(places), strict=True):
            try:
                read = [r for r in self._reference.read(record) if r.value is not None]
                made = [self._reference.row(each, self._table.schema) for each in read]
            except RecordError as error:
                error.at(topic=record.topic, partition=record.partition, offset=record.offset)
                if error.stage == "TASK_PUT":  # the view is no table: the query refuses the record
                    error.stage = "TRANSFORMATION"
                    error.at(transform=self._alias)
                errors[place] = error_row(error)[1]
                continue
            rows += made
            topics += [each.topic for each in read]
            origins += [place] * len(made)
        table = to_arrow(rows, self._table)
        columns = [one_chunk(column) for column in table.columns]
        return _Rows(np.array(origins, np.int64), pa.array(topics, pa.string()), columns)

    def _assembled(
        self,
        block: Block,
        state: npt.NDArray[np.int8],
        errors: dict[int, bytes],
        found: list[_Rows],
    ) -> pa.Table:
        """Rows in the order of their records, one without a value for each record without rows."""
        bare = np.flatnonzero(state != ROW)
        nothing = [pa.nulls(len(bare), kind) for kind in self._types]
        found.append(_Rows(bare, _topics(block, bare), nothing))
        places = np.concatenate([rows.places for rows in found])
        order = np.argsort(places, kind="stable")
        places = places[order]
        taken = pa.array(order)
        columns = [
            pa.concat_arrays([_as(rows.columns[i], kind) for rows in found]).take(taken)
            for i, kind in enumerate(self._types)
        ]
        topics = pa.concat_arrays([rows.topics for rows in found]).take(taken)
        origin = self._origin(block, state, errors, places, topics)
        return pa.Table.from_arrays(
            [origin, _kafka(block, places), *columns], names=[ORIGIN, KAFKA, *self._names]
        )

    def _origin(
        self,
        block: Block,
        state: npt.NDArray[np.int8],
        errors: dict[int, bytes],
        places: Places,
        topics: pa.Array,
    ) -> pa.Array:
        count = len(places)
        is_first = np.ones(count, np.bool_)
        is_first[1:] = places[1:] != places[:-1]
        losses = np.zeros(count, np.int64)
        lost = self._reference.losses.sub_micro
        if count:
            losses[0], self._lost = lost - self._lost, lost
        told = [errors.get(place) for place in places.tolist()] if errors else None
        raw = pa.array(np.where(is_first, places, 0), mask=~is_first)
        parts = [
            pa.array(self._seq + places),
            pa.array(state[places]),
            pa.nulls(count, pa.binary()) if told is None else pa.array(told, pa.binary()),
            topics,
            pa.array(losses),
            self._raw(block, "value", raw, pa.binary()),
            self._raw(block, "key", raw, pa.binary()),
            self._raw(block, "headers", raw, _HEADERS),
        ]
        return pa.StructArray.from_arrays(parts, fields=list(_ORIGIN_TYPE))

    def _raw(self, block: Block, name: str, places: pa.Array, kind: pa.DataType) -> pa.Array:
        column = block.column(name) if self._has_dead_letters else None
        if column is not None:
            return _as(column.take(places), kind)
        if not pa.types.is_list(kind):
            return pa.nulls(len(places), kind)
        nothing = pa.array(np.zeros(len(places) + 1, np.int32))  # see ``worker.drain._column``
        return pa.ListArray.from_arrays(nothing, pa.array([], kind.value_type))


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _topics(block: Block, places: Places) -> pa.Array:
    return _as(one_chunk(block.table.column("topic")).take(pa.array(places)), pa.string())


def _kafka_type() -> pa.DataType:
    return pa.struct(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", _STAMP),
        ]
    )


def _kafka(block: Block, places: Places) -> pa.Array:
    kind = _kafka_type()
    taken = pa.array(places)
    parts = [_as(one_chunk(block.table.column(f.name)).take(taken), f.type) for f in kind]
    return pa.StructArray.from_arrays(parts, fields=list(kind))
