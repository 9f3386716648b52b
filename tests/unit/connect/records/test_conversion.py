"""Values into columns: stored as they are or refused, never something else."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connect.model.records import ConnectSchema, Date, Float32, Struct, Time, Timestamp
from connect.records.conversion.conversion_failure import REASONS, Unconvertible
from connect.records.conversion.row_converter import (
    ConversionOptions,
    RowConverter,
    column_converter,
)
from connect.records.conversion.temporal import TimestampUnit, TruncationCounts, days_from_civil
from connect.records.conversion.text import java_double, java_text, unscaled_bytes

OPTIONS = ConversionOptions()
COLUMNS: list[IcebergType] = [
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(10, 2),
    DecimalType(38, 0),
    DecimalType(38, 38),
    StringType(),
    BinaryType(),
    FixedType(3),
    UUIDType(),
    DateType(),
    TimeType(),
    TimestampType(),
    TimestamptzType(),
    TimestampNanoType(),
    TimestamptzNanoType(),
    ListType(1, LongType(), element_required=False),
    MapType(1, StringType(), 2, DoubleType(), value_required=True),
    StructType(NestedField(1, "a", LongType()), NestedField(2, "b", StringType(), required=True)),
]
SCALARS = (
    st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.floats(width=32).map(Float32)
    | st.decimals(allow_nan=True)
    | st.text(max_size=40)
    | st.sampled_from(["true", "NaN", "1e5", "2024-02-29", "07:51", "2024-02-29T07:51:00.1+02:00"])
    | st.binary(max_size=20)
    | st.uuids()
    | st.builds(Date, st.integers(-(2**33), 2**33))
    | st.builds(Time, st.integers(-1, 86_400_000))
    | st.builds(Timestamp, st.integers(-(2**63), 2**63 - 1))
    | st.dates()
    | st.times()
    | st.datetimes(timezones=st.none() | st.just(dt.UTC))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner | st.none(), max_size=3)
        | st.dictionaries(
            st.text(max_size=3) | st.sampled_from("ab"), inner | st.none(), max_size=3
        )
    ),
    max_leaves=6,
)


def attempt(column: IcebergType, value: Any) -> tuple[Any, str | None]:
    """Return the converted value or the error."""
    try:
        return column_converter(column, OPTIONS)(value), None
    except Unconvertible as refusal:
        return None, refusal.reason


@pytest.mark.parametrize("column", COLUMNS, ids=str)
@given(value=VALUES)
def test_every_value_is_stored_or_refused(column: IcebergType, value: Any) -> None:
    """For any input, a converter returns a value that Arrow accepts, or raises Unconvertible."""
    converted, reason = attempt(column, value)
    if reason is not None:
        assert reason in REASONS
        return
    kind = schema_to_pyarrow(Schema(NestedField(99, "c", column))).field("c").type
    stored = pa.array([converted], kind)
    assert stored.null_count == 0


@given(st.integers(-(2**70), 2**70))
def test_integers_are_exact(value: int) -> None:
    """An integer is stored exactly in an integer, decimal or string column, or rejected."""
    for column in (IntegerType(), LongType(), DecimalType(38, 0), DecimalType(10, 2)):
        for given_value in (value, Decimal(value), str(value)):
            assert attempt(column, given_value) in ((value, None), (None, "out_of_range"))
    assert column_converter(StringType(), OPTIONS)(value) == str(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_are_exact(value: float) -> None:
    """A double keeps its value in string and decimal columns, a whole one in integer columns."""
    to_double = column_converter(DoubleType(), OPTIONS)
    assert to_double(value) == to_double(repr(value)) == to_double(Decimal(repr(value))) == value
    refused = "out_of_range" if value.is_integer() else "lost_fraction"
    assert attempt(LongType(), value) in ((value, None), (None, refused))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_the_nearest(value: float) -> None:
    """A float column stores the nearest 32-bit number; whole numbers must be exact."""
    stored, reason = attempt(FloatType(), value)
    if reason is not None:
        assert reason in ("out_of_range", "lost_digits")
        return
    assert stored == float(np.float32(value))
    if value.is_integer():
        assert Decimal(str(np.float32(stored))) == Decimal(repr(value)) or stored == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4))
def test_decimals_fit_or_are_refused(value: Decimal) -> None:
    """A decimal column stores the exact number with its own scale."""
    stored, reason = attempt(DecimalType(12, 3), value)
    if reason is not None:
        assert reason in ("out_of_range", "lost_fraction")
        return
    assert stored == value
    assert stored.as_tuple().exponent == -3


@pytest.mark.parametrize(
    "text", ["1E+1000000000", "-1E+999999999", "1E-1000000000", "0E+999999999"]
)
def test_huge_exponents_cost_nothing(text: str) -> None:
    """A decimal of a billion digits is never built."""
    for column in (LongType(), DecimalType(38, 10), DoubleType(), FloatType(), DateType()):
        stored, reason = attempt(column, Decimal(text))
        assert reason in REASONS or stored == 0


@given(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)))  # noqa: DTZ001 - naive on purpose
def test_iso_texts_are_instants(value: dt.datetime) -> None:
    """ISO text and datetime of an instant convert to the same number, with and without zone."""
    expected = (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001
    for column in (TimestampType(), TimestamptzType()):
        convert = column_converter(column, OPTIONS)
        assert convert(value) == convert(value.isoformat()) == expected
        assert convert(value.isoformat(" ") + "Z") == expected
    shifted = column_converter(TimestamptzType(), OPTIONS)(value.isoformat() + "-05:30")
    assert shifted == expected + (5 * 60 + 30) * 60_000_000


@given(st.integers(-5_000_000, 5_000_000), st.integers(1, 12), st.integers(1, 28))
def test_days_of_any_year_are_converted(year: int, month: int, day: int) -> None:
    """The calendar repeats every 400 years, before and after year 1."""
    assert days_from_civil(year + 400, month, day) - days_from_civil(year, month, day) == 146_097


@pytest.mark.parametrize(
    ("unit", "value", "micros"),
    [
        ("ms", 1_500, 1_500_000),
        ("us", 1_500, 1_500),
        ("s", 1_500, 1_500_000_000),
        ("s", 1.5, 1_500_000),
        ("s", Decimal("-0.0000015"), -2),
    ],
)
def test_plain_numbers_have_the_configured_unit(
    unit: TimestampUnit, value: Any, micros: int
) -> None:
    """``iceberg.tables.timestamp-unit``; seconds may have a fraction."""
    options = ConversionOptions(timestamp_unit=unit)
    assert column_converter(TimestampType(), options)(value) == micros


@pytest.mark.parametrize(
    ("unit", "value", "nanos"),
    [
        ("ms", 1_500, 1_500_000_000),
        ("us", 1_500, 1_500_000),
        ("s", 1_500, 1_500_000_000_000),
        ("s", 1.5, 1_500_000_000),
        ("s", Decimal("-0.0000000015"), -2),
        ("ns", 1_500, 1_500),
        ("ms", "1970-01-01T00:00:01.123456789", 1_123_456_789),
        ("ms", "1969-12-31T23:59:59.999999999+00:00", -1),
        ("ms", "2262-04-11T23:47:16.854775807", 2**63 - 1),
        ("ms", Timestamp(1, 234_567), 1_234_567),
        ("ms", Time(1), 1_000_000),
        ("ms", Date(-1), -86_400_000_000_000),
        ("ms", dt.datetime(1970, 1, 1, 0, 0, 1, 5), 1_000_005_000),  # noqa: DTZ001 - local time
    ],
)
def test_nanoseconds_are_kept(unit: TimestampUnit, value: Any, nanos: int) -> None:
    """In columns of format version 3, in both of them; no digit is lost, and none is counted."""
    options = ConversionOptions(timestamp_unit=unit, losses=TruncationCounts())
    for column in (TimestampNanoType(), TimestamptzNanoType()):
        assert column_converter(column, options)(value) == nanos
    assert unit == "s" or options.losses.sub_micro == 0


def test_instants_beyond_nanoseconds_are_refused() -> None:
    """64 bits of nanoseconds reach from 1677 to 2262; an offset needs a column with zone."""
    for value in ("2262-04-11T23:47:16.854775808", "1600-01-01T00:00:00", 2**62, Date(10**6)):
        assert attempt(TimestampNanoType(), value) == (None, "out_of_range")
    assert attempt(TimestampNanoType(), "2024-01-01T00:00:00+01:00") == (None, "zone")


def test_cut_digits_are_counted() -> None:
    """Nanoseconds are truncated and counted."""
    options = ConversionOptions(losses=TruncationCounts())
    convert = column_converter(TimestampType(), options)
    assert convert("2024-01-01T00:00:00.123456789") == convert("2024-01-01T00:00:00.123456")
    assert convert("2024-01-01T00:00:00.123456000") == convert("2024-01-01T00:00:00.123456")
    assert options.losses.sub_micro == 1


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_java_texts_of_doubles_read_back(value: float) -> None:
    """The Java text of a double has the same value and Java's format."""
    text = java_double(value)
    assert float(text) == value
    assert "." in text
    assert math.copysign(1, float(text)) == math.copysign(1, value)
    assert ("E" in text) == (value != 0 and not 1e-3 <= abs(value) < 1e7)


