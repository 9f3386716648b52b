"""Rows of docs/reference/records-differences.md, and how one is tried."""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
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

from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, ConfigError, RecordError
from connect.gateways.catalog.catalog import open_catalog
from connect.model.records import ConnectSchema, KafkaRecord, SinkRecord, Time, Timestamp
from connect.records.record_path import ReferencePath
from connect.records.routing import UNMATCHED
from connect.records.tables.partition_spec import spec_for
from connect.records.tables.schema_changes import apply_changes, common_type, merge
from connect.records.tables.schema_evolution import changes
from tests.differential.support import config, plan, run_batches, source
from worker.task.tables.task_tables import TaskTables

PAGE: Final = Path(__file__).parents[2] / "docs/reference/records-differences.md"


EVOLVES: Final = {"iceberg.tables.evolve-schema-enabled": "true"}


ENVELOPE: Final = {"value.converter.schemas.enable": "true"}


Trial = Callable[[Path], None]


def rows() -> Iterator[str]:
    """First cell of each row of the page's tables."""
    lines = PAGE.read_text("utf-8").splitlines()
    for before, line in itertools.pairwise(lines):
        if line.startswith("|") and not line.startswith(("|---", "| what |")):
            assert before.startswith("|")
            yield re.split(r"(?<!\\)\|", line)[1].strip()


def table(kind: IcebergType, *, required: bool = False) -> Schema:
    """One column ``c``."""
    return Schema(NestedField(1, "c", kind, required=required))


def stored(kind: IcebergType, value: Any, **keys: str) -> Any:
    """What a value in Connect's data model becomes in a column."""
    record = SinkRecord("t", 0, 0, None, value={"c": value})
    return ReferencePath(config(**keys)).row(record, table(kind))["c"]


def code(kind: IcebergType, value: Any, **keys: str) -> str:
    """Why it is refused."""
    with pytest.raises(RecordError) as refused:
        stored(kind, value, **keys)
    return refused.value.code


def read(data: bytes, headers: Any = (), **keys: str | None) -> SinkRecord:
    """A message as it comes out of converters and transformations."""
    path = ReferencePath(config(**keys))
    (record,) = path.read(KafkaRecord("t", 0, 0, None, -1, None, data, headers))
    return record


def refused(data: bytes, **keys: str | None) -> str:
    """Why a message is not read."""
    with pytest.raises(RecordError) as caught:
        read(data, **keys)
    return caught.value.code


def enveloped(payload: str, kind: str = "int32", **more: Any) -> bytes:
    """JSON with the schema of one field ``c``."""
    field = {"field": "c", "type": kind, "optional": True, **more}
    schema = json.dumps({"type": "struct", "fields": [field]})
    return b'{"schema":%s,"payload":{"c":%s}}' % (schema.encode(), payload.encode())


def into(kind: IcebergType, record: SinkRecord) -> Any:
    """Column ``c`` of a record."""
    return ReferencePath(config()).row(record, table(kind))["c"]


def out_of_range(_: Path) -> None:
    for kind, value in (
        (IntegerType(), 2**31),
        (LongType(), 2**63),
        (FloatType(), 10**39),
        (DoubleType(), 10**400),
        (DecimalType(4, 2), 100),
        (DateType(), 2**31),
        (TimestampType(), 2**63),
    ):
        assert code(kind, value) == "out_of_range", kind


def lost_fraction(_: Path) -> None:
    assert code(IntegerType(), 1.5) == code(TimestampType(), 1.5) == "lost_fraction"
    assert code(DecimalType(9, 2), Decimal("1.005")) == "lost_fraction"


def not_a_number(_: Path) -> None:
    assert code(LongType(), float("nan")) == code(DecimalType(9, 2), float("inf")) == "not_a_number"


def lost_digits(_: Path) -> None:
    assert code(FloatType(), 2**24 + 1) == code(DoubleType(), 2**53 + 1) == "lost_digits"
    assert code(DoubleType(), str(2**53 + 1)) == code(FloatType(), 1e39) == "lost_digits"


