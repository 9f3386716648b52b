"""Values that cursors found, before they become Arrow arrays.

Rules of this file:
- Items of lists are found in rounds: the first of each row, then the second. ``ordered`` sorts them
  by row. So all values can be joined (``joined``) and reordered (``picked``) first.
- Optional values hold only the values of the rows that have one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from worker.convert.scalars import join
from worker.convert.texts import refused_rows
from worker.decode.binary_cursor import Ints, Mask

Bytes = npt.NDArray[np.uint8]


class RowValues(ABC):
    """A value for each of some rows."""

    @abstractmethod
    def picked(self, rows: Any) -> RowValues:
        """Return the values at positions."""

    @abstractmethod
    def joined(self, others: Sequence[Any]) -> RowValues:
        """Return these values and then others of one kind."""

    @abstractmethod
    def array(self, data: Bytes) -> pa.Array:
        """Return an Arrow array; ``data`` is the buffer of the cursors."""


@dataclass(frozen=True, slots=True)
class FixedWidthValues(RowValues):
    """Fixed-width values: one numpy array that becomes an Arrow array of a type."""

    values: npt.NDArray[Any]
    kind: pa.DataType

    def picked(self, rows: Any) -> FixedWidthValues:
        """See ``RowValues``."""
        return FixedWidthValues(self.values[rows], self.kind)

    def joined(self, others: Sequence[FixedWidthValues]) -> FixedWidthValues:
        """See ``RowValues``."""
        return FixedWidthValues(
            np.concatenate([self.values, *(o.values for o in others)]), self.kind
        )

    def array(self, data: Bytes) -> pa.Array:
        """See ``RowValues``."""
        del data
        if pa.types.is_boolean(self.kind):
            return pa.array(self.values)
        if pa.types.is_decimal(self.kind):  # pairs of 64 bits, the low ones first
            buffer = pa.py_buffer(np.ascontiguousarray(self.values))
            return pa.Array.from_buffers(self.kind, len(self.values), [None, buffer])
        return pa.array(self.values).view(self.kind)


@dataclass(frozen=True, slots=True)
class SpanValues(RowValues):
    """Texts or bytes: start and end of each."""

    start: Ints
    end: Ints
    kind: pa.DataType

    def picked(self, rows: Any) -> SpanValues:
        """See ``RowValues``."""
        return SpanValues(self.start[rows], self.end[rows], self.kind)

    def joined(self, others: Sequence[SpanValues]) -> SpanValues:
        """See ``RowValues``."""
        return SpanValues(
            np.concatenate([self.start, *(o.start for o in others)]),
            np.concatenate([self.end, *(o.end for o in others)]),
            self.kind,
        )

    def array(self, data: Bytes) -> pa.Array:
        """See ``RowValues``."""
        count = len(self.start)
        if not count:
            return pa.array([], self.kind)
        # every second entry is the gap between two values
        bounds = np.empty(count * 2, np.int32)
        bounds[0::2], bounds[1::2] = self.start, self.end
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
        both = pa.Array.from_buffers(pa.binary(), count * 2 - 1, buffers)
        return both.take(pa.array(np.arange(0, count * 2, 2))).view(self.kind)


@dataclass(frozen=True, slots=True)
class Symbols(RowValues):
    """Indexes of a fixed list of texts."""

    indexes: Ints
    symbols: pa.Array

    def picked(self, rows: Any) -> Symbols:
        """See ``RowValues``."""
        return Symbols(self.indexes[rows], self.symbols)

    def joined(self, others: Sequence[Symbols]) -> Symbols:
        """See ``RowValues``."""
        return Symbols(np.concatenate([self.indexes, *(o.indexes for o in others)]), self.symbols)

    def array(self, data: Bytes) -> pa.Array:
        """See ``RowValues``."""
        del data
        return self.symbols.take(pa.array(self.indexes))


@dataclass(frozen=True, slots=True)
class NullValues(RowValues):
    """Nulls, or values that are not asked for."""

    count: int

    def picked(self, rows: Any) -> NullValues:
        """See ``RowValues``."""
        return NullValues(len(np.arange(self.count)[rows]))

    def joined(self, others: Sequence[NullValues]) -> NullValues:
        """See ``RowValues``."""
        return NullValues(self.count + sum(o.count for o in others))

    def array(self, data: Bytes) -> pa.Array:
        """See ``RowValues``."""
        del data
        return pa.nulls(self.count)


@dataclass(frozen=True, slots=True)
class Optional(RowValues):
    """Values of the rows that have one."""

    present: Mask
    values: RowValues

    def picked(self, rows: Any) -> Optional:
        """See ``RowValues``."""
        places = (np.cumsum(self.present) - 1)[rows]
        present = self.present[rows]
        return Optional(present, self.values.picked(places[present]))

    def joined(self, others: Sequence[Optional]) -> Optional:
        """See ``RowValues``."""
        return Optional(
            np.concatenate([self.present, *(o.present for o in others)]),
            self.values.joined([o.values for o in others]),
        )

    def array(self, data: Bytes) -> pa.Array:
        """See ``RowValues``."""
        values = self.values.array(data)
        if self.present.all():
            return values
        if not len(values):
            return pa.nulls(len(self.present), values.type)
        places = np.cumsum(self.present) - 1
        return values.take(pa.array(np.maximum(places, 0), mask=~self.present))


@dataclass(frozen=True, slots=True)
class Fields(RowValues):
    """Structs, without nulls."""

    count: int
    fields: tuple[tuple[str, RowValues], ...]

    def picked(self, rows: Any) -> Fields:
        """See ``RowValues``."""
        count = len(np.arange(self.count)[rows])
        return Fields(count, tuple((n, g.picked(rows)) for n, g in self.fields))

    def joined(self, others: Sequence[Fields]) -> Fields:
        """See ``RowValues``."""
        return Fields(
            self.count + sum(o.count for o in others),
            tuple(
                (name, mine.joined([o.fields[i][1] for o in others]))
                for i, (name, mine) in enumerate(self.fields)
            ),
        )

    def array(self, data: Bytes) -> pa.Array:
        """See ``RowValues``."""
        if not self.fields:
            return pa.array([{}] * self.count, pa.struct([]))
        arrays = [gathered.array(data) for _, gathered in self.fields]
        return pa.StructArray.from_arrays(arrays, names=[name for name, _ in self.fields])


@dataclass(frozen=True, slots=True)
class ListValues(RowValues):
    """Lists, without nulls; with keys they are maps. Items are sorted by row."""

    counts: Ints
    values: RowValues
    keys: RowValues | None = None

    @classmethod
    def ordered(
        cls,
        count: int,
        rounds: Sequence[tuple[Ints, RowValues, RowValues | None]],
        empty: tuple[RowValues, RowValues | None],
    ) -> ListValues:
        """Return lists from items found in rounds.

        Args:
            count: rows.
            rounds: of each round the rows that had an item, ascending, the items and keys.
            empty: no items and no keys, of the right kind.
        """
        if not rounds:
            return cls(np.zeros(count, np.int64), *empty)
        rows = np.concatenate([r for r, _, _ in rounds])
        order = np.argsort(rows, kind="stable")
        values = rounds[0][1].joined([v for _, v, _ in rounds[1:]]).picked(order)
        keys = rounds[0][2]
        if keys is not None:
            keys = keys.joined([k for _, _, k in rounds[1:]]).picked(order)
        return cls(np.bincount(rows, minlength=count).astype(np.int64), values, keys)

    def picked(self, rows: Any) -> ListValues:
        """See ``RowValues``."""
        counts = self.counts[rows]
        starts = (np.cumsum(self.counts) - self.counts)[rows]
        before = np.cumsum(counts) - counts
        places = np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
        keys = self.keys.picked(places) if self.keys is not None else None
        return ListValues(counts, self.values.picked(places), keys)

    def joined(self, others: Sequence[ListValues]) -> ListValues:
        """See ``RowValues``."""
        keys = None
        if self.keys is not None:
            keys = self.keys.joined([o.keys for o in others])
        return ListValues(
            np.concatenate([self.counts, *(o.counts for o in others)]),
            self.values.joined([o.values for o in others]),
            keys,
        )

    def array(self, data: Bytes) -> pa.Array:
        """See ``RowValues``."""
        offsets = pa.array(np.concatenate(([0], np.cumsum(self.counts))).astype(np.int32))
        values = self.values.array(data)
        if self.keys is None:
            return pa.ListArray.from_arrays(offsets, values)
        return pa.MapArray.from_arrays(offsets, self.keys.array(data), values)


def without_ends(values: pa.Array, rows: Mask | Ints, head: int, tail: int) -> pa.Array:
    """Return binary values without some bytes at both ends, copied once; all are long enough.

    Args:
        values: one chunk, no nulls.
        rows: a mask, or positions in ascending order.
        head: bytes at the start.
        tail: bytes at the end.
    """
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    raw = np.frombuffer(b"" if data is None else data, np.uint8)
    starts, ends = bounds[:-1][rows].astype(np.int64), bounds[1:][rows].astype(np.int64)
    return SpanValues(starts + head, ends - tail, pa.binary()).array(raw)


def misencoded(column: pa.Array) -> Mask | None:
    """Return rows that hold texts which are not UTF-8, at any depth; None for no rows."""
    kind = column.type
    if pa.types.is_string(kind):
        raw = column.view(pa.binary())
        try:
            raw.cast(pa.string())
        except pa.ArrowInvalid:
            return refused_rows(raw, lambda part: part.cast(pa.string()))
        return None
    bad: Mask | None = None
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            bad = join(bad, misencoded(pc.struct_field(column, [i])))
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        parts = [column.values] if pa.types.is_list(kind) else [column.keys, column.items]
        offsets = column.offsets.to_numpy()
        for part in parts:
            more = misencoded(part)
            if more is not None:
                before = np.concatenate(([0], np.cumsum(more)))
                bad = join(bad, before[offsets[1:]] > before[offsets[:-1]])
    return bad
