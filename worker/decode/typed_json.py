"""Blocks of JSON documents with a known schema (envelopes, JSON Schema) into columns.

Rules of this file:
- Documents are decoded as documents without schema. Then each value is checked against its schema.
  Values without a column form (choices of types that begin alike, maps whose keys are not text,
  decimals as numbers) are decoded as null. A row with such a value goes to the record path.
- Bytes and decimals are decoded as texts in base64, 32-bit floats as doubles.
- All fields of the schema are decoded, also those that no table asks for: the record path refuses a
  document for any of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.model.records import ConnectSchema, Date, Time, Timestamp
from connect.records.conversion.named_values import declared_unit
from connect.records.converters.json.json_converter import JsonConverter
from connect.records.converters.json.json_schema import NOT_FINITE
from connect.records.converters.json.json_schema_data import ONE_OF
from worker.batch.blocks import one_chunk
from worker.convert.decimals import DECIMAL_DIGITS, decimals
from worker.convert.scalars import (
    Doubt,
    checked_doubles,
    integers,
    join,
    masked,
    some,
    valid_rows,
)
from worker.convert.typed_columns import NAMED, named_numbers
from worker.decode.base64_texts import bytes_of
from worker.decode.column_builders import without_ends
from worker.decode.json_scan import is_choice
from worker.decode.scanned_json import json_decoder

Rows = npt.NDArray[np.int64]

_FEW_GROUPS: Final = 16
_ROWS_MIN: Final = 16
_WINDOW: Final = 8
_KEPT: Final = 256
_CONNECT: Final = "org.apache.kafka.connect.data."
_RANGES: Final = {
    "int8": (-128, 127),
    "int16": (-32768, 32767),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_LOGICAL: Final = {
    _CONNECT + "Date": (pa.date32(), *_RANGES["int32"]),
    _CONNECT + "Time": (pa.time32("ms"), 0, 86_399_999),
    _CONNECT + "Timestamp": (pa.timestamp("ms", "UTC"), *_RANGES["int64"]),
}

_DECIMAL: Final = _CONNECT + "Decimal"
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    **dict.fromkeys(_RANGES, pa.int64()),
    "string": pa.string(),
    "bytes": pa.string(),
    "boolean": pa.bool_(),
    "float32": pa.float64(),
    "float64": pa.float64(),
}


def _scale(schema: ConnectSchema) -> int | None:
    """Return the scale of a decimal schema; None where no column has it."""
    try:
        scale = int((schema.parameters or {}).get("scale", ""))
    except ValueError:
        return None
    return scale if 0 <= scale <= DECIMAL_DIGITS else None


def _has_other_reader(schema: ConnectSchema) -> bool:
    """Return whether a logical name is that of another type, or of a decimal without a column."""
    if schema.name == _DECIMAL:
        return schema.type != "bytes" or _scale(schema) is None
    return schema.name in _LOGICAL and schema.type not in _RANGES


def _decoded_as(schema: ConnectSchema) -> pa.DataType:
    """Return the plain JSON type of a schema; null where only the record path reads it."""
    if _has_other_reader(schema):
        return pa.null()
    if schema.type == "struct" and schema.name == ONE_OF:
        members = [pa.field(name, _decoded_as(inner)) for name, inner in schema.fields]
        choice = pa.dense_union(members)
        has_decimal = any(inner.name == _DECIMAL for _, inner in schema.fields)  # may be a number
        return choice if is_choice(choice) and not has_decimal else pa.null()
    if schema.type == "struct":
        return pa.struct([(name, _decoded_as(inner)) for name, inner in schema.fields])
    if schema.type == "array" and schema.value_schema is not None:
        inner = _decoded_as(schema.value_schema)
        return inner if pa.types.is_null(inner) else pa.list_(inner)
    if schema.type == "map" and schema.key_schema == ConnectSchema("string"):
        assert schema.value_schema is not None
        inner = _decoded_as(schema.value_schema)
        return inner if pa.types.is_null(inner) else pa.map_(pa.string(), inner)
    return _PLAIN.get(schema.type, pa.null())


class TypedJson:
    """Decodes documents of one schema.

    Args:
        schema: a struct.
    """

    def __init__(self, schema: ConnectSchema) -> None:
        self._schema = schema
        self._types = {name: _decoded_as(inner) for name, inner in schema.fields}
        self._decoder = json_decoder(self._types, report_unexpected=False)

    def decode(self, documents: pa.Array) -> Iterator[tuple[pa.Table, Rows]]:
        """Decode the documents that have a column form.

        Args:
            documents: binary, no nulls, one chunk.
        """
        if not self._types:
            return
        for block in self._decoder.decode(documents):
            rows = np.arange(len(documents)) if block.rows is None else block.rows
            if len(rows):
                yield from self._as_declared(block.table, rows)

    def _as_declared(self, decoded: pa.Table, rows: Rows) -> Iterator[tuple[pa.Table, Rows]]:
        """Return the decoded rows that follow the schema."""
        columns: list[pa.Array] = []
        ambiguous: Doubt | None = None
        for name, inner in self._schema.fields:
            column = one_chunk(decoded[name])
            values, more = _held(column, inner, self._types[name])
            columns.append(values)
            ambiguous = join(ambiguous, more)
        table = pa.Table.from_arrays(columns, names=list(self._types))
        if ambiguous is not None:
            rows, table = rows[~ambiguous], table.filter(pa.array(~ambiguous))
        if len(rows):
            yield table, rows


def _held(
    column: pa.Array, schema: ConnectSchema, expected: pa.DataType
) -> tuple[pa.Array, Doubt | None]:
    """Return values in the types of their schema, and the rows that it may refuse or fill."""
    ambiguous: Doubt | None = None
    if column.null_count and (schema.default is not None or not schema.optional):
        ambiguous = ~valid_rows(column)
    if not _is_same(column.type, expected):
        return pa.nulls(len(column)), join(ambiguous, some(valid_rows(column)))
    if pa.types.is_null(expected):
        return column, ambiguous
    hold = next((hold for is_such, hold in _NESTED if is_such(expected)), _held_scalar)
    values, more = hold(column, schema, expected)
    if ambiguous is not None and (default := _default(schema, values.type)) is not None:
        return pc.fill_null(values, default), more
    return values, join(ambiguous, more)


def _default(schema: ConnectSchema, kind: pa.DataType) -> pa.Scalar | None:
    """Return what the converter puts for a null scalar; None where only the record path knows."""
    value = schema.null_value
    if isinstance(value, Date | Time | Timestamp):
        value = value[0]
    if isinstance(value, Decimal) and value.as_tuple().exponent != -kind.scale:
        return None  # the text of a number may have fewer digits
    if not isinstance(value, bool | int | float | str | bytes | Decimal):
        return None
    storage = kind
    if pa.types.is_temporal(kind):
        storage = pa.int32() if kind.bit_width == 32 else pa.int64()
    try:
        return pa.scalar(value, storage).cast(kind)
    except (ValueError, OverflowError):  # too many digits, or a text with half a character
        return None


def _held_scalar(
    column: pa.Array, schema: ConnectSchema, expected: pa.DataType
) -> tuple[pa.Array, Doubt | None]:
    if pa.types.is_int64(expected):
        return _held_integers(column, schema)
    if pa.types.is_float64(expected):
        narrow = pa.float32() if schema.type == "float32" else pa.float64()
        return checked_doubles(column, narrow)
    return _held_bytes(column, schema) if schema.type == "bytes" else (column, None)


def _is_same(actual: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether the learned types are those of the schema, with structs as such."""
    if pa.types.is_struct(expected) or pa.types.is_union(expected):
        return bool(pa.types.is_struct(actual))
    if pa.types.is_list(expected):
        return bool(pa.types.is_list(actual))
    if pa.types.is_map(expected):
        return bool(pa.types.is_map(actual))
    return bool(actual == expected)


