"""The Arrow types that JSON fields are decoded as.

Rules of this file:
- A guess comes from the table's column. The type that the data holds replaces it where the column's
  conversion can use it.
- A field without a column form is decoded as null: rows that hold a value there fail to parse and
  go to the record path. Maps are such fields, unless they are asked for, and maps whose keys are
  not text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

Mask = npt.NDArray[np.bool_]


def guessed_type(column: IcebergType, *, has_maps: bool = False) -> pa.DataType:
    """Return the most likely type of a JSON field for this column; maps as null or as maps."""
    inner = partial(guessed_type, has_maps=has_maps)
    if isinstance(column, BooleanType):
        return pa.bool_()
    if isinstance(column, IntegerType | LongType):
        return pa.int64()
    if isinstance(column, FloatType | DoubleType):
        return pa.float64()
    if isinstance(column, DecimalType):
        return pa.decimal128(column.precision, column.scale)
    if isinstance(column, StructType):
        return pa.struct([(f.name, inner(f.field_type)) for f in column.fields])
    if isinstance(column, ListType):
        return pa.list_(inner(column.element_type))
    if isinstance(column, MapType):
        value = inner(column.value_type)
        is_such = has_maps and isinstance(column.key_type, StringType)
        return pa.map_(pa.string(), value) if is_such and value != pa.null() else pa.null()
    return pa.string()


def guessed_fields(
    structs: Iterable[Iterable[NestedField]],
    paths: Iterable[tuple[str, ...]] = (),
    *,
    has_maps: bool = False,
) -> dict[str, pa.DataType]:
    """Return the fields of all tables, and text fields at other paths; maps as null or as maps.

    Where two tables have different types for a field, the first type is used.
    """
    fields: dict[str, pa.DataType] = {}
    for columns in structs:
        for column in columns:
            guess = guessed_type(column.field_type, has_maps=has_maps)
            guessed = fields.get(column.name)
            fields[column.name] = guess if guessed is None else _merged(guessed, guess)
    for path in filter(None, paths):
        leaf: pa.DataType = pa.string()
        for name in reversed(path[1:]):
            leaf = pa.struct([(name, leaf)])
        guessed = fields.get(path[0])
        fields[path[0]] = leaf if guessed is None else _merged(guessed, leaf)
    return fields


def leaf_count(types: Iterable[pa.DataType]) -> int:
    """Return the number of columns in these types, with those in structs and lists."""
    return sum(
        leaf_count(kind.field(i).type for i in range(kind.num_fields)) or 1 for kind in types
    )


def _merged(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    if kind != other and (pa.types.is_map(kind) or pa.types.is_map(other)):
        return pa.null()  # a path into a map, or two tables with different types
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        fields = {f.name: f.type for f in kind}
        for f in other:
            fields[f.name] = _merged(fields[f.name], f.type) if f.name in fields else f.type
        return pa.struct(list(fields.items()))
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return pa.list_(_merged(kind.value_type, other.value_type))
    return kind


def learned_schema(guess: pa.Schema, current: pa.Schema, inferred: pa.Schema) -> pa.Schema:
    """Return the schema to decode with after a sample of the data.

    Args:
        guess: from the columns.
        current: current schema.
        inferred: schema that pyarrow finds in a sample.
    """
    types: Mapping[str, pa.DataType] = {f.name: f.type for f in inferred}
    return pa.schema(
        [
            (g.name, _learned(g.type, k.type, types.get(g.name, pa.null())))
            for g, k in zip(guess, current, strict=True)
        ]
    )


def _learned(guess: pa.DataType, current: pa.DataType, inferred: pa.DataType) -> pa.DataType:
    kinds = pa.types
    if kinds.is_null(inferred) or kinds.is_null(guess):
        return current
    if kinds.is_struct(guess):
        return _learned_struct(guess, current, inferred) if kinds.is_struct(inferred) else current
    if kinds.is_list(guess):
        if not kinds.is_list(inferred):
            return current
        return pa.list_(_learned(guess.value_type, current.value_type, inferred.value_type))
    if kinds.is_decimal(guess):
        return guess
    if kinds.is_boolean(inferred):
        return pa.bool_()
    if kinds.is_integer(inferred):
        return pa.float64() if kinds.is_floating(guess) else pa.int64()
    if kinds.is_floating(inferred):
        return pa.float64()
    if kinds.is_string(inferred) or kinds.is_timestamp(inferred):
        return pa.string()
    return current


def _learned_struct(guess: pa.DataType, current: pa.DataType, inferred: pa.DataType) -> pa.DataType:
    types = {f.name: f.type for f in inferred}
    return pa.struct(
        [
            (g.name, _learned(g.type, k.type, types.get(g.name, pa.null())))
            for g, k in zip(guess, current, strict=True)
        ]
    )


def extra_rows(table: pa.Table, schema: pa.Schema) -> Mask:
    """Return rows with a value in a field that the schema lacks, at any depth.

    Fields without a typed value (null, ``{}``, ``[]``) do not count: they make no column.
    """
    mask = np.zeros(table.num_rows, np.bool_)
    types = {f.name: f.type for f in schema}
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
        mask |= _extra(array, types.get(name))
    return mask


def _extra(column: pa.Array, expected: pa.DataType | None) -> Mask:
    if expected is None:
        if not _has_leaf(column.type):
            return np.zeros(len(column), np.bool_)
        valid: Mask = column.is_valid().to_numpy(zero_copy_only=False)
        return valid
    mask = np.zeros(len(column), np.bool_)
    if column.type == expected:
        return mask
    if pa.types.is_struct(expected) and pa.types.is_struct(column.type):
        types = {f.name: f.type for f in expected}
        for position, f in enumerate(column.type):
            mask |= _extra(pc.struct_field(column, [position]), types.get(f.name))
    elif pa.types.is_list(expected) and pa.types.is_list(column.type):
        offsets = column.offsets.to_numpy()
        inner = _extra(column.values, expected.value_type)
        before = np.concatenate(([0], np.cumsum(inner)))
        mask |= before[offsets[1:]] > before[offsets[:-1]]
    return mask


def has_more(kind: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether a type has fields that another one lacks, at any depth."""
    if pa.types.is_struct(kind) and pa.types.is_struct(expected):
        types = {f.name: f.type for f in expected}
        return any(f.name not in types or has_more(f.type, types[f.name]) for f in kind)
    if pa.types.is_list(kind) and pa.types.is_list(expected):
        return has_more(kind.value_type, expected.value_type)
    return False


