"""Conversions of decoded numbers, booleans and texts into columns, one for each pair of types.

Rules of this file:
- An ambiguous row holds any value. It goes to the record path, which converts or refuses it.
- An ambiguous row costs time, a wrong value costs data: values that Arrow reads differently from
  Java are ambiguous.
- Decoded ``double`` columns may hold integers of the text, decoded ``string`` columns never hold
  numbers. Beyond 2^53 a double does not determine the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from worker.convert.texts import parse_dates, parse_times, parse_timestamps, parse_uuids

Doubt = npt.NDArray[np.bool_]
Conversion = Callable[[pa.Array], tuple[pa.Array, "Doubt | None"]]

_EXACT_MAX: Final = 2.0**53
_INT64_MAX: Final = 2**63 - 1
_UNIT_NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Target:
    """A column to fill.

    Attributes:
        type: its Iceberg type.
        arrow: its Arrow type in the Parquet file.
        timestamp_unit: unit of a plain number in a timestamp or time column.
    """

    type: IcebergType
    arrow: pa.DataType
    timestamp_unit: str = "ms"

    @property
    def is_nano(self) -> bool:
        """Whether the column has nanoseconds."""
        return isinstance(self.type, TimestampNanoType | TimestamptzNanoType)


def join(a: Doubt | None, b: Doubt | None) -> Doubt | None:
    """Return the rows that are ambiguous in either mask."""
    if a is None or b is None:
        return b if a is None else a
    return a | b


def valid_rows(column: pa.Array) -> Doubt:
    """Return the rows that are not null."""
    valid: Doubt = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def integers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return whole numbers, with nulls as 0."""
    return numbers(column, 0)


def numbers(column: pa.Array, fill: float) -> npt.NDArray[Any]:
    """Return values with nulls filled, without a copy where there are none."""
    if column.null_count:
        column = column.fill_null(fill)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=True)
    return values


def some(ambiguous: Doubt) -> Doubt | None:
    """Return the mask, None when no row is ambiguous."""
    return ambiguous if ambiguous.any() else None


