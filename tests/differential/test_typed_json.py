"""JSON with a schema, by column, gives what it gives by record."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimeType,
)

from connect.records.converters.json.json_schema_data import readable_json_schema
from connect.records.tables.schema_changes import SchemaChanges, apply_changes, merge
from connect.records.tables.type_inference import type_of
from tests.differential.both_paths import ALL, both
from tests.differential.cases import RECORDS, VALUES
from tests.differential.examples import generated, part
from tests.differential.support import JSON, config, plan, rows_of, run_batches, source
from tests.golden.records_model import schema_of
from worker.batch.pipeline_spec import ChangePlan

CHAIN = {
    "transforms": "i",
    "transforms.i.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.i.exclude": "unused",
}
JSON_SCHEMA = "io.confluent.connect.json.JsonSchemaConverter"
_CONNECT = "org.apache.kafka.connect.data."
DECIMAL = {
    "type": "bytes",
    "optional": True,
    "name": _CONNECT + "Decimal",
    "parameters": {"scale": "2"},
}
VARIABLE = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
}
FIELDS: dict[str, dict[str, Any]] = {
    "int8": {"type": "int8", "optional": True},
    "int32": {"type": "int32", "optional": False},
    "int64": {"type": "int64", "optional": True},
    "float": {"type": "float", "optional": True},
    "double": {"type": "double", "optional": True},
    "boolean": {"type": "boolean", "optional": True},
    "string": {"type": "string", "optional": True},
    "required": {"type": "string", "optional": False},
    "default": {"type": "int64", "optional": True, "default": 9},
    "bytes": {"type": "bytes", "optional": True},
    "date": {"type": "int32", "optional": True, "name": _CONNECT + "Date"},
    "time": {"type": "int32", "optional": True, "name": _CONNECT + "Time"},
    "timestamp": {"type": "int64", "optional": True, "name": _CONNECT + "Timestamp"},
    "micros": {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"},
    "decimal": DECIMAL,
    "other date": {"type": "string", "optional": True, "name": _CONNECT + "Date"},
    "default decimal": {**DECIMAL, "default": "AQ=="},
    "point": {
        "type": "struct",
        "optional": True,
        "fields": [
            {"field": "x", "type": "double"},
            {"field": "wkb", "type": "bytes", "optional": True},
        ],
    },
    "variable decimal": {**VARIABLE, "optional": True},
    "decimals": {"type": "array", "optional": True, "items": DECIMAL},
    "floats": {"type": "array", "optional": True, "items": {"type": "float", "optional": True}},
    "map of bytes": {
        "type": "map",
        "optional": True,
        "keys": {"type": "string"},
        "values": {"type": "bytes"},
    },
    "list": {"type": "array", "optional": True, "items": {"type": "int64", "optional": True}},
    "strict list": {"type": "array", "optional": True, "items": {"type": "int32"}},
    "map": {
        "type": "map",
        "optional": True,
        "keys": {"type": "string"},
        "values": {"type": "int64", "optional": True},
    },
    "struct": {
        "type": "struct",
        "optional": True,
        "fields": [
            {"field": "a", "type": "int32", "optional": False},
            {"field": "b", "type": "string", "optional": True, "default": "d"},
        ],
    },
}


def envelope(field: dict[str, Any]) -> dict[str, Any]:
    fields = [{"field": "c", **field}, {"field": "n", "type": "int64", "optional": True}]
    return {"type": "struct", "optional": False, "fields": fields}


def table_of(schema: dict[str, Any]) -> Schema:
    found = schema_of(schema)
    assert found is not None
    kind = type_of(found, force_optional=True)
    assert isinstance(kind, StructType)
    return assign_fresh_schema_ids(Schema(*kind.fields))


def lines(good: str, values: Sequence[str] = VALUES) -> Iterator[bytes]:
    for i, value in enumerate(values):
        for _ in range(3):
            yield f'{{"c":{good},"n":{i}}}'.encode()
        yield f'{{"c":{value},"n":{i}}}'.encode()
    yield from (record for record in RECORDS if record is not None)


GOOD = {"string": '"x"', "required": '"x"', "boolean": "true", "bytes": '"AQ=="', "map": "{}"} | {
    "list": "[1]",
    "strict list": "[1]",
    "struct": '{"a":1}',
    "decimal": '"AQ=="',
    "default decimal": '"AQ=="',
    "double": "1.5",
    "other date": '"2024-01-02"',
    "point": '{"x":1.5,"wkb":"AQ=="}',
    "variable decimal": '{"scale":1,"value":"AQ=="}',
    "decimals": '["AQ=="]',
    "floats": "[1.5]",
    "map of bytes": '{"k":"AQ=="}',
}


BASE64 = [
    *("", "AQ==", "AQI=", "AQID", "AQIDBA==", "/+8=", "gA==", "AR==", "Af==", "f/////////8="),
    *("AIAAAAAAAAAA", "A" * 24, "A" * 20 + "BA==", "/" * 20 + "/w==", "gAAAAAAAAAAAAAAAAAAAAA=="),
    *(
        "A" * 400,
        "AQ",
        "AQ=",
        "A===",
        "====",
        "==",
        "AQ==AQ==",
        "AQI=AQID",
        "A=ID",
        "AQID====",
        "AQ*D",
    ),
    *(
        "AQ\\u003d=",
        "\\u0041Q==",
        "AQ-_",
        "AQ==\\n",
        " AQ==",
        "\u00e9A==",
        "B8LcAHcnW69CGTdQUIwvPA==",
    ),
    *("Swcj7yW4FdL5iH//////////", "B4XyKBNF4r1KdRRlXZkAAAA="),
]


def around(text: str, name: str) -> str:
    """A text as the value of a field of ``FIELDS``, or within it."""
    form = {
        "point": '{"x":1.5,"wkb":"%s"}',
        "variable decimal": '{"scale":3,"value":"%s"}',
        "decimals": '["AQ==","%s"]',
        "map of bytes": '{"k":"%s"}',
    }.get(name, '"%s"')
    return form % text


@pytest.mark.parametrize("kind", [None, DecimalType(12, 2), DecimalType(38, 5)], ids=str)
@pytest.mark.parametrize(
    "name", ["bytes", "decimal", "point", "variable decimal", "decimals", "map of bytes"]
)
def test_base64_is_equal_on_both_paths(name: str, kind: IcebergType | None, tmp_path: Path) -> None:
    """Complete and broken texts, long and short numbers, in columns of several types."""
    if kind is not None and "decimal" not in name:
        kind = None
    schema = envelope(FIELDS[name])
    table = table_of(schema)
    if kind is not None:
        own = ListType(9, kind, element_required=False) if name == "decimals" else kind
        table = Schema(NestedField(1, "c", own, required=False), table.fields[1])
    values = [around(text, name) for text in BASE64]
    head = b'{"schema":' + json.dumps(schema).encode() + b',"payload":'
    records = [head + line + b"}" for line in lines(GOOD[name], values)]
    connector = config(**{"value.converter.schemas.enable": "true", **ALL})
    by_column, by_record = both(connector, [plan(tmp_path, table)], [source(records)])
    assert by_column == by_record
    assert by_column["rows"]["db.t1"]


@generated(20)
@given(
    numbers=st.lists(
        st.integers(-(2**70), 2**70) | st.integers(-(10**6), 10**6), min_size=1, max_size=40
    ),
    floats=st.lists(st.floats(width=32), min_size=1, max_size=9),
    scale=st.integers(-3, 40),
)
def test_generated_numbers_are_equal_on_both_paths(
    numbers: list[int], floats: list[float], scale: int, tmp_path: Path
) -> None:
    """Decimals of any scale, with their own or the schema's, and 32-bit floats."""
    parameters = {"parameters": {"scale": str(scale)}}
    fields = [
        {"field": "d", **DECIMAL, **parameters},
        {"field": "v", **VARIABLE, "optional": True},
        {"field": "f", "type": "float", "optional": True},
    ]
    records = []
    for place, number in enumerate(numbers):
        data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        text = base64.b64encode(data).decode()
        payload = {
            "d": text,
            "v": {"scale": scale + place % 3 - 1, "value": text},
            "f": floats[place % len(floats)],
        }
        schema = {"type": "struct", "optional": False, "fields": fields}
        records.append(json.dumps({"schema": schema, "payload": payload}).encode())
    columns = (DecimalType(20, 4), DecimalType(38, 4), FloatType())
    table = Schema(
        *(
            NestedField(i, name, kind, required=False)
            for i, (name, kind) in enumerate(zip("dvf", columns, strict=True), 1)
        )
    )
    connector = config(**{"value.converter.schemas.enable": "true", **ALL})
    by_column, by_record = both(connector, [plan(tmp_path, table)], [source(records)])
    assert by_column == by_record


