"""Passes rows through Spark in pieces, with only those columns that the query computes with.

Rules of this file:
- Each row and column costs Spark microseconds. So Spark receives the position of a row in its piece
  and the columns that the query computes with. All other data of a piece is one binary value, in a
  separate row before the rows of the piece: the carrier.
- Rows keep their order, and each position returns at least once. A missing position is a bug, not a
  record that the query removed, and the task stops.
- If the query makes lists, every ``FENCE_ROWS``-th row is a fence, in which all lists have an
  item. Spark reads the size of its Arrow vectors after each row. Each time Arrow fills the offsets
  of a list from the last item that is not null, which takes quadratic time without fences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812 - as all of Spark's users call it

from connect.errors import InvariantViolation

ROW: Final = 0
"""State of a row of the query."""
DROPPED: Final = 1
"""State of a record that a transformation or the query removed."""
REFUSED: Final = 2
"""State of a record with an error before the query."""
OUTAGE: Final = 3
"""State of a row with an error that concerns all further records."""
FAILED: Final = 4
"""State of a record for which an expression of the query failed."""

PLACE: Final = "__place"
"""Column with the position of a row in its piece, from 0; null for a carrier, -1 for a fence."""
CARRIED: Final = "__carried"
STATE: Final = "__state"
MADE: Final = "__row"
FENCE: Final = -1
FENCE_ROWS: Final = 64
_PIECE_ROWS: Final = 8_192
_PIECE_BYTES: Final = 2**20
_ALIGNED: Final = 64

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
STAMP: Final = pa.timestamp("us", "UTC")
_CARRIED: Final = (
    pa.field("seq", pa.int64()),
    pa.field("state", pa.int8()),
    pa.field("error", pa.binary()),
    pa.field("current_topic", pa.string()),
    pa.field("losses", pa.int64()),
    pa.field("size", pa.int64()),
    pa.field("value", pa.binary()),
    pa.field("key", pa.binary()),
    pa.field("headers", HEADERS),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", STAMP),
)
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Item:
    """A column of the query's rows.

    Attributes:
        name: name of the column.
        path: the column of the view that it equals, and fields inside; empty if Spark computes it.
        kind: its type, if Spark does not compute it.
    """

    name: str
    path: tuple[str, ...] = ()
    kind: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class ColumnSplit:
    """Which columns of a query's rows Spark receives, and which are only carried.

    Attributes:
        seen: columns of the view that Spark receives.
        items: columns of the query's rows.
        is_fenced: whether Spark makes lists.
    """

    seen: tuple[str, ...]
    items: tuple[Item, ...]
    is_fenced: bool = False

    @property
    def carried(self) -> pa.Schema:
        """Schema of the carried columns: about each row, and items by their number."""
        items = [pa.field(str(i), t.kind) for i, t in enumerate(self.items) if t.path]
        return pa.schema([*_CARRIED, *items])


# ------------------------------------------------------------------ before Spark


def to_pieces(
    carried: pa.RecordBatch, seen: Sequence[pa.Array], split: ColumnSplit
) -> Iterator[pa.RecordBatch]:
    """Yield batches for Spark: carriers, and rows with a position and the seen columns.

    Args:
        carried: the columns ``split.carried`` of all rows.
        seen: the columns ``split.seen`` of all rows.
        split: the split of the query's columns.
    """
    count = carried.num_rows
    pieces = max(-(-count // _PIECE_ROWS), carried.nbytes // _PIECE_BYTES, 1)
    step = max(-(-count // pieces), 1)
    states = carried.column("state").to_numpy(zero_copy_only=False)
    names = [PLACE, CARRIED, *split.seen]
    for start in range(0, count, step):
        part = carried.slice(start, step)
        yield _carrier(part, [column.type for column in seen], names)
        places = np.flatnonzero(states[start : start + step] == ROW)
        if not len(places):
            continue
        columns = [column.slice(start, step) for column in seen]
        if len(places) < part.num_rows:
            columns = [column.take(pa.array(places)) for column in columns]
        if split.is_fenced:
            places, columns = _fenced(places, columns)
        nothing = pa.nulls(len(places), pa.binary())
        yield pa.record_batch([pa.array(places, pa.int32()), nothing, *columns], names=names)


def _carrier(part: pa.RecordBatch, kinds: list[pa.DataType], names: list[str]) -> pa.RecordBatch:
    whole = part.serialize()
    bounds = pa.py_buffer(np.array([0, whole.size], np.int32).tobytes())
    value = pa.BinaryArray.from_buffers(pa.binary(), 1, [None, bounds, whole])
    nulls = [pa.nulls(1, kind) for kind in kinds]
    return pa.record_batch([pa.nulls(1, pa.int32()), value, *nulls], names=names)


def _fenced(places: Positions, columns: list[pa.Array]) -> tuple[Positions, list[pa.Array]]:
    count = len(places) + -(-len(places) // (FENCE_ROWS - 1))
    is_fence = np.arange(count) % FENCE_ROWS == 0
    rows = np.cumsum(~is_fence) - 1
    chosen = pa.array(rows, mask=is_fence)
    return np.where(is_fence, FENCE, places[rows]), [column.take(chosen) for column in columns]


# ------------------------------------------------------------------ behind Spark


def from_pieces(batches: Iterator[pa.RecordBatch], split: ColumnSplit) -> Iterator[pa.RecordBatch]:
    """Yield the pieces together with the items that Spark computed.

    Args:
        batches: ``PLACE``, ``CARRIED``, ``STATE`` and, if Spark computes items, ``MADE``.
        split: the split of the query's columns.

    Yields:
        ``split.carried`` and the other items by their number, with the new ``state``.

    Raises:
        InvariantViolation: rows are missing, or out of order.
    """
    piece: _Piece | None = None
    for batch in batches:
        kind = batch.schema.field(MADE).type if MADE in batch.schema.names else pa.struct([])
        places, carriers = batch.column(PLACE), batch.column(CARRIED)
        starts = np.flatnonzero(places.is_null().to_numpy(zero_copy_only=False)).tolist()
        if piece is not None:
            piece.add(batch.slice(0, starts[0] if starts else batch.num_rows))
        elif starts[:1] != [0]:
            raise InvariantViolation("rows of a query have no carrier")
        for start, end in pairwise([*starts, batch.num_rows]):
            if piece is not None:
                yield piece.whole()
            piece = _Piece(_carried(carriers[start].as_buffer(), split.carried), split, kind)
            piece.add(batch.slice(start + 1, end - start - 1))
    if piece is not None:
        yield piece.whole()


def _carried(buffer: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return the content of a carrier, copied to an aligned address as Arrow requires."""
    room = np.empty(buffer.size + _ALIGNED, np.uint8)
    start = -room.ctypes.data % _ALIGNED
    room[start : start + buffer.size] = np.frombuffer(buffer, np.uint8)
    return pa.ipc.read_record_batch(pa.py_buffer(room)[start : start + buffer.size], schema)