def boolean_text(_: Path) -> None:
    assert code(BooleanType(), "yes") == "bad_text"
    assert stored(BooleanType(), "TRUE") is True


def lenient(_: Path) -> None:
    assert {code(DoubleType(), text) for text in ("5d", "0x1.8p1")} == {"bad_text"}
    assert code(UUIDType(), "1-2-3-4-5") == "bad_text"


def zone(_: Path) -> None:
    assert code(TimestampType(), "2024-03-01T11:22:33+02:00") == "zone"


def merged_names(_: Path) -> None:
    record = SinkRecord("t", 0, 0, None, value={"c": 1, "C": 2})
    folding = ReferencePath(config(**{"iceberg.tables.schema-case-insensitive": "true"}))
    with pytest.raises(RecordError) as caught:
        folding.row(record, table(LongType()))
    assert caught.value.code == "ambiguous_name"


def time_for_a_date(_: Path) -> None:
    assert code(DateType(), Time(5)) == "wrong_type"


def half_a_pair(_: Path) -> None:
    assert code(StringType(), "\ud800") == "bad_text"


def lax_json(_: Path) -> None:
    for data in (b'{"c":1} x', b"", b'{"c":"\xc0\xaf"}'):
        assert refused(data) == "bad_json", data
    assert refused(enveloped('"12"'), **ENVELOPE) == "bad_envelope"
    assert refused(b'{"schema":{"type":7},"payload":1}', **ENVELOPE) == "bad_envelope"


def json_numbers(_: Path) -> None:
    assert refused(b'{"c":1e99999999999999999999}') == "out_of_range"
    assert refused(b'{"c":1e400}') == "out_of_range"
    assert refused(b'{"c":9007199254740993.0}') == "lost_digits"


def no_such_day(_: Path) -> None:
    for text in ("2023-02-30T11:22:33Z", "1969-02-31T23:59:59.999Z"):
        assert code(TimestamptzType(), text) == "bad_text"


def later_items(_: Path) -> None:
    record = read(b'{"li":[{"n1":1},{"n2":"x"}]}', **EVOLVES)
    schema, keys = table(LongType()), config(**EVOLVES)
    after, _ = apply_changes(schema, changes(schema, record, keys), 1)
    assert after.find_field("li.element.n2").field_type == StringType()


def first_items(_: Path) -> None:
    record = read(b'{"li":[null,{},{"n1":1}],"no":[]}', **EVOLVES)
    after, _ = apply_changes(
        table(LongType()), changes(table(LongType()), record, config(**EVOLVES)), 1
    )
    assert after.find_field("li.element.n1").field_type == LongType()


def new_number(_: Path) -> None:
    for text in (b"9223372036854775808", b"1e400"):
        with pytest.raises(RecordError):
            changes(table(LongType()), read(b'{"n":%s}' % text, **EVOLVES), config(**EVOLVES))


def variable_scale(_: Path) -> None:
    value = {"scale": 1, "value": base64.b64encode(bytes([15])).decode()}
    kind = "io.debezium.data.VariableScaleDecimal"
    fields = [
        {"field": "scale", "type": "int32"},
        {"field": "value", "type": "bytes"},
    ]
    field = {"field": "c", "type": "struct", "name": kind, "version": 1, "fields": fields}
    schema = json.dumps({"type": "struct", "fields": [field]})
    data = b'{"schema":%s,"payload":%s}' % (schema.encode(), json.dumps({"c": value}).encode())
    assert into(DecimalType(9, 2), read(data, **ENVELOPE)) == Decimal("1.50")


def tombstone_by_topic(_: Path) -> None:
    keys = {
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables": None,
        "iceberg.tables.name-template": "db.${topic}",
    }
    path = ReferencePath(config(**keys))
    (record,) = path.read(KafkaRecord("t", 0, 0, None, -1, b'{"c":1}', None))
    assert path.route(record) == ("db.t",)


