"""Turns records into rows of the view ``records``: the reading half, before a query.

Rules of this file:
- Every record has at least one row, in the order of the records, so that the writing half can count
  it. A dropped record has a row without a value, a refused record has a row with its error.
- The fields of a value become columns by the rules for tables: the view is treated as a table.
- The bytes of a record are in its first row, and only if it may become a dead letter. See
  ``worker.sql.row_transport``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from connect.errors import ConfigError, RecordError, RetriableError
from connect.records.record_path import ReferencePath
from connect.records.transforms.sql.sql_columns import spark_type
from connect.records.transforms.sql.sql_transform import SqlPlan
from control_schemas.events import TableReference
from worker.batch.blocks import Block, blocks, one_chunk
from worker.batch.error_rows import error_row, is_converter_outage
from worker.batch.pipeline_spec import PipelineSpec, TablePlan
from worker.batch.spark_types import spark_arrow
from worker.batch.task_access_policy import under_policy
from worker.pipeline.record_fallback import to_arrow
from worker.pipeline.table_group import Part
from worker.pipeline.topic_forms import column_form
from worker.sql.row_transport import (
    CARRIED,
    DROPPED,
    HEADERS,
    OUTAGE,
    PLACE,
    REFUSED,
    ROW,
    STAMP,
    ColumnSplit,
    to_pieces,
)
from worker.write.table_writers import TableWriters

KAFKA: Final = "kafka"
_KAFKA: Final = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", STAMP),
    ]
)
_KAFKA_DDL: Final = "STRUCT<topic: STRING, partition: INT, offset: BIGINT, timestamp: TIMESTAMP>"
_RECORDS_AT_ONCE: Final = 10_000
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


def read(
    spec: PipelineSpec, plan: SqlPlan, split: ColumnSplit
) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return the function for ``df.mapInArrow(read(..), view_ddl(plan, split.seen))``.

    Args:
        spec: as for ``worker.pipeline.pipeline.run``; its last transformation is the query.
        plan: the plan of the query.
        split: which columns of the view Spark receives.
    """
    config = dataclasses.replace(
        spec.config,
        transforms=spec.config.transforms[:-1],
        evolve_schema_enabled=False,
        route_field=None,
    )
    inner = dataclasses.replace(
        spec, config=config, tables=(_view(plan),), absent=frozenset(), unusable={}
    )
    alias = spec.config.transforms[-1].alias
    return under_policy(partial(_read, inner, alias, split, spec.has_dead_letters))


def view_columns(plan: SqlPlan) -> dict[str, tuple[str, pa.DataType]]:
    """Return the columns of ``records`` for queries, with their types in SQL and Arrow."""
    columns = {KAFKA: (_KAFKA_DDL, _KAFKA)}
    for field in plan.columns.fields:
        columns[field.name] = spark_type(field.field_type), spark_arrow(field.field_type)
    return columns


def view_ddl(plan: SqlPlan, seen: Iterable[str] | None = None) -> str:
    """Return the schema of the view in Spark, with these columns or all."""
    kinds = view_columns(plan)
    columns = [f"`{name}` {kinds[name][0]}" for name in (kinds if seen is None else seen)]
    return ", ".join([f"{PLACE} INT", f"{CARRIED} BINARY", *columns])


def _view(plan: SqlPlan) -> TablePlan:
    return TablePlan(
        name="records",
        reference=TableReference("", (), "records", UUID(int=0)),
        schema_json=plan.columns.model_dump_json(),
        spec_json=UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
        location="file:///records",  # no file is written to the view
        properties={},
        io_properties={},
    )


