"""Texts of dates, times, timestamps and uuids, vectorised.

Rules of this file:
- Only shapes that Arrow and Java read alike are parsed, found by their length and a few bytes. All
  other texts are ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Doubt = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

_COLON: Final = ord(":")
_ZED: Final = ord("Z")
_TEE: Final = ord("T")
_SPACE: Final = ord(" ")
_DASH: Final = ord("-")
_PLUS: Final = ord("+")
_REFUSED_SHARE: Final = 8

_NIBBLES: Final = np.full(256, 255, np.uint8)
_NIBBLES[[*b"0123456789"]] = np.arange(10, dtype=np.uint8)
_NIBBLES[[*b"abcdef"]] = np.arange(10, 16, dtype=np.uint8)
_NIBBLES[[*b"ABCDEF"]] = np.arange(10, 16, dtype=np.uint8)
_UUID_DASHES: Final = (8, 13, 18, 23)
_UUID_HEX: Final = [i for i in range(36) if i not in _UUID_DASHES]


class StringColumn:
    """Bytes and positions of a string column.

    Attributes:
        data: bytes of all texts.
        starts: first byte of each text.
        lengths: bytes of each text; 0 for nulls.
    """

    def __init__(self, column: pa.Array) -> None:
        _, offsets, data = column.buffers()
        kind = np.int64 if pa.types.is_large_string(column.type) else np.int32
        bounds = np.frombuffer(offsets, kind)[column.offset : column.offset + len(column) + 1]
        has_data = data is not None and data.size > 0
        self.data: Bytes = np.frombuffer(data if has_data else b"\0", np.uint8)
        self.starts = bounds[:-1]
        self.lengths = np.diff(bounds)
        width = int(self.lengths[0]) if len(self.lengths) else 0
        self._square: Bytes | None = None
        if width and (self.lengths == width).all():  # a column of bytes needs no positions
            self._square = self.data[bounds[0] : bounds[-1]].reshape(-1, width)

    def at(self, position: int) -> Bytes:
        """Return the byte at a position of each text; the data's last byte past its end."""
        if self._square is not None and position < self._square.shape[1]:
            return self._square[:, position]
        bytes_at: Bytes = self.data[np.minimum(self.starts + position, len(self.data) - 1)]
        return bytes_at

    def at_end(self, position: Any) -> Bytes:
        """Return the byte at a distance from the end of each text; 1 is the last byte."""
        places = (self.starts + self.lengths).astype(np.int64) - position
        bytes_at: Bytes = self.data[np.clip(places, 0, len(self.data) - 1)]
        return bytes_at

    def last(self) -> Bytes:
        """Return the last byte of each text."""
        return self.at_end(1)


def parse_timestamps(
    column: pa.Array, kind: pa.DataType, *, zoned: bool, digits: int = 6
) -> tuple[pa.Array, Doubt | None]:
    """Parse ``2024-01-02T03:04:05[.ffffff]``: instants with Z or an offset, others without or Z.

    Args:
        column: the texts.
        kind: of the timestamps.
        zoned: whether they are instants.
        digits: of a fraction, at most.
    """
    if not zoned:
        column = _without_zone(column)
    texts = StringColumn(column)
    shape = (texts.at(13) == _COLON) & (texts.at(16) == _COLON)
    shape &= np.isin(texts.at(10), (_TEE, _SPACE))
    if not zoned:
        shape &= (texts.lengths >= 19) & (texts.lengths <= 20 + digits) & (texts.last() != _ZED)
        return _cast(column, shape, kind)
    utc = (texts.lengths >= 20) & (texts.lengths <= 21 + digits) & (texts.last() == _ZED)
    shape &= utc if utc.all() else utc | _has_offset(texts, digits)
    return _cast(column, shape, kind)


def _has_offset(texts: StringColumn, digits: int) -> Doubt:
    """Return texts that end with ``+01:00`` or ``-0130``, less than 18 hours."""
    colon = (texts.at_end(3) == _COLON).astype(np.int64)
    sign = texts.at_end(5 + colon)
    tens, ones = texts.at_end(4 + colon), texts.at_end(3 + colon)
    shape: Doubt = (texts.lengths >= 24) & (texts.lengths <= 25 + digits + colon)
    shape &= (sign == _PLUS) | (sign == _DASH)
    shape &= (tens == ord("0")) | ((tens == ord("1")) & (ones <= ord("7")))
    return shape


