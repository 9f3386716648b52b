"""Values of Debezium's types, with schemas and without, by column and by record."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
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

from connect.model.records import Struct
from connect.records.conversion.conversion_failure import REASONS, Unconvertible
from connect.records.conversion.row_converter import ConversionOptions, RowConverter
from connect.records.tables.schema_evolution import changes
from connect.records.tables.table_creation import schema_for_record
from tests.differential.both_paths import ALL, both
from tests.differential.support import config, plan, rows_of, run_batches, source
from tests.golden.records_model import schema_of
from tests.support.records_page import read

CHAIN = {
    "transforms": "i",
    "transforms.i.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.i.exclude": "unused",
}
_TRANSFORMS = "org.apache.kafka.connect.transforms."
LOSING = {  # the value becomes a map without a schema
    "transforms": "i",
    "transforms.i.type": "icefloe.transforms.ParseTimestamp",
    "transforms.i.fields": "unused",
}
_CONNECT = "org.apache.kafka.connect.data."
VARIABLE = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
}
MICRO_TIME = {"type": "int64", "name": "io.debezium.time.MicroTime"}
NANO_TIME = {"type": "int64", "name": "io.debezium.time.NanoTime"}
_TIME, _DATA = "io.debezium.time.", "io.debezium.data."
DAYS = {"type": "int32", "name": _TIME + "Date"}
CLOCK = {"type": "int32", "name": _TIME + "Time"}
YEAR = {"type": "int32", "name": _TIME + "Year"}
MILLIS = {"type": "int64", "name": _TIME + "Timestamp"}
MICROS = {"type": "int64", "name": _TIME + "MicroTimestamp"}
NANOS = {"type": "int64", "name": _TIME + "NanoTimestamp"}
DURATION = {"type": "int64", "name": _TIME + "MicroDuration"}
ZONED = {"type": "string", "name": _TIME + "ZonedTimestamp"}
ZONED_TIME = {"type": "string", "name": _TIME + "ZonedTime"}
INTERVAL = {"type": "string", "name": _TIME + "Interval"}
ISO = {"type": "string", "name": _TIME + "IsoTimestamp"}
ID = {"type": "string", "name": _DATA + "Uuid"}
ENUM = {"type": "string", "name": _DATA + "Enum", "parameters": {"allowed": "sad,happy"}}
BITS = {"type": "bytes", "name": _DATA + "Bits", "parameters": {"length": "5"}}
VARBIT = {"type": "bytes", "name": _DATA + "Bits", "parameters": {"length": "2147483647"}}
POINT = {
    "type": "struct",
    "name": _DATA + "geometry.Point",
    "fields": [
        {"field": "x", "type": "double"},
        {"field": "y", "type": "double"},
        {"field": "wkb", "type": "bytes", "optional": True},
        {"field": "srid", "type": "int32", "optional": True},
    ],
}
_POINT = '{"x":1.5,"y":2.0,"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAABA","srid":null}'
# with the default mode, and the type of the source's column
_SOURCE_TYPE = {"__debezium.source.column.type": "BIGINT UNSIGNED"}
UNSIGNED_LONG = {"type": "int64", "parameters": _SOURCE_TYPE}
WKB = bytes.fromhex("0101000000000000000000f83f0000000000000040")
UUID_TEXT = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
_DAY_US = 86_400_000_000
# BIGINT UNSIGNED of MySQL: bigint.unsigned.handling.mode=precise
UNSIGNED = {"type": "bytes", "name": _CONNECT + "Decimal", "parameters": {"scale": "0"}}


@pytest.mark.parametrize(
    ("field", "column", "value", "stored"),
    [
        (MICRO_TIME, TimeType(), "5000000", 5_000_000),
        (MICRO_TIME, TimeType(), "86400000000", "out_of_range"),
        (MICRO_TIME, LongType(), "5000000", 5_000_000),
        (NANO_TIME, TimeType(), "5000000000", 5_000_000),
        (NANO_TIME, TimeType(), "5000000001", 5_000_000),
        ({"type": "double"}, DoubleType(), '"Infinity"', math.inf),
        ({"type": "float"}, FloatType(), '"-Infinity"', -math.inf),
        ({"type": "double"}, DecimalType(10, 2), '"NaN"', "not_a_number"),
        ({"type": "double"}, DoubleType(), '"1.5"', "bad_envelope"),
        ({"type": "int64"}, LongType(), '"NaN"', "bad_envelope"),
        (UNSIGNED, DecimalType(20, 0), '"AP//////////"', Decimal(2**64 - 1)),
        (UNSIGNED, DecimalType(20, 0), '"AIAAAAAAAAAA"', Decimal(2**63)),
        (UNSIGNED, DecimalType(20, 0), '"AA=="', Decimal(0)),
        (UNSIGNED, DecimalType(20, 0), "18446744073709551615", Decimal(2**64 - 1)),
        (UNSIGNED, LongType(), '"f/////////8="', 2**63 - 1),
        (UNSIGNED, LongType(), '"AIAAAAAAAAAA"', "out_of_range"),
        ({"type": "int64"}, DecimalType(20, 0), "-1", Decimal(-1)),
        ({"type": "int64"}, LongType(), "-9223372036854775808", -(2**63)),
        (VARIABLE, DecimalType(10, 2), '{"scale":1,"value":"AP8="}', Decimal("25.50")),
        (VARIABLE, DecimalType(10, 2), '{"scale":-2,"value":"/w=="}', Decimal("-100.00")),
        (VARIABLE, DecimalType(10, 2), '{"scale":0,"value":""}', Decimal("0.00")),
        (VARIABLE, DecimalType(10, 2), '{"scale":3,"value":"AQ=="}', "lost_fraction"),
        (VARIABLE, DecimalType(4, 2), '{"scale":0,"value":"AP8="}', "out_of_range"),
        (VARIABLE, DecimalType(10, 2), '{"scale":2000000000,"value":"AQ=="}', "out_of_range"),
        (VARIABLE, StringType(), '{"scale":1,"value":"AP8="}', "25.5"),
        (VARIABLE, LongType(), '{"scale":-2,"value":"/w=="}', -100),
        (VARIABLE, LongType(), '{"scale":1,"value":"AP8="}', "lost_fraction"),
        (VARIABLE, DoubleType(), '{"scale":1,"value":"AP8="}', 25.5),
        (DAYS, DateType(), "-43829", -43_829),
        (DAYS, IntegerType(), "-43829", -43_829),
        (DAYS, LongType(), "19782", 19_782),
        (DAYS, StringType(), "19782", "19782"),
        (DAYS, TimestampType(), "-1", -_DAY_US),
        (DAYS, TimestamptzType(), "2147483647", "out_of_range"),
        (DAYS, TimestampNanoType(), "1", _DAY_US * 1_000),
        (DAYS, TimeType(), "1", "out_of_range"),
        (YEAR, IntegerType(), "2024", 2_024),
        (YEAR, StringType(), "2024", "2024"),
        (YEAR, DateType(), "2024", 19_723),
        (YEAR, DateType(), "0", -719_528),
        (YEAR, DateType(), "40000", 13_890_172),
        (YEAR, TimestampType(), "1901", -25_202 * _DAY_US),
        (YEAR, TimestamptzNanoType(), "1970", 0),
        (YEAR, IntegerType(), "40000", 40_000),
        (CLOCK, TimeType(), "3723123", 3_723_123_000),
        (CLOCK, TimeType(), "86400000", "out_of_range"),
        (CLOCK, IntegerType(), "3723123", 3_723_123),
        (CLOCK, DateType(), "1", "wrong_type"),
        (MICRO_TIME, DateType(), "1", "wrong_type"),
        (DURATION, LongType(), "-1", -1),
        (DURATION, TimeType(), "5000000", 5_000_000),
        (DURATION, DateType(), "1", "wrong_type"),
        (INTERVAL, StringType(), '"P1Y2M3DT4H5M6.789S"', "P1Y2M3DT4H5M6.789S"),
        (MILLIS, DateType(), "-1", -1),
        (MICROS, DateType(), "1709168523123456", 19_782),
        (MICROS, DateType(), "5", 0),
        (MICROS, TimestampType(), "9223372036825200000", 9_223_372_036_825_200_000),
        (NANOS, DateType(), "-1", -1),
        (NANOS, TimestampType(), "-1", -1),
        (NANOS, TimestampNanoType(), "-1", -1),
        (ZONED, TimestamptzType(), '"1970-01-01T01:00:00+01:00"', 0),
        (ZONED, TimestampType(), '"1970-01-01T00:00:00.000001Z"', 1),
        (ZONED, DateType(), '"1970-01-01T00:30:00+01:00"', -1),
        (ZONED, TimestamptzType(), '"infinity"', "bad_text"),
        (ISO, DateType(), '"1970-01-02T23:00:00Z"', 1),
        (ZONED_TIME, TimeType(), '"00:00:01.000001Z"', 1_000_001),
        (ID, UUIDType(), f'"{UUID_TEXT}"', UUID(UUID_TEXT)),
        (ID, BinaryType(), f'"{UUID_TEXT}"', UUID(UUID_TEXT).bytes),
        (ID, FixedType(16), f'"{UUID_TEXT}"', UUID(UUID_TEXT).bytes),
        (ID, StringType(), f'"{UUID_TEXT}"', UUID_TEXT),
        (ENUM, StringType(), '"sad"', "sad"),
        (BITS, BinaryType(), '"Fg=="', b"\x16"),
        (BITS, LongType(), '"Fg=="', 22),
        (BITS, DecimalType(20, 0), '"////////////"', "out_of_range"),
        (BITS, DecimalType(20, 0), '"//////////8="', Decimal(2**64 - 1)),
        (BITS, StringType(), '"BQ=="', "00101"),
        (VARBIT, StringType(), '"BQ=="', "101"),
        (POINT, BinaryType(), _POINT, WKB),
        (UNSIGNED_LONG, DecimalType(20, 0), "-1", Decimal(2**64 - 1)),
        (UNSIGNED_LONG, DecimalType(20, 0), "5", Decimal(5)),
        (UNSIGNED_LONG, LongType(), "-1", -1),
    ],
)
def test_types_of_debezium_go_into_typed_columns(
    tmp_path: Path, field: dict[str, Any], column: IcebergType, value: str, stored: Any
) -> None:
    """By their unit and scale, with both paths alike."""
    schema = json.dumps({"type": "struct", "fields": [{"field": "c", "optional": True, **field}]})
    line = f'{{"schema":{schema},"payload":{{"c":{value}}}}}'.encode()
    connector = config(**ALL, **{"value.converter.schemas.enable": "true"})
    table = plan(tmp_path, Schema(NestedField(1, "c", column, required=False)))
    for reference_only in (False, True):
        result = run_batches(connector, [table], [source([line])], reference_only=reference_only)
        codes = [letter.error.code for letter in result.dead_letters]
        rows = [row["c"] for row in rows_of(result, "db.t1")]
        is_code = stored in {*REASONS, "bad_envelope"}
        assert (codes, rows) == (([stored], []) if is_code else ([], [stored]))


_COLUMNS = (
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), StringType()),
    *(DecimalType(20, 0), DateType(), TimeType(), TimestampType(), TimestamptzType()),
    *(TimestampNanoType(), TimestamptzNanoType(), UUIDType(), BinaryType(), FixedType(16)),
)
_OF_NAMES: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    *((field, ("0", "-1", "2024", "86400000", "2147483647")) for field in (DAYS, CLOCK, YEAR)),
    *(
        (field, ("0", "-1", "1709168523123456", "86400000000", str(2**63 - 1), str(-(2**63))))
        for field in (MILLIS, MICROS, NANOS, MICRO_TIME, NANO_TIME, DURATION, UNSIGNED_LONG)
    ),
    *(
        (field, ('"2024-02-29T01:02:03.5Z"', '"01:02:03Z"', '"infinity"', f'"{UUID_TEXT}"', '"5"'))
        for field in (ZONED, ZONED_TIME, INTERVAL, ISO, ID, ENUM)
    ),
    *((field, ('"Fg=="', '""', '"//////////8="')) for field in (BITS, VARBIT)),
    (VARIABLE, ('{"scale":0,"value":"AP8="}', '{"scale":1,"value":"AP8="}')),
    (POINT, (_POINT,)),
)


@pytest.mark.parametrize("field", [field for field, _ in _OF_NAMES])
def test_other_values_than_the_schema_says_are_refused(field: dict[str, Any]) -> None:
    """A custom transformation may leave them; they are errors of the record."""
    schema = schema_of({"type": "struct", "fields": [{"field": "c", **field}]})
    assert schema is not None
    for column in _COLUMNS:
        converter = RowConverter(
            Schema(NestedField(1, "c", column, required=False)), ConversionOptions()
        )
        for value in ([1], {"a": 1}, 1.5, "x", b"x", 2**70, True):
            with suppress(Unconvertible):
                converter.row(Struct(schema, {"c": value}))


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_each_type_of_debezium_goes_alike_into_each_column(tmp_path: Path, unit: str) -> None:
    """Stored or refused, on both paths: alone, in lists, in maps, behind transformations."""
    names = [f"c{number}" for number in range(len(_COLUMNS))]
    columns = [
        NestedField(i, n, c, required=False)
        for i, (n, c) in enumerate(zip(names, _COLUMNS, strict=True), 1)
    ]
    times = ListType(101, TimestampType(), element_required=False)
    by_name = MapType(104, StringType(), 105, TimestampType(), value_required=False)
    table = Schema(
        *columns,
        NestedField(100, "all", times, required=False),
        NestedField(103, "each", by_name, required=False),
    )
    extra = {"value.converter.schemas.enable": "true", "iceberg.tables.timestamp-unit": unit}
    batches, count = [], 0
    for field, values in _OF_NAMES:
        fields = [{"field": n, **field, "optional": True} for n in names]
        fields.append({"field": "all", "type": "array", "items": field, "optional": True})
        keyed = {"type": "map", "keys": {"type": "string"}, "values": field, "optional": True}
        fields.append({"field": "each", **keyed})
        schema = json.dumps({"type": "struct", "fields": fields})
        lines = [
            f'{{"schema":{schema},"payload":{{"{name}":{text}}}}}'.encode()
            for value in values
            for name, text in (
                *((n, value) for n in names),
                ("all", f"[{value}]"),
                ("each", f'{{"a":{value}}}'),
            )
        ]
        batches.append(source(lines, start=count))
        count += len(lines)
    for chain in ({}, CHAIN, LOSING):
        connector = config(**ALL, **extra, **chain)
        by_column, by_record = both(connector, [plan(tmp_path, table)], batches)
        assert by_column == by_record
        assert len(by_column["rows"]["db.t1"]) > count // 3


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s"])
def test_numbers_without_schema_have_the_configured_unit(tmp_path: Path, unit: str) -> None:
    """In timestamp and time columns, by column and by record; days are days."""
    factor = {"ns": 0.001, "us": 1, "ms": 1_000, "s": 1_000_000}[unit]
    number = 3_723_123_000 if unit == "ns" else 3_723
    kinds = (TimeType(), TimestampType(), TimestamptzType(), DateType())
    table = Schema(*(NestedField(i, f"c{i}", k, required=False) for i, k in enumerate(kinds, 1)))
    values = (number, -number, number + 1, float(number), 86_400_000_000_000, 1.5, 2**62)
    lines = [f'{{"c{i}":{value}}}'.encode() for i in (1, 2, 3, 4) for value in values]
    lines.append(f'{{"c1":{number},"c2":{number},"c3":{number},"c4":1}}'.encode())
    connector = config(**ALL, **{"iceberg.tables.timestamp-unit": unit})
    given = [source(lines)]
    by_column, by_record = both(connector, [plan(tmp_path, table)], given)
    assert by_column == by_record
    stored = rows_of(run_batches(connector, [plan(tmp_path, table)], given), "db.t1")
    micros = int(number * factor)
    assert {"c1": micros, "c2": micros, "c3": micros, "c4": 1} in stored


def test_a_decimal_of_variable_scale_without_schema(tmp_path: Path) -> None:
    """Its bytes are base64, as JsonConverter writes them."""
    table = plan(tmp_path, Schema(NestedField(1, "c", DecimalType(10, 2), required=False)))
    lines = [b'{"c":{"scale":1,"value":"AP8="}}', b'{"c":{"scale":1}}', b'{"c":1.5}']
    by_column, by_record = both(config(**ALL), [table], [source(lines)])
    assert by_column == by_record
    assert len(by_column["rows"]["db.t1"]) == 2
    assert [letter[2] for letter in by_column["letters"]] == ["wrong_type"]


_EVENTS = Path(__file__).parents[1] / "data" / "debezium-rows.jsonl"
RECORDED = {
    event["source"]: event["value"] for event in map(json.loads, _EVENTS.read_text().splitlines())
}
_CLOCK_US, _STAMP_US = 3_723_123_456, 1_709_168_523_123_456
# columns whose type is not that of the Java sink, with the values of the database
POSTGRES: dict[str, tuple[str, Any]] = {
    "day": ("date", 19_782),
    "t": ("time", _CLOCK_US),
    "t3": ("time", 3_723_123_000),
    "t0": ("time", 3_723_000_000),
    "tz": ("time", 82_923_123_456),
    "ts": ("timestamp", _STAMP_US),
    "ts3": ("timestamp", 1_709_168_523_123_000),
    "ts0": ("timestamp", 1_709_168_523_000_000),
    "tstz": ("timestamptz", _STAMP_US - 7_200_000_000),
    "tstz3": ("timestamptz", 1_709_161_323_123_000),
    "n": ("string", "12345.678"),
    "n2": ("decimal(12, 2)", Decimal("1234567890.12")),
    "n40": ("string", "12345678901234567890123456789012345678.12"),
    "u": ("uuid", UUID(UUID_TEXT)),
    "arr": ("list<date>", [19_782]),
    "ts_arr": ("list<timestamp>", [_STAMP_US]),
}
MARIADB: dict[str, tuple[str, Any]] = {
    "day": ("date", 19_782),
    "t": ("time", 3_723_000_000),
    "t6": ("time", _CLOCK_US),
    "dt": ("timestamp", 1_709_168_523_000_000),
    "dt3": ("timestamp", 1_709_168_523_123_000),
    "dt6": ("timestamp", _STAMP_US),
    "ts": ("timestamptz", 1_709_168_523_000_000),
    "ts6": ("timestamptz", _STAMP_US),
    "d": ("decimal(20, 0)", Decimal(99999999999999999999)),
    "d2": ("decimal(12, 2)", Decimal("12.34")),
    "bu": ("decimal(20, 0)", Decimal(2**64 - 1)),
}
_SAME = {  # columns that keep the type of the Java sink
    "postgres, isostring, decimals as strings": {"n", "n2"},
    "mariadb, adaptive": {"bu"},
}


@pytest.mark.parametrize("name", RECORDED)
def test_created_columns_have_the_types_of_the_source(name: str, tmp_path: Path) -> None:
    """With ``icefloe.debezium.types=typed``, in new tables and columns, with equal values."""
    event = RECORDED[name]
    known = POSTGRES if name.startswith("postgres") else MARIADB
    names = event["payload"].keys() & known.keys() - _SAME.get(name, set())
    expected = {column: known[column] for column in names}
    line = json.dumps(event).encode()
    keys = {"value.converter.schemas.enable": "true", "iceberg.tables.auto-create-enabled": "true"}
    connector = config(**ALL, **keys, **{"icefloe.debezium.types": "typed"})
    record = read(line, **keys)
    java = {f.name: f.field_type for f in schema_for_record(record, config(**keys)).fields}
    typed = schema_for_record(record, connector)
    other = {f.name: str(f.field_type) for f in typed.fields if not _is_same(f, java[f.name])}
    assert other == {column: kind for column, (kind, _) in expected.items()}
    old = Schema(NestedField(1, "id", IntegerType(), required=True))
    added = changes(old, record, connector).adds
    assert {c: str(added[c,]) for c in expected} == other
    for reference_only in (False, True):
        result = run_batches(
            connector, [plan(tmp_path, typed)], [source([line])], reference_only=reference_only
        )
        assert not result.dead_letters
        (row,) = rows_of(result, "db.t1")
        assert {c: row[c] for c in expected} == {c: value for c, (_, value) in expected.items()}


def _is_same(field: NestedField, kind: IcebergType) -> bool:
    """Whether a column has a type; the ids in structs differ."""
    of_structs = isinstance(kind, StructType) and isinstance(field.field_type, StructType)
    return of_structs or str(field.field_type) == str(kind)


_STEPS: dict[str, dict[str, str]] = {
    **{
        f"to {kind}": {"type": f"{_TRANSFORMS}Cast$Value", "spec": f"c:{kind}"}
        for kind in ("string", "int32", "float64")
    },
    "masked": {"type": f"{_TRANSFORMS}MaskField$Value", "fields": "c"},
    "replaced": {"type": f"{_TRANSFORMS}MaskField$Value", "fields": "c", "replacement": "5"},
    "too large": {
        "type": f"{_TRANSFORMS}MaskField$Value",
        "fields": "c",
        "replacement": "99999999999",
    },
    "unix": {
        "type": f"{_TRANSFORMS}TimestampConverter$Value",
        "field": "c",
        "target.type": "unix",
    },
    "instants": {"type": "icefloe.transforms.ParseTimestamp", "fields": "c", "format": "epoch"},
    "elements": {"type": "icefloe.transforms.Explode", "field": "l", "element.field": "d"},
    "queried": {"type": "icefloe.transforms.Jmespath", "fields.c": "c", "fields.d": "l[0]"},
}


@pytest.mark.parametrize("name", _STEPS)
def test_transformations_keep_or_lose_the_meaning_alike(name: str, tmp_path: Path) -> None:
    """By column and by record, for numbers of each kind of meaning."""
    batches, count = [], 0
    values = ((DAYS, [0, -1, 19_782]), (CLOCK, [0, 5]), (YEAR, [2024, 40_000]), (MICROS, [-1]))
    for field, numbers in values:
        items = {"field": "l", "type": "array", "optional": True, "items": field}
        schema = {"type": "struct", "fields": [{"field": "c", "optional": True, **field}, items]}
        payloads = [{"c": number, "l": [number]} for number in numbers] + [{"c": None, "l": None}]
        lines = [json.dumps({"schema": schema, "payload": payload}) for payload in payloads]
        batches.append(source([line.encode() for line in lines], start=count))
        count += len(lines)
    step = {f"transforms.i.{key}": value for key, value in _STEPS[name].items()}
    unit = {"value.converter.schemas.enable": "true", "iceberg.tables.timestamp-unit": "us"}
    connector = config(**ALL, **unit, transforms="i", **step)
    for kind in (LongType(), StringType(), DateType(), TimestampType(), TimeType()):
        table = Schema(*(NestedField(i, n, kind, required=False) for i, n in ((1, "c"), (2, "d"))))
        by_column, by_record = both(connector, [plan(tmp_path, table)], batches)
        assert by_column == by_record, kind
