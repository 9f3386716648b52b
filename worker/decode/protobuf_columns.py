"""Blocks of Protobuf messages of one type into Arrow columns (see ``protobuf_data``).

Rules of this file:
- Fields are expected in the order of their numbers, as serializers write them. The record path
  takes a row that is not at its end after the last field: one with another order, a field twice, or
  a field that the schema lacks.
- An absent field is null or its default, as on the record path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor as Kind

from connect.model.records import ConnectSchema
from connect.records.converters.protobuf.protobuf_data import ProtobufReader, real_oneof, union_name
from worker.decode.binary_cursor import BinaryCursor, Ints, Mask
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

# wire types
_VARINT: Final = 0
_EIGHT: Final = 1
_BYTES: Final = 2
_FOUR: Final = 5

INSTANT: Final = pa.timestamp("us", "UTC")
_SECONDS: Final = (-62_135_596_800, 253_402_300_799)


def protobuf_scanner(reader: ProtobufReader) -> Scanner:
    """Return the scanner of messages of a type."""
    return _message(reader.descriptor, reader.schema, reader)


def _message(descriptor: Any, schema: ConnectSchema, reader: ProtobufReader) -> Scanner:
    options = reader.options
    inner = dict(schema.fields)
    steps: list[tuple[str, str | None, Scanner]] = []
    for field in sorted(descriptor.fields, key=lambda f: f.number):
        oneof = real_oneof(field)
        union = None
        reported = inner
        if oneof is not None and not options.flatten_unions:
            union = union_name(oneof, options)
            reported = dict(inner[union].fields)
        needs_presence = (
            field.message_type is not None
            or oneof is not None
            or (options.null_when_absent and field.has_presence)
        )
        scan = _field(field, reported[field.name], reader, is_null=needs_presence)
        steps.append((field.name, union, scan))
    return partial(_scan_message, steps, [name for name, _ in schema.fields], inner)


def _scan_message(
    steps: list[tuple[str, str | None, Scanner]],
    names: list[str],
    schemas: Mapping[str, ConnectSchema],
    cursor: BinaryCursor,
) -> RowValues:
    by_name: dict[str, RowValues] = {}
    members: dict[str, dict[str, RowValues]] = {}
    for name, union, scan in steps:
        if union is None:
            by_name[name] = scan(cursor)
        else:
            members.setdefault(union, {})[name] = scan(cursor)
    unfinished = cursor.at != cursor.end
    if unfinished.any():
        cursor.refuse(unfinished)
    for union, chosen in members.items():
        ordered = [(n, chosen[n]) for n, _ in schemas[union].fields]
        by_name[union] = _union(ordered, cursor)
    return Fields(len(cursor), tuple((name, by_name[name]) for name in names))


def _union(members: list[tuple[str, RowValues]], cursor: BinaryCursor) -> RowValues:
    set_count = np.zeros(len(cursor), np.int64)
    for _, member in members:
        if not isinstance(member, Optional):
            cursor.refuse(np.ones(len(cursor), np.bool_))
            return NullValues(len(cursor))
        set_count += member.present
    several = set_count > 1  # the last one counts, which the order of numbers does not tell
    if several.any():
        cursor.refuse(several)
    present = set_count > 0
    whole = Fields(len(cursor), tuple(members))
    return Optional(present, whole.picked(np.flatnonzero(present)))


# ------------------------------------------------------------------ fields


def _field(field: Any, schema: ConnectSchema, reader: ProtobufReader, *, is_null: bool) -> Scanner:
    if field.type == Kind.TYPE_GROUP:
        return _only_absent
    if schema.type == "map":
        entry = _message_of_map(field, schema, reader)
        return partial(_repeated, _tag(field.number, _BYTES), entry, is_map=True)
    if field.is_repeated:
        assert schema.value_schema is not None
        wire, read = _value(field, schema.value_schema, reader)
        if wire is None:
            return _only_empty
        if field.is_packed:
            return partial(_packed, _tag(field.number, _BYTES), read)
        return partial(_repeated, _tag(field.number, wire), read, is_map=False)
    wire, read = _value(field, schema, reader)
    if wire is None:
        return _only_absent
    default = None if is_null else _default(field, schema)
    # where only the reference knows the default, a row without the field is its
    must_be_set = field.is_required or (default is None and not is_null)
    return partial(_single, _tag(field.number, wire), read, default, must_be_set=must_be_set)


def _tag(number: int, wire: int) -> tuple[np.uint64, np.uint64, int]:
    """Return mask, value and size of a field's tag."""
    tag, encoded = (number << 3) | wire, bytearray()
    while tag >= 0x80:
        encoded.append((tag & 0x7F) | 0x80)
        tag >>= 7
    encoded.append(tag)
    mask = np.uint64((1 << (8 * len(encoded))) - 1)
    return mask, np.uint64(int.from_bytes(encoded, "little")), len(encoded)


