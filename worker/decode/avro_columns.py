"""Blocks of Avro data of one schema into Arrow columns; values are those of ``avro_data``.

Rules of this file:
- A scanner per type moves all cursors over one value and collects it. A row is bad where the record
  path refuses it, or where its form is slow to scan (several blocks in an array).
- Arrow types follow Connect's schema: dates, times and instants are temporal types, numbers with a
  unit are durations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from connect.model.records import ConnectSchema
from connect.records.conversion.named_values import declared_unit
from connect.records.converters.avro.avro_data import DECIMAL_NAME, AvroReader
from connect.records.converters.avro.avro_schema import AvroType
from worker.convert.decimals import DECIMAL_DIGITS, beyond_digits, big_endian, pairs
from worker.convert.typed_columns import NAMED, YEAR_MAX, YEARS, named_numbers
from worker.decode.binary_cursor import BinaryCursor, Mask
from worker.decode.column_builders import (
    Fields,
    FixedWidthValues,
    ListValues,
    NullValues,
    Optional,
    RowValues,
    SpanValues,
    Symbols,
)

Scanner = Callable[[BinaryCursor], RowValues]

INSTANT: Final = pa.timestamp("ms", "UTC")
_SMALL: Final = {"int8": (-128, 127), "int16": (-32768, 32767)}


def avro_scanner(reader: AvroReader) -> Scanner:
    """Return the scanner of a schema: of a record's fields, or of the datum as field ``""``."""
    return _scanner(reader.type, reader.schema)


def _scanner(source: AvroType, schema: ConnectSchema) -> Scanner:
    build = _COMPOUND.get(source.kind)
    if build is not None:
        return build(source, schema)
    small = _SMALL.get(schema.type)
    if small is not None:
        return partial(_small, *small)
    if source.kind == "bytes" and schema.name == DECIMAL_NAME:
        return partial(_decimal, None, int((schema.parameters or {})["scale"]))
    unit = declared_unit(schema)
    if unit is not None and source.kind == "long":
        return partial(_long, pa.duration(unit))
    return _LOGICAL.get((source.kind, schema.name)) or _PRIMITIVES[source.kind]


# ------------------------------------------------------------------ primitives


def _null(cursor: BinaryCursor) -> RowValues:
    return NullValues(len(cursor))


def _boolean(cursor: BinaryCursor) -> RowValues:
    byte = cursor.byte()
    cursor.refuse(byte > 1)
    return FixedWidthValues(byte == 1, pa.bool_())


def _whole(kind: pa.DataType, low: int, high: int, cursor: BinaryCursor) -> RowValues:
    numbers = cursor.signed()
    outside = (numbers < low) | (numbers > high)
    if outside.any():
        cursor.refuse(outside)
    return FixedWidthValues(numbers.astype(np.int32), kind)


_int = partial(_whole, pa.int32(), -(2**31), 2**31 - 1)
_small = partial(_whole, pa.int32())


def _named(kind: pa.DataType, cursor: BinaryCursor) -> RowValues:
    """Scan 32-bit numbers with a meaning."""
    numbers = cursor.signed()
    outside = np.abs(numbers + 0.5) > (YEAR_MAX if kind == YEARS else 2**31)
    if outside.any():
        cursor.refuse(outside)
        numbers = np.where(outside, 0, numbers)
    column, _ = named_numbers(pa.array(numbers), kind)
    stored = column.view(pa.int32() if kind == YEARS else pa.int64())
    return FixedWidthValues(stored.to_numpy(), kind)


def _long(kind: pa.DataType, cursor: BinaryCursor) -> RowValues:
    return FixedWidthValues(cursor.signed(), kind)


def _float(cursor: BinaryCursor) -> RowValues:
    return FixedWidthValues(
        cursor.little_endian(4).astype(np.uint32).view(np.float32), pa.float32()
    )


def _double(cursor: BinaryCursor) -> RowValues:
    return FixedWidthValues(cursor.little_endian(8).view(np.float64), pa.float64())


def _text(kind: pa.DataType, cursor: BinaryCursor) -> RowValues:
    return SpanValues(*cursor.bytes(cursor.signed()), kind)


def _decimal(size: int | None, scale: int, cursor: BinaryCursor) -> RowValues:
    start, end = cursor.bytes(cursor.signed() if size is None else np.int64(size))
    high, low, wrong = big_endian(cursor.windows, start, end)
    wrong |= beyond_digits(high)
    if not 0 <= scale <= DECIMAL_DIGITS:
        wrong[:] = True
    if wrong.any():
        cursor.refuse(wrong)
        high, low = np.where(wrong, 0, high), np.where(wrong, np.uint64(0), low)
    kind = pa.decimal128(DECIMAL_DIGITS, min(max(scale, 0), DECIMAL_DIGITS))
    return FixedWidthValues(pairs(high, low), kind)


_PRIMITIVES: Final[Mapping[str, Scanner]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": partial(_long, pa.int64()),
    "float": _float,
    "double": _double,
    "bytes": partial(_text, pa.binary()),
    "string": partial(_text, pa.string()),
}
_CONNECT: Final = "org.apache.kafka.connect.data."
_LOGICAL: Final[Mapping[tuple[str, str | None], Scanner]] = {
    ("int", _CONNECT + "Date"): partial(_whole, pa.date32(), -(2**31), 2**31 - 1),
    ("int", _CONNECT + "Time"): partial(_whole, pa.time32("ms"), 0, 86_399_999),
    ("long", _CONNECT + "Timestamp"): partial(_long, INSTANT),
    **{("int", name): partial(_named, kind) for name, kind in NAMED.items()},
}


