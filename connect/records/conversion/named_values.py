"""Values whose schema has a name that says what they are: Debezium's types.

Rules of this file:
- A name decides only where the plain value would be converted wrongly: days and years in timestamp
  columns, for example. A column of the schema's own plain type gets the plain value, as in Java.
- A value becomes one of Connect's model, which the column's converter takes.

Source:
    Debezium 3.6: ``io.debezium.time``, ``io.debezium.data``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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

from connect.model.records import ConnectSchema, Date, Struct, Time, Timestamp
from connect.records.conversion.binary import to_uuid
from connect.records.conversion.numbers import DECIMAL_PRECISION_MAX, INTEGERS, scaled_decimal
from connect.records.conversion.temporal import TimestampUnit, days_from_civil, utc_day

Read = Callable[[Any], Any]

_TIME: Final = "io.debezium.time."
_DATA: Final = "io.debezium.data."
DECIMAL_NAME: Final = "org.apache.kafka.connect.data.Decimal"
DAYS_NAME: Final = _TIME + "Date"
CLOCK_NAME: Final = _TIME + "Time"
YEAR_NAME: Final = _TIME + "Year"

# the Java sink reads all of them as milliseconds
_UNITS: Final[Mapping[tuple[str, str], TimestampUnit]] = {
    ("int32", CLOCK_NAME): "ms",
    ("int64", _TIME + "MicroTime"): "us",
    ("int64", _TIME + "NanoTime"): "ns",
    ("int64", _TIME + "MicroDuration"): "us",
    ("int64", _TIME + "NanoDuration"): "ns",
    ("int64", _TIME + "Timestamp"): "ms",
    ("int64", _TIME + "MicroTimestamp"): "us",
    ("int64", _TIME + "NanoTimestamp"): "ns",
}
FORMS: Final[Mapping[str, frozenset[type]]] = {
    "int32": INTEGERS,
    "int64": INTEGERS,
    "string": frozenset({str}),
    "bytes": frozenset({bytes}),
    "struct": frozenset({Struct}),
}
"""Types of the values that are read, by the type of their schema."""
_COUNT: Final = re.compile("[0-9]{1,10}")
_BITS: Final = ("bytes", _DATA + "Bits")
_BITS_MAX: Final = 1_000_000
_TIMESTAMPS: Final = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)


def _year(value: int) -> Date:
    return Date(days_from_civil(value, 1, 1))


def _unsigned(value: int) -> int:
    return value % 2**64


def _bits(value: bytes) -> int:
    return int.from_bytes(value, "little")


def _bit_text(length: int, value: bytes) -> str:
    """Return bits as the database writes them; a length that is no limit adds no zeros."""
    return f"{_bits(value):0{length if length <= _BITS_MAX else 1}b}"


_READS: Final[Mapping[tuple[str, str], Mapping[type[IcebergType], Read]]] = {
    # a date column refuses a time of day
    **{key: {DateType: Time} for key in _UNITS if key[1].endswith(("Time", "Duration"))},
    ("int32", DAYS_NAME): dict.fromkeys((TimeType, *_TIMESTAMPS), Date),
    ("int32", YEAR_NAME): dict.fromkeys((DateType, TimeType, *_TIMESTAMPS), _year),
    ("int64", _TIME + "Timestamp"): {DateType: Timestamp},
    ("int64", _TIME + "MicroTimestamp"): {DateType: lambda value: Timestamp(value // 1_000)},
    ("int64", _TIME + "NanoTimestamp"): {DateType: lambda value: Timestamp(value // 1_000_000)},
    ("string", _TIME + "ZonedTimestamp"): {DateType: utc_day},
    ("string", _TIME + "IsoTimestamp"): {DateType: utc_day},
    ("string", _DATA + "Uuid"): dict.fromkeys((BinaryType, FixedType), to_uuid),
    _BITS: dict.fromkeys((IntegerType, LongType, DecimalType), _bits),
    ("struct", _DATA + "VariableScaleDecimal"): dict.fromkeys(
        (IntegerType, LongType, FloatType, DoubleType, StringType), scaled_decimal
    ),
}


_COLUMNS: Final[Mapping[tuple[str, str], IcebergType]] = {
    ("int32", DAYS_NAME): DateType(),
    ("string", _TIME + "IsoDate"): DateType(),
    ("int32", CLOCK_NAME): TimeType(),
    ("int64", _TIME + "MicroTime"): TimeType(),
    ("int64", _TIME + "NanoTime"): TimeType(),
    ("string", _TIME + "IsoTime"): TimeType(),
    ("string", _TIME + "ZonedTime"): TimeType(),
    ("int64", _TIME + "Timestamp"): TimestampType(),
    ("int64", _TIME + "MicroTimestamp"): TimestampType(),
    ("int64", _TIME + "NanoTimestamp"): TimestampType(),
    ("string", _TIME + "IsoTimestamp"): TimestampType(),
    ("string", _TIME + "ZonedTimestamp"): TimestamptzType(),
    ("string", _DATA + "Uuid"): UUIDType(),
    ("struct", _DATA + "VariableScaleDecimal"): StringType(),  # a column has one scale
}


def typed_column(schema: ConnectSchema, *, has_times: bool) -> IcebergType | None:
    """Return the type of a new column with the type of the source's column.

    Args:
        schema: of the values.
        has_times: whether tables may have columns of times of day.

    Returns:
        None where the plain type of the schema is the one to take.
    """
    if is_unsigned_long(schema):
        return DecimalType(20, 0)
    if schema.type == "bytes" and schema.name == DECIMAL_NAME:
        return _typed_decimal(schema.parameters or {})
    kind = _COLUMNS.get((schema.type, schema.name or ""))
    return None if isinstance(kind, TimeType) and not has_times else kind


def _count(parameters: Mapping[str, str], name: str) -> int | None:
    text = parameters.get(name, "")
    return int(text) if _COUNT.fullmatch(text) else None


def _typed_decimal(parameters: Mapping[str, str]) -> IcebergType | None:
    """Return the type of decimals whose schema has a precision: text, if it is too large."""
    precision, scale = _count(parameters, "connect.decimal.precision"), _count(parameters, "scale")
    if precision is None or scale is None:
        return None
    if precision > DECIMAL_PRECISION_MAX:
        return StringType()
    return DecimalType(precision, scale) if 1 <= precision >= scale else None


def declared_unit(schema: ConnectSchema | None) -> TimestampUnit | None:
    """Return the time unit that a schema (or its items' schema) declares for plain numbers."""
    schema = of_items(schema)
    if schema is None:
        return None
    unit = _UNITS.get((schema.type, schema.name or ""))
    return schema.unit if schema.unit is not None and schema.type == "int64" else unit


def of_items(schema: ConnectSchema | None) -> ConnectSchema | None:
    """Return the schema of the items of lists and maps, at any depth, or the schema itself."""
    while schema is not None and schema.type in ("array", "map"):
        schema = schema.value_schema
    return schema


def has_meaning(schema: ConnectSchema | None) -> bool:
    """Return whether the name or unit of a schema decides how its values are converted."""
    return schema is not None and (
        (schema.type, schema.name) in _READS
        or declared_unit(schema) is not None
        or is_unsigned_long(schema)
    )


def is_unsigned_long(schema: ConnectSchema) -> bool:
    """Return whether numbers above 2^63-1 are sent as negative ones.

    Debezium names the source type with ``column.propagate.source.type``.
    """
    kind = (schema.parameters or {}).get("__debezium.source.column.type", "")
    return schema.type == "int64" and kind.startswith("BIGINT UNSIGNED")


def read_for(schema: ConnectSchema, column: IcebergType) -> Read | None:
    """Return what reads values of a schema for a column; None where plain values are right."""
    key = (schema.type, schema.name or "")
    if isinstance(column, DecimalType) and is_unsigned_long(schema):
        return _unsigned
    if key == _BITS and isinstance(column, StringType):
        return partial(_bit_text, _count(schema.parameters or {}, "length") or 1)
    return _READS.get(key, {}).get(type(column))
