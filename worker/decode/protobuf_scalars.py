"""Numbers and texts of Protobuf, scanned; see ``worker.decode.protobuf_columns``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor as Kind

from worker.decode.binary_cursor import BinaryCursor
from worker.decode.column_builders import Plain, RowValues, Spans

Scanner = Callable[[BinaryCursor], RowValues]

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5


def _narrow(kind: Any, cursor: BinaryCursor) -> RowValues:
    words = cursor.unsigned().astype(np.uint32)
    if kind is np.uint32:
        return Plain(words.astype(np.int64), pa.int64())
    return Plain(words.view(np.int32), pa.int32())


SMALL: Final = {"int8": (-128, 127), "int16": (-32768, 32767)}


def small(read: Scanner, low: int, high: int, cursor: BinaryCursor) -> RowValues:
    """A number that the schema says has fewer bits."""
    found = read(cursor)
    assert isinstance(found, Plain)
    outside = (found.values < low) | (found.values > high)
    if outside.any():
        cursor.refuse(outside)
    return found


def _signed(kind: Any, cursor: BinaryCursor) -> RowValues:
    if kind is np.int64:
        return Plain(cursor.signed(), pa.int64())
    words = cursor.unsigned() & np.uint64(0xFFFFFFFF)
    plain = ((words >> np.uint64(1)) ^ (np.uint64(0) - (words & np.uint64(1)))).view(np.int64)
    return Plain(plain.astype(np.int32), pa.int32())


def _wide(cursor: BinaryCursor) -> RowValues:
    return Plain(cursor.unsigned().view(np.int64), pa.int64())


def _unsigned(read: Callable[[BinaryCursor], Any], cursor: BinaryCursor) -> RowValues:
    values = read(cursor).view(np.int64)
    large = values < 0
    if large.any():
        cursor.refuse(large)
    return Plain(values, pa.int64())


def _fixed(size: int, view: Any, kind: pa.DataType, cursor: BinaryCursor) -> RowValues:
    words = cursor.word(size)
    narrow = words if size == 8 else words.astype(np.uint32)
    values = narrow.view(view)
    return Plain(values.astype(np.int64) if kind == pa.int64() else values, kind)


def _boolean(cursor: BinaryCursor) -> RowValues:
    return Plain(cursor.unsigned() != 0, pa.bool_())


def _text(kind: pa.DataType, cursor: BinaryCursor) -> RowValues:
    return Spans(*cursor.bytes(cursor.unsigned().view(np.int64)), kind)


SCALARS: Final[Mapping[int, tuple[int, Scanner]]] = {
    Kind.TYPE_INT32: (VARINT, partial(_narrow, np.int32)),
    Kind.TYPE_UINT32: (VARINT, partial(_narrow, np.uint32)),
    Kind.TYPE_SINT32: (VARINT, partial(_signed, np.int32)),
    Kind.TYPE_INT64: (VARINT, _wide),
    Kind.TYPE_UINT64: (VARINT, partial(_unsigned, BinaryCursor.unsigned)),
    Kind.TYPE_SINT64: (VARINT, partial(_signed, np.int64)),
    Kind.TYPE_FIXED32: (FOUR, partial(_fixed, 4, np.uint32, pa.int64())),
    Kind.TYPE_SFIXED32: (FOUR, partial(_fixed, 4, np.int32, pa.int32())),
    Kind.TYPE_FIXED64: (EIGHT, partial(_unsigned, lambda cursor: cursor.word(8))),
    Kind.TYPE_SFIXED64: (EIGHT, partial(_fixed, 8, np.int64, pa.int64())),
    Kind.TYPE_FLOAT: (FOUR, partial(_fixed, 4, np.float32, pa.float32())),
    Kind.TYPE_DOUBLE: (EIGHT, partial(_fixed, 8, np.float64, pa.float64())),
    Kind.TYPE_BOOL: (VARINT, _boolean),
    Kind.TYPE_STRING: (BYTES, partial(_text, pa.string())),
    Kind.TYPE_BYTES: (BYTES, partial(_text, pa.binary())),
}
