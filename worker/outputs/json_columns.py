"""Columns as JSON texts, without a Python object per row.

Rules of this file:
- The text of a row contains every column, also null ones: rows of one table have one form.
- Times are ISO 8601, binaries are Base64, decimals are numbers with all digits. JSON has no NaN and
  no infinity, which become null.
- Only texts with a quote, a backslash or a control character are escaped, and only binaries and
  UUIDs pass through Python one by one.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TEXT: Final = pa.large_string()
_NULL: Final = pa.scalar("null", _TEXT)
_QUOTE: Final = pa.scalar('"', _TEXT)
_NOTHING: Final = pa.scalar("", _TEXT)
_SPECIAL: Final = r'["\\\x00-\x1f]'
_ESCAPES: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_CONTROL: Final = r"[\x00-\x1f]"


def json_objects(columns: Sequence[pa.Array], fields: Sequence[pa.Field], count: int) -> pa.Array:
    """Return a JSON object per row, as large strings.

    Args:
        columns: one chunk each.
        fields: their names, and the names inside.
        count: rows.
    """
    if not columns:
        return pa.array(["{}"] * count, _TEXT)
    parts: list[Any] = []
    for place, (field, column) in enumerate(zip(fields, columns, strict=True)):
        start = "{" if place == 0 else ","
        parts += [pa.scalar(f"{start}{json.dumps(field.name, ensure_ascii=False)}:", _TEXT)]
        parts += [json_values(column, field.type)]
    parts.append(pa.scalar("}", _TEXT))
    return _joined(*parts)


def json_values(column: pa.Array, named: pa.DataType | None = None) -> pa.Array:
    """Return each value of a column as JSON text; null is ``null``.

    Args:
        column: one chunk.
        named: its type with the names to write; None for the column's own.
    """
    kind, types = column.type, pa.types
    named = kind if named is None else named
    if isinstance(column, pa.ExtensionArray) or _is_text(kind):
        return _or_null(_quoted(texts(column)))
    if types.is_null(kind):
        return pa.repeat(_NULL, len(column))
    if types.is_floating(kind):
        finite = pc.if_else(pc.is_finite(column), column, pa.scalar(None, kind))
        return _or_null(finite.cast(_TEXT))
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        return _or_null(column.cast(_TEXT))
    if types.is_struct(kind):
        fields = [pc.struct_field(column, [i]) for i in range(kind.num_fields)]
        return _where(column, json_objects(fields, list(named), len(column)))
    if types.is_map(kind):
        return _lists(column, _entries(column, named), "{", "}")
    if types.is_list(kind) or types.is_large_list(kind):
        return _lists(column, json_values(column.flatten(), named.value_type), "[", "]")
    return _or_null(_quoted(texts(column)))


def texts(column: pa.Array, named: pa.DataType | None = None) -> pa.Array:
    """Return each value of a column as plain text, nested ones as JSON; null stays null."""
    kind, types = column.type, pa.types
    if isinstance(column, pa.ExtensionArray):  # UUID is the only one in tables
        return _each(column.storage, lambda value: str(uuid.UUID(bytes=value)))
    if types.is_nested(kind):
        return _where(column, json_values(column, named), pa.scalar(None, _TEXT))
    if types.is_string(kind) or types.is_large_string(kind):
        return column.cast(_TEXT)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _each(column, lambda value: base64.b64encode(value).decode())
    if types.is_timestamp(kind):
        # Arrow writes a space between date and time
        return pc.replace_substring(column.cast(_TEXT), " ", "T", max_replacements=1)
    return column.cast(_TEXT)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_temporal(kind))


def _each(column: pa.Array, text: Callable[[bytes], str]) -> pa.Array:
    return pa.array([None if v is None else text(v) for v in column.to_pylist()], _TEXT)


def _quoted(values: pa.Array) -> pa.Array:
    """Return texts in quotes, escaped; null stays null."""
    special = pc.fill_null(pc.match_substring_regex(values, _SPECIAL), False)  # noqa: FBT003 - Arrow's
    if pc.any(special).as_py():
        values = pc.replace_with_mask(values, special, _escaped(values.filter(special)))
    return _joined(_QUOTE, values, _QUOTE, nulls="emit_null")


def _escaped(values: pa.Array) -> pa.Array:
    for character, escape in _ESCAPES:
        values = pc.replace_substring(values, character, escape)
    rare = pc.match_substring_regex(values, _CONTROL)
    if pc.any(rare).as_py():
        written = [_with_codes(text) for text in values.filter(rare).to_pylist()]
        values = pc.replace_with_mask(values, rare, pa.array(written, _TEXT))
    return values


def _with_codes(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" if c < " " else c for c in text)


def _entries(column: pa.Array, named: pa.DataType) -> pa.Array:
    """Return the entries of all maps as ``key:value``."""
    start, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    keys = column.keys.slice(start, end - start)
    items = column.items.slice(start, end - start)
    if column.null_count:  # entries that a null covers are not flattened either
        kept = np.repeat(
            column.is_valid().to_numpy(zero_copy_only=False), np.diff(column.offsets.to_numpy())
        )
        keys, items = keys.filter(pa.array(kept)), items.filter(pa.array(kept))
    return _joined(_quoted(texts(keys)), pa.scalar(":", _TEXT), json_values(items, named.item_type))


def _lists(column: pa.Array, values: pa.Array, start: str, end: str) -> pa.Array:
    """Return the texts of each list joined, in brackets."""
    lengths = _lengths(column)
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    lists = pa.ListArray.from_arrays(pa.array(offsets), values.cast(pa.string()))
    joined = pc.binary_join(lists, ",").cast(_TEXT)
    return _where(column, _joined(pa.scalar(start, _TEXT), joined, pa.scalar(end, _TEXT)))


def _lengths(column: pa.Array) -> Any:
    if pa.types.is_map(column.type):
        lengths = np.diff(column.offsets.to_numpy())
        return np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)


def _where(column: pa.Array, values: pa.Array, otherwise: pa.Scalar = _NULL) -> pa.Array:
    return pc.if_else(column.is_valid(), values, otherwise) if column.null_count else values


def _or_null(values: pa.Array) -> pa.Array:
    return pc.fill_null(values, _NULL)


def _joined(*parts: Any, nulls: str = "replace") -> pa.Array:
    return pc.binary_join_element_wise(
        *parts, _NOTHING, null_handling=nulls, null_replacement="null"
    )
