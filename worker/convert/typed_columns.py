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
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from worker.convert.decimals import has_own_scale, scaled_conversion
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
    if has_own_scale(source):
        return scaled_conversion(target) if isinstance(target.type, DecimalType) else None
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
    if target.is_nano:
        return _scaled({"ns": 1, "us": 1_000, "ms": 1_000_000}[unit])(target)
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


def _scaled(factor: int, storage: pa.DataType | None = None) -> Build:
    """Return conversions to numbers of a finer unit; those that do not fit are ambiguous."""
    limit = _INT64_MAX // factor

    def build(target: Target) -> Conversion:
        def convert(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
            whole = column.cast(storage) if storage is not None else column
            values = integers(whole.cast(pa.int64()))
            ambiguous = (values > limit) | (values < -limit)
            scaled = np.where(ambiguous, 0, values) * factor
            return masked(scaled, column, pa.int64()).cast(target.arrow), some(ambiguous)

        return convert

    return build


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


def _timestamps(micros: int, storage: pa.DataType | None = None) -> dict[type[IcebergType], Build]:
    """Return the conversions of a unit, which is some microseconds, to all timestamps."""
    to_micros, to_nanos = _scaled(micros, storage), _scaled(micros * 1_000, storage)
    return {
        TimestampType: to_micros,
        TimestamptzType: to_micros,
        TimestampNanoType: to_nanos,
        TimestamptzNanoType: to_nanos,
    }


_TABLE: Final[Mapping[str, Mapping[type[IcebergType], Build]]] = {
    "float": {FloatType: _cast, DoubleType: _cast},
    "binary": {BinaryType: _cast, FixedType: _bytes_to_fixed},
    "date32[day]": {
        DateType: _cast,
        **_timestamps(_DAY_US, pa.int32()),
    },
    "time32[ms]": {
        TimeType: _scaled(1_000, pa.int32()),
        **_timestamps(1_000, pa.int32()),
    },
    "timestamp[us, tz=UTC]": {
        TimestampType: _micros,
        TimestamptzType: _cast,
        TimestampNanoType: _scaled(1_000),
        TimestamptzNanoType: _scaled(1_000),
        DateType: _micros_to_days,
    },
    "timestamp[us, tz=+00:00]": {
        TimestampType: _micros,
        TimestamptzType: _micros,
        TimestampNanoType: _scaled(1_000),
        TimestamptzNanoType: _scaled(1_000),
    },
    "timestamp[ms, tz=UTC]": {
        **_timestamps(1_000),
        DateType: _millis_to_days,
    },
}
