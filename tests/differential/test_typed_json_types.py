"""Bytes, decimals and floats with a schema, and many schemas, by column as by record."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    DecimalType,
    FloatType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from connect.records.converters.json.json_schema_data import readable_json_schema
from connect.records.tables.type_inference import type_of
from tests.differential.both_paths import ALL, both
from tests.differential.cases import VALUES
from tests.differential.examples import generated, part
from tests.differential.support import config, plan, run_batches, source
from tests.differential.typed_fields import (
    CONNECT,
    DECIMAL,
    FIELDS,
    GOOD,
    VARIABLE,
    envelope,
    lines,
    table_of,
)

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


@pytest.mark.parametrize("count", [2, 20, 90])
def test_many_schemas_in_any_order_are_equal_on_both_paths(count: int, tmp_path: Path) -> None:
    """Texts of equal length among them, envelopes with white space, and broken ones."""
    rng = random.Random(count)
    records: list[bytes | None] = []
    for _ in range(240):
        own = rng.randrange(count)
        field = FIELDS[("int64", "string", "decimal")[own % 3]]
        schema = json.dumps({**envelope(field), "name": f"s{own}"}).encode()
        good = GOOD.get(("int64", "string", "decimal")[own % 3], "1").encode()
        payload = b'{"c":%s,"n":%d}' % (good, own)
        end = rng.choice([b"}"] * 9 + [b"} ", b"", b"}}", b',"x":1}'])
        records.append(b'{"schema":%s,"payload":%s%s' % (schema, payload, end))
        records += rng.choice([[]] * 9 + [[None], [b""], [b"}"], [schema]])
    table = Schema(
        NestedField(1, "c", StringType(), required=False),
        NestedField(2, "n", LongType(), required=False),
    )
    connector = config(**{"value.converter.schemas.enable": "true", **ALL})
    by_column, by_record = both(connector, [plan(tmp_path, table)], [source(records)])
    assert by_column == by_record


ONLY_ALONE = {"default digits", "default wide", "default text"}


@pytest.mark.parametrize("replaced", ["true", "false"])
@pytest.mark.parametrize("name", [name for name in FIELDS if name.startswith("default")])
def test_nulls_with_a_default_are_equal_on_both_paths(
    name: str, replaced: str, tmp_path: Path
) -> None:
    """Nulls and missing fields; in columns where the default is a value of its column."""
    schema = envelope(FIELDS[name])
    head = b'{"schema":%s,"payload":' % json.dumps(schema).encode()
    good = f'{{"c":{GOOD.get(name, "1")}}}'
    records: list[bytes | None] = [
        head + payload.encode() + b"}"
        for payload in [good, '{"c":null}', '{"n":1}', '{"c":null,"n":2}', good] * 9
    ]
    keys = {
        "value.converter.schemas.enable": "true",
        "value.converter.replace.null.with.default": replaced,
    }
    connector, tables = config(**keys, **ALL), [plan(tmp_path, table_of(schema))]
    by_column, by_record = both(connector, tables, [source(records)])
    assert by_column == by_record
    if replaced == "true" and name not in ONLY_ALONE:
        (progress,) = run_batches(connector, tables, [source(records)]).progress.values()
        assert not progress.alone


CHOICES: dict[str, list[dict[str, Any]]] = {
    "integer, string": [{"type": "integer"}, {"type": "string"}],
    "string, number, boolean": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}],
    "number, string": [{"type": "number"}, {"type": "string"}],
    "small, bytes": [
        {"type": "integer", "connect.type": "int8"},
        {"type": "string", "connect.type": "bytes"},
    ],
    "float, bytes": [
        {"type": "number", "connect.type": "float32"},
        {"type": "string", "connect.type": "bytes"},
    ],
    "decimal, integer": [
        {
            "type": "number",
            "connect.type": "bytes",
            "title": CONNECT + "Decimal",
            "connect.parameters": {"scale": "2"},
        },
        {"type": "integer"},
    ],
    "integer, number": [{"type": "integer"}, {"type": "number"}],
    "object, string": [
        {"type": "object", "properties": {"x": {"type": "integer"}}},
        {"type": "string"},
    ],
    "default": [{"type": "integer", "default": 7}, {"type": "string"}],
}
FORMS = {
    "field": ("{}", "%s"),
    "list": ('{"type": "array", "items": {}}', "[%s,1]"),
    "object": ('{"type": "object", "properties": {"o": {}}}', '{"o":%s}'),
    "map": (
        '{"type": "object", "connect.type": "map", "additionalProperties": {}}',
        '{"k":%s}',
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_equal_on_both_paths(name: str, form: str, tmp_path: Path) -> None:
    """Values of each member and of none, in fields, lists, objects and maps."""
    shape, text = FORMS[form]
    is_null = [{"type": "null"}] if len(name) % 2 else []
    choice = json.loads(shape.replace("{}", json.dumps({"oneOf": CHOICES[name] + is_null})))
    properties = {"c": choice, "n": {"type": "integer"}}
    schema = {"type": "object", "properties": properties}
    file = tmp_path / "s.json"
    file.write_text(json.dumps(schema))
    found = readable_json_schema(json.dumps(schema), {}, optional_unless_required=False).schema
    kind = type_of(found, force_optional=True)
    assert isinstance(kind, StructType)
    connector = config(
        **{
            "value.converter": "io.confluent.connect.json.JsonSchemaConverter",
            "value.converter.schemas.enable": None,
            "value.converter.schema.file": str(file),
            **ALL,
        }
    )
    odd = ['"NaN"', '"Infinity"', '"AQ=="', "null", '"x"', "5", "300", "1.5", "true", "-0", "1e2"]
    odd += [*part(VALUES, len(name + form), of=6)]
    records = [
        f'{{"c":{text % value},"n":{place}}}'.encode()
        for place, value in enumerate([x for value in odd for x in ("5", '"AQ=="', value)])
    ]
    table = assign_fresh_schema_ids(Schema(*kind.fields))
    by_column, by_record = both(connector, [plan(tmp_path, table)], [source(records)])
    assert by_column == by_record


def test_choices_of_types_that_begin_differently_have_columns(tmp_path: Path) -> None:
    """No record takes the record path for them."""
    choice = {"oneOf": [{"type": "number"}, {"type": "string"}, {"type": "boolean"}]}
    file = tmp_path / "s.json"
    schema = json.dumps({"type": "object", "properties": {"c": choice}})
    file.write_text(schema)
    found = readable_json_schema(schema, {}, optional_unless_required=False).schema
    kind = type_of(found, force_optional=True)
    assert isinstance(kind, StructType)
    table = assign_fresh_schema_ids(Schema(*kind.fields))
    connector = config(
        **{
            "value.converter": "io.confluent.connect.json.JsonSchemaConverter",
            "value.converter.schemas.enable": None,
            "value.converter.schema.file": str(file),
        }
    )
    records: list[bytes | None] = [b'{"c":%s}' % v for v in (b"1.5", b'"x"', b"true")] * 20
    result = run_batches(connector, [plan(tmp_path, table)], [source(records)])
    (progress,) = result.progress.values()
    assert (progress.written, dict(progress.alone)) == (60, {})