@pytest.mark.parametrize("name", FIELDS)
def test_envelopes_are_equal_on_both_paths(name: str, tmp_path: Path) -> None:
    """Every unusual value in a field of every schema type, and unusual envelopes."""
    schema, values = envelope(FIELDS[name]), part(VALUES, list(FIELDS).index(name), of=4)
    head = b'{"schema":' + json.dumps(schema).encode() + b',"payload":'
    records = [head + line + b"}" for line in lines(GOOD.get(name, "1"), values)]
    odd = [head + b'{"c":1}', head + b'{"c":1}}}', head + b'{"c":1}x', head + b'{"c":1}} ']
    odd += [head + b'{"n":1},"payload":{"n":2}}', head + b'{"n":1},"x":{}}', head + b"null}", b"{}"]
    connector = config(**{"value.converter.schemas.enable": "true", **ALL})
    table = plan(tmp_path, table_of(schema))
    by_column, by_record = both(connector, [table], [source([*records, *odd, *odd[::-1]])])
    assert by_column == by_record


def test_several_schemas_in_one_batch_are_equal_on_both_paths(tmp_path: Path) -> None:
    """With schema evolution."""
    records = []
    for i in range(60):
        schema = envelope(FIELDS["int64" if i % 2 else "int32"])
        records.append(json.dumps({"schema": schema, "payload": {"c": i, "n": 1}}).encode())
    keys = {"iceberg.tables.evolve-schema-enabled": "true"}
    connector = config(**{"value.converter.schemas.enable": "true", **ALL, **keys})
    for known in ("int32", "int64"):
        table = plan(tmp_path, table_of(envelope(FIELDS[known])))
        by_column, by_record = both(connector, [table], [source(records)])
        assert by_column == by_record


