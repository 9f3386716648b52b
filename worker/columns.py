"""Decoded columns into the columns of a table, vectorised.

The reference is ``connect.conversion``: for each pair of a decoded type and a column type, a
function here gives exactly the reference's value or calls the row doubtful.

Rules of this file:
- A doubtful row holds any value here; it goes to the reference, which converts or refuses it.
- Doubt is cheap, a wrong value is not: whatever Arrow reads differently from Java is doubtful.
- Decoded ``double`` columns may hold integers of the text, decoded ``string`` columns never hold
  numbers: beyond 2^53 a double says nothing about the text.
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
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from worker.texts import parse_dates, parse_times, parse_timestamps, parse_uuids

Doubt = npt.NDArray[np.bool_]
Conversion = Callable[[pa.Array], tuple[pa.Array, "Doubt | None"]]

_EXACT_MAX: Final = 2.0**53
_INT64_MAX: Final = 2**63 - 1
_UNIT_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000}


@dataclass(frozen=True, slots=True)
class Target:
    """A column to fill.

    Attributes:
        type: its Iceberg type.
        arrow: its Arrow type, as the Parquet file gets it.
        timestamp_unit: what a plain number in a timestamp column counts.
    """

    type: IcebergType
    arrow: pa.DataType
    timestamp_unit: str = "ms"


def convert(column: pa.Array, target: Target) -> tuple[pa.Array, Doubt | None]:
    """Convert a decoded column.

    Args:
        column: one chunk, as ``worker.decode`` gives it.
        target: what it must become.

    Returns:
        the values in ``target.arrow``, and a mask of rows that the reference must convert (None:
        no such row). Nulls are nulls; whether the column takes them is not looked at here.
    """
    if column.null_count == len(column):
        return nulls(len(column), target.arrow), None
    function = _function(column.type, target)
    if function is None:
        return nulls(len(column), target.arrow), _valid(column)
    return function(column)


def join(a: Doubt | None, b: Doubt | None) -> Doubt | None:
    """Rows doubtful in either."""
    if a is None or b is None:
        return b if a is None else a
    return a | b


def _valid(column: pa.Array) -> Doubt:
    valid: Doubt = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _numpy(column: pa.Array, fill: float) -> npt.NDArray[Any]:
    """Values with nulls filled, without a copy where there are none."""
    if column.null_count:
        column = column.fill_null(fill)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=True)
    return values


def _some(doubt: Doubt) -> Doubt | None:
    return doubt if doubt.any() else None


def _masked(values: npt.NDArray[Any], column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow array of numpy values with the nulls of the column they came from."""
    if not column.null_count:
        return pa.array(values, kind)
    return pa.array(values, kind, mask=~_valid(column))


def _function(source: pa.DataType, target: Target) -> Conversion | None:
    kind = target.type
    if isinstance(kind, StructType):
        return _struct(kind, target) if pa.types.is_struct(source) else None
    if isinstance(kind, ListType):
        return _list(kind, target) if pa.types.is_list(source) else None
    table = {
        "bool": _FROM_BOOL,
        "int64": _FROM_INT64,
        "double": _FROM_DOUBLE,
        "string": _FROM_STRING,
    }.get(str(source))
    if table is not None:
        build = table.get(type(kind))
        return build(target) if build is not None else None
    if pa.types.is_decimal(source) and isinstance(kind, DecimalType):
        return _decimal(target)
    return None


# ------------------------------------------------------------------ from booleans and integers


def _same(target: Target) -> Conversion:
    arrow = target.arrow
    return lambda column: (column if column.type == arrow else column.cast(arrow), None)


