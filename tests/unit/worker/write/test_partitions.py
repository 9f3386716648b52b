"""Every partition transform over columns against PyIceberg's, value by value."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import mmh3
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
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
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connect.errors import ConfigError
from worker.write.partitions import Partitioner, arrow_transform


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
PAIRS = [
    pytest.param(kind, values, transform, id=f"{transform}-{kind}")
    for kind, values in VALUES
    for transform in TRANSFORMS
    if transform.can_transform(kind)
]


def column(kind: IcebergType, values: list[Any]) -> pa.Array:
    """Internal values as the table's Arrow column."""
    arrow = schema_to_pyarrow(Schema(NestedField(1, "c", kind))).field(0).type
    if isinstance(arrow, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow, pa.array(values, arrow.storage_type))
    return pa.array(values, arrow)


def split(kind: IcebergType, transform: Any, values: list[Any]) -> list[tuple[Any, list[int]]]:
    """Partition values and the positions of the rows that fall into them."""
    schema = Schema(NestedField(1, "c", kind), NestedField(2, "n", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"))
    rows = pa.table({"c": column(kind, values), "n": pa.array(range(len(values)), pa.int64())})
    return [
        (key.values[0], part["n"].to_pylist())
        for key, part in Partitioner(spec, schema).split(rows)
    ]


@pytest.mark.parametrize(("kind", "values", "transform"), PAIRS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_partition_values_equal_those_of_pyiceberg(
    kind: IcebergType, values: st.SearchStrategy[Any], transform: Any, data: st.DataObject
) -> None:
    """Each row is in the partition of the scalar transform; nulls are in the null partition."""
    given_values = data.draw(st.lists(st.none() | values, min_size=1, max_size=30))
    scalar = transform.transform(kind)
    seen: dict[int, Any] = {}
    for value, places in split(kind, transform, given_values):
        assert places == sorted(places)
        seen |= dict.fromkeys(places, value)
    for place, value in enumerate(given_values):
        if isinstance(kind, DecimalType):
            assert seen[place] == of_decimal(transform, value)
            continue
        as_given = value
        if isinstance(kind, UUIDType) and isinstance(transform, BucketTransform) and value:
            as_given = uuid.UUID(bytes=value)
        assert seen[place] == scalar(as_given)


def of_decimal(transform: Any, value: Decimal | None) -> int | None:
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


def test_examples_of_the_specification() -> None:
    """Hashes, dates before 1970 and negative numbers."""
    assert split(IntegerType(), BucketTransform(100), [34]) == [(2017239379 % 100, [0])]
    assert split(StringType(), BucketTransform(100), ["iceberg"]) == [(1210000089 % 100, [0])]
    assert split(DateType(), MonthTransform(), [-1]) == [(-1, [0])]
    assert split(TimestampType(), HourTransform(), [-1]) == [(-1, [0])]
    assert split(IntegerType(), TruncateTransform(10), [-1]) == [(-10, [0])]


def test_truncating_the_smallest_long_wraps_as_in_java() -> None:
    """Truncating the smallest long wraps around, as Java's arithmetic does."""
    assert split(LongType(), TruncateTransform(10), [-(2**63)]) == [(2**63 - 2, [0])]


def test_several_partition_fields() -> None:
    """Partitions are the combinations that occur; rows keep their order."""
    schema = Schema(
        NestedField(1, "s", StringType()),
        NestedField(2, "st", StructType(NestedField(3, "ts", TimestamptzType()))),
    )
    spec = PartitionSpec(
        PartitionField(1, 1000, IdentityTransform(), "s"),
        PartitionField(3, 1001, DayTransform(), "ts_day"),
        spec_id=4,
    )
    stamps = [0, 86_400_000_000, 1, None]
    inner = pa.array([{"ts": t} for t in stamps], pa.struct([("ts", pa.timestamp("us", "UTC"))]))
    rows = pa.table({"s": pa.array(["a", "a", "a", "b"]), "st": inner})
    found = {
        key.values: (key.path, len(part)) for key, part in Partitioner(spec, schema).split(rows)
    }
    assert found == {
        ("a", 0): ("s=a/ts_day=1970-01-01", 2),
        ("a", 1): ("s=a/ts_day=1970-01-02", 1),
        ("b", None): ("s=b/ts_day=null", 1),
    }
    key, _ = next(Partitioner(spec, schema).split(rows))
    assert [(f.field_id, f.name, f.type) for f in key.fields] == [
        (1000, "s", "string"),
        (1001, "ts_day", "date"),
    ]


def test_paths_are_escaped() -> None:
    """Values that would break a path are quoted in it."""
    [(key, _)] = Partitioner(
        PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p/q")),
        Schema(NestedField(1, "c", StringType())),
    ).split(pa.table({"c": ["../a b=c"]}))
    assert key.path == "p%2Fq=..%2Fa+b%3Dc"


def test_an_unknown_transform_is_an_error() -> None:
    """A transform of a later version of Iceberg."""
    field = PartitionField(1, 1000, UnknownTransform("zorder"), "p")
    with pytest.raises(ConfigError, match="zorder"):
        arrow_transform(field, LongType())


def test_without_partition_fields_there_is_one_partition() -> None:
    """Its path is empty."""
    rows = pa.table({"c": [dt.date(2024, 1, 1)]})
    [(key, part)] = Partitioner(PartitionSpec(), Schema(NestedField(1, "c", DateType()))).split(
        rows
    )
    assert (key.values, key.path, part) == ((), "", rows)