@pytest.mark.parametrize("kind", ["integer", "number", "string", "boolean"])
def test_json_schema_is_equal_on_both_paths(kind: str, tmp_path: Path) -> None:
    """Every unusual value in a property of every type, and unusual documents."""
    properties = {"c": {"type": [kind, "null"]}, "n": {"type": ["integer", "null"]}}
    file = tmp_path / "s.json"
    file.write_text(json.dumps({"type": "object", "properties": properties}))
    connector = config(
        **{
            "value.converter": JSON_SCHEMA,
            "value.converter.schemas.enable": None,
            "value.converter.schema.file": str(file),
            **ALL,
        }
    )
    field = {"integer": "int64", "number": "double"}.get(kind, kind)
    table = plan(tmp_path, table_of(envelope(FIELDS[field])))
    good = {"string": '"x"', "boolean": "true"}.get(kind, "1")
    by_column, by_record = both(connector, [table], [source(list(lines(good)))])
    assert by_column == by_record


EVOLVES = {"iceberg.tables.evolve-schema-enabled": "true"}
REQUIRED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "v", StringType(), required=True),
    identifier_field_ids=[1],
)


@pytest.mark.parametrize("chain", [{}, CHAIN], ids=["plain", "chain"])
def test_a_dropped_column_becomes_optional_on_both_paths(
    chain: dict[str, str], tmp_path: Path
) -> None:
    """Rows before and after the change are stored; records without their key are refused."""
    number = {"type": "int64", "optional": True}
    text = {"field": "v", "type": "string"}
    before = {"type": "struct", "fields": [{"field": "id", **number}, text]}
    after = {"type": "struct", "fields": [{"field": "id", **number}]}
    keyless = {"type": "struct", "fields": [{"field": "other", **number}, text]}
    records = [
        json.dumps({"schema": schema, "payload": payload}).encode()
        for schema, payload in (
            (before, {"id": 1, "v": "x"}),
            (after, {"id": 2}),
            (keyless, {"other": 3, "v": "x"}),
            (after, {"id": 4}),
            (before, {"id": 5, "v": None}),
        )
    ]
    connector = config(**ALL, **EVOLVES, **chain, **{"value.converter.schemas.enable": "true"})
    for reference_only in (False, True):
        schema, last = REQUIRED, 2
        for _ in range(3):
            result = run_batches(
                connector,
                [plan(tmp_path, schema)],
                [source(records)],
                reference_only=reference_only,
            )
            if not result.schema_requests:
                break
            for request in result.schema_requests:
                asked = merge(*map(SchemaChanges.from_json, request.changes))
                schema, last = apply_changes(schema, asked, last)
        assert [(f.name, f.required) for f in schema.fields] == [
            ("id", True),
            ("v", False),
            ("other", False),
        ]
        assert [(row["id"], row["v"]) for row in sorted(rows_of(result, "db.t1"), key=by_id)] == [
            (1, "x"),
            (2, None),
            (4, None),
        ]
        letters = [(d.record.offset, d.error.code) for d in result.dead_letters]
        assert sorted(letters) == [(2, "required_null"), (4, "bad_envelope")]