def _held_struct(
    column: pa.Array, schema: ConnectSchema, expected: pa.DataType
) -> tuple[pa.Array, Doubt | None]:
    valid = valid_rows(column) if column.null_count else None
    children: list[pa.Array] = []
    ambiguous: Doubt | None = None
    for i, (_, inner) in enumerate(schema.fields):
        values, more = _held(pc.struct_field(column, [i]), inner, expected.field(i).type)
        children.append(values)
        if more is not None and valid is not None:
            more = some(more & valid)
        ambiguous = join(ambiguous, more)
    names = [name for name, _ in schema.fields]
    mask = None if valid is None else pa.array(~valid)
    if not children:
        return column, ambiguous
    return pa.StructArray.from_arrays(children, names=names, mask=mask), ambiguous


def _held_choice(
    column: pa.Array, schema: ConnectSchema, expected: pa.DataType
) -> tuple[pa.Array, Doubt | None]:
    """Check the members of a choice; texts that a number's reader takes are ambiguous."""
    values, ambiguous = _held_struct(column, schema, expected)
    members = list(range(expected.num_fields))
    if any(pa.types.is_floating(expected.field(i).type) for i in members):
        for i in members:
            if pa.types.is_string(expected.field(i).type):
                texts = pc.struct_field(column, [i])
                is_number = pc.is_in(texts, pa.array(sorted(NOT_FINITE)))
                ambiguous = join(ambiguous, some(is_number.to_numpy(zero_copy_only=False)))
    return values, ambiguous