def _read(
    spec: PipelineSpec,
    alias: str,
    split: ColumnSplit,
    has_dead_letters: bool,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    reading = _Reading(spec, alias, split, has_dead_letters=has_dead_letters)
    try:
        for block in blocks(batches, spec.limits):
            yield from reading.take(block)
    except (RetriableError, ConfigError) as error:
        if not is_converter_outage(error):
            raise
        yield from reading.outage(error)


@dataclass(slots=True)
class _RecordRows:
    """Rows of some records, with the position of their record, their topics and columns."""

    places: Places
    topics: pa.Array
    columns: list[pa.Array]


class _Reading:
    def __init__(
        self, spec: PipelineSpec, alias: str, split: ColumnSplit, *, has_dead_letters: bool
    ) -> None:
        self._config = spec.config
        self._alias = alias
        self._shares = split
        self._has_dead_letters = has_dead_letters
        # the event time of aggregates is a column of the query's rows, not of what it reads
        self._reference = ReferencePath(dataclasses.replace(spec.config, aggregation=None))
        writers = TableWriters(spec.tables[:1], lambda: "")
        self._table = writers[spec.tables[0].name]
        self._form = column_form(spec, writers.alike, (), self._reference)
        self._types = [spark_arrow(f.field_type) for f in self._table.schema.fields]
        self._names = [f.name for f in self._table.schema.fields]
        self._seq = 0
        self._lost = 0

    def take(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block of records."""
        state = np.full(block.count, DROPPED, np.int8)
        slow = np.ones(block.count, np.bool_) if self._config.transforms else ~block.tombstones
        record_rows: list[_RecordRows] = []
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
            part = Part.of([self._table], np.ones(1, np.bool_), decoded, codes, unit=unit)
            ambiguous = slow[decoded.places]
            part.add_ambiguous(ambiguous)
            slow[decoded.places[ambiguous]] = True
            ambiguous = slow[decoded.places]  # a record's rows go together
            keep = pa.array(~ambiguous)
            places = decoded.places[~ambiguous]
            topics = decoded.topics
            topics = _topics(block, places) if topics is None else topics.filter(keep)
            columns = [one_chunk(c) for c in part.converted.filter(keep).columns]
            record_rows.append(_RecordRows(places, topics, columns))
            state[places] = ROW
        errors: dict[int, bytes] = {}
        for start in range(0, int(slow.sum()), _RECORDS_AT_ONCE):
            places = np.flatnonzero(slow)[start : start + _RECORDS_AT_ONCE]
            record_rows.append(self._one_by_one(block, places, errors))
            state[record_rows[-1].places] = ROW
        state[list(errors)] = REFUSED
        yield from self._assembled(block, state, errors, record_rows)
        self._seq += block.count

    def outage(self, error: RetriableError | ConfigError) -> Iterator[pa.RecordBatch]:
        """Yield one row with the error that concerns all further records."""
        row = {"seq": self._seq, "state": OUTAGE, "error": error_row(error)[1]}
        carried = pa.RecordBatch.from_pylist([row], self._shares.carried)
        kinds = dict(zip(self._names, self._types, strict=True))
        seen = [pa.nulls(1, kinds.get(name, _KAFKA)) for name in self._shares.seen]
        yield from to_pieces(carried, seen, self._shares)

    def _one_by_one(self, block: Block, places: Places, errors: dict[int, bytes]) -> _RecordRows:
        rows: list[dict[str, Any]] = []
        topics: list[str] = []
        origins: list[int] = []
        for place, record in zip(places.tolist(), block.records(places), strict=True):
            try:
                read = [r for r in self._reference.read(record) if r.value is not None]
                converted = [self._reference.row(each, self._table.schema) for each in read]
            except RecordError as error:
                error.at(topic=record.topic, partition=record.partition, offset=record.offset)
                if (
                    error.stage == "TASK_PUT"
                ):  # the view is not a table: the transformation refuses the record
                    error.stage = "TRANSFORMATION"
                    error.at(transform=self._alias)
                errors[place] = error_row(error)[1]
                continue
            rows += converted
            topics += [each.topic for each in read]
            origins += [place] * len(converted)
        table = to_arrow(rows, self._table)
        columns = [one_chunk(column) for column in table.columns]
        return _RecordRows(np.array(origins, np.int64), pa.array(topics, pa.string()), columns)

    def _assembled(
        self,
        block: Block,
        state: npt.NDArray[np.int8],
        errors: dict[int, bytes],
        record_rows: list[_RecordRows],
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows in the order of their records, with an empty row for a record without rows."""
        bare = np.flatnonzero(state != ROW)
        if len(bare):
            nothing = [pa.nulls(len(bare), kind) for kind in self._types]
            record_rows.append(_RecordRows(bare, _topics(block, bare), nothing))
        places = np.concatenate([rows.places for rows in record_rows])
        columns = [
            pa.concat_arrays([_as(rows.columns[i], kind) for rows in record_rows])
            for i, kind in enumerate(self._types)
        ]
        topics = pa.concat_arrays([rows.topics for rows in record_rows])
        if (np.diff(places) < 0).any():
            order = np.argsort(places, kind="stable")
            places, taken = places[order], pa.array(order)
            columns, topics = [column.take(taken) for column in columns], topics.take(taken)
        parts = self._record_columns(block, state, errors, places, topics)
        view = dict(zip(self._names, columns, strict=True))
        view[KAFKA] = pa.StructArray.from_arrays(
            [parts[f.name] for f in _KAFKA], fields=list(_KAFKA)
        )
        for i, item in enumerate(self._shares.items):
            if item.path:
                parts[str(i)] = _at(view[item.path[0]], item.path[1:])
        carried = pa.record_batch(parts, schema=self._shares.carried)
        yield from to_pieces(carried, [view[name] for name in self._shares.seen], self._shares)

    def _record_columns(
        self,
        block: Block,
        state: npt.NDArray[np.int8],
        errors: dict[int, bytes],
        places: Places,
        topics: pa.Array,
    ) -> dict[str, pa.Array]:
        """Return the carried columns about the records of rows, without the query's items."""
        count = len(places)
        is_first = np.ones(count, np.bool_)
        is_first[1:] = places[1:] != places[:-1]
        losses = np.zeros(count, np.int64)
        lost = self._reference.losses.sub_micro
        if count:
            losses[0], self._lost = lost - self._lost, lost
        reported = [errors.get(place) for place in places.tolist()] if errors else None
        firsts = _Chosen(block, np.where(is_first, places, 0), mask=~is_first)
        rows = _Chosen(block, places)
        kept = ("value", "key", "headers") if self._has_dead_letters else ()
        return {
            "seq": pa.array(self._seq + places),
            "state": pa.array(state[places]),
            "error": pa.nulls(count, pa.binary())
            if reported is None
            else pa.array(reported, pa.binary()),
            "current_topic": topics,
            "losses": pa.array(losses),
            "size": rows.of(block.sizes, pa.int64()),
            **{
                name: firsts.of(block.column(name) if name in kept else None, kind)
                for name, kind in (
                    ("value", pa.binary()),
                    ("key", pa.binary()),
                    ("headers", HEADERS),
                )
            },
            **{f.name: rows.of(block.column(f.name), f.type) for f in _KAFKA},
        }


class _Chosen:
    """Takes the same rows from several columns of a block.

    Args:
        block: the block.
        places: positions of the rows.
        mask: rows that become null.
    """

    def __init__(self, block: Block, places: Places, mask: Mask | None = None) -> None:
        self._count = len(places)
        is_all = self._count == block.count and bool((np.diff(places) == 1).all())
        is_all = is_all and not (mask is not None and mask.any())
        self._taken = None if is_all else pa.array(places, mask=mask)

    def of(self, column: pa.Array | None, kind: pa.DataType) -> pa.Array:
        """Return the rows of one column; nulls if there is no column."""
        if column is None:
            return pa.nulls(self._count, kind)
        return _as(column if self._taken is None else column.take(self._taken), kind)


def _at(column: pa.Array, path: tuple[str, ...]) -> pa.Array:
    for name in path:
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    return column


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _topics(block: Block, places: Places) -> pa.Array:
    return _Chosen(block, places).of(block.column("topic"), pa.string())
