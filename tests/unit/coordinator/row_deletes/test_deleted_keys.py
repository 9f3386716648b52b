"""Keys of deletes: every type, null keys, several columns, steps, and exclusion by bounds."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from coordinator.row_deletes.deleted_keys import NEVER, DeletedKeys, KeyResult, KnownValues

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "int": (pa.int32(), [-1, 0, 7, None]),
    "long": (pa.int64(), [-(2**60), 3, None]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-1.50"), Decimal("2.25"), None]),
    "date": (pa.date32(), [date(1969, 1, 1), date(2026, 1, 2), None]),
    "time": (pa.time64("us"), [time(1, 2, 3), time(0), None]),
    "timestamp": (pa.timestamp("us"), [datetime(2026, 1, 2, 3, 4), None]),  # noqa: DTZ001
    "timestamptz": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 2, tzinfo=UTC), None]),
    "string": (pa.large_string(), ["", "a", "ü", None]),
    "binary": (pa.large_binary(), [b"", b"\xff", None]),
    "fixed": (pa.binary(2), [b"ab", b"\x00\xff", None]),
}
_ROWS = st.lists(
    st.tuples(st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, "", "x"])), max_size=12
)


@pytest.mark.parametrize("name", KINDS)
def test_each_type_of_key_is_found(name: str) -> None:
    """Null is found as a value of its own; other values are not."""
    kind, values = KINDS[name]
    for value in values:
        keys = DeletedKeys([(4, [pa.array([value], kind)])])
        found = keys.last_steps([pa.array(values, kind)]).tolist()
        assert found == [4 if each == value else NEVER for each in values]
        nulls = KnownValues(is_null=True)
        assert keys.may_be_in(0, nulls) == (value is None)


@settings(deadline=None)
@given(st.lists(_ROWS, min_size=1, max_size=4), _ROWS)
def test_several_columns_and_steps_equal_a_dictionary(
    steps: list[list[tuple[Any, Any]]], rows: list[tuple[Any, Any]]
) -> None:
    """The last step of each key counts, for any combination of values."""

    def columns(of: list[tuple[Any, Any]]) -> list[pa.Array]:
        return [
            pa.array([a for a, _ in of], pa.int64()),
            pa.array([b for _, b in of], pa.large_string()),
        ]

    keys = DeletedKeys([(step, columns(of)) for step, of in enumerate(steps)])
    last = {key: step for step, of in enumerate(steps) for key in of}
    assert keys.last_steps(columns(rows)).tolist() == [last.get(key, NEVER) for key in rows]
    assert keys.last_step == max(last.values(), default=NEVER)


def test_bounds_and_partitions_exclude_files() -> None:
    """Dates and timestamps are compared as Iceberg's numbers."""
    days = pa.array([date(2026, 1, 1), None, date(2026, 1, 9)], pa.date32())
    keys = DeletedKeys([(0, [days])])
    first = (date(2026, 1, 1) - date(1970, 1, 1)).days

    def are_within(low: int, high: int) -> bool:
        return keys.may_be_in(0, KnownValues(low, high, may_be_null=False))

    assert are_within(first, first)
    assert are_within(first + 5, first + 8)
    assert not are_within(first + 1, first + 7)
    assert not are_within(first + 9, first + 20)
    numbers = DeletedKeys([(0, [pa.array([1, 2], pa.int64())])])
    bucket = KeyResult("bucket[16]", BucketTransform(16).transform(LongType()))
    buckets = {bucket.of(1), bucket.of(2)}
    for number in range(16):
        found = numbers.may_be_in(0, KnownValues(number, number, may_be_null=False), bucket)
        assert found == (number in buckets)
    many = DeletedKeys([(0, [pa.array(range(20_000), pa.int64())])])
    assert many.may_be_in(0, KnownValues(99, 99, may_be_null=False), bucket)
    assert numbers.may_be_in(0, KnownValues())
