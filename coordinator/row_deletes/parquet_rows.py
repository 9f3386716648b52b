"""Parquet data files: the places of deleted rows by their keys, and copies without these rows.

Rules of this file:
- A copy has the columns, types and field ids of its source, and where the table has row ids, their
  columns. Where Arrow cannot keep them, nothing is copied (``NotResolved``).
- A variant is copied as the bytes of its parts, and marked again. Arrow reads and writes a struct.
- Rows are read in batches of bounded size, and written in row groups of bounded size.
- Other writers make these files, so nothing is asked of Arrow that ends the process if a footer is
  wrong.
- A column that the file lacks has the value of its partition, or null.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from connect.gateways.storage.variant_footer import VariantFooter, variants_in
from coordinator.row_deletes.deleted_keys import DeletedKeys
from coordinator.row_deletes.limits import FORM, NotResolved
from coordinator.row_deletes.row_state import (
    UNKNOWN,
    LineageColumns,
    Mask,
    RowState,
    WithIds,
    without_ids,
)

Positions = npt.NDArray[np.int64]
NamesOf = Callable[[pa.Schema], Mapping[int, str]]
"""Returns the name of each top-level column of a file by its field id."""
_BATCH_BYTES: Final = 16 * 2**20
_BATCH_ROWS_MAX: Final = 2**20
_SAMPLE_ROWS: Final = 256
_GROUP_BYTES: Final = 64 * 2**20
_BUFFER_BYTES: Final = 2**20
_VARIANT: Final = re.compile(r"^ *\w+ group field_id=-?\d+ .* \(Variant\b.*", re.MULTILINE)
"""A group in the text of a Parquet schema that is a variant."""
_VERSION: Final = "(Variant(1)) {"


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns of a key.

    Attributes:
        field_ids: in the order of the key's columns.
        kinds: Arrow types.
        empty_as_null: field ids of texts of which the empty one is null.
    """

    field_ids: tuple[int, ...]
    kinds: tuple[pa.DataType, ...]
    empty_as_null: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows of one file are deleted.

    Attributes:
        keys: of the deletes that reach the file, with their columns.
        step: of the file's rows; deletes of later steps apply.
        names_of: finds the file's columns.
        constants: values of columns that the file may lack, by field id.
    """

    keys: Sequence[tuple[KeyColumns, DeletedKeys]]
    step: int
    names_of: NamesOf
    constants: Mapping[int, Any]

    def columns(self, schema: pa.Schema) -> list[str]:
        """Return the names of the columns that are read."""
        names = self.names_of(schema)
        field_ids = {field_id for columns, _ in self.keys for field_id in columns.field_ids}
        return sorted(names[field_id] for field_id in field_ids & names.keys())

    def deleted(self, rows: pa.RecordBatch, names: Mapping[int, str]) -> Mask:
        """Return which rows are deleted.

        Args:
            rows: with their key columns.
            names: of the file's columns by field id.
        """
        out: Mask = np.zeros(rows.num_rows, np.bool_)
        for columns, keys in self.keys:
            values = [
                self._column(rows, names.get(field_id), field_id, kind)
                for field_id, kind in zip(columns.field_ids, columns.kinds, strict=True)
            ]
            out |= keys.last_steps(values) > self.step
        return out

    def _column(
        self, rows: pa.RecordBatch, name: str | None, field_id: int, kind: pa.DataType
    ) -> pa.Array:
        if name is None:
            value = self.constants.get(field_id)
            if value is None:
                return pa.nulls(rows.num_rows, kind)
            plain = value.bytes if isinstance(value, UUID) else value
            return pa.repeat(pa.scalar(plain, kind), rows.num_rows)
        return as_kind(rows.column(name), kind)


def as_kind(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column in the type of a key; older files have narrower types.

    Raises:
        NotResolved: the types do not fit.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise NotResolved(
            "key_columns", f"a key column of type {column.type} cannot be compared with {kind}"
        ) from error


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values of a key column are compared."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def open_parquet(stream: Any) -> pq.ParquetFile:
    """Open a file for reading in batches.

    Raises:
        NotResolved: it is not Parquet.
    """
    try:
        return pq.ParquetFile(stream, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise NotResolved(FORM, "a data file is no Parquet file that Arrow reads") from error


def has_deleted_rows(file: pq.ParquetFile, rows: RowFilter, check: Callable[[], None]) -> bool:
    """Return whether a filter deletes any row; only key columns are read.

    Args:
        file: open.
        rows: the filter.
        check: called between batches.
    """
    groups = range(file.metadata.num_row_groups)
    return any(mask.any() for at in groups for mask in _masks(file, at, rows, check))


def deleted_positions(
    file: pq.ParquetFile, rows: RowFilter, check: Callable[[], None]
) -> Iterator[Positions]:
    """Yield the positions of the rows that a filter deletes, in parts; only key columns are read.

    Args:
        file: open.
        rows: the filter.
        check: called between batches.
    """
    first = 0
    for at in range(file.metadata.num_row_groups):
        for mask in _masks(file, at, rows, check):
            yield np.flatnonzero(mask) + first
            first += len(mask)


class CopiedRows(NamedTuple):
    """A copy of a file.

    Attributes:
        size_bytes: of the copy.
        footer: Parquet's.
        schema: Arrow's.
        variants: paths of the variants.
    """

    size_bytes: int
    footer: Any
    schema: pa.Schema
    variants: frozenset[tuple[str, ...]]


def copy_rows(
    file: pq.ParquetFile,
    rows: RowFilter,
    create: Callable[[], Any],
    options: Mapping[str, Any],
    check: Callable[[], None],
    *,
    state: RowState = UNKNOWN,
    with_ids: WithIds = without_ids,
    renumbered: Callable[[pa.Schema], pa.Schema] | None = None,
) -> CopiedRows | None:
    """Copy the rows that a filter keeps.

    Args:
        file: open.
        rows: the filter.
        create: opens the copy; called when there is a first row.
        options: of the Parquet writer.
        check: called between batches.
        state: what the table knows about the rows.
        with_ids: adds the field ids to the schema of a file without any.
        renumbered: changes field ids of the schema, and nothing else.

    Returns:
        The copy; None if no row is kept, and there is none.

    Raises:
        NotResolved: Arrow cannot keep the columns of the file.
    """
    variants = _variants(file)
    lineage = None
    if state.lineage is not None:
        lineage = LineageColumns(file.schema_arrow, state.lineage, with_ids)
    schema = file.schema_arrow if lineage is None else lineage.schema
    if renumbered is not None:
        schema = renumbered(schema)
    stream: Any = None
    marks: VariantFooter | None = None
    writer: pq.ParquetWriter | None = None
    try:
        for group in _groups(_kept(file, rows, state, lineage, check)):
            if writer is None:
                plain = schema.remove_metadata()
                stream = create()
                marks = VariantFooter(stream, variants) if variants else None
                has_int96 = any(
                    file.metadata.schema.column(i).physical_type == "INT96"
                    for i in range(len(file.metadata.schema))
                )
                writer = pq.ParquetWriter(
                    marks or stream, plain, use_deprecated_int96_timestamps=has_int96, **options
                )
            writer.write_table(pa.Table.from_batches(group, writer.schema))
        if writer is None:
            return None
        if marks is None:
            writer.close()
        else:
            marks.end(writer)
        size = stream.tell()
        stream.close()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise NotResolved(FORM, f"Arrow cannot copy the file: {type(error).__name__}") from error
    footer = writer.writer.metadata
    _check_same_form(file.metadata.schema, footer.schema)
    return CopiedRows(size, footer, schema, variants)


def _variants(file: pq.ParquetFile) -> frozenset[tuple[str, ...]]:
    """Return the paths of the variants in a file.

    Raises:
        NotResolved: one has another version, or is in a list or map.
    """
    marked = _VARIANT.findall(str(file.metadata.schema))
    if not marked:
        return frozenset()
    footer = io.BytesIO()
    file.metadata.write_metadata_file(footer)
    variants = variants_in(footer.getvalue())
    schema = file.schema_arrow
    if (
        len(marked) != len(variants)
        or not all(line.endswith(_VERSION) for line in marked)
        or not all(_is_in_structs(schema, path) for path in variants)
    ):
        raise NotResolved(FORM, "a data file has variants of another form")
    return variants


def _is_in_structs(schema: pa.Schema, path: tuple[str, ...]) -> bool:
    """Return whether only structs are above a column."""
    kind = pa.struct(list(schema))
    for name in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return False
        kind = kind.field(name).type
    return True


def _check_same_form(source: Any, copy: Any) -> None:
    """Raise ``NotResolved`` where a column of the copy has another meaning."""
    before = _form(source)
    if before != _form(copy)[: len(before)]:
        raise NotResolved(FORM, "Arrow would write columns of the file in another type")


def _form(schema: Any) -> list[tuple[Any, ...]]:
    columns = (schema.column(i) for i in range(len(schema)))
    return [
        (
            c.path,
            c.max_definition_level,
            c.max_repetition_level,
            # decimals may have any physical type
            c.physical_type if c.logical_type.type != "DECIMAL" else "",
            str(c.logical_type),
        )
        for c in columns
    ]


def _batches(file: pq.ParquetFile, at: int, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group in batches of ``_BATCH_BYTES`` at most, about.

    Of some columns a batch is smaller. The footer has the size of each, but ``column`` of a row
    group ends the process if the statistics of the column do not fit its type.
    """
    group = file.metadata.row_group(at)
    per_row = max(1, group.total_byte_size // max(1, group.num_rows))
    if columns is None and group.num_rows > _SAMPLE_ROWS:  # values of a dictionary may be large
        sample = next(file.iter_batches(_SAMPLE_ROWS, row_groups=[at], use_threads=False))
        per_row = max(per_row, sample.nbytes // _SAMPLE_ROWS)
    count = min(max(_BATCH_BYTES // per_row, 64), _BATCH_ROWS_MAX)
    yield from file.iter_batches(count, row_groups=[at], columns=columns, use_threads=False)


def _masks(
    file: pq.ParquetFile, at: int, rows: RowFilter, check: Callable[[], None]
) -> Iterator[Mask]:
    """Yield which rows of a row group are deleted, in parts; only key columns are read."""
    names = rows.names_of(file.schema_arrow)
    columns = rows.columns(file.schema_arrow)
    if columns:
        for batch in _batches(file, at, columns):
            check()
            yield rows.deleted(batch, names)
    else:  # the keys are values of the partition, the same in all rows
        one = pa.RecordBatch.from_pydict({"": [None]})
        yield np.repeat(rows.deleted(one, names), file.metadata.row_group(at).num_rows)


def _kept(
    file: pq.ParquetFile,
    rows: RowFilter,
    state: RowState,
    lineage: LineageColumns | None,
    check: Callable[[], None],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are not deleted; a row group without any is not read."""
    group_first = 0
    for at in range(file.metadata.num_row_groups):
        deleted = np.concatenate([*_masks(file, at, rows, check), np.zeros(0, np.bool_)])
        state.mark(deleted, group_first)
        first = group_first
        for batch in () if deleted.all() else _batches(file, at, None):
            check()
            mask = deleted[first - group_first :][: batch.num_rows]
            whole = batch if lineage is None else lineage.of(batch, first)
            first += batch.num_rows
            if not mask.any():
                yield whole
            elif not mask.all():
                yield whole.filter(pa.array(~mask))
        group_first += len(deleted)


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield the batches of each row group."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
