"""Conversions of columns whose type a schema gives, one for each pair of types; see ``scalars``.

Source types are those of Connect's model: 32-bit numbers, bytes, dates, times and instants,
decimals of 37 digits, and durations for numbers whose unit the schema names. A pair that is not
listed is ambiguous: the record path converts or refuses the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from worker.convert.scalars import (
    FROM_INT64,
    Conversion,
    Doubt,
    Target,
    integers,
    join,
    masked,
    some,
)
from worker.convert.texts import refused_rows

Build = Callable[[Target], "Conversion | None"]

DATETIME: Final = pa.timestamp("us", "+00:00")
"""Instants that are Python's, not Connect's: they go into timestamp columns only."""

_DAY_MS: Final = 86_400_000
_DAY_US: Final = _DAY_MS * 1000
_INT64_MAX: Final = 2**63 - 1


def typed_conversion(source: pa.DataType, target: Target) -> Conversion | None:
    """Return the conversion of a type of a schema; None when there is none."""
    kinds = pa.types
    if kinds.is_int32(source):
        return _through_int64(target)
    if kinds.is_duration(source):
        return _counted(source.unit, target)
    if kinds.is_decimal(source):
        return _decimal(target) if isinstance(target.type, DecimalType) else None
    build = _TABLE.get(str(source), {}).get(type(target.type))
    return build(target) if build is not None else None


def _through_int64(target: Target) -> Conversion | None:
    build = FROM_INT64.get(type(target.type))
    if build is None:
        return None
    then = build(target)
    return lambda column: then(column.cast(pa.int64()))


def _cast(target: Target) -> Conversion:
    arrow = target.arrow
    return lambda column: (column if column.type == arrow else column.cast(arrow), None)


def _counted(unit: str, target: Target) -> Conversion | None:
    """Convert numbers whose unit the schema names."""
    if not isinstance(target.type, TimestampType | TimestamptzType | TimeType):
        then = _through_int64(target)
        return None if then is None else lambda column: then(column.cast(pa.int64()))
    is_time = isinstance(target.type, TimeType)

    def convert(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = integers(column.cast(pa.int64()))
        ambiguous = np.zeros(len(values), np.bool_)
        if unit == "ns":
            ambiguous |= values % 1000 != 0  # the record path counts the digits that are cut
            values = values // 1000
        elif unit == "ms":
            ambiguous |= (values > _INT64_MAX // 1000) | (values < -(_INT64_MAX // 1000))
            values = np.where(ambiguous, 0, values) * 1000
        if is_time:
            ambiguous |= (values < 0) | (values >= _DAY_US)
            values = np.where(ambiguous, 0, values)
        return masked(values, column, pa.int64()).cast(target.arrow), some(ambiguous)

    return convert


def _millis_to_micros(target: Target) -> Conversion:
    def convert(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = integers(column.cast(pa.int64()))
        ambiguous = (values > _INT64_MAX // 1000) | (values < -(_INT64_MAX // 1000))
        scaled = np.where(ambiguous, 0, values) * 1000
        return masked(scaled, column, pa.int64()).cast(target.arrow), some(ambiguous)

    return convert


def _micros(target: Target) -> Conversion:
    return lambda column: (column.cast(pa.int64()).cast(target.arrow), None)


def _millis_to_days(target: Target) -> Conversion:
    return _to_days(target, _DAY_MS)


def _micros_to_days(target: Target) -> Conversion:
    return _to_days(target, _DAY_US)


def _to_days(target: Target, day: int) -> Conversion:
    def convert(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        days = integers(column.cast(pa.int64())) // day
        ambiguous = (days < -(2**31)) | (days > 2**31 - 1)
        days = np.where(ambiguous, 0, days).astype(np.int32)
        return masked(days, column, pa.int32()).cast(target.arrow), some(ambiguous)

    return convert


def _days_to_micros(target: Target) -> Conversion:
    def convert(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        days = integers(column.cast(pa.int32()).cast(pa.int64()))
        ambiguous = np.abs(days) > _INT64_MAX // _DAY_US
        scaled = np.where(ambiguous, 0, days) * _DAY_US
        return masked(scaled, column, pa.int64()).cast(target.arrow), some(ambiguous)

    return convert


def _time_to_micros(target: Target) -> Conversion:
    def convert(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = integers(column.cast(pa.int32()).cast(pa.int64()))
        return masked(values * 1000, column, pa.int64()).cast(target.arrow), None

    return convert


def _bytes_to_fixed(target: Target) -> Conversion:
    kind = target.type
    assert isinstance(kind, FixedType)
    size = len(kind)

    def convert(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        fits = pc.equal(pc.binary_length(column), size)
        ambiguous = some(~fits.fill_null(fill_value=True).to_numpy(zero_copy_only=False))
        if ambiguous is not None:
            column = pc.if_else(fits, column, pa.scalar(None, column.type))
        return column.cast(target.arrow), ambiguous

    return convert


def _decimal(target: Target) -> Conversion:
    def convert(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        try:
            return column.cast(target.arrow), None
        except pa.ArrowInvalid:
            ambiguous = refused_rows(column, lambda part: part.cast(target.arrow))
        column = pc.if_else(pa.array(ambiguous), pa.scalar(None, column.type), column)
        return column.cast(target.arrow), join(some(ambiguous), None)

    return convert


_TABLE: Final[Mapping[str, Mapping[type[IcebergType], Build]]] = {
    "float": {FloatType: _cast, DoubleType: _cast},
    "binary": {BinaryType: _cast, FixedType: _bytes_to_fixed},
    "date32[day]": {
        DateType: _cast,
        TimestampType: _days_to_micros,
        TimestamptzType: _days_to_micros,
    },
    "time32[ms]": {
        TimeType: _time_to_micros,
        TimestampType: _time_to_micros,
        TimestamptzType: _time_to_micros,
    },
    "timestamp[us, tz=UTC]": {
        TimestampType: _micros,
        TimestamptzType: _cast,
        DateType: _micros_to_days,
    },
    "timestamp[us, tz=+00:00]": {TimestampType: _micros, TimestamptzType: _micros},
    "timestamp[ms, tz=UTC]": {
        TimestampType: _millis_to_micros,
        TimestamptzType: _millis_to_micros,
        DateType: _millis_to_days,
    },
}