# ------------------------------------------------------------------ compound types


def _record(source: AvroType, schema: ConnectSchema) -> Scanner:
    steps = [
        (name, _scanner(field.type, inner))
        for field, (name, inner) in zip(source.fields, schema.fields, strict=True)
    ]

    def scan(cursor: BinaryCursor) -> RowValues:
        return Fields(len(cursor), tuple((name, read(cursor)) for name, read in steps))

    return scan


def _enum(source: AvroType, _: ConnectSchema) -> Scanner:
    symbols = pa.array(source.symbols, pa.string())

    def scan(cursor: BinaryCursor) -> RowValues:
        indexes = cursor.signed()
        outside = (indexes < 0) | (indexes >= len(symbols))
        if outside.any():
            cursor.refuse(outside)
            if not len(symbols):
                return NullValues(len(cursor))
            indexes = np.where(outside, 0, indexes)
        return Symbols(indexes, symbols)

    return scan


def _fixed(source: AvroType, _: ConnectSchema) -> Scanner:
    if source.logical == "decimal":
        return partial(_decimal, source.size, source.scale)
    return lambda cursor: SpanValues(*cursor.bytes(np.int64(source.size)), pa.binary())


def _union(source: AvroType, schema: ConnectSchema) -> Scanner:
    rest = [branch for branch in source.branches if branch.kind != "null"]
    if len(rest) == 1 and len(source.branches) == 2:
        return partial(_nullable, source.branches.index(rest[0]), _scanner(rest[0], schema))
    members = [
        (source.branches.index(branch), name, _scanner(branch, inner))
        for branch, (name, inner) in zip(rest, schema.fields, strict=True)
    ]
    nulls = [i for i, branch in enumerate(source.branches) if branch.kind == "null"]
    return partial(_several, members, nulls, len(source.branches))


def _nullable(place: int, read: Scanner, cursor: BinaryCursor) -> RowValues:
    branch = cursor.signed()
    outside = (branch != 0) & (branch != 1)
    if outside.any():
        cursor.refuse(outside)
    present = (branch == place) & ~cursor.bad
    if present.all():
        return Optional(present, read(cursor))
    return Optional(present, _read_part(read, cursor, present))


def _read_part(read: Scanner, cursor: BinaryCursor, rows: Any) -> RowValues:
    part = cursor.part(rows)
    values = read(part)
    cursor.join(part, rows)
    return values


def _several(
    members: list[tuple[int, str, Scanner]], nulls: list[int], count: int, cursor: BinaryCursor
) -> RowValues:
    branch = cursor.signed()
    outside = (branch < 0) | (branch >= count)
    if outside.any():
        cursor.refuse(outside)
    is_null = np.isin(branch, nulls) | cursor.bad
    fields = []
    for place, name, read in members:
        present = (branch == place) & ~is_null
        fields.append((name, Optional(present, _read_part(read, cursor, present))))
    whole = Fields(len(cursor), tuple(fields))
    return Optional(~is_null, whole.picked(np.flatnonzero(~is_null)))


def _array(source: AvroType, schema: ConnectSchema) -> Scanner:
    assert source.items is not None
    if schema.type == "map":  # entries of a map without text keys
        return _refuse
    assert schema.value_schema is not None
    return partial(_items, None, _scanner(source.items, schema.value_schema))


def _map(source: AvroType, schema: ConnectSchema) -> Scanner:
    assert source.items is not None
    assert schema.value_schema is not None
    return partial(_items, _PRIMITIVES["string"], _scanner(source.items, schema.value_schema))


def _refuse(cursor: BinaryCursor) -> RowValues:
    cursor.refuse(np.ones(len(cursor), np.bool_))
    return NullValues(len(cursor))


def _items(read_key: Scanner | None, read: Scanner, cursor: BinaryCursor) -> RowValues:
    """Scan one block of items per row, and the end."""
    left = _counted(cursor)
    has_items = left > 0
    rounds = []
    rows = np.flatnonzero(has_items)
    while len(rows):
        if not cursor.round():
            wanting = np.zeros(len(cursor), np.bool_)
            wanting[rows] = True
            cursor.refuse(wanting)
            break
        part = cursor.part(rows)
        key = read_key(part) if read_key is not None else None
        rounds.append((rows, read(part), key))
        cursor.join(part, rows)
        left[rows] -= 1
        rows = rows[(left[rows] > 0) & ~cursor.bad[rows]]
    full = np.flatnonzero(has_items & ~cursor.bad)
    if len(full):
        part = cursor.part(full)
        more = part.signed() != 0
        if more.any():
            part.refuse(more)
        cursor.join(part, full)
    none = cursor.part(np.empty(0, np.int64))
    empty = (read(none), read_key(none) if read_key is not None else None)
    return ListValues.ordered(len(cursor), rounds, empty)


def _counted(cursor: BinaryCursor) -> Any:
    """Return the number of items in the first block."""
    count = cursor.signed()
    negative: Mask = count < 0
    if negative.any():  # the block's size follows
        rows = np.flatnonzero(negative)
        part = cursor.part(rows)
        size = part.signed()
        part.refuse((size < 0) | (size > part.end - part.at))
        cursor.join(part, rows)
        count = np.abs(count)
    return np.where(cursor.bad, 0, count)


_COMPOUND: Final[Mapping[str, Callable[[AvroType, ConnectSchema], Scanner]]] = {
    "record": _record,
    "enum": _enum,
    "fixed": _fixed,
    "union": _union,
    "array": _array,
    "map": _map,
}