def row(value: dict[str, Any]) -> SinkRecord:
    """A record of a value without schema."""
    return SinkRecord("t", 0, 0, None, value=value)


def nested_name(_: Path) -> None:
    schema = Schema(NestedField(1, "st", StructType(NestedField(2, "a", LongType()))))
    record = SinkRecord("t", 0, 0, None, value={"st.a": 1})
    with pytest.raises(RecordError) as caught:
        changes(schema, record, config(**EVOLVES))
    assert caught.value.code == "bad_column_name"
    one, other = ({"a": {"b": 1}}, {"a.b": 2})
    requested = [changes(schema, row(value), config(**EVOLVES)) for value in (one, other)]
    after, _ = apply_changes(schema, merge(*requested), 2)
    assert after.find_field("a.b") == after.find_field("a").field_type.fields[0]
    for known, value in ((schema, one | other), (after, other)):
        with pytest.raises(RecordError) as caught:
            changes(known, row(value), config(**EVOLVES))
        assert caught.value.code == "bad_column_name"


def dropped_column(_: Path) -> None:
    field = ("v", ConnectSchema("int64"))
    given = SinkRecord("t", 0, 0, None, value_schema=ConnectSchema("struct", fields=(field,)))
    lacked = Schema(NestedField(1, "c", LongType(), required=True))
    assert changes(lacked, given, config(**EVOLVES)).optionals == (("c",),)
    key = Schema(*lacked.fields, identifier_field_ids=[1])
    assert not changes(key, given, config(**EVOLVES)).optionals


def optional_identifier(_: Path) -> None:
    field = ("c", ConnectSchema("int64", optional=True))
    given = SinkRecord("t", 0, 0, None, value_schema=ConnectSchema("struct", fields=(field,)))
    columns = table(LongType(), required=True).fields
    assert not changes(Schema(*columns, identifier_field_ids=[1]), given, config(**EVOLVES))


def kept_null(_: Path) -> None:
    for replaced, kept in (("true", 7), ("false", None)):
        keys = {**ENVELOPE, "value.converter.replace.null.with.default": replaced}
        value = read(enveloped("null", default=7), **keys)
        assert into(LongType(), value) == kept


def required(_: Path) -> None:
    for value in ({}, {"c": None}):
        with pytest.raises(RecordError) as caught:
            ReferencePath(config()).row(
                SinkRecord("t", 0, 0, None, value=value), table(LongType(), required=True)
            )
        assert caught.value.code == "required_null"


def long_numbers(_: Path) -> None:
    digits = "7" * 1_000
    assert into(StringType(), read(b'{"c":%s}' % digits.encode())) == digits
    assert into(DecimalType(38, 0), read(b'{"c":%d}' % 10**37)) == 10**37
    assert code(LongType(), 2**70) == "out_of_range"
    assert refused(b'{"c":%s7}' % digits.encode()) == "out_of_range"


def long_decimals(_: Path) -> None:
    assert stored(DecimalType(38, 2), 2**70) == 2**70


def before_1970(_: Path) -> None:
    assert str(stored(DateType(), Timestamp(-1))) in ("-1", "1969-12-31")


def micro_timestamps(_: Path) -> None:
    name = "io.debezium.time.MicroTimestamp"
    record = read(enveloped("1700000000123456", "int64", name=name), **ENVELOPE)
    assert micros(into(TimestamptzType(), record)) == 1_700_000_000_123_456


def named_days(_: Path) -> None:
    cases = {
        ("int32", "Date", "1"): {TimestampType(): 86_400_000_000},
        ("int32", "Year", "1971"): {TimestampType(): 31_536_000_000_000, DateType(): 365},
        ("int64", "MicroTimestamp", "86400000000"): {DateType(): 1},
    }
    for (kind, name, value), columns in cases.items():
        record = read(enveloped(value, kind, name=f"io.debezium.time.{name}"), **ENVELOPE)
        for column, expected in columns.items():
            assert into(column, record) == expected