@pytest.mark.parametrize(("operation", "asked"), [("D", set()), ("I", {"v"})])
def test_deletes_make_no_column_optional(operation: str, asked: set[str], tmp_path: Path) -> None:
    """Their values may lack columns; nor does the column of a message key become optional."""
    schema: dict[str, Any] = {"type": "struct", "fields": [{"field": "op", "type": "string"}]}
    table = plan(tmp_path, Schema(*REQUIRED.fields))
    table = replace(table, changes=ChangePlan((), UNPARTITIONED_PARTITION_SPEC.model_dump_json()))
    keys = {
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "true",
        "iceberg.tables.cdc-field": "op",
    }
    if operation == "D":
        schema["fields"].append({"field": "id", "type": "int64"})
    payload = {"op": operation, "id": 1}
    record = json.dumps({"schema": schema, "payload": payload}).encode()
    connector = config(**ALL, **EVOLVES, **keys)
    for reference_only in (False, True):
        given = [source([record], keys=[b'{"id":1}'])]
        result = run_batches(connector, [table], given, reference_only=reference_only)
        changes = [SchemaChanges.from_json(c) for r in result.schema_requests for c in r.changes]
        assert {name for change in changes for (name,) in change.optionals} == asked
        assert not result.dead_letters


def by_id(row: dict[str, Any]) -> Any:
    return row["id"]


_DEFAULT = {"type": "int32", "optional": True, "default": 7}
TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "field": (_DEFAULT, "null"),
    "item": ({"type": "array", "items": _DEFAULT}, "[1,null]"),
    "value": ({"type": "map", "keys": {"type": "string"}, "values": _DEFAULT}, '{"k":null}'),
    "pair": ({"type": "map", "keys": {"type": "int32"}, "values": _DEFAULT}, "[[1,null]]"),
    "inner": ({"type": "struct", "fields": [{"field": "x", **_DEFAULT}]}, '{"x":null}'),
}


STEPS: dict[str, dict[str, str]] = {
    "none": {},
    "metadata": {
        "transforms": "m",
        "transforms.m.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform",
    },
    "copy": {
        "transforms": "c",
        "transforms.c.type": "org.apache.iceberg.connect.transforms.CopyValue",
        "transforms.c.source.field": "a",
        "transforms.c.target.field": "copy",
    },
    "cast": {
        "transforms": "c",
        "transforms.c.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.c.spec": "a:int64",
        "transforms.c.replace.null.with.default": "false",
    },
}
REPLACED = [("true", "7"), ("false", "null")]


@pytest.mark.parametrize(("replaced", "stored"), REPLACED)
@pytest.mark.parametrize("name", TEXTS)
def test_structs_in_text_columns_have_the_defaults_of_their_schema(
    name: str, replaced: str, stored: str, tmp_path: Path
) -> None:
    """For a null inside the struct, if the converter replaces it, on both paths."""
    field, given = TEXTS[name]
    inner = {"type": "struct", "optional": True, "fields": [{"field": "a", **field}]}
    table = Schema(
        NestedField(1, "c", StringType(), required=False),
        NestedField(2, "n", LongType(), required=False),
    )
    record = json.dumps({"schema": envelope(inner), "payload": "?"})
    records = [record.replace('"?"', f'{{"c":{{"a":{given}}},"n":1}}').encode()]
    keys = {
        "value.converter.schemas.enable": "true",
        "value.converter.replace.null.with.default": replaced,
    }
    by_column, by_record = both(config(**ALL, **keys), [plan(tmp_path, table)], [source(records)])
    assert by_column == by_record
    assert given.replace("null", stored) in str(by_column).replace("\\", "")


@pytest.mark.parametrize(("replaced", "stored"), [("true", 7), ("false", None)])
@pytest.mark.parametrize("step", STEPS)
def test_nulls_are_replaced_if_the_converter_does(
    step: str, replaced: str, stored: int | None, tmp_path: Path
) -> None:
    """At any depth, and through transformations."""
    inner = {"type": "struct", "optional": True, "fields": [{"field": "x", **_DEFAULT}]}
    fields = [{"field": "a", **_DEFAULT}, {"field": "missing", **_DEFAULT}, {"field": "s", **inner}]
    schema = {"type": "struct", "fields": fields}
    record = json.dumps({"schema": schema, "payload": {"a": None, "s": {"x": None}}}).encode()
    names = ("a", "missing", "copy")
    columns = [NestedField(i, n, LongType(), required=False) for i, n in enumerate(names, 1)]
    nested = StructType(NestedField(5, "x", LongType(), required=False))
    tables = [plan(tmp_path, Schema(*columns, NestedField(4, "s", nested, required=False)))]
    keys = {
        "value.converter.schemas.enable": "true",
        "value.converter.replace.null.with.default": replaced,
        "errors.tolerance": "none",
    }
    connector = config(**keys, **STEPS[step])
    for reference_only in (False, True):
        given = [source([record])]
        result = run_batches(connector, tables, given, reference_only=reference_only)
        (row,) = rows_of(result, "db.t1")
        assert (row["a"], row["missing"], row["s"]["x"]) == (stored, stored, stored)
        assert row["copy"] == (stored if step == "copy" else None)