@given(st.integers(-(2**100), 2**100), st.integers(-5, 20))
def test_unscaled_bytes_read_back(unscaled: int, scale: int) -> None:
    """The shortest two's complement, as BigInteger writes it."""
    digits = tuple(map(int, str(abs(unscaled))))
    data = unscaled_bytes(Decimal((int(unscaled < 0), digits, -scale)))
    assert int.from_bytes(data, "big", signed=True) == unscaled
    assert len(data) == (unscaled if unscaled >= 0 else -unscaled - 1).bit_length() // 8 + 1


OPTIONAL: Any = {"element_required": False}
TABLE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(
        2,
        "s",
        StructType(
            NestedField(
                3, "l", ListType(4, StructType(NestedField(5, "n", IntegerType())), **OPTIONAL)
            )
        ),
    ),
    NestedField(6, "m", MapType(7, StringType(), 8, LongType(), value_required=True)),
)


@pytest.mark.parametrize(
    ("value", "reason", "path"),
    [
        ({}, "required_null", ["id"]),
        ({"id": None}, "required_null", ["id"]),
        ({"id": 1, "s": {"l": [{"n": 1}, {"n": "x"}]}}, "bad_text", ["s", "l", "element", "n"]),
        ({"id": 1, "m": {"k": None}}, "required_null", ["m", "value"]),
        ({"id": 1, "m": {"k": "x"}}, "bad_text", ["m", "value"]),
        ({"id": 1, "s": [1]}, "wrong_type", ["s"]),
        ({None: 1, "id": 1}, "wrong_type", []),
    ],
)
def test_refusals_name_the_column(value: Any, reason: str, path: list[str]) -> None:
    """An error contains the path of the column, also in lists and maps."""
    with pytest.raises(Unconvertible) as refused:
        RowConverter(TABLE, OPTIONS).row(value)
    assert refused.value.reason == reason
    assert refused.value.path == path