def _has(tag: tuple[np.uint64, np.uint64, int], cursor: BinaryCursor) -> Mask:
    mask, value, size = tag
    has_tag: Mask = ((cursor.windows[cursor.at] & mask) == value) & (cursor.at + size <= cursor.end)
    return has_tag & ~cursor.bad


def _only_absent(cursor: BinaryCursor) -> RowValues:
    return NullValues(len(cursor))


def _only_empty(cursor: BinaryCursor) -> RowValues:
    return ListValues(np.zeros(len(cursor), np.int64), NullValues(0))


def _single(
    tag: tuple[np.uint64, np.uint64, int],
    read: Scanner,
    default: Any,
    cursor: BinaryCursor,
    *,
    must_be_set: bool,
) -> RowValues:
    """Read a field of at most one value; a second value stops the row."""
    present = _has(tag, cursor)
    if must_be_set and not present.all():
        cursor.refuse(~present)
    if present.all() and len(cursor):
        cursor.move(tag[2])
        values = read(cursor)
        return Optional(present, values) if default is None else values
    rows = np.flatnonzero(present)
    part = cursor.part(rows)
    part.move(tag[2])
    values = read(part)
    cursor.join(part, rows)
    if default is None:
        return Optional(present, values)
    return _filled(values, rows, default, cursor)


def _filled(read: RowValues, rows: Ints, default: Any, cursor: BinaryCursor) -> RowValues:
    """Return the values of some rows, and the field's default in the others."""
    count = len(cursor)
    if isinstance(read, FixedWidthValues):
        values: npt.NDArray[Any] = np.full(count, default, read.values.dtype)
        values[rows] = read.values
        return FixedWidthValues(values, read.kind)
    if isinstance(read, Symbols):
        indexes = np.full(count, default, np.int64)
        indexes[rows] = read.indexes
        return Symbols(indexes, read.symbols)
    assert isinstance(read, SpanValues)
    start, end = cursor.at.copy(), cursor.at.copy()  # empty, and still in ascending order
    start[rows], end[rows] = read.start, read.end
    return SpanValues(start, end, read.kind)


def _repeated(
    tag: tuple[np.uint64, np.uint64, int], read: Scanner, cursor: BinaryCursor, *, is_map: bool
) -> RowValues:
    """Read values that follow each other, each with its tag."""
    rounds: list[tuple[Ints, RowValues, RowValues | None]] = []
    rows = np.flatnonzero(_has(tag, cursor))
    while len(rows):
        if not cursor.round():
            _refuse_rows(cursor, rows)
            break
        part = cursor.part(rows)
        part.move(tag[2])
        rounds.append((rows, *_entry(read(part), is_map=is_map)))
        cursor.join(part, rows)
        more = cursor.part(rows)
        rows = rows[_has(tag, more)]
    none = cursor.part(np.empty(0, np.int64))
    return ListValues.ordered(len(cursor), rounds, _entry(read(none), is_map=is_map))


def _entry(entries: RowValues, *, is_map: bool) -> tuple[RowValues, RowValues | None]:
    if not is_map:
        return entries, None
    assert isinstance(entries, Fields)
    (_, key), (_, value) = entries.fields
    return value, key


def _packed(
    tag: tuple[np.uint64, np.uint64, int], read: Scanner, cursor: BinaryCursor
) -> RowValues:
    """Read numbers that are packed in one value."""
    rows = np.flatnonzero(_has(tag, cursor))
    rounds: list[tuple[Ints, RowValues, RowValues | None]] = []
    if len(rows):
        whole = cursor.part(rows)
        whole.move(tag[2])
        start, end = whole.bytes(whole.unsigned().view(np.int64))
        whole.at = start
        inner = BinaryCursor.part(whole, np.arange(len(rows)), end)
        left = np.flatnonzero((inner.at < inner.end) & ~inner.bad)
        while len(left):
            if not cursor.round():
                _refuse_rows(inner, left)
                break
            part = inner.part(left)
            rounds.append((rows[left], read(part), None))
            inner.join(part, left)
            left = left[(inner.at[left] < inner.end[left]) & ~inner.bad[left]]
        inner.at = np.where(inner.bad, whole.end, inner.at)
        cursor.join(inner, rows)
    none = cursor.part(np.empty(0, np.int64))
    return ListValues.ordered(len(cursor), rounds, (read(none), None))


