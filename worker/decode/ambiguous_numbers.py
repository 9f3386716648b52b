"""Rows of a block of JSON documents whose numbers Arrow may read differently from Java."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from worker.decode.byte_prefilters import may_hold, may_hold_digits, may_hold_exponent, raw_bytes
from worker.decode.json_types import can_underflow, holds_number

Mask = npt.NDArray[np.bool_]
_TINY: Final = r"[0-9][eE]-[0-9]{2}|0{300}"
# numbers, also within quotes, and escapes, which may encode them
_FAR: Final = r'[:\[,]\s*"?[+-]?[0-9.]+[eE]-[0-9]{2}|\\u00(?:[46]5|2[bBdDeE]|3[0-9])'


def either(a: Mask | None, b: Mask | None) -> Mask | None:
    """Return rows of either mask; None for no rows."""
    if a is None or b is None:
        return b if a is None else a
    return a | b


def matches(texts: pa.Array, pattern: str) -> Mask | None:
    """Return rows whose text matches; None for no rows."""
    mask: Mask = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return mask if mask.any() else None


def far_decimals(texts: pa.Array, schema: pa.Schema) -> Mask | None:
    """Return rows with exponents that Arrow must not read as decimals: they exceed its tables.

    Arrow returns a wrong number for ``1e-77``, and the process dies with ``1e-999999999``.
    """
    if not any(map(_has_decimal, schema.types)):
        return None
    raw = raw_bytes(texts)
    is_possible = may_hold_exponent(raw) or may_hold(raw, b"\\u00")
    return matches(texts, _FAR) if is_possible else None


def _has_decimal(kind: pa.DataType) -> bool:
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind)) or any(map(_has_decimal, inner))


def ambiguous_zeros(table: pa.Table, texts: pa.Array) -> Mask | None:
    """Return rows with a zero where the text may hold a number too small for a double."""
    zeros: Mask | None = None
    for column in table.columns:
        zeros = either(zeros, _zeros(column))
    if zeros is None:
        return None
    if not may_hold_exponent(raw := raw_bytes(texts)) and not may_hold_digits(raw):
        return None
    rows = np.flatnonzero(zeros)
    tiny = matches(texts.take(pa.array(rows)), _TINY)
    if tiny is None:
        return None
    mask = np.zeros(len(texts), np.bool_)
    mask[rows[tiny]] = True
    return mask


def _zeros(column: Any) -> Mask | None:
    kind = column.type
    if can_underflow(kind):
        zero = pa.scalar(Decimal(0) if pa.types.is_decimal(kind) else 0, kind)
        mask = np.asarray(pc.equal(column, zero).fill_null(False))  # noqa: FBT003 - Arrow's
        return mask if mask.any() else None
    if pa.types.is_struct(kind):
        ambiguous: Mask | None = None
        for index in range(kind.num_fields):
            ambiguous = either(ambiguous, _zeros(pc.struct_field(column, [index])))
        return ambiguous
    if pa.types.is_nested(kind) and holds_number(kind):
        return np.ones(len(column), np.bool_)
    return None


def not_finite(table: pa.Table) -> Mask | None:
    """Return rows with NaN or an infinite number, which Arrow reads and Java refuses.

    A column that becomes a value is checked again. A row that a filter drops becomes none.
    """
    rows: Mask | None = None
    for column in table.columns:
        rows = either(rows, _not_finite(column))
    return rows


def _not_finite(column: Any) -> Mask | None:
    kind = column.type
    if pa.types.is_floating(kind):
        finite = pc.is_finite(column)
        if pc.all(finite).as_py() is not False:  # null without values
            return None
        return ~np.asarray(finite.fill_null(True))  # noqa: FBT003 - Arrow's
    if pa.types.is_struct(kind):
        rows: Mask | None = None
        for index in range(kind.num_fields):
            rows = either(rows, _not_finite(pc.struct_field(column, [index])))
        return rows
    if pa.types.is_list(kind) and _not_finite(pc.list_flatten(column)) is not None:
        return np.ones(len(column), np.bool_)
    return None


def many_names(texts: pa.Array, bytes_min: int, names_max: int) -> Mask | None:
    """Return long rows with more names, or possible names, than a bound."""
    rows = np.flatnonzero(pc.greater(pc.binary_length(texts), bytes_min))
    part = texts.take(pa.array(rows))
    many = pc.greater(pc.count_substring_regex(part, r'"\s*:'), names_max)
    mask = np.zeros(len(texts), np.bool_)
    mask[rows[many.to_numpy(zero_copy_only=False)]] = True
    return mask if mask.any() else None
