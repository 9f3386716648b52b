"""``Cast`` by columns; the record path takes rows where Java's rule is ambiguous.

``connect.records.transforms.cast`` defines the values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connect.records.transforms.cast import parsed_spec
from worker.transforms.each_field import EachFieldStep
from worker.transforms.rows import ColumnStep, Mask, valid

Changed = tuple[pa.Array, Mask | None]


_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


_WHOLE_TEXT: Final = r"^[+-]?[0-9]{1,18}$"


_SHORT_NUMBER: Final = r"^-?[0-9]{1,15}(?:\.[0-9]{1,15})?$"


_EXACT_MAX: Final = 2.0**53


def cast_guess(target: str) -> Callable[[pa.DataType | None], pa.DataType]:
    """Return the most likely type of a field that is cast to a type."""
    kinds = {"boolean": pa.bool_(), "float64": pa.float64()}
    kind = kinds.get(target, pa.int64())
    return lambda _: kind


def cast_column(column: pa.Array, target: str) -> Changed:
    """Return a column in another type, and the ambiguous rows."""
    if column.null_count == len(column):
        return pa.nulls(len(column)), None
    changed = _cast(column, target)
    return changed if changed is not None else unknown(column)


def unknown(column: pa.Array) -> Changed:
    """Return nulls, and all rows with a value as ambiguous."""
    return pa.nulls(len(column)), valid(column)


def _cast(column: pa.Array, target: str) -> Changed | None:
    kind = column.type
    if pa.types.is_string(kind):
        return _from_text(column, target)
    if pa.types.is_boolean(kind):
        return _from_boolean(column, target)
    if pa.types.is_int64(kind):
        return _from_whole(column, target)
    return _from_double(column, target) if pa.types.is_float64(kind) else None


def _from_text(column: pa.Array, target: str) -> Changed | None:
    if target == "string":
        return column, None
    if target == "boolean":
        return pc.equal(pc.utf8_lower(column), "true"), None
    pattern = _SHORT_NUMBER if target == "float64" else _WHOLE_TEXT
    fits = pc.fill_null(pc.match_substring_regex(column, pattern), True)  # noqa: FBT003 - Arrow's
    texts = pc.if_else(fits, column, pa.scalar(None, pa.string()))
    ambiguous: Mask = ~fits.to_numpy(zero_copy_only=False)
    if target == "float64":
        return pc.cast(texts, pa.float64()), ambiguous
    whole = pc.cast(pc.utf8_ltrim(texts, "+"), pa.int64())
    bits = _BITS[target]
    if bits < 64:
        numbers = np.asarray(pc.fill_null(whole, 0))
        ambiguous |= (numbers < -(2 ** (bits - 1))) | (numbers >= 2 ** (bits - 1))
    return whole, ambiguous


def _from_boolean(column: pa.Array, target: str) -> Changed:
    if target == "boolean":
        return column, None
    if target == "string":
        return column.cast(pa.string()), None
    return column.cast(pa.float64() if target == "float64" else pa.int64()), None


def _from_whole(column: pa.Array, target: str) -> Changed:
    if target == "string":
        return column.cast(pa.string()), None
    if target == "boolean":
        return pc.not_equal(column, 0), None
    if target == "float64":
        return column.cast(pa.float64(), safe=False), None
    bits = _BITS[target]
    if bits == 64:
        return column, None
    numbers = np.asarray(pc.fill_null(column, 0)).astype(f"int{bits}").astype(np.int64)
    return pa.array(numbers, mask=~valid(column)), None


def _from_double(column: pa.Array, target: str) -> Changed | None:
    if target == "string":
        return None
    numbers = np.asarray(pc.fill_null(column, 0.0))
    if target == "float64":  # no table may have the field: nothing else checks its digits
        return column, ~(np.abs(numbers) < _EXACT_MAX)
    bits = _BITS.get(target, 64)
    limit = _EXACT_MAX if bits == 64 else 2.0**31
    ambiguous = ~(np.abs(numbers) < limit)
    whole = np.trunc(np.where(ambiguous, 0.0, numbers)).astype(np.int64)
    if target == "boolean":
        return pa.array(whole != 0, mask=~valid(column)), ambiguous
    whole = whole.astype(f"int{bits}").astype(np.int64)
    return pa.array(whole, mask=~valid(column)), ambiguous


def cast(options: Mapping[str, Any]) -> ColumnStep | None:
    """Return the step of ``Cast``."""
    kinds, whole = parsed_spec(options["spec"])
    if whole is not None or "float32" in kinds.values():
        return None
    guesses = {name: cast_guess(kind) for name, kind in kinds.items()}
    return EachFieldStep(guesses, lambda name, column: cast_column(column, kinds[name]))