def _refuse_rows(cursor: BinaryCursor, rows: Ints) -> None:
    mask = np.zeros(len(cursor), np.bool_)
    mask[rows] = True
    cursor.refuse(mask)


# ------------------------------------------------------------------ values


def _value(field: Any, schema: ConnectSchema, reader: ProtobufReader) -> tuple[int | None, Scanner]:
    """Return wire type and scanner of one value; None where only the record path reads it."""
    if field.enum_type is not None:
        return _VARINT, _enum(field.enum_type, schema)
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == "google.protobuf.Timestamp":
            return _BYTES, partial(_inside, _timestamp(field.message_type, reader))
        if schema.type == "struct":
            inner = _message(field.message_type, schema, reader)
            return _BYTES, partial(_inside, inner)
        return None, _only_absent
    wire, read = _SCALARS[field.type]
    bounds = _SMALL.get(schema.type)
    return wire, read if bounds is None else partial(_small, read, *bounds)


def _message_of_map(field: Any, schema: ConnectSchema, reader: ProtobufReader) -> Scanner:
    entry = field.message_type.fields_by_name
    assert schema.key_schema is not None
    assert schema.value_schema is not None
    value = entry["value"]
    is_null = value.message_type is not None
    steps: list[tuple[str, str | None, Scanner]] = [
        ("key", None, _field(entry["key"], schema.key_schema, reader, is_null=False)),
        ("value", None, _field(value, schema.value_schema, reader, is_null=is_null)),
    ]
    if is_null:  # an entry without its message holds an empty one
        steps[1] = ("value", None, partial(_single_required, steps[1][2]))
    return partial(_inside, partial(_scan_message, steps, ["key", "value"], {}))


def _single_required(scan: Scanner, cursor: BinaryCursor) -> RowValues:
    values = scan(cursor)
    if isinstance(values, Optional):
        cursor.refuse(~values.present)
    else:
        cursor.refuse(np.ones(len(cursor), np.bool_))
    return values


def _inside(read: Scanner, cursor: BinaryCursor) -> RowValues:
    """Read a message in a message, to its end."""
    size = cursor.unsigned().view(np.int64)
    start, end = cursor.bytes(size)
    inner = BinaryCursor.part(cursor, np.arange(len(cursor)), end)
    inner.at = start
    values = read(inner)
    bad = inner.bad | (inner.at != inner.end)
    cursor.at = end
    if bad.any():
        cursor.refuse(bad)
    return values


def _timestamp(descriptor: Any, reader: ProtobufReader) -> Scanner:
    fields = descriptor.fields_by_name
    whole = ConnectSchema("int64")
    seconds = _field(fields["seconds"], whole, reader, is_null=False)
    nanos = _field(fields["nanos"], ConnectSchema("int32"), reader, is_null=False)

    def scan(cursor: BinaryCursor) -> RowValues:
        first, second = seconds(cursor), nanos(cursor)
        assert isinstance(first, FixedWidthValues)
        assert isinstance(second, FixedWidthValues)
        sub = second.values.astype(np.int64)
        wrong = (first.values < _SECONDS[0]) | (first.values > _SECONDS[1])
        wrong |= (sub < 0) | (sub >= 10**9) | (sub % 1000 != 0)  # the reference counts lost digits
        if wrong.any():
            cursor.refuse(wrong)
        micros = np.where(wrong, 0, first.values) * 1_000_000 + sub // 1000
        return FixedWidthValues(micros, INSTANT)

    return scan


def _enum(enum: Any, schema: ConnectSchema) -> Scanner:
    if schema.type == "int32":
        return _SCALARS[Kind.TYPE_INT32][1]
    numbers = np.array(sorted(enum.values_by_number), np.int64)
    names = pa.array([enum.values_by_number[int(n)].name for n in numbers], pa.string())

    def scan(cursor: BinaryCursor) -> RowValues:
        values = cursor.unsigned().view(np.int64).astype(np.int32).astype(np.int64)
        places = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
        unknown = numbers[places] != values
        if unknown.any():
            cursor.refuse(unknown)
        return Symbols(places.astype(np.int64), names)

    return scan