def parse_dates(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Doubt | None]:
    """Parse ``2024-01-02``, also with Z."""
    column = _without_zone(column)
    texts = StringColumn(column)
    shape = (texts.lengths == 10) & (texts.at(4) == _DASH) & (texts.at(7) == _DASH)
    return _cast(column, shape, kind)


def parse_times(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Doubt | None]:
    """Parse ``03:04:05[.ffffff]``, also with Z."""
    column = _without_zone(column)
    texts = StringColumn(column)
    shape = (texts.lengths >= 8) & (texts.lengths <= 15)
    shape &= (texts.at(2) == _COLON) & (texts.at(5) == _COLON)
    # Arrow casts no text to a time; with the day of the epoch it is a timestamp of that time
    whole = pc.binary_join_element_wise("1970-01-01T", column, "")
    micros, ambiguous = _cast(whole, shape, pa.timestamp("us"))
    return micros.cast(pa.int64()).cast(kind), ambiguous


def _without_zone(column: pa.Array) -> pa.Array:
    """Return the texts without a Z at their end."""
    zoned = pc.ends_with(column, "Z")
    if not pc.any(zoned).as_py():
        return column
    return pc.if_else(zoned, pc.utf8_slice_codeunits(column, 0, -1), column)


def parse_uuids(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Doubt | None]:
    """Parse 36 characters of hexadecimal digits and dashes."""
    texts = StringColumn(column)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    shape = valid & (texts.lengths == 36)
    out = np.zeros((len(column), 16), np.uint8)
    if shape.any():
        places = texts.starts[shape].astype(np.int64)
        rows = texts.data[places[:, None] + np.arange(36)]
        nibbles = _NIBBLES[rows[:, _UUID_HEX]]
        good = (nibbles < 16).all(axis=1) & (rows[:, _UUID_DASHES] == _DASH).all(axis=1)
        out[shape] = (nibbles[:, ::2] << 4) | (nibbles[:, 1::2] & 15)
        shape[shape] = good
    ambiguous = valid & ~shape
    storage = pa.Array.from_buffers(
        pa.binary(16), len(column), [_validity(valid), pa.py_buffer(out.tobytes())]
    )
    if isinstance(kind, pa.BaseExtensionType):
        storage = pa.ExtensionArray.from_storage(kind, storage)
    return storage, ambiguous if ambiguous.any() else None


def _validity(valid: Doubt) -> pa.Buffer | None:
    if valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())


def _cast(column: pa.Array, shape: Doubt, kind: pa.DataType) -> tuple[pa.Array, Doubt | None]:
    """Cast texts of the right shape; those that Arrow refuses are ambiguous, too."""
    if column.null_count:
        shape = shape | ~column.is_valid().to_numpy(zero_copy_only=False)
    ambiguous = ~shape
    if ambiguous.any():
        column = pc.if_else(pa.array(shape), column, pa.scalar(None, column.type))
    try:
        return column.cast(kind), ambiguous if ambiguous.any() else None
    except pa.ArrowInvalid:
        refused = refused_rows(column, lambda part: part.cast(kind))
    ambiguous |= refused
    column = pc.if_else(pa.array(~refused), column, pa.scalar(None, column.type))
    return column.cast(kind), ambiguous


def refused_rows(column: pa.Array, cast: Callable[[pa.Array], Any]) -> Doubt:
    """Find the rows that a cast refuses, by halving.

    Where many rows are refused, their neighbours count as refused, too: halving would cost more
    than the record path.
    """
    refused = np.zeros(len(column), np.bool_)
    budget = len(column) // _REFUSED_SHARE + 64
    parts = [(0, len(column))]
    while parts:
        start, end = parts.pop()
        try:
            cast(column.slice(start, end - start))
        except pa.ArrowInvalid:
            if end - start == 1 or budget <= 0:
                refused[start:end] = True
                continue
            budget -= 1
            middle = (start + end) // 2
            parts += [(middle, end), (start, middle)]
    return refused
