"""Bytes, decimals and floats with a schema, and many schemas, by column as by record."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    FloatType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
)

from tests.differential.both_paths import ALL, both
from tests.differential.examples import generated
from tests.differential.support import config, plan, source
from tests.differential.typed_fields import (
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
