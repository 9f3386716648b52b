"""Tables of a report: the latest record of each key, and columns from all records."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from connect.model.records import KafkaRecord
from connect.operations.report.duckdb_query import run_query
from connect.operations.report.kept_records import KeptRecords, ReportLimits, ReportTooLarge
from connect.operations.report.record_table import RecordTable, UnusableRecords
from connect.operations.report.topic_report import converter_config
from connect.records.conversion.row_converter import ConversionOptions
from connect.records.converters.record_converters import ConvertersByTopic
from connect.validation.parse import parse

SCHEMALESS = {
    f"{side}.converter{option}": value
    for side in ("key", "value")
    for option, value in (
        ("", "org.apache.kafka.connect.json.JsonConverter"),
        (".schemas.enable", "false"),
    )
}
WITH_SCHEMA = {**SCHEMALESS, "value.converter.schemas.enable": "true"}


def record(offset: int, key: Any, value: Any, *, partition: int = 0, ms: int = 0) -> KafkaRecord:
    """A record with JSON of the key and the value; None is null, bytes are as they are."""

    def encoded(data: Any) -> bytes | None:
        return data if data is None or isinstance(data, bytes) else json.dumps(data).encode()

    return KafkaRecord("t", partition, offset, ms, 0, encoded(key), encoded(value))


def limits(records_max: int = 1_000, bytes_max: int = 2**20) -> ReportLimits:
    return ReportLimits(records_max, bytes_max)


def latest(*records: KafkaRecord) -> list[tuple[int, int]]:
    """Partition and offset of the records that a table has."""
    kept = KeptRecords(limits(), is_latest=True)
    kept.add(records)
    return [(each.partition, each.offset) for each in kept.rows()]


def table(
    *records: KafkaRecord, options: dict[str, str] = SCHEMALESS, bytes_max: int = 2**20
) -> tuple[pa.Table, UnusableRecords]:
    config = parse(converter_config({"t": "t"}, options), node={})
    by = ConvertersByTopic(config).of("t")
    unusable = UnusableRecords()
    shared = limits(bytes_max=bytes_max)
    made = RecordTable(by.key, by.value, ConversionOptions(), shared, unusable).of(records)
    return made, unusable


def test_the_latest_record_of_each_key_is_kept() -> None:
    """Also when the older one is of another batch."""
    kept = KeptRecords(limits(), is_latest=True)
    kept.add([record(0, 1, {"a": 1}), record(1, 2, {"a": 2})])
    kept.add([record(2, 1, {"a": 3})])
    assert [each.offset for each in kept.rows()] == [1, 2]


def test_a_tombstone_removes_its_key_until_a_later_record() -> None:
    """As in a compacted topic."""
    assert latest(record(0, 1, {}), record(1, 1, None)) == []
    assert latest(record(0, 1, {}), record(1, 1, None), record(2, 1, {})) == [(0, 2)]


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_key_in_two_partitions_has_its_latest_timestamp(is_reversed: bool) -> None:
    """After partitions were added, in any order of reading; a later tombstone removes the key."""
    pairs = [
        (record(5, "moved", {}, ms=10), record(0, "moved", {}, partition=1, ms=20)),
        (record(6, "gone", {}, ms=10), record(1, "gone", None, partition=1, ms=20)),
    ]
    records = [each for pair in pairs for each in (reversed(pair) if is_reversed else pair)]
    assert latest(*records) == [(1, 0)]


def test_all_records_are_kept_on_request() -> None:
    """Also tombstones and records without a key."""
    kept = KeptRecords(limits(), is_latest=False)
    kept.add([record(0, 1, {}), record(1, 1, None), record(2, None, {})])
    assert [each.offset for each in kept.rows()] == [0, 1, 2]


def test_records_without_a_key_have_no_latest_value() -> None:
    """They are kept apart, to be reported."""
    kept = KeptRecords(limits(), is_latest=True)
    kept.add([record(0, None, {}), record(1, 1, {})])
    assert [each.offset for each in kept.without_key] == [0]
    assert [each.offset for each in kept.rows()] == [1]


def test_limits_hold_for_kept_records_only() -> None:
    """A superseded record does not count; the limit is shared by all tables."""
    shared = limits(records_max=2)
    first, second = (KeptRecords(shared, is_latest=True) for _ in range(2))
    first.add([record(n, 1, {}) for n in range(100)])
    second.add([record(0, 1, {})])
    with pytest.raises(ReportTooLarge, match="more than 2 records: raise --max-records"):
        second.add([record(1, 2, {})])


def test_memory_is_limited() -> None:
    """A smaller record in place of a larger one frees memory."""
    kept = KeptRecords(limits(bytes_max=10_000), is_latest=True)
    kept.add([record(n, 1, b"x" * 9_000) for n in range(3)])
    with pytest.raises(ReportTooLarge, match="raise --max-bytes"):
        kept.add([record(3, 2, b"x" * 9_000)])


WIDE: list[Callable[[int], Any]] = [
    lambda n: {f"field{n}": n},
    lambda n: {"in": {f"field{n}": n}},
    lambda n: {"list": [{f"field{n}": n}]},
    lambda n: {"list": [{}] * 1_000 + [{f"field{n % 100}": n}]},
]


@pytest.mark.parametrize("value", WIDE)
def test_the_memory_of_tables_is_limited(value: Callable[[int], Any]) -> None:
    """Fields that only one record has take memory in all of them."""
    few, many = ([record(n, n, value(n)) for n in range(count)] for count in (3, 1_000))
    assert table(*few)[0].num_rows == 3
    with pytest.raises(ReportTooLarge, match="raise --max-bytes"):
        table(*many)


def test_the_fields_of_a_topic_are_limited() -> None:
    """Names that are data would make a column each."""
    with pytest.raises(ReportTooLarge, match="more than 10,000 fields"):
        table(*(record(n, n, {f"{n}-{i}": i for i in range(3_000)}) for n in range(4)))


@pytest.mark.parametrize("levels", [41, 300, 900])
def test_a_deep_value_is_text(levels: int) -> None:
    """Engines read no type of so many levels; other records are not affected."""
    text = "[" * levels + "]" * levels
    deep = KafkaRecord("t", 0, 0, 0, 0, b"1", b'{"a": %s, "b": 1}' % text.encode())
    made, unusable = table(deep, record(1, 2, {"b": 2}))
    result = run_query('SELECT a, b FROM "t"', {"t": made}, rows_max=9, bytes_max=2**20)
    is_usable = levels < 900  # text of more levels is not made
    assert sorted(b for _, b in result.rows) == ([1, 2] if is_usable else [2])
    assert unusable.count == (0 if is_usable else 1)


def test_columns_are_the_fields_of_all_records() -> None:
    """A record without a field has null; the record's own columns are there, too."""
    made, unusable = table(
        record(3, {"id": 1}, {"a": 1, "s": {"x": 1}}, partition=2, ms=1_000),
        record(4, {"id": 2}, {"b": "two", "s": {"y": [1, 2.5]}}),
    )
    assert unusable.count == 0
    rows = made.drop_columns(["_timestamp"]).to_pylist()
    assert rows == [
        {
            "_key": {"id": 1},
            "a": 1,
            "s": {"x": 1, "y": None},
            "b": None,
            "_partition": 2,
            "_offset": 3,
        },
        {
            "_key": {"id": 2},
            "a": None,
            "s": {"x": None, "y": [1.0, 2.5]},
            "b": "two",
            "_partition": 0,
            "_offset": 4,
        },
    ]
    assert made.column("_timestamp").cast(pa.int64()).to_pylist() == [1_000, 0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ([1, "x"], ["1", "x"]),
        ([True, {"a": 1}], ["true", '{"a":1}']),
        ([[1], [None]], [[1], [None]]),
        ([[1], ["x"]], [["1"], ["x"]]),
        ([[], {}], ["[]", "{}"]),
        ([2**70, 1], [str(2**70), "1"]),
        ([None, None], [None, None]),
    ],
)
def test_values_of_different_types_have_a_common_type(
    values: list[Any], expected: list[Any]
) -> None:
    """Numbers are widened; other mixtures are text."""
    made, unusable = table(*(record(n, n, {"a": value}) for n, value in enumerate(values)))
    assert (made.column("a").to_pylist(), unusable.count) == (expected, 0)