def _held_map(
    column: pa.Array, schema: ConnectSchema, expected: pa.DataType
) -> tuple[pa.Array, Doubt | None]:
    """Check the values of a map; its keys stay."""
    assert schema.value_schema is not None
    lists = pa.ListArray.from_arrays(
        column.offsets, column.items, mask=pa.array(~valid_rows(column))
    )
    of_values = ConnectSchema("array", value_schema=schema.value_schema)
    held, ambiguous = _held_list(lists, of_values, pa.list_(expected.item_type))
    offsets = column.offsets.to_numpy()
    keys = column.keys.slice(int(offsets[0]), int(offsets[-1]) - int(offsets[0]))
    mask = pa.array(~valid_rows(column)) if column.null_count else None
    return pa.MapArray.from_arrays(held.offsets, keys, held.values, mask=mask), ambiguous


def _held_list(
    column: pa.Array, schema: ConnectSchema, expected: pa.DataType
) -> tuple[pa.Array, Doubt | None]:
    assert schema.value_schema is not None
    offsets = column.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    items = column.values.slice(start, end - start)
    values, ambiguous = _held(items, schema.value_schema, expected.value_type)
    rows = None
    if ambiguous is not None:
        before = np.concatenate(([0], np.cumsum(ambiguous)))
        rows = some(before[offsets[1:] - start] > before[offsets[:-1] - start])
    mask = pa.array(~valid_rows(column)) if column.null_count else None
    moved = pa.array((offsets - start).astype(np.int32))
    return pa.ListArray.from_arrays(moved, values, mask=mask), rows


_NESTED: Final = (
    (pa.types.is_union, _held_choice),
    (pa.types.is_struct, _held_struct),
    (pa.types.is_list, _held_list),
    (pa.types.is_map, _held_map),
)


def _held_bytes(column: pa.Array, schema: ConnectSchema) -> tuple[pa.Array, Doubt | None]:
    values, ambiguous = bytes_of(column)
    scale = _scale(schema) if schema.name == _DECIMAL else None
    if scale is None:
        return values, ambiguous
    numbers, more = decimals(values, scale)
    return numbers, join(ambiguous, more)


