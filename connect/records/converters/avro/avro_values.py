"""Values that fastavro read, converted to Connect's data model.

Rules of this file:
- A conversion takes what ``AvroDatumReader`` gives. None in place of a conversion keeps the value.
- A value outside the range of its type is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from connect.model.records import ConnectSchema, Date, Float32, Struct, Time, Timestamp
from connect.records.conversion.numbers import INT_MAX, INT_MIN
from connect.records.converters.binary_values import decimal_of
from connect.records.converters.payload_errors import Malformed

_DAY_MS: Final = range(86_400_000)
_BOOLEANS: Final = {b"\0": False, b"\1": True}

Convert = Callable[[Any], Any]

# ------------------------------------------------------------------ primitives


def to_boolean(byte: bytes) -> bool:
    """Convert the byte of a boolean."""
    value = _BOOLEANS.get(byte)
    if value is None:
        raise Malformed("a boolean is neither 0 nor 1")
    return value


def to_int(value: int) -> int:
    """Check a number of 32 bits."""
    if not INT_MIN <= value <= INT_MAX:
        raise Malformed("an int has more than 32 bits")
    return value


def to_small(kind: str, low: int, high: int, value: int) -> int:
    """Check a number to which the schema gives fewer than 32 bits."""
    if not low <= to_int(value) <= high:
        raise Malformed(f"the number is outside the range of {kind}", "out_of_range")
    return value


def to_float(value: float) -> Float32:
    """Convert a 32-bit float."""
    return Float32(value)


def to_date(value: int) -> Date:
    """Convert days since 1970."""
    return Date(to_int(value))


def to_time(value: int) -> Time:
    """Convert milliseconds of a day."""
    if to_int(value) not in _DAY_MS:
        raise Malformed("a time of day is outside one day", "out_of_range")
    return Time(value)


def to_timestamp(value: int) -> Timestamp:
    """Convert milliseconds since 1970."""
    return Timestamp(value)


def to_decimal(scale: int, data: bytes) -> Decimal:
    """Convert an unscaled value."""
    return decimal_of(data, scale)


def to_symbol(symbols: tuple[str, ...], index: int) -> str:
    """Convert the number of an enum's symbol."""
    if not 0 <= index < len(symbols):
        raise Malformed("an enum has no such symbol")
    return symbols[index]


# ------------------------------------------------------------------ compound types


def to_struct(
    steps: Sequence[tuple[str, Convert]], schema: ConnectSchema, values: dict[str, Any]
) -> Struct:
    """Convert a record; ``steps`` are the fields that need a conversion."""
    for name, convert in steps:
        values[name] = convert(values[name])
    return Struct(schema, values)


def to_items(convert: Convert, items: list[Any]) -> list[Any]:
    """Convert the items of an array."""
    return [convert(item) for item in items]


def to_empty_items(convert: Convert | None, items: list[Any]) -> list[Any]:
    """Convert the items of an array that take no bytes."""
    values = [item["value"] for item in items]
    return values if convert is None else to_items(convert, values)


def to_map(convert: Convert | None, entries: list[Any]) -> dict[str, Any]:
    """Convert a map with text keys; the last entry of a key counts."""
    if convert is None:
        return {entry["key"]: entry["value"] for entry in entries}
    return {entry["key"]: convert(entry["value"]) for entry in entries}


def to_entries(structs: list[Struct]) -> dict[Any, Any]:
    """Convert a map whose entries are records, as Connect writes maps without text keys."""
    entries: dict[Any, Any] = {}
    for struct in structs:
        key = struct.values["key"]
        if type(key) in (dict, list, Struct):
            raise Malformed("a map, array or struct cannot be a map key", "wrong_type")
        if key in entries:
            raise Malformed("two entries of a map have one key", "ambiguous_name")
        entries[key] = struct.values["value"]
    return entries


def to_optional(convert: Convert, value: Any) -> Any:
    """Convert a value of a union with one type and null."""
    return None if value is None else convert(value)


def to_union(
    branches: dict[str, tuple[str, Convert | None]], schema: ConnectSchema, value: Any
) -> Struct | None:
    """Convert a value of a union of several types: a struct with a field for each type."""
    if value is None:
        return None
    ((branch, inner),) = value.items()
    name, convert = branches[branch]
    values: dict[str, Any] = dict.fromkeys(n for n, _ in schema.fields)
    values[name] = inner if convert is None else convert(inner)
    return Struct(schema, values)