def test_schemas_of_a_topic_are_united() -> None:
    """Records with two versions of a schema: a new column, and a wider one."""

    def with_schema(value: dict[str, Any], **types: str) -> dict[str, Any]:
        fields = [{"field": name, "type": kind, "optional": True} for name, kind in types.items()]
        return {"schema": {"type": "struct", "fields": fields}, "payload": value}

    made, unusable = table(
        record(0, 1, with_schema({"a": 1}, a="int32")),
        record(1, 2, with_schema({"a": 2**40, "b": 1.5}, a="int64", b="double")),
        options=WITH_SCHEMA,
    )
    assert unusable.count == 0
    assert made.select(["a", "b"]).to_pylist() == [{"a": 1, "b": None}, {"a": 2**40, "b": 1.5}]


def test_decimals_of_different_scales_have_a_common_scale() -> None:
    """No digit is lost."""
    scales = ((2, "MDk="), (0, "BQ=="))

    def with_scale(scale: int, payload: str) -> dict[str, Any]:
        name = "org.apache.kafka.connect.data.Decimal"
        kind = {"type": "bytes", "name": name, "parameters": {"scale": str(scale)}, "field": "d"}
        return {"schema": {"type": "struct", "fields": [kind]}, "payload": {"d": payload}}

    made, unusable = table(
        *(record(n, n, with_scale(*each)) for n, each in enumerate(scales)), options=WITH_SCHEMA
    )
    assert unusable.examples == []
    texts = [str(Decimal(value)) for value in made.column("d").to_pylist()]
    assert texts in (["123.45", "5.00"], ["123.45", "5"])