def _held_integers(column: pa.Array, schema: ConnectSchema) -> tuple[pa.Array, Doubt | None]:
    unit = declared_unit(schema)
    kind, low, high = _LOGICAL.get(schema.name or "") or (None, *_RANGES[schema.type])
    ambiguous = None
    if low > -(2**63):
        values = integers(column)
        ambiguous = some((values < low) | (values > high))
        if ambiguous is not None:
            column = masked(np.where(ambiguous, 0, values), column, pa.int64())
    if schema.type == "int32" and (named := NAMED.get(schema.name or "")) is not None:
        values, more = named_numbers(column, named)
        return values, join(ambiguous, more)
    if unit is not None:
        return column.cast(pa.duration(unit)), ambiguous
    if kind is None:
        # steps receive the types of the schema
        return (column if schema.type == "int64" else column.cast(pa.int32())), ambiguous
    narrow = column.cast(pa.int32()) if kind.bit_width == 32 else column
    return narrow.view(kind), ambiguous


def _begin_with(values: pa.Array, rows: Rows, prefix: bytes) -> Doubt:
    """Return which of some rows begin with a text, without a copy of the others."""
    if len(rows) == len(values):
        whole: Doubt = pc.starts_with(values, prefix).to_numpy(zero_copy_only=False)
        return whole
    if not len(rows):
        return np.zeros(0, np.bool_)
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    # every second entry is the gap between two rows
    ends = np.empty(len(rows) * 2, np.int32)
    ends[0::2], ends[1::2] = bounds[rows], bounds[rows + 1]
    both = pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), data])
    with_gaps: Doubt = pc.starts_with(both, prefix).to_numpy(zero_copy_only=False)
    return with_gaps[0::2]


class Envelopes:
    """Decodes Connect's JSON envelopes, grouped by equal schema text.

    Args:
        converter: the record path's.
    """

    def __init__(self, converter: JsonConverter) -> None:
        self._converter = converter
        self._known: OrderedDict[bytes, tuple[ConnectSchema, TypedJson] | None] = OrderedDict()

    def decode(self, values: pa.Array) -> Iterator[tuple[ConnectSchema, pa.Table, Rows]]:
        """Decode the documents that have a column form.

        Args:
            values: binary, no nulls, one chunk.
        """
        for prefix, schema, rows in self._groups(values):
            form = self._form(prefix, schema)
            if form is not None:
                payloads = without_ends(values, rows, len(prefix), 1)
                for table, good in form[1].decode(payloads):
                    yield form[0], table, rows[good]

    def _groups(self, values: pa.Array) -> Iterator[tuple[bytes, ConnectSchema | None, Rows]]:
        """Yield each text before a payload, its schema, and the rows that begin with it.

        A row costs some nanoseconds for each schema of the block, not a comparison of its text.
        """
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
        raw = np.frombuffer(b"" if data is None else data, np.uint8)
        if len(raw) < _WINDOW:
            return
        windows = np.ndarray((len(raw) - _WINDOW + 1,), "<u8", raw, strides=(1,))
        starts, ends = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
        is_closed = raw[ends - 1] == ord("}")
        rows = np.arange(len(values))
        few = _FEW_GROUPS
        for _ in range(_FEW_GROUPS + len(values) // _ROWS_MIN):
            if not len(rows):
                return
            prefix, schema = self._converter.envelope(values[int(rows[0])].as_py())
            behind = starts[rows] + len(prefix)
            likely = (behind < ends[rows]) & is_closed[rows] & (len(prefix) >= _WINDOW)
            tails = windows[np.where(likely, behind, _WINDOW) - _WINDOW]
            likely &= tails == int.from_bytes(prefix[-_WINDOW:], "little")
            likely[likely] = _begin_with(values, rows[likely], prefix)
            mine, left = rows[likely], rows[~likely]
            rows = left if len(mine) and mine[0] == rows[0] else left[1:]  # never checked twice
            if len(mine) >= (1 if few > 0 else _ROWS_MIN):
                few -= 1
                yield prefix, schema, mine

    def _form(
        self, prefix: bytes, schema: ConnectSchema | None
    ) -> tuple[ConnectSchema, TypedJson] | None:
        if prefix in self._known:
            self._known.move_to_end(prefix)
            return self._known[prefix]
        form = None
        if schema is not None and schema.type == "struct":
            form = (schema, TypedJson(schema))
        self._known[prefix] = form
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return form