# of java.lang.Double.toString, up to Java 18
DOUBLES = {
    "-8.5218099075542917E18": -8521809907554291712.0,
    "8.5218099075542912E17": 852180990755429120.0,
    "9.2233720368547758E18": 2.0**63,
    "1.0E10": 1e10,
    "2.2250738585072014E-308": 2.2250738585072014e-308,
    "4.9E-324": 5e-324,
    "1.7976931348623157E308": 1.7976931348623157e308,
    "-0.0": -0.0,
    '"NaN"': math.nan,
    '"Infinity"': math.inf,
    '"-Infinity"': -math.inf,
}
# a producer of such numbers means more digits than a double holds
INEXACT = ("8521809907554291700.0", "9007199254740993.0", "-8.5218099075542918E18", "1e400")


@pytest.mark.parametrize("typed", [True, False])
def test_doubles_of_kafkas_converter_are_read(typed: bool, tmp_path: Path) -> None:
    """As Java writes them; numbers with more digits are refused. On both paths."""
    schema = json.dumps(envelope({"type": "double"})).encode()
    payloads = [b'{"c":%s,"n":1}' % text.encode() for text in (*DOUBLES, *INEXACT)]
    records = [b'{"schema":%s,"payload":%s}' % (schema, p) if typed else p for p in payloads]
    columns = (DoubleType(), LongType())
    table = Schema(
        *(NestedField(i, n, t) for i, (n, t) in enumerate(zip("cn", columns, strict=True), 1))
    )
    connector = config(**ALL, **{"value.converter.schemas.enable": str(typed).lower()})
    for reference_only in (False, True):
        given = [source(records)]
        result = run_batches(
            connector, [plan(tmp_path, table)], given, reference_only=reference_only
        )
        stored = [repr(row["c"]) for row in rows_of(result, "db.t1")]
        assert sorted(stored) == sorted(map(repr, DOUBLES.values()))
        letters = [letter.record.offset - len(DOUBLES) for letter in result.dead_letters]
        assert sorted(letters) == list(range(len(INEXACT)))


MICRO_TIME = {"type": "int64", "name": "io.debezium.time.MicroTime"}
NANO_TIME = {"type": "int64", "name": "io.debezium.time.NanoTime"}
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
        assert (codes, rows) == (([stored], []) if isinstance(stored, str) else ([], [stored]))


def test_a_decimal_of_variable_scale_without_schema(tmp_path: Path) -> None:
    """Its bytes are base64, as JsonConverter writes them."""
    table = plan(tmp_path, Schema(NestedField(1, "c", DecimalType(10, 2), required=False)))
    lines = [b'{"c":{"scale":1,"value":"AP8="}}', b'{"c":{"scale":1}}', b'{"c":1.5}']
    by_column, by_record = both(config(**ALL), [table], [source(lines)])
    assert by_column == by_record
    assert len(by_column["rows"]["db.t1"]) == 2
    assert [letter[2] for letter in by_column["letters"]] == ["wrong_type"]


def test_an_object_without_properties_is_text(tmp_path: Path) -> None:
    """In the schema of a new column, inside of lists, and in rows of both paths."""
    properties = {
        "id": {"type": "integer"},
        "free": {"type": "object"},
        "all": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
        "none": {"oneOf": [{"type": "null"}, {"type": "object"}]},
    }
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"type": "object", "properties": properties}))
    options = {"value.converter": JSON_SCHEMA, "value.converter.schema.file": str(file)}
    connector = config(**ALL, **options, **{"value.converter.schemas.enable": None})
    reader = readable_json_schema(file.read_text(), {}, optional_unless_required=False)
    kind = type_of(reader.schema, force_optional=True)
    assert isinstance(kind, StructType)
    table = plan(tmp_path, assign_fresh_schema_ids(Schema(*kind.fields)))
    lines = [b'{"id":1,"free":{"a":1.5},"all":[{"b":[1]},{}],"none":null}']
    for reference_only in (False, True):
        result = run_batches(connector, [table], [source(lines)], reference_only=reference_only)
        assert rows_of(result, "db.t1") == [
            {"id": 1, "free": '{"a":1.5}', "all": ['{"b":[1]}', "{}"], "none": None}
        ]