def pruned(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the schema's fields only, at any depth."""
    columns = [_pruned(table.column(f.name).combine_chunks(), f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _pruned(column: Any, kind: pa.DataType) -> Any:
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        chunks = [_pruned(chunk, kind) for chunk in column.chunks]
        return pa.chunked_array(chunks, kind)
    mask = pc.is_null(column) if column.null_count else None
    if pa.types.is_struct(kind):
        children = [
            _pruned(pc.struct_field(column, [column.type.get_field_index(f.name)]), f.type)
            for f in kind
        ]
        if not children:
            return pa.array(
                [{} if there else None for there in column.is_valid().to_pylist()], kind
            )
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    values = _pruned(column.values, kind.value_type)
    return pa.ListArray.from_arrays(column.offsets, values, type=kind, mask=mask)


def _has_leaf(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_leaf(kind.field(i).type) for i in range(kind.num_fields))
    return not pa.types.is_null(kind)


def can_underflow(kind: pa.DataType) -> bool:
    """Return whether Arrow reads a number that is too small as zero; decimals, too."""
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def holds_number(kind: pa.DataType) -> bool:
    """Return whether such numbers are anywhere inside."""
    if can_underflow(kind):
        return True
    return any(holds_number(kind.field(i).type) for i in range(kind.num_fields))
