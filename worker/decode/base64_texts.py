"""Columns of base64 texts into bytes, four characters at a time."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from worker.convert.scalars import Doubt, some
from worker.decode.column_builders import SpanValues

_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BITS: Final = 12
_VALUE: Final = 2**_BITS - 1
_PADDED: Final = (1, 2)  # above the bits: how many bytes the padding replaces
_WRONG: Final = 4


def _pair_table() -> npt.NDArray[np.uint16]:
    """Return the bits of two characters by their little-endian number."""
    table = np.full((256, 256), _WRONG << _BITS, np.uint16)  # second character, first character
    codes = np.frombuffer(_ALPHABET, np.uint8)
    numbers = np.arange(64, dtype=np.uint16)
    table[np.ix_(codes, codes)] = numbers[None, :] << 6 | numbers[:, None]
    pad = ord("=")
    table[pad, codes] = numbers << 6 | _PADDED[0] << _BITS
    table[pad, pad] = _PADDED[1] << _BITS
    return table.reshape(-1)


_PAIRS: Final = _pair_table()


def bytes_of(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
    """Return the bytes of complete base64 texts, and the rows with other texts."""
    texts = column.fill_null("") if column.null_count else column
    bounds, raw = _bounds(texts)
    incomplete = some(np.diff(bounds) % 4 != 0)
    if incomplete is not None:
        bounds, raw = _bounds(pc.if_else(pa.array(incomplete), "", texts))
    twos = np.frombuffer(raw, "<u2")
    first, second = _PAIRS[twos[0::2]], _PAIRS[twos[1::2]]
    quads = bounds // 4
    padding = second >> _BITS
    wrong = (first > _VALUE) | (padding >= _WRONG)
    is_padded = padding > 0
    sizes = np.diff(quads)
    lost = np.zeros(len(texts), np.int64)
    if is_padded.any():
        rows = np.flatnonzero(sizes)
        last = quads[1:][rows] - 1
        lost[rows] = padding[last] % _WRONG
        is_padded[last] = False
        wrong |= is_padded
    ambiguous = incomplete
    if wrong.any():
        ambiguous = np.zeros(len(texts), np.bool_) if incomplete is None else incomplete
        ambiguous[np.searchsorted(quads[1:], np.flatnonzero(wrong), "right")] = True
    three = np.empty((len(first), 3), np.uint8)
    three[:, 0] = first >> 4
    three[:, 1] = (first << 4) | (second >> 8 & 15)
    three[:, 2] = second
    values = SpanValues(quads[:-1] * 3, quads[1:] * 3 - lost, pa.binary()).array(three.reshape(-1))
    if column.null_count:
        values = pc.if_else(column.is_valid(), values, None)
    return values, ambiguous


def _bounds(texts: pa.Array) -> tuple[npt.NDArray[np.int64], memoryview]:
    """Return where texts begin and end, from 0, and their bytes."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    bounds = bounds.astype(np.int64)
    raw = memoryview(b"" if data is None else data)[int(bounds[0]) : int(bounds[-1])]
    return bounds - bounds[0], raw