def test_values_without_fields_have_a_column() -> None:
    """In a table with records that have fields."""
    made, _ = table(record(0, "k", 7), record(1, "l", {"a": 1}), record(2, "m", b"null"))
    assert made.select(["_key", "a", "_value"]).to_pylist() == [
        {"_key": "k", "a": None, "_value": 7},
        {"_key": "l", "a": 1, "_value": None},
        {"_key": "m", "a": None, "_value": None},
    ]


def test_equal_names_get_numbers() -> None:
    """The record's own columns keep their names; names in SQL are case-insensitive."""
    made, _ = table(record(9, 1, {"_Offset": 1, "a": 2, "A": 3}))
    assert made.column_names == ["_key", "_Offset_1", "a", "A_1", *made.column_names[4:]]
    assert made.select(["_offset", "_Offset_1", "a", "A_1"]).to_pylist() == [
        {"_offset": 9, "_Offset_1": 1, "a": 2, "A_1": 3}
    ]


def test_records_that_cannot_be_decoded_are_counted_with_coordinates() -> None:
    """Without their content; the others are in the table."""
    bad = [record(n, n, b"{secret-5d") for n in range(1, 31)]
    made, unusable = table(record(0, 0, {"a": 1}), *bad)
    assert (made.num_rows, unusable.count, len(unusable.examples)) == (1, 30, 20)
    assert unusable.examples[0].startswith("t-0@1: VALUE_CONVERTER: ")
    assert "secret-5d" not in " ".join(unusable.examples)


def test_an_empty_topic_is_a_table_with_the_own_columns() -> None:
    """A query can count its rows."""
    made, _ = table()
    assert (made.num_rows, made.column_names) == (
        0,
        ["_key", "_partition", "_offset", "_timestamp"],
    )


def test_types_of_schemas_are_columns_of_sql() -> None:
    """Logical types, lists, maps, structs and bytes, as the engine returns them."""
    connect = "org.apache.kafka.connect.data."
    fields: dict[str, tuple[dict[str, Any], Any]] = {
        "at": ({"type": "int64", "name": f"{connect}Timestamp"}, 1_700_000_000_123),
        "day": ({"type": "int32", "name": f"{connect}Date"}, 1),
        "time": ({"type": "int32", "name": f"{connect}Time"}, 1_500),
        "flag": ({"type": "boolean"}, True),
        "small": ({"type": "float"}, 0.5),
        "raw": ({"type": "bytes"}, "AP8="),
        "list": ({"type": "array", "items": {"type": "string"}}, ["x"]),
        "map": (
            {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}},
            {"k": 1},
        ),
        "inner": ({"type": "struct", "fields": [{"field": "x", "type": "int32"}]}, {"x": 3}),
    }
    kinds = [{**kind, "field": name} for name, (kind, _) in fields.items()]
    payload = {name: value for name, (_, value) in fields.items()}
    value = {"schema": {"type": "struct", "fields": kinds}, "payload": payload}
    made, unusable = table(record(0, {"id": 5}, value), options=WITH_SCHEMA)
    assert unusable.examples == []
    sql = (
        "SELECT t.at::VARCHAR, t.day::VARCHAR, t.time::VARCHAR, t.flag, t.small, t.raw, t.list, "
        "t.map['k'], t.inner.x, t._key.id FROM t"
    )
    result = run_query(sql, {"t": made}, rows_max=10, bytes_max=2**26)
    assert result.rows == (
        (
            "2023-11-14 22:13:20.123+00",
            "1970-01-02",
            "00:00:01.5",
            True,
            0.5,
            b"\x00\xff",
            ["x"],
            1,
            3,
            5,
        ),
    )
