"""Writes announced files again whose columns another client has dropped and added meanwhile.

A column that is dropped and added again has another field id, and readers find the column of a file
by its id. A task knows a table for up to a minute, so it may write values under the former id: no
reader would find them.

Rules of this file:
- Only files with values in such a column are written again. Their rows, order and partition stay.
- The announced file is deleted when the copy is certainly in the table. An announcement that is
  repeated then fails with ``announced_file_missing``, as after copy-on-write.

Source:
    Iceberg specification, "Column Projection", "Schema Evolution".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from connect.clock import Clock
from connect.errors import CommitRefused
from connect.gateways.storage.object_store import delete_files, storage_errors
from control_schemas.events import ContentFile, FileContent
from coordinator.commit.row_changes.copied_rows import writer_options
from coordinator.commit.rules.announced_files import missing_file
from coordinator.commit.rules.file_selection import Selection, SequenceStep
from coordinator.row_deletes.limits import NotResolved
from coordinator.row_deletes.parquet_rows import RowFilter, copy_rows, open_parquet

_FIELD_ID: Final = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that was dropped and added again; ``field_id`` is the new one.

    Attributes:
        leaves: former ids of the column, or of the primitive columns in it.
        leaves_now: the same of the new column.
    """

    name: str
    field_id: int
    before: IcebergType
    now: IcebergType
    leaves: frozenset[int]
    leaves_now: frozenset[int]

    @property
    def is_container(self) -> bool:
        """Whether it was and is a struct, list or map: one without any value in it is no null."""
        return not isinstance(self.before, PrimitiveType) and type(self.before) is type(self.now)


_Former = Mapping[int, _Column]
_TABLES_MAX: Final = 10_000
_known: dict[UUID, tuple[tuple[int, ...], _Former]] = {}
"""The replaced columns of each table, with the ids of its schemas: a schema never changes."""


def with_current_columns(table: Table, selection: Selection, clock: Clock) -> Selection:
    """Return a selection in which no value is under a former field id of a column.

    Args:
        table: with all its schemas.
        selection: what a commit adds.
        clock: names new files.

    Raises:
        CommitRefused: ``column_replaced``: the column has another type now, is part of a key, or
            its file cannot be written again; ``announced_file_missing``.
        RetriableError: ``storage_unavailable``.
    """
    former = replaced_columns(table)
    if not former:
        return selection
    copies: dict[str, str] = {}
    try:
        steps = tuple(_current_step(table, step, former, copies, clock) for step in selection.steps)
        if copies:
            _refuse_positions(selection)
    except BaseException:
        delete_files(table.io, list(copies))
        raise
    return replace(selection, steps=steps, copies=copies) if copies else selection


def _current_step(
    table: Table, step: SequenceStep, former: _Former, copies: dict[str, str], clock: Clock
) -> SequenceStep:
    """Return a step with copies; their paths are added to ``copies`` before they are written."""
    for file in step.delete_files:
        if used := former.keys() & set(file.equality_ids or ()):
            raise _refusal(former[min(used)], "it is part of the key of deletes")
    files = []
    for announced in step.data_files:
        file = announced
        if columns := _used(table, announced, former):
            path = f"{file.file_path.rpartition('/')[0]}/{clock.new_timed_uuid()}-00000.parquet"
            copies[path] = announced.file_path
            file = _copy(table, announced, columns, path)
        files.append(file)
    return SequenceStep(tuple(files), step.delete_files)


def _refuse_positions(selection: Selection) -> None:
    """Raise if a delete file may name the path of a file that was written again."""
    for file in (file for step in selection.steps for file in step.delete_files):
        if file.content is FileContent.POSITION_DELETES:
            raise CommitRefused(
                "another client dropped a column and added it again. The files cannot be written "
                "again, because position deletes name their paths",
                code="column_replaced",
                file=file.file_path,
            )


def replaced_columns(table: Table) -> _Former:
    """Return the columns that have another id now, by their former id."""
    current, every = table.schema(), table.metadata.schemas
    ids = (current.schema_id, *(schema.schema_id for schema in every))
    known = _known.get(table.metadata.table_uuid)
    if known is None or known[0] != ids:
        if len(_known) >= _TABLES_MAX:
            _known.clear()
        known = _known[table.metadata.table_uuid] = ids, _compared(current, every)
    return known[1]


def _compared(current: Schema, every: Sequence[Schema]) -> _Former:
    present = current.field_ids
    by_name = {current.find_column_name(field_id): field_id for field_id in present}
    last: dict[int, Schema] = {}  # the name that a column had when it was dropped decides
    for schema in every:
        last.update(dict.fromkeys(schema.field_ids - present, schema))
    out = {}
    for field_id, schema in last.items():
        name = schema.find_column_name(field_id)
        now = by_name.get(name)
        if name is None or now is None or now in schema.field_ids:
            continue  # a column that was there at the same time is another one, renamed since
        before, kind = schema.find_type(field_id), current.find_type(now)
        leaves = _leaves(field_id, before), _leaves(now, kind)
        out[field_id] = _Column(name, now, before, kind, *leaves)
    return out