def test_names_match_without_case_if_configured() -> None:
    """At all levels; two fields for one column are an error."""
    convert = RowConverter(TABLE, ConversionOptions(case_insensitive=True))
    row = convert.row({"ID": 1, "S": {"L": [{"N": 2}]}, "other": 3})
    assert row == {"id": 1, "s": {"l": [{"n": 2}]}, "m": None}
    with pytest.raises(Unconvertible) as refused:
        convert.row({"id": 1, "ID": 2})
    assert refused.value.reason == "ambiguous_name"


def test_defaults_replace_nulls_of_structs() -> None:
    """As Struct.get does in Java."""
    schema = ConnectSchema(
        "struct", fields=(("id", ConnectSchema("int64", default=7, has_default=True)),)
    )
    convert = RowConverter(TABLE, OPTIONS)
    assert convert.row(Struct(schema, {"id": None}))["id"] == 7
    assert convert.row(Struct(schema, {"id": 1}))["id"] == 1


def test_routes_use_the_texts_of_java() -> None:
    """``Object.toString`` of the route value."""
    value = {"a": [1, "x", None, True, 5.0], "b": {"c": 1e20}}
    assert java_text(value) == "{a=[1, x, null, true, 5.0], b={c=1.0E20}}"
    assert java_text(uuid.UUID(int=0)) == "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "Thu Jan 01 00:00:00 UTC 1970"),
        (-1, "Wed Dec 31 23:59:59 UTC 1969"),
        (253_402_300_800_000, "Sat Jan 01 00:00:00 UTC 10000"),
        (2**63 - 1, "Sun Aug 17 07:12:55 UTC 292278994"),
    ],
)
def test_instants_in_routes_have_any_year(millis: int, text: str) -> None:
    """``java.util.Date.toString``, in UTC."""
    assert java_text(Timestamp(millis)) == text
