"""Decoded columns into the columns of a table, vectorised.

``connect.records.conversion`` defines the values. A function of this file converts a pair of types
to exactly these values, or marks the row as ambiguous (rules in ``worker.convert.scalars``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StringType, StructType

from worker.convert.scalars import (
    Conversion,
    Doubt,
    Target,
    join,
    scalar_conversion,
    some,
    valid_rows,
)
from worker.convert.typed_columns import typed_conversion

__all__ = ["Target", "convert", "filled", "join", "nulls"]


def convert(column: pa.Array, target: Target) -> tuple[pa.Array, Doubt | None]:
    """Convert a decoded column.

    Args:
        column: one chunk, as ``worker.decode.json_decoder`` returns it.
        target: the column to fill.

    Returns:
        the values in ``target.arrow``, and a mask of rows that the record path must convert (None:
        no row). Nulls stay nulls; the caller checks whether the column takes them.
    """
    if column.null_count == len(column):
        return nulls(len(column), target.arrow), None
    function = _function(column.type, target)
    if function is None:
        return nulls(len(column), target.arrow), valid_rows(column)
    return function(column)


def _function(source: pa.DataType, target: Target) -> Conversion | None:
    kind = target.type
    if isinstance(kind, StructType):
        return _struct(kind, target) if pa.types.is_struct(source) else None
    if isinstance(kind, ListType):
        return _list(kind, target) if pa.types.is_list(source) else None
    if isinstance(kind, MapType):
        return _map(kind, target) if pa.types.is_map(source) else None
    return scalar_conversion(source, target) or typed_conversion(source, target)


# ------------------------------------------------------------------ structs and lists


def _struct(kind: StructType, target: Target) -> Conversion:
    fields: list[tuple[NestedField, Target]] = [
        (f, Target(f.field_type, target.arrow.field(i).type, target.timestamp_unit))
        for i, f in enumerate(kind.fields)
    ]

    def rebuild(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        valid = valid_rows(column) if column.null_count else None
        children: list[pa.Array] = []
        ambiguous: Doubt | None = None
        for field, inner in fields:
            position = column.type.get_field_index(field.name)
            child = (
                pc.struct_field(column, [position])
                if position >= 0
                else nulls(len(column), inner.arrow)
            )
            values, more = convert(child, inner)
            if field.write_default is not None and child.null_count:  # missing, or null?
                undecided = ~valid_rows(child)
                more = join(more, some(undecided if valid is None else undecided & valid))
            if field.required and values.null_count:
                missing = ~valid_rows(values)
                more = join(more, missing if valid is None else missing & valid)
                values = filled(values)
            ambiguous = join(ambiguous, more)
            children.append(values)
        mask = None if valid is None else pa.array(~valid)
        return pa.StructArray.from_arrays(children, fields=list(target.arrow), mask=mask), ambiguous

    return rebuild


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Return nulls of a type; required fields in them hold a value for the Parquet writer."""
    if not pa.types.is_struct(kind) or not count:
        return pa.nulls(count, kind)
    children = [
        nulls(count, f.type) if f.nullable else filled(pa.nulls(count, f.type)) for f in kind
    ]
    mask = pa.array(np.ones(count, np.bool_))
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def filled(values: pa.Array) -> pa.Array:
    """Replace nulls by any value, where the file's schema takes no nulls.

    For ambiguous rows, and for fields of null structs.
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
        values, ambiguous = convert(column.values.slice(start, end - start), inner)
        if kind.element_required and values.null_count:
            ambiguous = join(ambiguous, ~valid_rows(values))
        rows = None
        if ambiguous is not None:
            before = np.concatenate(([0], np.cumsum(ambiguous)))
            rows = some(before[offsets[1:] - start] > before[offsets[:-1] - start])
        moved = pa.array(offsets - start, pa.int64())
        mask = pa.array(~valid_rows(column)) if column.null_count else None
        rebuilt = pa.LargeListArray.from_arrays(moved, values, type=target.arrow, mask=mask)
        return rebuilt, rows

    return rebuild


def _map(kind: MapType, target: Target) -> Conversion | None:
    """Convert maps with text keys; maps with repeated keys are ambiguous."""
    if not isinstance(kind.key_type, StringType):
        return None
    keyed: IcebergType = kind.key_type
    to_key = Target(keyed, target.arrow.key_type, target.timestamp_unit)
    to_value = Target(kind.value_type, target.arrow.item_type, target.timestamp_unit)

    def rebuild(column: pa.Array) -> tuple[pa.Array, Doubt | None]:
        offsets = column.offsets.to_numpy()
        start, end = int(offsets[0]), int(offsets[-1])
        source_keys = column.keys.slice(start, end - start)
        keys, ambiguous = convert(source_keys, to_key)
        values, more = convert(column.items.slice(start, end - start), to_value)
        ambiguous = join(ambiguous, more)
        if kind.value_required and values.null_count:
            ambiguous = join(ambiguous, ~valid_rows(values))
            values = filled(values)
        ambiguous = join(ambiguous, _repeated(source_keys, offsets - start))
        rows = None
        if ambiguous is not None:
            before = np.concatenate(([0], np.cumsum(ambiguous)))
            rows = some(before[offsets[1:] - start] > before[offsets[:-1] - start])
        moved = pa.array(offsets - start, pa.int32())
        mask = pa.array(~valid_rows(column)) if column.null_count else None
        rebuilt = pa.MapArray.from_arrays(moved, keys, values, type=target.arrow, mask=mask)
        return rebuilt, rows

    return rebuild


def _repeated(keys: pa.Array, offsets: Any) -> Doubt | None:
    """Return entries whose key is in their map before."""
    if not len(keys):
        return None
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    both = rows * len(encoded.dictionary) + codes
    _, first = np.unique(both, return_index=True)
    ambiguous = np.ones(len(keys), np.bool_)
    ambiguous[first] = False
    return some(ambiguous)