def _leaves(field_id: int, kind: IcebergType) -> frozenset[int]:
    fields: Iterable[NestedField]
    match kind:
        case StructType():
            fields = kind.fields
        case ListType():
            fields = (kind.element_field,)
        case MapType():
            fields = (kind.key_field, kind.value_field)
        case _:
            return frozenset({field_id})
    return frozenset().union(*(_leaves(each.field_id, each.field_type) for each in fields))


def _used(table: Table, file: ContentFile, former: _Former) -> _Former:
    """Return the former columns that a file has values in, with those around and in them."""
    counts, nulls = file.value_counts or {}, file.null_value_counts or {}
    used, unknown = set(), set()
    for field_id, column in former.items():
        if counts.keys().isdisjoint(column.leaves | column.leaves_now):
            unknown.add(field_id)  # the table keeps no metrics of the column
        elif any(
            counts.get(i, 0) > (0 if column.is_container else nulls.get(i, 0))
            for i in column.leaves
        ):
            used.add(field_id)
    if unknown:
        try:
            with storage_errors(f"reading {file.file_path}"), _opened(table, file) as stream:
                ids = _ids_in(open_parquet(stream).schema_arrow)
        except NotResolved as error:
            raise _refusal(former[min(unknown)], str(error)) from error
        used |= {i for i in unknown if not ids.isdisjoint(former[i].leaves)}
    around = tuple(f"{former[i].name}." for i in used if former[i].is_container)
    return {i: c for i, c in former.items() if i in used or c.name.startswith(around)}


def _copy(table: Table, file: ContentFile, columns: _Former, path: str) -> ContentFile:
    for column in columns.values():
        _check_type(column)
    ids = {field_id: column.field_id for field_id, column in columns.items()}

    def create() -> Any:
        return table.io.new_output(path).create(overwrite=True)

    everything = RowFilter((), 0, lambda _: {}, {})
    options = writer_options(table.properties)
    try:
        with storage_errors(f"writing {path}"), _opened(table, file) as stream:
            copied = copy_rows(
                open_parquet(stream),
                everything,
                create,
                options,
                lambda: None,
                renumbered=lambda schema: pa.schema(_renumbered(schema, ids)),
            )
    except NotResolved as error:
        raise _refusal(next(iter(columns.values())), str(error)) from error
    assert copied is not None, "an announced file has rows"
    promoted = {c.field_id for c in columns.values() if c.before != c.now}

    def by_id(values: Mapping[int, Any] | None, without: Iterable[int] = ()) -> Any:
        if values is None:
            return None
        named = {ids.get(field_id, field_id): value for field_id, value in values.items()}
        return {field_id: v for field_id, v in named.items() if field_id not in without}

    return replace(
        file,
        file_path=path,
        file_size_in_bytes=copied.size_bytes,
        column_sizes=by_id(file.column_sizes),
        value_counts=by_id(file.value_counts),
        null_value_counts=by_id(file.null_value_counts),
        nan_value_counts=by_id(file.nan_value_counts),
        lower_bounds=by_id(file.lower_bounds, promoted),
        upper_bounds=by_id(file.upper_bounds, promoted),
        split_offsets=None,
    )


def _opened(table: Table, file: ContentFile) -> Any:
    try:
        return table.io.new_input(file.file_path).open()
    except FileNotFoundError as error:
        raise missing_file(file.file_path) from error


def _check_type(column: _Column) -> None:
    if column.is_container or column.before == column.now:
        return  # parts of others are columns of their own
    try:
        promote(column.before, column.now)
    except ResolveError as error:
        raise _refusal(column, f"it was {column.before} and is {column.now}") from error


def _refusal(column: _Column, why: str) -> CommitRefused:
    return CommitRefused(
        f"files have values of column {column.name}, which another client dropped and added again, "
        f"and they cannot be written again: {why}",
        code="column_replaced",
    )


def _renumbered(fields: Iterable[pa.Field], ids: Mapping[int, int]) -> list[pa.Field]:
    return [_field(each, ids) for each in fields]


def _field(column: pa.Field, ids: Mapping[int, int]) -> pa.Field:
    metadata = dict(column.metadata or {})
    if (field_id := ids.get(int(metadata.get(_FIELD_ID, -1)))) is not None:
        metadata[_FIELD_ID] = str(field_id).encode()
    return pa.field(column.name, _type(column.type, ids), column.nullable, metadata)


def _type(kind: pa.DataType, ids: Mapping[int, int]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(_renumbered(kind, ids))
    if pa.types.is_list(kind):
        return pa.list_(_field(kind.value_field, ids))
    if pa.types.is_large_list(kind):
        return pa.large_list(_field(kind.value_field, ids))
    if pa.types.is_map(kind):
        return pa.map_(_field(kind.key_field, ids), _field(kind.item_field, ids))
    return kind


def _ids_in(fields: Iterable[pa.Field]) -> set[int]:
    """Return the field ids of columns at any depth."""
    out: set[int] = set()
    for column in fields:
        out.add(int((column.metadata or {}).get(_FIELD_ID, -1)))
        kind = column.type
        if pa.types.is_nested(kind):
            out |= _ids_in(kind.field(n) for n in range(kind.num_fields))
    return out