def _default(field: Any, schema: ConnectSchema) -> Any:
    """Return the default as collected values; None for a text that is not empty."""
    value = field.default_value
    if field.enum_type is not None and schema.type == "string":
        return sorted(field.enum_type.values_by_number).index(value)
    if isinstance(value, str | bytes):
        return None if value else 0
    return value


# ------------------------------------------------------------------ scalars


def _narrow(kind: Any, cursor: BinaryCursor) -> RowValues:
    numbers = cursor.unsigned().astype(np.uint32)
    if kind is np.uint32:
        return FixedWidthValues(numbers.astype(np.int64), pa.int64())
    return FixedWidthValues(numbers.view(np.int32), pa.int32())


_SMALL: Final = {"int8": (-128, 127), "int16": (-32768, 32767)}


def _small(read: Scanner, low: int, high: int, cursor: BinaryCursor) -> RowValues:
    """Read a number to which the schema gives fewer bits."""
    values = read(cursor)
    assert isinstance(values, FixedWidthValues)
    outside = (values.values < low) | (values.values > high)
    if outside.any():
        cursor.refuse(outside)
    return values


def _signed(kind: Any, cursor: BinaryCursor) -> RowValues:
    if kind is np.int64:
        return FixedWidthValues(cursor.signed(), pa.int64())
    numbers = cursor.unsigned() & np.uint64(0xFFFFFFFF)
    plain = ((numbers >> np.uint64(1)) ^ (np.uint64(0) - (numbers & np.uint64(1)))).view(np.int64)
    return FixedWidthValues(plain.astype(np.int32), pa.int32())


def _wide(cursor: BinaryCursor) -> RowValues:
    return FixedWidthValues(cursor.unsigned().view(np.int64), pa.int64())


def _unsigned(read: Callable[[BinaryCursor], Any], cursor: BinaryCursor) -> RowValues:
    values = read(cursor).view(np.int64)
    large = values < 0
    if large.any():
        cursor.refuse(large)
    return FixedWidthValues(values, pa.int64())


def _fixed_width(size: int, view: Any, kind: pa.DataType, cursor: BinaryCursor) -> RowValues:
    numbers = cursor.little_endian(size)
    narrow = numbers if size == 8 else numbers.astype(np.uint32)
    values = narrow.view(view)
    return FixedWidthValues(values.astype(np.int64) if kind == pa.int64() else values, kind)


def _boolean(cursor: BinaryCursor) -> RowValues:
    return FixedWidthValues(cursor.unsigned() != 0, pa.bool_())


def _text(kind: pa.DataType, cursor: BinaryCursor) -> RowValues:
    return SpanValues(*cursor.bytes(cursor.unsigned().view(np.int64)), kind)


_SCALARS: Final[Mapping[int, tuple[int, Scanner]]] = {
    Kind.TYPE_INT32: (_VARINT, partial(_narrow, np.int32)),
    Kind.TYPE_UINT32: (_VARINT, partial(_narrow, np.uint32)),
    Kind.TYPE_SINT32: (_VARINT, partial(_signed, np.int32)),
    Kind.TYPE_INT64: (_VARINT, _wide),
    Kind.TYPE_UINT64: (_VARINT, partial(_unsigned, BinaryCursor.unsigned)),
    Kind.TYPE_SINT64: (_VARINT, partial(_signed, np.int64)),
    Kind.TYPE_FIXED32: (_FOUR, partial(_fixed_width, 4, np.uint32, pa.int64())),
    Kind.TYPE_SFIXED32: (_FOUR, partial(_fixed_width, 4, np.int32, pa.int32())),
    Kind.TYPE_FIXED64: (_EIGHT, partial(_unsigned, lambda cursor: cursor.little_endian(8))),
    Kind.TYPE_SFIXED64: (_EIGHT, partial(_fixed_width, 8, np.int64, pa.int64())),
    Kind.TYPE_FLOAT: (_FOUR, partial(_fixed_width, 4, np.float32, pa.float32())),
    Kind.TYPE_DOUBLE: (_EIGHT, partial(_fixed_width, 8, np.float64, pa.float64())),
    Kind.TYPE_BOOL: (_VARINT, _boolean),
    Kind.TYPE_STRING: (_BYTES, partial(_text, pa.string())),
    Kind.TYPE_BYTES: (_BYTES, partial(_text, pa.binary())),
}
