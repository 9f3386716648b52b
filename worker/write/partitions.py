"""Rows of a table into the partitions of its spec, column by column.

Rules of this file:
- Values are Iceberg's internal form: dates are days, times and timestamps microseconds (those of
  format version 3 nanoseconds), uuid and binary and fixed bytes, decimals unscaled integers.
- Rows are split by dictionary codes and one stable sort, for any number of fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Accessor, Schema
from pyiceberg.transforms import (
    BucketTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.transforms import Transform as FieldTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FixedType,
    IcebergType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    UUIDType,
)
from pyiceberg_core import transform as vectorised  # type: ignore[import-untyped] # a Rust module

from connect.errors import ConfigError
from connect.model.partition_text import partition_folder
from control_schemas.events import PartitionField

Transform = Callable[[pa.Array], pa.Array]
_KEYS_KEPT_MAX: Final = 100_000
_SMALL_CODES_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """One partition of a spec.

    Attributes:
        values: internal values, one per field of the spec.
        fields: the values in the form of control events.
        path: folder under the data location, ``""`` for an unpartitioned table.
    """

    values: tuple[Any, ...]
    fields: tuple[PartitionField, ...]
    path: str


def take_rows(table: pa.Table, order: np.ndarray[Any, Any]) -> pa.Table:
    """Return rows by position, as one chunk per column.

    Args:
        table: the rows.
        order: positions in the table; they are not checked.
    """
    return pc.take(table, pa.array(order), boundscheck=False)


def split_by_codes(
    codes: np.ndarray[Any, Any], count: int
) -> tuple[np.ndarray[Any, Any] | None, np.ndarray[Any, Any]]:
    """Sort rows by code, keeping their order within a code.

    Returns:
        the order to take rows in (None when they are in order already), and the first position
        of each code with the end appended, ``count + 1`` long.
    """
    sizes = np.bincount(codes, minlength=count)
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    if np.count_nonzero(sizes) <= 1:
        return None, bounds
    # numpy sorts 16 bits by their digits, in a sixth of the time
    digits = codes.astype(np.uint16) if count <= _SMALL_CODES_MAX else codes
    return np.argsort(digits, kind="stable"), bounds


class Partitioner:
    """Splits rows of one table by its partition spec.

    Args:
        spec: the table's default spec.
        schema: the table's schema.

    Raises:
        ConfigError: the spec has an unknown transform.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._spec = spec
        self._schema = schema
        self._fields = [_PartitionField(f, schema) for f in spec.fields]
        self._keys: dict[tuple[Any, ...], PartitionKey] = {}

    @property
    def is_partitioned(self) -> bool:
        """Return whether there is more than one partition."""
        return bool(self._fields)

    def split(self, rows: pa.Table) -> Iterator[tuple[PartitionKey, pa.Table]]:
        """Return the rows of each partition, in their order.

        Args:
            rows: columns of the table's Arrow schema.
        """
        if not self._fields:
            yield self._key(()), rows
            return
        codes, keys = self._codes(rows)
        order, bounds = split_by_codes(codes, len(keys))
        if order is not None:
            rows = take_rows(rows, order)
        for code, values in enumerate(keys):
            start, end = int(bounds[code]), int(bounds[code + 1])
            if end > start:
                yield self._key(values), rows.slice(start, end - start)

    def _codes(self, rows: pa.Table) -> tuple[np.ndarray[Any, Any], list[tuple[Any, ...]]]:
        """Return a small integer per row and the partition values of each integer."""
        encoded = [f.encode(rows) for f in self._fields]
        codes, values = encoded[0]
        keys = [(value,) for value in values]
        for more_codes, more_values in encoded[1:]:
            combined = codes * len(more_values) + more_codes
            used, codes = np.unique(combined, return_inverse=True)
            keys = [
                (*keys[c // len(more_values)], more_values[c % len(more_values)])
                for c in used.tolist()
            ]
        return codes, keys

    def _key(self, values: tuple[Any, ...]) -> PartitionKey:
        # text separates values that Python calls equal (0.0 and -0.0) and joins NaN with NaN
        value_texts = tuple(map(repr, values))
        partition_key = self._keys.get(value_texts)
        if partition_key is None:
            path = partition_folder(self._spec, self._schema, values) if values else ""
            internal = tuple(map(_internal, values))
            fields = tuple(
                PartitionField(f.spec.field_id, f.spec.name, str(f.result), value)
                for f, value in zip(self._fields, internal, strict=True)
            )
            partition_key = PartitionKey(internal, fields, path)
            if len(self._keys) >= _KEYS_KEPT_MAX:
                self._keys.clear()
            self._keys[value_texts] = partition_key
        return partition_key


def _internal(value: Any) -> Any:
    """Return decimals as their unscaled integer; other values are internal already."""
    if hasattr(value, "as_tuple"):
        sign, digits, _ = value.as_tuple()
        unscaled = int("".join(map(str, digits)))
        return -unscaled if sign else unscaled
    return value


class _PartitionField:
    def __init__(self, spec: SpecField, schema: Schema) -> None:
        self.spec = spec
        source = schema.find_type(spec.source_id)
        assert isinstance(source, PrimitiveType)
        self.result = spec.transform.result_type(source)
        self._path = field_path(schema, spec.source_id)
        self._transform = arrow_transform(spec.transform, source)

    def encode(self, rows: pa.Table) -> tuple[np.ndarray[Any, Any], list[Any]]:
        column = nested_column(rows, self._path)
        encoded = self._transform(column).dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return codes, _python_values(encoded.dictionary)


def field_path(schema: Schema, field_id: int) -> list[int]:
    """Return positions from the top-level column down to the field."""
    accessor: Accessor | None = schema.accessor_for_field(field_id)
    positions = []
    while accessor is not None:
        positions.append(accessor.position)
        accessor = accessor.inner
    return positions


def nested_column(rows: pa.Table, path: list[int]) -> pa.Array:
    """Return the values of a field as one chunk; values of a null struct are null."""
    column = rows.column(path[0]).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    for position in path[1:]:
        column = pc.struct_field(column, [position])
    return column


def _python_values(dictionary: pa.Array) -> list[Any]:
    kind = dictionary.type
    if pa.types.is_temporal(kind):
        integer = pa.int32() if kind.bit_width == 32 else pa.int64()
        dictionary = dictionary.cast(integer)
    values: list[Any] = dictionary.to_pylist()
    return values


def arrow_transform(transform: FieldTransform[Any, Any], source: IcebergType) -> Transform:
    """Return the transform of a partition or sort field over Arrow arrays of the column's type.

    Raises:
        ConfigError: the transform is unknown.
    """
    if isinstance(transform, VoidTransform):
        return lambda column: pa.nulls(len(column), _storage(column).type)
    if isinstance(transform, IdentityTransform):
        return _storage
    if isinstance(source, TimestampNanoType | TimestamptzNanoType):
        # the specification has them by their microseconds, rounded down
        of_micros = arrow_transform(transform, TimestampType())
        return lambda column: of_micros(_micros(column))
    if isinstance(transform, BucketTransform):
        width = transform.num_buckets
        return lambda column: vectorised.bucket(_for_core(column, source), width)
    if isinstance(transform, TruncateTransform):
        return _truncate(transform.width, source)
    function = {
        "year": vectorised.year,
        "month": vectorised.month,
        "day": vectorised.day,
        "hour": vectorised.hour,
    }.get(str(transform))
    if function is None:
        raise ConfigError(f"transform {transform!r} is not known", code="unknown_transform")
    return lambda column: function(column).cast(pa.int32())


def _micros(column: pa.Array) -> pa.Array:
    nanos = column.cast(pa.int64())
    micros = nanos.fill_null(0).to_numpy() // 1000
    return pa.array(
        micros, pa.timestamp("us"), mask=column.is_null().to_numpy(zero_copy_only=False)
    )


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _for_core(column: pa.Array, source: IcebergType) -> pa.Array:
    column = _storage(column)
    if isinstance(source, StringType):
        return column.cast(pa.string())
    if isinstance(source, BinaryType | FixedType | UUIDType):
        return column.cast(pa.binary())
    return column


def _truncate(width: int, source: IcebergType) -> Transform:
    if isinstance(source, DecimalType):
        return lambda column: vectorised.truncate(column, width)
    if isinstance(source, StringType):
        return lambda column: pc.utf8_slice_codeunits(column, 0, width)
    if isinstance(source, BinaryType):
        return lambda column: pc.binary_slice(column.cast(pa.binary()), 0, width)
    return lambda column: vectorised.truncate(column, width)