def named_bytes(_: Path) -> None:
    bits = enveloped('"Fg=="', "bytes", name="io.debezium.data.Bits", parameters={"length": "5"})
    assert into(LongType(), read(bits, **ENVELOPE)) == 22
    assert into(StringType(), read(bits, **ENVELOPE)) == "10110"


def unsigned_long(_: Path) -> None:
    parameters = {"__debezium.source.column.type": "BIGINT UNSIGNED"}
    record = read(enveloped("-1", "int64", parameters=parameters), **ENVELOPE)
    assert into(DecimalType(20, 0), record) == 2**64 - 1


def micros(value: Any) -> int:
    """Microseconds since 1970 of what a row holds."""
    return value if isinstance(value, int) else round(value.timestamp() * 1_000_000)


def colon(_: Path) -> None:
    instant = stored(TimestamptzType(), "1970-01-01T02:00+02:00")
    assert micros(instant) == 0


def json_not_finite(_: Path) -> None:
    for text in ("NaN", "Infinity", "-Infinity"):
        record = read(enveloped(f'"{text}"', "double"), **ENVELOPE)
        assert str(record.value.values["c"]) == str(float(text))
    assert refused(enveloped('"nan"', "double"), **ENVELOPE) == "bad_envelope"


def dates_in_utc(_: Path) -> None:
    assert stored(DateType(), "1970-01-02Z") == 1
    assert stored(TimeType(), "00:00:01.5Z") == 1_500_000
    assert code(DateType(), "1970-01-02+01:00") == "bad_text"


def uuid_format(folder: Path) -> None:
    planned = plan(folder, table(UUIDType()), properties={"write.format.default": "parquet"})
    text = b'{"c":"00000000-0000-0000-0000-000000000007"}'
    result = run_batches(config(), [planned], [source([text])])
    assert [file.record_count for file in result.files["db.t1"]] == [1]


def bad_spec(_: Path) -> None:
    with pytest.raises(ConfigError):
        spec_for(["bucket(c, 0)"], table(LongType()))
    with pytest.raises(RecordError):
        spec_for(["day(c)"], table(StringType()))


def listed_twice(_: Path) -> None:
    path = ReferencePath(config(**{"iceberg.tables": "db.t1,db.t1"}))
    assert path.route(SinkRecord("t", 0, 0, None, value={})) == ("db.t1",)


def missing_at_start(folder: Path) -> None:
    keys = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}"}
    catalog = open_catalog("iceberg", keys)
    with pytest.raises(CommitRefused) as caught:
        TaskTables(config(), catalog, SystemClock()).refresh()
    catalog.close()
    assert caught.value.code == "table_missing"


def early_tombstone(_: Path) -> None:
    creates = config(**{"iceberg.tables.auto-create-enabled": "true"})
    result = run_batches(creates, [], [source([None])])
    assert (result.error, result.table_requests) == (None, ())
    assert [progress.dropped for progress in result.progress.values()] == [1]
    result = run_batches(creates, [], [source([None, b'{"c":1}'])])
    assert [request.table for request in result.table_requests] == ["db.t1"]


def no_route(_: Path) -> None:
    keys = {"iceberg.tables.route-field": "c", "iceberg.table.db.t1.route-regex": "x"}
    for more, unmatched in (({}, "fail"), ({"errors.tolerance": "all"}, "dead-letter")):
        connector: ConnectorConfig = config(**keys, **more)
        assert connector.unmatched == unmatched
        with pytest.raises(RecordError) as caught:
            ReferencePath(connector).route(SinkRecord("t", 0, 0, None, value={"c": "y"}))
        assert caught.value.code == UNMATCHED
    dropping = ReferencePath(config(**keys, **{"iceberg.tables.unmatched": "drop"}))
    assert dropping.route(SinkRecord("t", 0, 0, None, value={"c": "y"})) == ()