def _int_to_int(target: Target) -> Conversion:
    def narrow(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = _numpy(column, 0)
        if values.min() >= -(2**31) and values.max() <= 2**31 - 1:
            return column.cast(target.arrow), None
        doubt = (values < -(2**31)) | (values > 2**31 - 1)
        return _masked(values.astype(np.int32), column, pa.int32()).cast(target.arrow), doubt

    return narrow


def _int_to_float(target: Target) -> Conversion:
    def widen(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = _numpy(column, 0)
        floats = values.astype(np.float64 if target.arrow == pa.float64() else np.float32)
        doubt = (np.abs(values) > 2**53) | (values == -(2**63))
        if floats.dtype == np.float32:
            doubt |= floats.astype(np.float64) != values.astype(np.float64)
        return _masked(floats, column, target.arrow), _some(doubt)

    return widen


def _int_to_timestamp(target: Target) -> Conversion:
    factor = _UNIT_US[target.timestamp_unit]
    limit = _INT64_MAX // factor

    def scale(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = _numpy(column, 0)
        doubt = (values > limit) | (values < -limit)
        with np.errstate(over="ignore"):
            scaled = values * factor
        return _masked(scaled, column, pa.int64()).cast(target.arrow), _some(doubt)

    return scale


def _int_to_time(target: Target) -> Conversion:
    def scale(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = _numpy(column, 0)
        doubt = (values < 0) | (values >= 86_400_000)
        scaled = np.where(doubt, 0, values) * 1000
        return _masked(scaled, column, pa.int64()).cast(target.arrow), _some(doubt)

    return scale


def _int_to_date(target: Target) -> Conversion:
    narrow = _int_to_int(Target(IntegerType(), pa.int32()))

    def days(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values, doubt = narrow(column)
        return values.cast(target.arrow), doubt

    return days


# ------------------------------------------------------------------ from doubles


def _double_doubt(values: npt.NDArray[np.float64]) -> Doubt:
    """Rows whose text the double does not tell: too large, -0 (an integer or not), NaN."""
    doubt: Doubt = ~(np.abs(values) < _EXACT_MAX) | ((values == 0.0) & np.signbit(values))
    return doubt


def _double_to_double(target: Target) -> Conversion:
    def check(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = _numpy(column, 1.0)
        doubt = _some(_double_doubt(values))
        if target.arrow == pa.float64():
            return column, doubt
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        lost = (narrow != values) & ((narrow == 0.0) | (values == np.floor(values)))
        return _masked(narrow, column, pa.float32()), join(doubt, _some(lost))

    return check


def _double_to_whole(target: Target) -> Conversion:
    """Whole doubles as integers, then whatever integers become."""
    then = _FROM_INT64[type(target.type)](target)

    def whole(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = _numpy(column, 1.0)
        doubt = _double_doubt(values) | (values != np.floor(values))
        integers = np.where(doubt, 0.0, values).astype(np.int64)
        converted, more = then(_masked(integers, column, pa.int64()))
        return converted, join(_some(doubt), more)

    return whole


def _double_to_string(target: Target) -> Conversion:
    def write(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        values = _numpy(column, 1.5)
        size = np.abs(values)
        # inside these bounds Java, too, writes the shortest digits without an exponent
        plain = (size >= 1e-3) & (size < 1e7) & (values != np.floor(values))
        return column.cast(target.arrow), _some(~plain)

    return write


# ------------------------------------------------------------------ from text


def _string_to_string(target: Target) -> Conversion:
    return _same(target)


def _string_to_boolean(target: Target) -> Conversion:
    def read(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        lowered = pc.ascii_lower(column)
        true = pc.equal(lowered, "true")
        known = pc.or_(true, pc.equal(lowered, "false"))
        doubt = ~known.fill_null(fill_value=True).to_numpy(zero_copy_only=False)
        return true.cast(target.arrow), _some(doubt)

    return read


def _string_to_whole(target: Target) -> Conversion:
    then = _FROM_INT64[type(target.type)](target)

    def read(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        plain = pc.match_substring_regex(column, r"^-?[0-9]{1,18}$")
        doubt = ~plain.fill_null(fill_value=True).to_numpy(zero_copy_only=False)
        texts = pc.if_else(plain, column, None) if doubt.any() else column
        converted, more = then(texts.cast(pa.int64()))
        return converted, join(_some(doubt), more)

    return read


def _string_to_double(target: Target) -> Conversion:
    def read(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        # at most 15 digits: the double and its shortest text are the same number
        plain = pc.match_substring_regex(column, r"^-?[0-9]{1,8}(\.[0-9]{1,7})?$")
        doubt = ~plain.fill_null(fill_value=True).to_numpy(zero_copy_only=False)
        texts = pc.if_else(plain, column, None) if doubt.any() else column
        return texts.cast(target.arrow), _some(doubt)

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

    # Arrow's parser does not look at the precision; and more than 15 digits, written as a number,
    # are a double to the reference
    limit = pa.scalar(10 ** min(kind.precision, 15), pa.decimal128(38, 0))

    def check(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        large = pc.greater_equal(pc.abs(column.view(pa.decimal128(38, 0))), limit)
        return column, _some(large.fill_null(fill_value=False).to_numpy(zero_copy_only=False))

    return check


# ------------------------------------------------------------------ structs and lists


def _struct(kind: StructType, target: Target) -> Conversion:
    fields: list[tuple[NestedField, Target]] = [
        (f, Target(f.field_type, target.arrow.field(i).type, target.timestamp_unit))
        for i, f in enumerate(kind.fields)
    ]

    def rebuild(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        valid = _valid(column) if column.null_count else None
        children: list[pa.Array] = []
        doubt: Doubt | None = None
        for field, inner in fields:
            position = column.type.get_field_index(field.name)
            child = (
                pc.struct_field(column, [position])
                if position >= 0
                else nulls(len(column), inner.arrow)
            )
            values, more = convert(child, inner)
            if field.required and values.null_count:
                missing = ~_valid(values)
                more = join(more, missing if valid is None else missing & valid)
                values = filled(values)
            doubt = join(doubt, more)
            children.append(values)
        mask = None if valid is None else pa.array(~valid)
        return pa.StructArray.from_arrays(children, fields=list(target.arrow), mask=mask), doubt

    return rebuild


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Nulls of a type; required fields inside of them hold a value, as the Parquet writer wants."""
    if not pa.types.is_struct(kind) or not count:
        return pa.nulls(count, kind)
    children = [
        nulls(count, f.type) if f.nullable else filled(pa.nulls(count, f.type)) for f in kind
    ]
    mask = pa.array(np.ones(count, np.bool_))
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def filled(values: pa.Array) -> pa.Array:
    """Put anything in the place of nulls, where the file's schema takes none.

    For rows that are doubtful, and for fields of structs that are null themselves.
    """
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, filled(values.storage))
    anything = pa.repeat(pa.array([_anything(kind)], kind)[0], len(values))
    return pc.if_else(values.is_valid(), values, anything)


def _anything(kind: pa.DataType) -> Any:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _anything(kind.storage_type)
    if types.is_struct(kind):
        return {f.name: _anything(f.type) for f in kind}
    if types.is_nested(kind):
        return []
    if types.is_string(kind) or types.is_large_string(kind):
        return ""
    if types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return b""
    return False if types.is_boolean(kind) else 0


def _list(kind: ListType, target: Target) -> Conversion:
    inner = Target(kind.element_type, target.arrow.value_type, target.timestamp_unit)

    def rebuild(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        offsets = column.offsets.to_numpy()
        start, end = int(offsets[0]), int(offsets[-1])
        values, doubt = convert(column.values.slice(start, end - start), inner)
        if kind.element_required and values.null_count:
            doubt = join(doubt, ~_valid(values))
        rows = None
        if doubt is not None:
            before = np.concatenate(([0], np.cumsum(doubt)))
            rows = _some(before[offsets[1:] - start] > before[offsets[:-1] - start])
        moved = pa.array(offsets - start, pa.int64())
        mask = pa.array(~_valid(column)) if column.null_count else None
        rebuilt = pa.LargeListArray.from_arrays(moved, values, type=target.arrow, mask=mask)
        return rebuilt, rows

    return rebuild


_FROM_BOOL: Final[dict[type[IcebergType], Callable[[Target], Conversion]]] = {
    BooleanType: _same,
    StringType: _same,
}
_FROM_INT64: Final[dict[type[IcebergType], Callable[[Target], Conversion]]] = {
    IntegerType: _int_to_int,
    LongType: _same,
    FloatType: _int_to_float,
    DoubleType: _int_to_float,
    StringType: _same,
    DateType: _int_to_date,
    TimeType: _int_to_time,
    TimestampType: _int_to_timestamp,
    TimestamptzType: _int_to_timestamp,
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
    UUIDType: _parsed(parse_uuids),
}
