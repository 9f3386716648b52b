"""Every partition transform over columns against PyIceberg's, value by value."""

from __future__ import annotations

import datetime as dt
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    UnknownTransform,
)
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from connect.errors import ConfigError
from tests.support.transform_values import TRANSFORMS, VALUES, column, transformed
from worker.write.partitions import Partitioner, arrow_transform, split_by_codes, take_rows

PAIRS = [
    pytest.param(kind, values, transform, id=f"{transform}-{kind}")
    for kind, values in VALUES
    for transform in TRANSFORMS
    if transform.can_transform(kind)
]


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
    seen: dict[int, Any] = {}
    for value, places in split(kind, transform, given_values):
        assert places == sorted(places)
        seen |= dict.fromkeys(places, value)
    for place, value in enumerate(given_values):
        assert seen[place] == transformed(transform, kind, value)


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


@pytest.mark.parametrize(
    ("kind", "transform", "value", "path"),
    [
        (TimestamptzType(), DayTransform(), 1_732_579_200_000_000_000, "p=epoch%2B20053000"),
        (TimestampType(), HourTransform(), -(2**62), "p=epoch-1281023895"),
        (TimestampType(), MonthTransform(), 2**62, "p=148108-07"),
        (DateType(), IdentityTransform(), 2**31 - 1, "p=epoch%2B2147483647"),
        (DateType(), IdentityTransform(), -(2**31), "p=epoch-2147483648"),
        (DateType(), IdentityTransform(), -719_162, "p=0001-01-01"),
        (TimestampType(), IdentityTransform(), -(2**63), "p=epoch-9223372036854775808"),
    ],
)
def test_a_year_that_python_lacks_stops_no_row(
    kind: IcebergType, transform: Any, value: int, path: str
) -> None:
    """Producers send numbers in the wrong unit, and Iceberg has their values."""
    rows = pa.table({"c": column(kind, [value])})
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"))
    [(key, part)] = Partitioner(spec, Schema(NestedField(1, "c", kind))).split(rows)
    assert key.path == path
    assert part.num_rows == 1


def test_an_unknown_transform_is_an_error() -> None:
    """A transform of a later version of Iceberg."""
    field = PartitionField(1, 1000, UnknownTransform("zorder"), "p")
    with pytest.raises(ConfigError, match="zorder"):
        arrow_transform(field.transform, LongType())


def test_without_partition_fields_there_is_one_partition() -> None:
    """Its path is empty."""
    rows = pa.table({"c": [dt.date(2024, 1, 1)]})
    [(key, part)] = Partitioner(PartitionSpec(), Schema(NestedField(1, "c", DateType()))).split(
        rows
    )
    assert (key.values, key.path, part) == ((), "", rows)


@pytest.mark.parametrize("count", [2, 50, 1 << 16, (1 << 16) + 1])
def test_rows_are_ordered_by_code_and_keep_their_order(count: int) -> None:
    """Up to the last code, for any number of codes; the rows of a code are consecutive."""
    codes = np.random.default_rng(count).integers(0, count, 3_000)
    codes[:2] = count - 1, 0
    order, bounds = split_by_codes(codes, count)
    assert order is not None
    assert order.tolist() == sorted(range(3_000), key=lambda row: codes[row])
    rows = take_rows(pa.table({"code": codes, "row": range(3_000)}), order)
    for code in (0, count - 1):
        part = rows.slice(int(bounds[code]), int(bounds[code + 1] - bounds[code]))
        assert part["row"].to_pylist() == np.flatnonzero(codes == code).tolist()


class Noting(np.ndarray[Any, Any]):
    """Codes that note how many bits are sorted."""

    sorted_bits: ClassVar[list[int]] = []

    def argsort(self, *args: Any, **options: Any) -> Any:
        """Note it, and sort."""
        self.sorted_bits.append(self.dtype.itemsize * 8)
        return np.asarray(self).argsort(*args, **options)


def test_codes_are_sorted_by_their_digits() -> None:
    """Numpy does so for 16 bits; for the 64 bits of a code it compares."""
    split_by_codes(np.array([1, 0, 2]).view(Noting), 3)
    assert Noting.sorted_bits == [16]