def empty_route_field(_: Path) -> None:
    path = ReferencePath(config(**{"iceberg.tables": "db.t1", "iceberg.tables.route-field": ""}))
    assert path.route(SinkRecord("t", 0, 0, None, value={"c": "y"})) == ("db.t1",)


def empty_parts(_: Path) -> None:
    dynamic = {"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "c"}
    path = ReferencePath(config(**{"iceberg.tables": None, **dynamic}))
    for name in ("", ".t"):
        with pytest.raises(RecordError) as caught:
            path.route(SinkRecord("t", 0, 0, None, value={"c": name}))
        assert caught.value.code == UNMATCHED


def no_table(_: Path) -> None:
    with pytest.raises(ConfigError, match=r"Must specify table name"):
        config(**{"iceberg.tables": ""})


def long_precision(_: Path) -> None:
    parameters = {"scale": "2"}
    name = "org.apache.kafka.connect.data.Decimal"
    for digits, precision in ((12, 12), (38, 38)):
        number = base64.b64encode((10**digits - 1).to_bytes(17, "big")).decode()
        data = enveloped(json.dumps(number), "bytes", name=name, parameters=parameters)
        requested = changes(
            table(DecimalType(5, 2)), read(data, **ENVELOPE), config(**ENVELOPE, **EVOLVES)
        )
        assert requested.retypes == {("c",): DecimalType(precision, 2)}


def two_types(_: Path) -> None:
    assert common_type(IntegerType(), LongType()) == LongType()
    assert common_type(LongType(), DoubleType()) == DoubleType()
    assert common_type(LongType(), StringType()) == StringType()
    assert common_type(BooleanType(), LongType()) == BooleanType()


TRIALS: Final[dict[str, Trial]] = {
    "a number outside int, long": out_of_range,
    "a number with a fraction": lost_fraction,
    "NaN or infinity": not_a_number,
    "an integer, decimal or text that a float": lost_digits,
    "any text but true and false": boolean_text,
    "numbers only Java reads": lenient,
    "a UTC offset other than zero": zone,
    "two fields, mapped names": merged_names,
    "a time of day for a date": time_for_a_date,
    "text that contains half": half_a_pair,
    "JSON: text after the document": lax_json,
    "JSON: a number out of range": json_numbers,
    "a timestamp of a day that its month": no_such_day,
    "a new list whose later items": later_items,
    "a new list whose first item": first_items,
    "a new field with a number that no column": new_number,
    "Debezium's `VariableScaleDecimal`": variable_scale,
    "a tombstone whose table depends": tombstone_by_topic,
    "evolution: a new field with the full name": nested_name,
    "a null or missing value": required,
    "`replace.null.with.default=false`": kept_null,
    "evolution: a record with schema that lacks": dropped_column,
    "evolution: an optional field of the schema": optional_identifier,
    "whole JSON numbers of more than 64": long_numbers,
    "decimals from numbers of more": long_decimals,
    "an instant before 1970": before_1970,
    "Debezium's `MicroTimestamp`": micro_timestamps,
    "Debezium's `Date`": named_days,
    "Debezium's `Bits`": named_bytes,
    "`bigint unsigned` above": unsigned_long,
    "an offset with colon": colon,
    "JSON: the texts `NaN`": json_not_finite,
    "a date or time of day with Z": dates_in_utc,
    "a uuid in a table": uuid_format,
    "a partition spec that is invalid": bad_spec,
    "a table listed twice": listed_twice,
    "a listed table that is missing": missing_at_start,
    "a tombstone before the first record": early_tombstone,
    "a record that matches no route": no_route,
    "`iceberg.tables.route-field` that is empty": empty_route_field,
    "a table's name of a record that is empty": empty_parts,
    "no table at all": no_table,
    "a decimal of a Connect schema": long_precision,
    "two types for one new column": two_types,
}


def try_row(start: str, trials: dict[str, Trial], folder: Path) -> None:
    """Try what the page's row that starts so says."""
    assert [row for row in rows() if row.startswith(start)], "the page has no such row"
    trials[start](folder)
