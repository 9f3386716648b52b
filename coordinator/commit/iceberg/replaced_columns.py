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
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, PrimitiveType

from connect.clock import Clock
from connect.errors import CommitRefused
from connect.gateways.storage.object_store import storage_errors
from control_schemas.events import ContentFile
from coordinator.commit.row_changes.copied_rows import writer_options
from coordinator.commit.rules.announced_files import missing_file
from coordinator.commit.rules.file_selection import Selection, SequenceStep
from coordinator.row_deletes.limits import NotResolved
from coordinator.row_deletes.parquet_rows import RowFilter, copy_rows, open_parquet

_FIELD_ID: Final = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that was dropped and added again; ``field_id`` is the new one."""

    name: str
    field_id: int
    before: IcebergType
    now: IcebergType


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
    former = _replaced(table.metadata.table_uuid, _Schemas.of(table))
    if not former:
        return selection
    copies: dict[str, str] = {}
    steps = []
    for step in selection.steps:
        files = []
        for announced in step.data_files:
            columns = _used(table, announced, former)
            file = _copy(table, announced, columns, clock) if columns else announced
            if columns:
                copies[file.file_path] = announced.file_path
            files.append(file)
        for file in step.delete_files:
            if used := former.keys() & set(file.equality_ids or ()):
                raise _refusal(former[min(used)], "it is part of the key of deletes")
        steps.append(SequenceStep(tuple(files), step.delete_files))
    return replace(selection, steps=tuple(steps), copies=copies) if copies else selection


@dataclass(frozen=True, slots=True)
class _Schemas:
    """The schemas of a table; a schema never changes, so only their ids are compared."""

    ids: tuple[int, ...]
    current: Schema = field(compare=False)
    every: Sequence[Schema] = field(compare=False)

    @classmethod
    def of(cls, table: Table) -> _Schemas:
        """Return those of a table."""
        current, every = table.schema(), table.metadata.schemas
        return cls((current.schema_id, *(each.schema_id for each in every)), current, every)


@lru_cache(maxsize=10_000)
def _replaced(_: object, schemas: _Schemas) -> dict[int, _Column]:
    """Return the columns that have another id now, by their former id; the table is in the key."""
    current, out = schemas.current, {}
    present = current.field_ids
    by_name = {current.find_column_name(field_id): field_id for field_id in present}
    for schema in schemas.every:
        for field_id in schema.field_ids - present:
            name = schema.find_column_name(field_id)
            if name is not None and name in by_name:
                now = by_name[name]
                types = schema.find_type(field_id), current.find_type(now)
                out[field_id] = _Column(name, now, *types)
    return out


def _used(table: Table, file: ContentFile, former: Mapping[int, _Column]) -> dict[int, _Column]:
    """Return the former columns that a file has values in, with those around them."""
    counts, nulls = file.value_counts or {}, file.null_value_counts or {}
    leaves = {i for i, column in former.items() if isinstance(column.now, PrimitiveType)}
    unknown = {i for i in leaves if i not in counts and former[i].field_id not in counts}
    if unknown:  # the table keeps no metrics of the column
        with storage_errors(f"reading {file.file_path}"), _opened(table, file) as stream:
            unknown &= _ids_in(open_parquet(stream).schema_arrow)
    used = unknown | {i for i in leaves & counts.keys() if counts[i] > nulls.get(i, 0)}
    names = {former[i].name for i in used}
    return {
        i: column
        for i, column in former.items()
        if i in used or (i not in leaves and any(n.startswith(f"{column.name}.") for n in names))
    }


def _copy(
    table: Table, file: ContentFile, columns: Mapping[int, _Column], clock: Clock
) -> ContentFile:
    for column in columns.values():
        _check_type(column)
    ids = {field_id: column.field_id for field_id, column in columns.items()}
    path = f"{file.file_path.rpartition('/')[0]}/{clock.new_timed_uuid()}-00000.parquet"

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
    if not isinstance(column.now, PrimitiveType) or column.before == column.now:
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