class _Piece:
    def __init__(self, carried: pa.RecordBatch, split: ColumnSplit, kind: pa.DataType) -> None:
        self._carried = carried
        self._shares = split
        self._kind = kind
        self._items = [i for i, item in enumerate(split.items) if not item.path]
        self._parts: list[pa.RecordBatch] = []

    def add(self, part: pa.RecordBatch) -> None:
        """Add rows that Spark returned."""
        if part.num_rows:
            self._parts.append(part)

    def whole(self) -> pa.RecordBatch:
        """Return all rows in order, also those that Spark did not receive."""
        states = self._carried.column("state").to_numpy(zero_copy_only=False)
        parts = [_RowPart(part, self._shares) for part in self._parts]
        places = np.concatenate([np.empty(0, np.int64), *(part.places for part in parts)])
        is_first = np.diff(places, prepend=-1) != 0
        if not np.array_equal(places[is_first], np.flatnonzero(states == ROW)):
            raise InvariantViolation("Spark lost rows of a query, or changed their order")
        state = np.concatenate([np.empty(0, np.int8), *(part.states for part in parts)])
        rows, order_taken = places, None
        if len(places[is_first]) < len(states):
            bare = np.flatnonzero(states != ROW)
            rows = np.concatenate([places, bare])
            order = np.argsort(rows, kind="stable")
            rows, state = rows[order], np.concatenate([state, states[bare]])[order]
            order_taken = pa.array(order, mask=order >= len(places))
        carried = self._carried
        if len(rows) != len(states):
            carried = carried.take(pa.array(rows))
        columns = dict(zip(carried.schema.names, carried.columns, strict=True))
        columns["state"] = pa.array(state, pa.int8())
        for i, number in enumerate(self._items):
            of_parts = [part.made(i) for part in parts]
            column = pa.concat_arrays([pa.nulls(0, self._kind.field(i).type), *of_parts])
            columns[str(number)] = column if order_taken is None else column.take(order_taken)
        return pa.record_batch(columns)


class _RowPart:
    """Rows of a piece in one batch of Spark, without fences."""

    def __init__(self, batch: pa.RecordBatch, split: ColumnSplit) -> None:
        places = batch.column(PLACE).to_numpy()
        if split.is_fenced and (places == FENCE).any():
            batch = batch.filter(pa.array(places != FENCE))
            places = batch.column(PLACE).to_numpy()
        self.places: Positions = places.astype(np.int64)
        self.states = batch.column(STATE).to_numpy().copy()
        self._made: Any = None
        if MADE in batch.schema.names:
            self._made = batch.column(MADE)
            missing = self._made.is_null().to_numpy(zero_copy_only=False)
            self.states[(self.states == ROW) & missing] = FAILED

    def made(self, place: int) -> pa.Array:
        """Return an item that Spark computed, by its position among these items."""
        return pc.struct_field(self._made, [place])


# ------------------------------------------------------------------ fences


def has_list(kind: T.DataType) -> bool:
    """Return whether a Spark type is or contains a list or a map (a list in Arrow)."""
    if isinstance(kind, T.StructType):
        return any(has_list(field.dataType) for field in kind.fields)
    return isinstance(kind, (T.ArrayType, T.MapType))


def fence_text(kind: T.DataType) -> str:
    """Return SQL of a value to cast to a type: not null, with an item in each list."""
    if isinstance(kind, T.ArrayType):
        return f"array({fence_text(kind.elementType)})"
    if isinstance(kind, T.MapType):
        return f"map({fence_text(kind.keyType)}, {fence_text(kind.valueType)})"
    if isinstance(kind, T.StructType):
        parts = [f"'f{i}', {fence_text(field.dataType)}" for i, field in enumerate(kind.fields)]
        return f"named_struct({', '.join(parts)})"
    if isinstance(kind, T.BinaryType):
        return "X''"
    if isinstance(kind, T.BooleanType):
        return "false"
    if isinstance(kind, T.NumericType):
        return "0"
    is_time = isinstance(kind, (T.DateType, T.TimestampType, T.TimestampNTZType))
    return "DATE'1970-01-01'" if is_time else "''"
