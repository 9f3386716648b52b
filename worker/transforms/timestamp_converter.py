"""``TimestampConverter`` by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connect.records.transforms.date_format import DateFormat
from worker.convert.scalars import integers
from worker.convert.typed_columns import DATETIME, is_32_bits
from worker.transforms.date_format import read_texts, write_texts
from worker.transforms.rows import (
    ChainPlan,
    ColumnStep,
    Mask,
    Rows,
    valid,
)

Whole = npt.NDArray[np.int64]


_DAY_MS: Final = 86_400_000
_INT64_MAX: Final = 2**63 - 1


_INSTANT: Final = pa.timestamp("ms", "UTC")


# units in a millisecond, and milliseconds in a unit
_UNITS: Final = {
    "seconds": (1, 1_000),
    "milliseconds": (1, 1),
    "microseconds": (1_000, 1),
    "nanoseconds": (1_000_000, 1),
}


def timestamp_converter(options: Mapping[str, Any]) -> ColumnStep | None:
    """Return the step of ``TimestampConverter`` of a field; for whole values there is none."""
    return _Converter(options) if options["field"] else None


class _Converter:
    """Converts a field's time to another form."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._field = options["field"]
        self._target = options["target.type"]
        self._format = DateFormat(options["format"]) if options["format"] else None
        self._per_milli, self._millis = _UNITS[options["unix.precision"]]

    def plan(self, chain_plan: ChainPlan) -> None:
        is_text = self._format is not None and self._target != "string"
        chain_plan.fields[self._field] = pa.string() if is_text else pa.int64()

    def apply(self, rows: Rows) -> None:
        column = rows.columns.get(self._field)
        if column is not None and rows.is_typed and not _is_form(column.type):
            rows.suspect_all()  # each value is refused
        if column is None or column.null_count == rows.count:
            if column is not None:
                rows.columns[self._field] = pa.nulls(rows.count)
            return
        null = ~valid(column)
        converted = self._millis_of(column)
        if converted is None:
            rows.suspect(~null)
            rows.columns[self._field] = pa.nulls(rows.count)
            return
        millis, ambiguous = converted
        written, more = self._made(millis, null | ambiguous, is_typed=rows.is_typed)
        rows.suspect((ambiguous | more) & ~null)
        rows.columns[self._field] = written

    def _millis_of(self, column: pa.Array) -> tuple[Whole, Mask] | None:
        kinds, kind = pa.types, column.type
        sure = np.zeros(len(column), np.bool_)
        if kinds.is_string(kind):
            if self._format is None:
                return None
            return read_texts(self._format, column, strict=False)
        if kinds.is_int64(kind) or kinds.is_duration(kind):
            numbers = _toward_zero(integers(column.cast(pa.int64())), self._per_milli)
            ambiguous = np.abs(numbers) > _INT64_MAX // self._millis
            ambiguous |= numbers == -(2**63)
            return np.where(ambiguous, 0, numbers) * self._millis, ambiguous
        if kinds.is_date32(kind):
            return integers(column.cast(pa.int32()).cast(pa.int64())) * _DAY_MS, sure
        if kinds.is_time32(kind):
            return integers(column.cast(pa.int32()).cast(pa.int64())), sure
        if kinds.is_timestamp(kind) and kind.unit in ("ms", "us") and kind != DATETIME:
            numbers = integers(column.cast(pa.int64()))
            return (numbers if kind.unit == "ms" else numbers // 1000), sure
        return None

    def _made(self, millis: Whole, null: Mask, *, is_typed: bool) -> tuple[pa.Array, Mask]:
        sure = np.zeros(len(millis), np.bool_)
        if self._target == "string":
            assert self._format is not None
            return write_texts(self._format, millis, null)
        if self._target == "unix":
            numbers = _toward_zero(millis, self._millis)
            ambiguous = np.abs(numbers) > _INT64_MAX // self._per_milli
            return pa.array(np.where(ambiguous, 0, numbers) * self._per_milli, mask=null), ambiguous
        days = millis // _DAY_MS
        if self._target == "Date" and is_typed:
            ambiguous = np.abs(days) >= 2**31
            small = np.where(ambiguous, 0, days).astype(np.int32)
            return pa.array(small, mask=null).cast(pa.date32()), ambiguous
        clock = millis - days * _DAY_MS
        if self._target == "Time" and is_typed:
            return pa.array(clock.astype(np.int32), mask=null).cast(pa.time32("ms")), sure
        chosen = {"Date": days * _DAY_MS, "Time": clock}.get(self._target, millis)
        return pa.array(chosen, mask=null).cast(_INSTANT), sure


def _is_form(kind: pa.DataType) -> bool:
    """Return whether a schema of this type is one of times."""
    kinds = pa.types
    is_time = kinds.is_temporal(kind) and not is_32_bits(kind)
    return bool(kinds.is_string(kind) or kinds.is_int64(kind) or is_time)


def _toward_zero(numbers: Whole, divisor: int) -> Whole:
    if divisor == 1:
        return numbers
    quotients: Whole = np.where(numbers < 0, -(-numbers // divisor), numbers // divisor)
    return quotients
