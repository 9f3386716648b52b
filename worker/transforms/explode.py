"""``Explode`` by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connect.records.transforms.chain_limits import RECORDS_MAX
from connect.records.transforms.value_paths import steps as path_of
from worker.convert.typed_columns import plain_numbers
from worker.transforms.message_keys import repeat_keys
from worker.transforms.rows import (
    ChainPlan,
    ColumnStep,
    Mask,
    Positions,
    Rows,
    TooManyRows,
    at_path,
    children,
    put_at,
    type_at,
    valid,
    with_type_at,
)

_CELLS_MAX: Final = 8_000_000


def explode(options: Mapping[str, Any]) -> ColumnStep:
    """Return the step of ``Explode``."""
    return _Explode(options)


class _Explode:
    """Makes one row for each element of a list, or entry of a map."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._source = path_of(options["field"])
        self._target = path_of(options["element.field"]) if options["element.field"] else ()
        self._number = path_of(options["key.field"]) if options["key.field"] else ()
        self._keeps_empty, self._spreads = options["keep.empty"], options["spread"]

    def plan(self, chain_plan: ChainPlan) -> None:
        chain_plan.reads_text = True
        target = self._target or self._source
        fields = chain_plan.fields
        if self._number:
            if len(self._number) == 1:
                fields.pop(self._number[0], None)
            else:
                fields.setdefault(self._number[0], pa.struct([]))
        if self._spreads:
            element: pa.DataType = pa.struct(list(fields.items()))
        else:
            element = type_at(fields.get(target[0]), target[1:]) or pa.string()
        if len(target) == 1 and not self._spreads:
            fields.pop(target[0], None)
        first, *rest = self._source
        known = None if len(self._source) == 1 else fields.get(first)
        fields[first] = with_type_at(known, rest, pa.list_(element))

    def apply(self, rows: Rows) -> None:
        rows.lose_schema()
        paths = (self._source, self._target, self._number)
        column = at_path(rows.columns, self._source, rows.count)
        if rows.had_schema and any(len(path) > 1 for path in paths):
            rows.suspect_all()
        is_list = pa.types.is_list(column.type)
        if not is_list and not pa.types.is_map(column.type):
            rows.suspect(valid(column))
            column = pa.nulls(rows.count, pa.list_(pa.null()))
        if self._spreads and is_list and not pa.types.is_struct(column.type.value_type):
            rows.suspect(valid(column))
        sizes = np.where(valid(column), np.diff(column.offsets.to_numpy()), 0)
        rows.suspect(sizes > RECORDS_MAX)
        gone = rows.ambiguous | rows.dropped
        sizes = np.where(gone, 0, sizes).astype(np.int64)
        rows.refused.append(rows.origins.places[rows.ambiguous])
        empty = (sizes == 0) & ~gone if self._keeps_empty else np.zeros(rows.count, np.bool_)
        counts = sizes + empty
        total = int(counts.sum())
        if total * max(len(rows.columns), 1) > _CELLS_MAX and rows.count > 1:
            raise TooManyRows
        parents = np.repeat(np.arange(rows.count), counts)
        starts = column.offsets.to_numpy()[:-1].astype(np.int64)
        before = np.cumsum(counts) - counts
        number = np.arange(total) - before[parents]
        is_empty = empty[parents]
        self._multiply(rows, parents)
        places = starts[parents] + number
        chosen = pa.array(np.where(is_empty, 0, places), mask=is_empty)
        if is_list:
            element = column.values.take(chosen)
            key: pa.Array = pa.array(number, mask=is_empty)
        else:
            element, key = _entries(column, chosen)
        self._put(rows, element)
        if self._number:
            rows.suspect(put_at(rows.columns, self._number, key, rows.count, makes=True))

    def _multiply(self, rows: Rows, parents: Positions) -> None:
        """Repeat every row as often as its position occurs."""
        chosen = pa.array(parents)
        rows.columns = {name: column.take(chosen) for name, column in rows.columns.items()}
        repeat_keys(rows, chosen)
        rows.origins = rows.origins.picked(parents)
        rows.ambiguous = np.zeros(len(parents), np.bool_)
        rows.dropped = np.zeros(len(parents), np.bool_)
        rows.topics = None if rows.topics is None else rows.topics.take(chosen)
        sizes = np.bincount(rows.origins.places)
        rows.suspect(sizes[rows.origins.places] > RECORDS_MAX)

    def _put(self, rows: Rows, element: pa.Array) -> None:
        """Put the element into its place, or its fields into the record."""
        target = self._target or self._source
        element = plain_numbers(element)
        if target != self._source or self._spreads:
            nothing = pa.nulls(rows.count)
            rows.suspect(put_at(rows.columns, self._source, nothing, rows.count, makes=True))
        if not (self._spreads and pa.types.is_struct(element.type)):
            rows.suspect(put_at(rows.columns, target, element, rows.count, makes=True))
            return
        is_present = valid(element)
        if target != self._source:  # an element that is null is put there, too
            own = at_path(rows.columns, target, rows.count)
            rows.suspect(~is_present & valid(own))
        for name, column in children(element).items():
            own, new = rows.columns.get(name), plain_numbers(column)
            rows.columns[name] = self._covered(rows, own, new, is_present)

    def _covered(
        self, rows: Rows, own: pa.Array | None, new: pa.Array, is_present: Mask
    ) -> pa.Array:
        """Return a field of the elements that covers one of the record."""
        if own is None or own.null_count == rows.count:
            return new
        if rows.had_schema:
            if own.type == new.type:
                return pc.if_else(pa.array(is_present), new, own)
            rows.suspect(valid(own) & ~is_present)
            return new
        held, covered = valid(own), valid(new)
        # a null in the element covers the record's value, a missing field does not
        rows.suspect(rows.origins.with_null(held & is_present & ~covered))
        if own.type != new.type:
            rows.suspect(held & ~covered)
            return new
        return pc.coalesce(new, own)


def _entries(column: pa.Array, chosen: pa.Array) -> tuple[pa.Array, pa.Array]:
    return column.items.take(chosen), column.keys.take(chosen)
