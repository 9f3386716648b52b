"""Decoded rows as rows of tables: columns that several tables share are converted once.

Rules of this file:
- Blocks are decoded with the fields of all tables, of routes and of operations. With schema
  evolution a row with a value in a field that its own table lacks is ambiguous: the record path
  requests the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField

from connect.config.aggregation import EVENT_TIME_MICROS
from connect.records.conversion.row_converter import write_default
from worker.batch.blocks import one_chunk
from worker.convert.scalars import integers, some
from worker.convert.table_columns import Target, convert, filled, join
from worker.decode.decoded_rows import Columns
from worker.decode.json_types import extra_rows, guessed_fields, has_more
from worker.write.table_writer import TableWriter
from worker.write.unavailable_rows import unavailable_rows

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
TableGroup = tuple[list[TableWriter], Mask]
"""Tables with equal columns, and which targets have one of them."""

_Lacking = dict[tuple[int, ...], tuple[list[str], pa.Schema]]

_PLANS_KEPT: Final = 16


class FieldsOfOthers:
    """Finds rows with values in fields that their own table lacks and the decoded rows have."""

    def __init__(self) -> None:
        self._fields: dict[tuple[str, ...], dict[str, pa.DataType]] = {}
        self._plans: dict[object, _Lacking] = {}

    def rows(self, decoded: Columns, groups: Sequence[TableGroup], codes: Rows) -> Mask | None:
        """Return these rows; None if there is none.

        Args:
            decoded: the rows.
            groups: the tables that the rows go to.
            codes: number of each row's target.
        """
        table = decoded.table
        unknown: Mask | None = None
        for numbers, (names, fields) in self._lacking(table.schema, groups).items():
            filled_names = [n for n in names if table.column(n).null_count < table.num_rows]
            if filled_names:
                extra = some(extra_rows(table.select(filled_names), fields))
                if extra is not None:
                    members = np.any([groups[number][1] for number in numbers], axis=0)
                    unknown = join(unknown, some(extra & members[codes]))
        return unknown

    def _lacking(self, decoded: pa.Schema, groups: Sequence[TableGroup]) -> _Lacking:
        """Return the fields that groups lack, at any depth, by the numbers of these groups."""
        keys = tuple(tables[0].columns_key for tables, _ in groups)
        plan = self._plans.get((decoded, keys))
        if plan is None:
            known = [self._fields_of(tables[0]) for tables, _ in groups]
            plan = {}
            for field in decoded:
                lacking: dict[pa.DataType | None, list[int]] = {}
                for number, fields in enumerate(known):
                    own = fields.get(field.name)
                    if own is None or has_more(field.type, own):
                        lacking.setdefault(own, []).append(number)
                for own, numbers in lacking.items():
                    names, schema = plan.get(tuple(numbers), ([], pa.schema([])))
                    schema = schema if own is None else schema.append(pa.field(field.name, own))
                    plan[tuple(numbers)] = [*names, field.name], schema
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            self._plans[decoded, keys] = plan
        return plan

    def _fields_of(self, table: TableWriter) -> dict[str, pa.DataType]:
        fields = self._fields.get(table.columns_key)
        if fields is None:
            fields = guessed_fields([table.schema.fields], has_maps=True)
            self._fields[table.columns_key] = fields
        return fields


@dataclass(frozen=True, slots=True)
class Deleted:
    """Rows that delete; only their key columns count.

    Attributes:
        rows: which rows of the decoded table delete.
        key_places: positions of the key columns.
    """

    rows: Mask
    key_places: frozenset[int]


@dataclass(slots=True)
class Part:
    """The rows of a block for tables with equal columns.

    Attributes:
        tables: the tables.
        rows: positions in the decoded table, None for all.
        converted: their values, a column per column of the tables.
        ambiguous: rows of these that the record path must take.
    """

    tables: list[TableWriter]
    rows: Rows | None
    converted: pa.Table
    ambiguous: Mask | None

    @classmethod
    def of(
        cls,
        tables: list[TableWriter],
        members: Mask,
        decoded: Columns,
        codes: Rows,
        *,
        unit: str,
        deleted: Deleted | None = None,
        event_time: str | None = None,
        refuses_unavailable: bool = False,
    ) -> Part:
        """Convert the rows whose target has one of the tables.

        Args:
            tables: with equal columns.
            members: which targets have one of them.
            decoded: the rows.
            codes: number of each row's target.
            unit: of plain numbers in timestamp columns.
            deleted: rows that delete.
            event_time: column whose values outside of the range of event times are ambiguous.
            refuses_unavailable: whether a row with a value that its source did not send is
                ambiguous.
        """
        table = tables[0]
        rows = None if members.all() else np.flatnonzero(members[codes])
        source = decoded.table.select([f.name for f in table.schema.fields])
        if rows is not None and len(rows) < decoded.table.num_rows:
            source = source.take(pa.array(rows))
        written = None
        if deleted is not None and deleted.rows.any():
            written = ~deleted.rows if rows is None else ~deleted.rows[rows]
        deleted_keys = deleted.key_places if deleted is not None else frozenset()
        columns: list[pa.Array] = []
        ambiguous: Mask | None = None
        for i, column in enumerate(table.schema.fields):
            stored = table.arrow_schema.field(i).type
            target = Target(column.field_type, stored, unit)
            values, more = convert(one_chunk(source.column(i)), target)
            if column.write_default is not None:
                values, undecided = _with_default(values, source.column(i), column, decoded, rows)
                more = join(more, undecided)
            if column.required and values.null_count:
                more = join(more, values.is_null().to_numpy(zero_copy_only=False))
                values = filled(values)
            if column.name == event_time:
                more = join(more, _outside_of_event_times(values))
            if refuses_unavailable:
                more = join(more, unavailable_rows(values))
            if more is not None and written is not None and i not in deleted_keys:
                more = more & written
            ambiguous = join(ambiguous, more)
            # equal to that of rows from the record path: they share row groups
            columns.append(values if values.type == stored else values.cast(stored))
        if written is not None:
            ambiguous = join(ambiguous, _keyless(columns, deleted_keys, written))
        converted = pa.Table.from_arrays(columns, names=[str(i) for i in range(len(columns))])
        return cls(tables, rows, converted, ambiguous)

    def add_ambiguous(self, ambiguous: Mask) -> None:
        """Mark ambiguous rows in a mask over the decoded table."""
        if self.ambiguous is None:
            return
        if self.rows is None:
            ambiguous |= self.ambiguous
        else:
            ambiguous[self.rows[self.ambiguous]] = True


def _outside_of_event_times(values: pa.Array) -> Mask | None:
    """Return the rows whose time an aggregate refuses; None if there is none."""
    micros = integers(values.cast(pa.int64()))
    first, last = EVENT_TIME_MICROS
    return some((micros < first) | (micros > last))


def _with_default(
    values: pa.Array,
    source: pa.ChunkedArray,
    column: NestedField,
    decoded: Columns,
    rows: Rows | None,
) -> tuple[pa.Array, Mask | None]:
    """Fill in a column's write default where records lack the field; return undecided rows, too."""
    nulls = source.is_null().to_numpy()
    if not nulls.any():
        return values, None
    lacking = np.zeros(len(nulls), np.bool_)
    if column.name in decoded.missing:
        lacking = nulls
    elif decoded.nulls_are_missing is not None:
        known = decoded.nulls_are_missing
        lacking = nulls & (known if rows is None else known[rows])
    return _chosen(lacking, write_default(column), values), some(nulls & ~lacking)


def _chosen(rows: Mask, default: Any, values: pa.Array) -> pa.Array:
    """Return values with a default in some rows."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _chosen(rows, default, values.storage))
    return pc.if_else(pa.array(rows), pa.array([default], kind)[0], values)


def _keyless(columns: list[pa.Array], keys: frozenset[int], written: Mask) -> Mask:
    """Return deleting rows without any value in the key: the record path refuses them."""
    empty = ~written
    for key_column in keys:
        empty = empty & columns[key_column].is_null().to_numpy(zero_copy_only=False)
    return empty
