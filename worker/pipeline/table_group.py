"""Decoded rows as rows of tables: columns that several tables share are converted once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from worker.batch.blocks import one_chunk
from worker.convert.table_columns import Target, convert, filled, join
from worker.write.table_writer import TableWriter

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


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
        decoded: pa.Table,
        codes: Rows,
        *,
        unit: str,
        deleted: Deleted | None = None,
    ) -> Part:
        """Convert the rows whose target has one of the tables."""
        table = tables[0]
        rows = None if members.all() else np.flatnonzero(members[codes])
        source = decoded.select([f.name for f in table.schema.fields])
        if rows is not None and len(rows) < decoded.num_rows:
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
            if column.required and values.null_count:
                more = join(more, values.is_null().to_numpy(zero_copy_only=False))
                values = filled(values)
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


def _keyless(columns: list[pa.Array], keys: frozenset[int], written: Mask) -> Mask:
    """Return deleting rows without any value in the key: the record path refuses them."""
    empty = ~written
    for key_column in keys:
        empty = empty & columns[key_column].is_null().to_numpy(zero_copy_only=False)
    return empty
