"""Scanners of JSON scalars; the rules are those of ``worker.decode.json_scan``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from worker.decode.column_builders import FixedWidthValues, NullValues, RowValues, SpanValues
from worker.decode.json_cursor import Bytes, Ints, JsonCursor, Mask, Pattern

Value = Callable[[JsonCursor, Bytes], RowValues]
"""Gets cursors at a value, and the byte each is at."""

PLAIN_QUOTE: Final = b'"'
ESCAPED_QUOTE: Final = b'\\"'
"""Of a document that stands in a text of another one."""

_TRUE = Pattern(b"true")
_FALSE = Pattern(b"false")
_EXACT_DIGITS: Final = 15
_INT64_MAX: Final = np.uint64(2**63 - 1)
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_MINUS: Final = ord("-")
_DOT: Final = ord(".")
_ZERO: Final = ord("0")
_POWERS: Final = 10.0 ** np.arange(_EXACT_DIGITS + 1)
_WHOLE_POWERS: Final = np.array([10**n for n in range(_EXACT_DIGITS + 1)], np.uint64)


def _nothing(cursor: JsonCursor, first: Bytes) -> RowValues:
    """Read a value that only the record path reads."""
    del first
    cursor.refuse(np.ones(len(cursor), np.bool_))
    return NullValues(len(cursor))


def text(cursor: JsonCursor, first: Bytes) -> RowValues:
    """Read a text of documents without a backslash."""
    cursor.expect(_QUOTE, first)
    return SpanValues(*cursor.text(), pa.string())


def outer_text(cursor: JsonCursor, first: Bytes) -> RowValues:
    """Read a text of documents with escaped quotes; a text that holds one is refused."""
    cursor.expect(_QUOTE, first)
    start, end = cursor.text()
    cursor.refuse(cursor.data[end - 1] == _BACKSLASH)
    return SpanValues(start, end, pa.string())


def inner_text(cursor: JsonCursor, first: Bytes) -> RowValues:
    """Read a text between escaped quotes."""
    cursor.expect(_BACKSLASH, first)
    cursor.expect(_QUOTE)
    start, end = cursor.text()
    is_closed = cursor.data[end - 1] == _BACKSLASH  # else the text around it ends at this place
    cursor.refuse(~is_closed)
    return SpanValues(start, end - is_closed, pa.string())


def _boolean(cursor: JsonCursor, first: Bytes) -> RowValues:
    del first
    is_true = cursor.starts_with(_TRUE)
    is_false = cursor.starts_with(_FALSE)
    cursor.refuse(~(is_true | is_false))
    cursor.at = cursor.at + (4 * is_true + 5 * is_false)
    return FixedWidthValues(is_true, pa.bool_())


def _signed(cursor: JsonCursor, first: Bytes) -> tuple[Mask | None, Any, Ints]:
    """Read sign, value and number of digits before a point; a needless zero is refused."""
    negative = first == _MINUS
    if negative.any():
        cursor.at = cursor.at + negative
        first = cursor.byte()
    value, count = cursor.digits()
    cursor.refuse((count == 0) | ((first == _ZERO) & (count > 1)))
    return (negative if negative.any() else None), value, count


def _long(cursor: JsonCursor, first: Bytes) -> RowValues:
    negative, value, count = _signed(cursor, first)
    cursor.refuse((count > 19) | (value > _INT64_MAX))
    numbers = value.view(np.int64)
    if negative is not None:
        numbers = np.where(negative, -numbers, numbers)
    return FixedWidthValues(numbers, pa.int64())


def _double(cursor: JsonCursor, first: Bytes) -> RowValues:
    begin = cursor.at
    negative, whole, count = _signed(cursor, first)
    is_long = count > _EXACT_DIGITS
    numbers = whole.astype(np.float64)
    after = cursor.byte()
    rows = np.flatnonzero(after == _DOT)
    if len(rows):
        part = cursor.part(rows)
        part.at = part.at + 1
        fraction, digits = part.digits()
        part.refuse(digits == 0)
        cursor.join(part, rows)
        exact = digits + count[rows] <= _EXACT_DIGITS
        digits = np.where(exact, digits, 0)
        # both are whole numbers below 2^53, so their quotient is the nearest double
        mantissa = whole[rows] * _WHOLE_POWERS[digits] + fraction
        numbers[rows] = mantissa.astype(np.float64) / _POWERS[digits]
        is_long[rows] = ~exact
        after = cursor.byte()
    is_long |= _exponent(cursor, after)
    if negative is not None:
        numbers = np.where(negative, -numbers, numbers)
    if is_long.any():
        rows = np.flatnonzero(is_long & ~cursor.bad)
        texts = SpanValues(begin[rows], cursor.at[rows], pa.string()).array(cursor.data)
        numbers[rows] = texts.cast(pa.float64()).to_numpy()
    return FixedWidthValues(numbers, pa.float64())


def _exponent(cursor: JsonCursor, after: Bytes) -> Mask:
    """Move over exponents of up to two digits; return rows that have one."""
    has: Mask = (after | 0x20) == ord("e")
    if has.any():
        rows = np.flatnonzero(has)
        part = cursor.part(rows)
        part.at = part.at + 1
        sign = part.byte()
        part.at = part.at + ((sign == _MINUS) | (sign == ord("+")))
        _, digits = part.digits()
        part.refuse((digits == 0) | (digits > 2))
        cursor.join(part, rows)
    return has


def passed(read_text: Value, quote: bytes, cursor: JsonCursor, first: Bytes) -> RowValues:
    """Pass over a scalar that is not asked for; the record path refuses some numbers there, too."""
    for mask, read in (
        (first == quote[0], read_text),
        ((first == ord("t")) | (first == ord("f")), _boolean),
        (((first - np.uint8(_ZERO)) < 10) | (first == _MINUS), _passed_number),
    ):
        if mask.any():
            rows = np.flatnonzero(mask)
            part = cursor.part(rows)
            read(part, first[rows])
            cursor.join(part, rows)
            first = np.where(mask, np.uint8(0), first)
    cursor.refuse(first != 0)
    return NullValues(len(cursor))


def _passed_number(cursor: JsonCursor, first: Bytes) -> RowValues:
    _, _, count = _signed(cursor, first)
    rows = np.flatnonzero(cursor.byte() == _DOT)
    if len(rows):
        part = cursor.part(rows)
        part.at = part.at + 1
        _, digits = part.digits()
        part.refuse((digits == 0) | (count[rows] > _EXACT_DIGITS))
        cursor.join(part, rows)
    cursor.refuse((cursor.byte() | 0x20) == ord("e"))
    return NullValues(len(cursor))


SCALARS: Final[Mapping[str, Value]] = {
    "null": _nothing,
    "bool": _boolean,
    "int64": _long,
    "double": _double,
}
"""By the name of their type; texts have scanners of their own."""
