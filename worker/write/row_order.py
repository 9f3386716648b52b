"""Rows of a row group in the sort order of their table, column by column.

Rules of this file:
- Values compare as Iceberg's specification says. Floating-point numbers compare by sign, then by
  magnitude: -NaN, -infinity, ..., -0, 0, ..., infinity, NaN. Texts compare by the bytes of UTF-8;
  binary, fixed and uuid by unsigned bytes.
- A field of the order compares the results of its transform, so rows with equal results keep the
  order of their records. The sort is stable.
- A file has the id of the order only if all of its rows are in this order, over all row groups.
- An order that cannot be applied is an error. It never results in unsorted files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import (
    UNSORTED_SORT_ORDER_ID,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import PrimitiveType

from connect.errors import ConfigError
from connect.model.table_types import VariantType
from worker.write.partitions import arrow_transform, field_path, nested_column

_PLACES: Final = {NullOrder.NULLS_FIRST: "at_start", NullOrder.NULLS_LAST: "at_end"}
_DIRECTIONS: Final = {SortDirection.ASC: "ascending", SortDirection.DESC: "descending"}


class RowOrder:
    """Sorts rows of one table by a sort order.

    Args:
        order: of the table.
        schema: of the table.

    Attributes:
        order_id: id of the sort order.

    Raises:
        ConfigError: ``sort_order``; a field's transform is unknown, its column is missing, or its
            values have no order.
    """

    def __init__(self, order: SortOrder, schema: Schema) -> None:
        self.order_id: int = order.order_id
        fields = [f for f in order.fields if not isinstance(f.transform, VoidTransform)]
        self._keys = [_key_of(field, schema) for field in fields]
        self._sort_keys = [
            (str(i), _DIRECTIONS[field.direction], _PLACES[field.null_order])
            for i, field in enumerate(fields)
        ]

    def keys(self, rows: pa.Table) -> pa.Table:
        """Return what the order compares, one column for each field.

        Args:
            rows: columns of the table's Arrow schema.
        """
        columns = [key(rows) for key in self._keys]
        return pa.Table.from_arrays(columns, names=[str(i) for i in range(len(columns))])

    def positions(self, keys: pa.Table) -> np.ndarray[Any, Any] | None:
        """Return the positions in which to take rows; None if the rows are in order."""
        if not self._sort_keys:
            return None
        positions: np.ndarray[Any, Any] = pc.sort_indices(
            keys, sort_keys=self._sort_keys
        ).to_numpy()
        is_ordered = bool((positions[1:] > positions[:-1]).all())
        return None if is_ordered else positions


class SortedGroups:
    """The row groups of one file, each of them sorted.

    Args:
        order: of the rows.
    """

    def __init__(self, order: RowOrder) -> None:
        self._order = order
        self._last: pa.Table | None = None
        self._is_ordered = True

    @property
    def sort_order_id(self) -> int:
        """Id of the order if all rows are in it, from the first group to the last; else 0."""
        return self._order.order_id if self._is_ordered else UNSORTED_SORT_ORDER_ID

    def add(self, rows: pa.Table) -> pa.Table:
        """Return the rows of the next row group, sorted.

        Args:
            rows: at least one, columns of the table's Arrow schema.
        """
        keys = self._order.keys(rows)
        positions = self._order.positions(keys)
        first, last = 0, keys.num_rows - 1
        if positions is not None:
            first, last = int(positions[0]), int(positions[-1])
            rows = rows.take(pa.array(positions))
        if self._is_ordered and self._last is not None:
            edge = pa.concat_tables([self._last, keys.slice(first, 1)])
            self._is_ordered = self._order.positions(edge) is None
        self._last = keys.take(pa.array([last]))  # a copy: a slice keeps all keys in memory
        return rows


def _key_of(field: SortField, schema: Schema) -> Callable[[pa.Table], pa.Array]:
    try:
        source = schema.find_type(field.source_id)
    except ValueError:
        raise _bad(field, "the table has no such column") from None
    if not isinstance(source, PrimitiveType) or isinstance(source, VariantType):
        raise _bad(field, f"values of type {source} have no order")
    if isinstance(field.transform, UnknownTransform):
        raise _bad(field, "the transform is not known")
    if not field.transform.can_transform(source):
        raise _bad(field, f"the transform does not support values of type {source}")
    transform = arrow_transform(field.transform, source)
    path = field_path(schema, field.source_id)
    return lambda rows: _comparable(transform(nested_column(rows, path)))


def _bad(field: SortField, message: str) -> ConfigError:
    return ConfigError(
        f"the table's sort order has the field {str(field)!r} (source column id "
        f"{field.source_id}): {message}; change the order, or turn off sort-enabled for the table",
        code="sort_order",
    )


def _comparable(column: pa.Array) -> pa.Array:
    """Return a column whose order in Arrow is Iceberg's."""
    if not pa.types.is_floating(column.type):
        return column
    form: Any = np.int32 if column.type.bit_width == 32 else np.int64
    bits = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False).view(form)
    ranks = np.where(bits < 0, bits ^ np.iinfo(form).max, bits)
    return pa.array(ranks, mask=column.is_null().to_numpy(zero_copy_only=False))
