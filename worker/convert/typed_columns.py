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

from connect.records.conversion.named_values import CLOCK_NAME, DAYS_NAME, YEAR_NAME
from worker.convert.decimals import has_own_scale, scaled_conversion
from worker.convert.scalars import (
    FROM_INT64,
    Conversion,
    Doubt,
    Target,
    counted,
    integers,
    join,
    masked,
    some,
)
from worker.convert.texts import refused_rows

Build = Callable[[Target], "Conversion | None"]

DATETIME: Final = pa.timestamp("us", "+00:00")
"""Instants that are Python's, not Connect's: they go into timestamp columns only."""

DAYS: Final = pa.date64()
CLOCK: Final = pa.time64("us")
YEARS: Final = pa.time32("s")
NAMED: Final = {DAYS_NAME: DAYS, CLOCK_NAME: CLOCK, YEAR_NAME: YEARS}
"""Types of 32-bit numbers with a meaning, which are numbers in columns of numbers, by the names of
their schemas: days, milliseconds since midnight, years. No other column has one of them."""

_DAY_MS: Final = 86_400_000
_FACTORS: Final = {DAYS: _DAY_MS, CLOCK: 1_000}
YEAR_MAX: Final = 2**15 - 1
_TIMESTAMPS: Final = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_DAY_US: Final = _DAY_MS * 1000
_INT64_MAX: Final = 2**63 - 1


def typed_conversion(source: pa.DataType, target: Target) -> Conversion | None:
    """Return the conversion of a type of a schema; None when there is none."""
    kinds = pa.types
    if kinds.is_int32(source):
        return _through_int64(target)
    if kinds.is_duration(source):
        return _of_unit(source.unit, target)
    if source in NAMED.values():
        return _named(source, target)
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


def _of_unit(unit: str, target: Target) -> Conversion | None:
    """Convert numbers whose unit the schema names; the record path decides about dates."""
    if isinstance(target.type, DateType):
        return None
    if not isinstance(target.type, (TimeType, *_TIMESTAMPS)):
        return _through_int64(target)
    then = counted(unit, target)
    return lambda column: then(column.cast(pa.int64()))


def _named(source: pa.DataType, target: Target) -> Conversion | None:
    """Convert days, years and times of day that are numbers in columns of numbers."""
    if not isinstance(target.type, (DateType, TimeType, *_TIMESTAMPS)):
        then = _through_int64(target)
    elif source == CLOCK:
        then = None if isinstance(target.type, DateType) else counted("ms", target)
    else:
        build = _TABLE["date32[day]"].get(type(target.type))
        of_days = None if build is None else build(target)
        then = None if of_days is None else lambda column: of_days(_dates(column, source))
    return None if then is None else lambda column: then(plain_numbers(column))


def _dates(column: pa.Array, source: pa.DataType) -> pa.Array:
    """Return days, or the first days of years, as dates."""
    days = column
    if source == YEARS:
        years = (integers(column) - 1970).astype("datetime64[Y]")
        days = masked(years.astype("datetime64[D]").astype(np.int64), column, pa.int64())
    # a number beyond 32 bits is one that a transformation made, and ambiguous
    return days.cast(pa.int32(), safe=False).view(pa.date32())


def named_numbers(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Doubt | None]:
    """Return 32-bit numbers, given in 64 bits, as one of ``NAMED``; and those that do not fit."""
    ambiguous = None
    if kind == YEARS:
        values = integers(column)
        ambiguous = some(np.abs(values) > YEAR_MAX)
        if ambiguous is not None:
            column = masked(np.where(ambiguous, 0, values), column, pa.int64())
        return column.cast(pa.int32()).view(kind), ambiguous
    return pc.multiply(column, _FACTORS[kind]).view(kind), ambiguous


def with_meaning(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return plain numbers as numbers of a type with a meaning, where it is one."""
    if pa.types.is_int64(column.type) and kind in NAMED.values():
        return named_numbers(column, kind)[0]
    has_unit = pa.types.is_int64(column.type) and pa.types.is_duration(kind)
    return column.cast(kind) if has_unit else column


def is_32_bits(kind: pa.DataType) -> bool:
    """Return whether a schema of this type is one of 32-bit numbers, with a meaning or without."""
    return bool(pa.types.is_int32(kind)) or kind in NAMED.values()


def plain_numbers(column: pa.Array) -> pa.Array:
    """Return numbers with a meaning as 64-bit numbers without one, other columns as they are.

    So are items of lists and values of maps. Structs keep their schema.
    """
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _with_plain_items(column)
    if kind in _FACTORS:
        return pc.divide(column.view(pa.int64()), _FACTORS[kind])
    if kind == YEARS:
        return column.view(pa.int32()).cast(pa.int64())
    return column.cast(pa.int64()) if pa.types.is_duration(kind) else column


def _with_plain_items(column: pa.Array) -> pa.Array:
    is_map = pa.types.is_map(column.type)
    items = column.items if is_map else column.values
    plain = plain_numbers(items)
    if plain.type == items.type:
        return column
    if is_map:
        kind = pa.map_(column.type.key_type, plain.type)
        names = [pa.field("key", kind.key_type, nullable=False), pa.field("value", plain.type)]
        plain = pa.StructArray.from_arrays([column.keys, plain], fields=names)
    else:
        kind = pa.list_(plain.type)
    buffers = column.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(column), buffers, column.null_count, column.offset, [plain]
    )


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
