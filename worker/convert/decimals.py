"""Decimals from the bytes of their unscaled numbers, big-endian two's complement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DecimalType

from worker.convert.scalars import Doubt, Target, integers, some, valid_rows

Ints = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]

DECIMAL_DIGITS: Final = 37
_HIGH_MAX: Final = 10**DECIMAL_DIGITS >> 64
_SCALE_MAX: Final = 18
_POWERS: Final = np.array([10**n for n in range(_SCALE_MAX + 1)], np.int64)


def big_endian(windows: Uint64s, start: Ints, end: Ints) -> tuple[Ints, Uint64s, Doubt]:
    """Read two's complement numbers of 1 to 16 bytes.

    Args:
        windows: the 8 bytes that begin at each position of a buffer, as little-endian numbers.
        start: first byte of each number, after at least 16 bytes of the buffer.
        end: first byte behind each number.

    Returns:
        High and low 64 bits, and the rows with no bytes or more than 16.
    """
    size = end - start
    wrong = (size < 1) | (size > 16)
    size = np.where(wrong, 1, size)
    low = windows[end - 8].byteswap().view(np.int64)
    is_wide = size > 8
    shift = np.where(is_wide, 0, 64 - 8 * size)
    low = (low << shift) >> shift
    high = low >> 63
    if is_wide.any():
        shift = np.where(is_wide, 128 - 8 * size, 0)
        wide = (windows[end - 16].byteswap().view(np.int64) << shift) >> shift
        high = np.where(is_wide, wide, high)
    return high, low.view(np.uint64), wrong


def unscaled(column: pa.Array) -> tuple[Ints, Uint64s, Doubt]:
    """Return the numbers of a binary column as ``big_endian`` does; nulls have no bytes."""
    texts = column.fill_null(b"") if column.null_count else column
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    raw = b"" if data is None else memoryview(data)[int(bounds[0]) : int(bounds[-1])]
    padded = np.frombuffer(b"".join((bytes(16), raw, bytes(8))), np.uint8)
    windows: Uint64s = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    places = bounds.astype(np.int64) + (16 - int(bounds[0]))
    return big_endian(windows, places[:-1], places[1:])


def beyond_digits(high: Ints) -> Doubt:
    """Return numbers with more digits than ``DECIMAL_DIGITS``, and some with as many."""
    wide: Doubt = (high >= _HIGH_MAX) | (high < -_HIGH_MAX)
    return wide


def pairs(high: Ints, low: Uint64s) -> Ints:
    """Return the numbers in Arrow's form, the low 64 bits first."""
    return np.column_stack([low.view(np.int64), high])


def decimals(column: pa.Array, scale: int) -> tuple[pa.Array, Doubt | None]:
    """Return the decimals of one scale, and ambiguous rows.

    Args:
        column: binary.
        scale: 0 to ``DECIMAL_DIGITS``.
    """
    high, low, wrong = unscaled(column)
    wrong |= beyond_digits(high)
    if wrong.any():
        high, low = np.where(wrong, 0, high), np.where(wrong, np.uint64(0), low)
        wrong &= valid_rows(column)
    return _array(high, low, column, pa.decimal128(DECIMAL_DIGITS, scale)), some(wrong)


def _array(high: Ints, low: Uint64s, column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return decimals with the nulls of a column."""
    buffer = pa.py_buffer(pairs(high, low))
    array = pa.Array.from_buffers(kind, len(column), [None, buffer])
    return pc.if_else(column.is_valid(), array, None) if column.null_count else array


def has_own_scale(kind: pa.DataType) -> bool:
    """Return whether values are structs of a scale and the unscaled bytes."""
    return (
        pa.types.is_struct(kind)
        and {field.name: field.type for field in kind} == _WITH_SCALE
        and kind.num_fields == len(_WITH_SCALE)
    )


_WITH_SCALE: Final = {"scale": pa.int32(), "value": pa.binary()}


def scaled_conversion(
    target: Target,
) -> Callable[[pa.Array], tuple[pa.Array, Doubt | None]]:
    """Return the conversion of such structs; numbers that need more than 64 bits are ambiguous."""
    kind = target.type
    assert isinstance(kind, DecimalType)
    limit = min(10**kind.precision - 1, 2**63 - 1)

    def convert(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        scale, value = (pc.struct_field(column, [name]) for name in ("scale", "value"))
        high, low, ambiguous = unscaled(value)
        number = low.view(np.int64)
        ambiguous |= high != number >> 63
        more = kind.scale - integers(scale).astype(np.int64)
        ambiguous |= (np.abs(more) > _SCALE_MAX) | ~valid_rows(scale)
        number, more = np.where(ambiguous, 0, number), np.where(ambiguous, 0, more)
        factor, divisor = _POWERS[np.maximum(more, 0)], _POWERS[np.maximum(-more, 0)]
        most = limit // factor
        whole = number // divisor
        ambiguous |= (whole > most) | (whole < -most) | (whole * divisor != number)
        stored = np.where(ambiguous, 0, whole) * factor
        array = _array(stored >> 63, stored.view(np.uint64), column, target.arrow)
        return array, some(ambiguous & valid_rows(column))

    return convert