def masked(values: npt.NDArray[Any], column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return numpy values as an Arrow array with the nulls of their column."""
    if not column.null_count:
        return pa.array(values, kind)
    return pa.array(values, kind, mask=~valid_rows(column))


def scalar_conversion(source: pa.DataType, target: Target) -> Conversion | None:
    """Return the conversion of a decoded type that is no struct or list; None for no conversion."""
    kind = target.type
    table = {
        "bool": _FROM_BOOL,
        "int64": FROM_INT64,
        "double": _FROM_DOUBLE,
        "string": _FROM_STRING,
    }.get(str(source))
    if table is not None:
        build = table.get(type(kind))
        return build(target) if build is not None else None
    if source == target.arrow and isinstance(kind, DecimalType):
        return _decimal(target)
    return None


# ------------------------------------------------------------------ from booleans and integers


def _same(target: Target) -> Conversion:
    arrow = target.arrow
    return lambda column: (column if column.type == arrow else column.cast(arrow), None)


def _int_to_int(target: Target) -> Conversion:
    def narrow(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = numbers(column, 0)
        if values.min() >= -(2**31) and values.max() <= 2**31 - 1:
            return column.cast(target.arrow), None
        ambiguous = (values < -(2**31)) | (values > 2**31 - 1)
        return masked(values.astype(np.int32), column, pa.int32()).cast(target.arrow), ambiguous

    return narrow


def _int_to_float(target: Target) -> Conversion:
    def widen(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = numbers(column, 0)
        floats = values.astype(np.float64 if target.arrow == pa.float64() else np.float32)
        ambiguous = (np.abs(values) > 2**53) | (values == -(2**63))
        if floats.dtype == np.float32:
            ambiguous |= floats.astype(np.float64) != values.astype(np.float64)
        return masked(floats, column, target.arrow), some(ambiguous)

    return widen


def counted(unit: str, target: Target) -> Conversion:
    """Return the conversion of numbers of a unit to timestamps or times of day."""
    factor = _UNIT_NS[unit] // (1 if target.is_nano else 1_000)
    limit = _INT64_MAX // max(factor, 1)
    is_time = isinstance(target.type, TimeType)

    def scale(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = numbers(column, 0)
        if factor:
            ambiguous = (values > limit) | (values < -limit)
            with np.errstate(over="ignore"):
                scaled = values * factor
        else:
            ambiguous = values % 1_000 != 0  # the record path counts the digits that are cut
            scaled = values // 1_000
        if is_time:
            ambiguous |= (scaled < 0) | (scaled >= _DAY_US)
            scaled = np.where(ambiguous, 0, scaled)
        return masked(scaled, column, pa.int64()).cast(target.arrow), some(ambiguous)

    return scale


def _int_to_instant(target: Target) -> Conversion:
    return counted(target.timestamp_unit, target)


def _int_to_date(target: Target) -> Conversion:
    narrow = _int_to_int(Target(IntegerType(), pa.int32()))

    def days(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values, ambiguous = narrow(column)
        return values.cast(target.arrow), ambiguous

    return days


# ------------------------------------------------------------------ from doubles


def ambiguous_doubles(values: npt.NDArray[np.float64]) -> Doubt:
    """Return rows whose double does not determine the text: too large, -0, NaN."""
    ambiguous: Doubt = ~(np.abs(values) < _EXACT_MAX) | ((values == 0.0) & np.signbit(values))
    return ambiguous


def _is_whole(values: npt.NDArray[np.float64]) -> Doubt:
    with np.errstate(invalid="ignore"):  # NaN is not
        whole: Doubt = values == np.floor(values)
    return whole


def checked_doubles(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Doubt | None]:
    """Return doubles as 64 or 32 bits, and ambiguous rows."""
    values = numbers(column, 1.0)
    ambiguous = some(ambiguous_doubles(values))
    if kind == pa.float64():
        return column, ambiguous
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    lost = (narrow != values) & ((narrow == 0.0) | _is_whole(values))
    return masked(narrow, column, pa.float32()), join(ambiguous, some(lost))


def _double_to_double(target: Target) -> Conversion:
    return lambda column: checked_doubles(column, target.arrow)


def _double_to_whole(target: Target) -> Conversion:
    """Convert whole doubles as integers."""
    then = FROM_INT64[type(target.type)](target)

    def whole(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = numbers(column, 1.0)
        ambiguous = ambiguous_doubles(values) | ~_is_whole(values)
        integers = np.where(ambiguous, 0.0, values).astype(np.int64)
        converted, more = then(masked(integers, column, pa.int64()))
        return converted, join(some(ambiguous), more)

    return whole


def _double_to_string(target: Target) -> Conversion:
    def write(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = numbers(column, 1.5)
        size = np.abs(values)
        # within these bounds Java also writes the shortest digits without an exponent
        plain = (size >= 1e-3) & (size < 1e7) & ~_is_whole(values)
        return column.cast(target.arrow), some(~plain)

    return write


# ------------------------------------------------------------------ from text


def _string_to_string(target: Target) -> Conversion:
    return _same(target)


def _string_to_boolean(target: Target) -> Conversion:
    def read(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        lowered = pc.ascii_lower(column)
        true = pc.equal(lowered, "true")
        is_boolean = pc.or_(true, pc.equal(lowered, "false"))
        ambiguous = ~is_boolean.fill_null(fill_value=True).to_numpy(zero_copy_only=False)
        return true.cast(target.arrow), some(ambiguous)

    return read


def _string_to_whole(target: Target) -> Conversion:
    then = FROM_INT64[type(target.type)](target)

    def read(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        plain = pc.match_substring_regex(column, r"^-?[0-9]{1,18}$")
        ambiguous = ~plain.fill_null(fill_value=True).to_numpy(zero_copy_only=False)
        texts = pc.if_else(plain, column, None) if ambiguous.any() else column
        converted, more = then(texts.cast(pa.int64()))
        return converted, join(some(ambiguous), more)

    return read


def _string_to_double(target: Target) -> Conversion:
    def read(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        # at most 15 digits: the double and its shortest text are one number
        plain = pc.match_substring_regex(column, r"^-?[0-9]{1,8}(\.[0-9]{1,7})?$")
        ambiguous = ~plain.fill_null(fill_value=True).to_numpy(zero_copy_only=False)
        texts = pc.if_else(plain, column, None) if ambiguous.any() else column
        return texts.cast(target.arrow), some(ambiguous)

    return read


def _parsed(
    parse: Callable[..., tuple[pa.Array, Doubt | None]], **options: Any
) -> Callable[[Target], Conversion]:
    def build(target: Target) -> Conversion:
        return lambda column: parse(column, target.arrow, **options)

    return build


# ------------------------------------------------------------------ decimals, decoded as such


def _decimal(target: Target) -> Conversion:
    kind = target.type
    assert isinstance(kind, DecimalType)

    # Arrow's parser ignores the precision; and more than 15 digits, written as a number,
    # are a double on the record path
    limit = pa.scalar(10 ** min(kind.precision, 15), pa.decimal128(38, 0))

    def check(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        large = pc.greater_equal(pc.abs(column.view(pa.decimal128(38, 0))), limit)
        return column, some(large.fill_null(fill_value=False).to_numpy(zero_copy_only=False))

    return check


_FROM_BOOL: Final[dict[type[IcebergType], Callable[[Target], Conversion]]] = {
    BooleanType: _same,
    StringType: _same,
}
FROM_INT64: Final[dict[type[IcebergType], Callable[[Target], Conversion]]] = {
    IntegerType: _int_to_int,
    LongType: _same,
    FloatType: _int_to_float,
    DoubleType: _int_to_float,
    StringType: _same,
    DateType: _int_to_date,
    TimeType: _int_to_instant,
    TimestampType: _int_to_instant,
    TimestamptzType: _int_to_instant,
    TimestampNanoType: _int_to_instant,
    TimestamptzNanoType: _int_to_instant,
}
_FROM_DOUBLE: Final[dict[type[IcebergType], Callable[[Target], Conversion]]] = {
    FloatType: _double_to_double,
    DoubleType: _double_to_double,
    IntegerType: _double_to_whole,
    LongType: _double_to_whole,
    DateType: _double_to_whole,
    TimeType: _double_to_whole,
    TimestampType: _double_to_whole,
    TimestamptzType: _double_to_whole,
    TimestampNanoType: _double_to_whole,
    TimestamptzNanoType: _double_to_whole,
    StringType: _double_to_string,
}
_FROM_STRING: Final[dict[type[IcebergType], Callable[[Target], Conversion]]] = {
    StringType: _string_to_string,
    BooleanType: _string_to_boolean,
    IntegerType: _string_to_whole,
    LongType: _string_to_whole,
    DoubleType: _string_to_double,
    DateType: _parsed(parse_dates),
    TimeType: _parsed(parse_times),
    TimestampType: _parsed(parse_timestamps, zoned=False),
    TimestamptzType: _parsed(parse_timestamps, zoned=True),
    TimestampNanoType: _parsed(parse_timestamps, zoned=False, digits=9),
    TimestamptzNanoType: _parsed(parse_timestamps, zoned=True, digits=9),
    UUIDType: _parsed(parse_uuids),
}
