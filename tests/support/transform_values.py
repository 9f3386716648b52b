"""Values of all types, and what the scalar transforms of PyIceberg make of them."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import mmh3
import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)


def exact(number: int, scale: int) -> Decimal:
    """A decimal of any number of digits, not rounded to any context."""
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def unscaled(value: Decimal | None) -> int | None:
    """Its integer without the point."""
    if value is None:
        return None
    sign, digits, _ = value.as_tuple()
    return int("".join(map(str, digits))) * (-1 if sign else 1)


MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
# truncate goes below the smallest number there, in Java by wrapping around
LONGS = st.integers(-(2**63) + 200, 2**63 - 1)
VALUES: list[tuple[IcebergType, st.SearchStrategy[Any]]] = [
    (BooleanType(), st.booleans()),
    (IntegerType(), st.integers(-(2**31) + 200, 2**31 - 1)),
    (LongType(), LONGS),
    (FloatType(), st.floats(width=32, allow_nan=False)),
    (DoubleType(), st.floats(allow_nan=False)),
    (DecimalType(9, 2), st.integers(-(10**8), 10**8).map(lambda n: exact(n, 2))),
    (DecimalType(38, 5), st.integers(-(10**36), 10**36).map(lambda n: exact(n, 5))),
    (StringType(), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
    (BinaryType(), st.binary(max_size=20)),
    (FixedType(4), st.binary(min_size=4, max_size=4)),
    (UUIDType(), st.uuids().map(lambda u: u.bytes)),
    (DateType(), st.integers(-719_162, 2_932_896)),
    (TimeType(), st.integers(0, 86_399_999_999)),
    (TimestampType(), MICROS),
    (TimestamptzType(), MICROS),
    (TimestampNanoType(), st.integers(-(2**63), 2**63 - 1)),
    (TimestamptzNanoType(), st.integers(-(2**63), 2**63 - 1)),
]
TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(16),
    BucketTransform(1),
    TruncateTransform(1),
    TruncateTransform(100),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]


def column(kind: IcebergType, values: list[Any]) -> pa.Array:
    """Internal values as the table's Arrow column."""
    arrow = schema_to_pyarrow(Schema(NestedField(1, "c", kind))).field(0).type
    if isinstance(arrow, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow, pa.array(values, arrow.storage_type))
    return pa.array(values, arrow)


def transformed(transform: Transform[Any, Any], kind: IcebergType, value: Any) -> Any:
    """The result of the scalar transform for one value; of decimals the unscaled integer."""
    if isinstance(kind, DecimalType):
        return _of_decimal(transform, value)
    if isinstance(kind, UUIDType) and isinstance(transform, BucketTransform) and value:
        value = uuid.UUID(bytes=value)
    return transform.transform(kind)(value)


def _of_decimal(transform: Any, value: Decimal | None) -> int | None:
    """By the specification: PyIceberg rounds decimals to 28 digits on the way."""
    number = unscaled(value)
    if number is None or isinstance(transform, VoidTransform):
        return None
    if isinstance(transform, TruncateTransform):
        return number - number % transform.width
    if isinstance(transform, BucketTransform):
        magnitude = number if number >= 0 else -number - 1
        data = number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
        return (mmh3.hash(data) & (2**31 - 1)) % transform.num_buckets
    return number
