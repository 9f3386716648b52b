"""JSON objects for columns of maps: by column they give what they give by record."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tests.differential.both_paths import ALL, both
from tests.differential.examples import part
from tests.differential.support import config, decoded_by_columns, plan, source
from worker.decode.json_maps import KEYS_MAX, MapDecoder

TEXTS = MapType(11, StringType(), 12, StringType(), value_required=False)
COLUMNS: dict[str, IcebergType] = {
    "texts": TEXTS,
    "numbers": MapType(11, StringType(), 12, DoubleType(), value_required=False),
    "of maps": MapType(11, StringType(), 12, TEXTS, value_required=False),
    "structs": MapType(
        11,
        StringType(),
        12,
        StructType(
            NestedField(13, "x", LongType(), required=False),
            NestedField(14, "y", TEXTS, required=False),
        ),
        value_required=False,
    ),
    "in list": ListType(11, TEXTS, element_required=False),
    "in struct": StructType(
        NestedField(11, "m", TEXTS, required=False),
        NestedField(12, "n", LongType(), required=False),
    ),
    "of lists": MapType(
        11,
        StringType(),
        12,
        ListType(13, LongType(), element_required=False),
        value_required=False,
    ),
}
KEYS = ["a", "b", "c d", "é", "", 'q"', "x", "y", "m", "n", "\u0001"]
ODD = [
    b'{"c":{"a":"1","a":"2"},"n":1}',
    b'{"c":{"a":"1","\\u0061":"2"},"n":1}',
    b'{"c":{"\\u0061":null},"n":1}',
    b'{"c":{"a" : null},"n":1}',
    b'{"c":{"never":null},"n":1}',
    b'{"c":{"a":"null"},"n":null}',
    b'{"c":{"a":{"a":{"a":1}}},"n":1}',
    b'{"c":5,"n":1}',
    b'{"c":[],"n":1}',
    b'{"c":{"a":1e400},"n":1}',
    b'{"c":{"a":1e-400},"n":1}',
    b'{"c":{"a":"1"},"n":1,"more":1e5}',
    b'{"c":{"a":"1"},"n":1,"more":{"deep":[1]}}',
    b'{"c":{"a":"1"},"n":1',
]


def table_of(kind: IcebergType) -> Schema:
    """A column of the kind, and a number."""
    return assign_fresh_schema_ids(
        Schema(
            NestedField(1, "c", kind, required=False),
            NestedField(2, "n", LongType(), required=False),
        )
    )


def value(kind: IcebergType, chance: random.Random) -> Any:
    """Something for a column, now and then not what it takes."""
    pick = chance.random()
    if pick < 0.02:
        return chance.choice([None, 5, "text", [], {}, True, {"odd": [1]}])
    if isinstance(kind, MapType):
        keys = chance.sample(KEYS, chance.randrange(4))
        return {key: value(kind.value_type, chance) for key in keys}
    if isinstance(kind, ListType):
        return [value(kind.element_type, chance) for _ in range(chance.randrange(3))]
    if isinstance(kind, StructType):
        chosen = [f for f in kind.fields if chance.random() < 0.8]
        return {f.name: value(f.field_type, chance) for f in chosen}
    if isinstance(kind, StringType):
        return chance.choice(["x", "", "null", "2024-01-01", "é"])
    return chance.randrange(100) if isinstance(kind, LongType) else chance.choice([0, 1.5, -2e10])


@pytest.mark.parametrize("evolves", ["true", "false"])
@pytest.mark.parametrize("name", COLUMNS)
def test_random_maps_are_equal_on_both_paths(name: str, evolves: str, tmp_path: Path) -> None:
    """Objects with different keys in each block, some unusual."""
    chance = random.Random(f"{name} {evolves}")
    connector = config(**ALL, **{"iceberg.tables.evolve-schema-enabled": evolves})
    kind = COLUMNS[name]
    plans = [plan(tmp_path, table_of(kind))]
    for _ in range(4):
        records = [
            json.dumps({"c": value(kind, chance), "n": n}).encode()
            for n in range(chance.choice([3, 60]))
        ]
        by_column, by_record = both(connector, plans, [source(records), source(records[::-1])])
        assert by_column == by_record
    for record in part(ODD, list(COLUMNS).index(name) + (evolves == "true"), of=2):
        by_column, by_record = both(connector, plans, [source([*records[:3], record])])
        assert by_column == by_record, record


def test_plain_maps_use_the_column_path(tmp_path: Path) -> None:
    """With any keys and additional fields."""
    lines = [
        f'{{"c":{{"k{n % 7}":"v","k{n % 5 + 9}":"w"}},"n":{n},"more":{n}}}'.encode()
        for n in range(50)
    ]
    (decoded,) = decoded_by_columns(config(), plan(tmp_path, table_of(TEXTS)), source(lines))
    assert len(decoded.places) == len(lines)
    assert decoded.table["c"][3].as_py() == [("k3", "v"), ("k12", "w")]


def test_maps_with_many_keys_use_the_reference_path() -> None:
    """A map with ever new keys is no longer parsed by columns; no other field is lost."""
    decoder = MapDecoder(
        {"c": pa.map_(pa.string(), pa.string()), "n": pa.int64()}, report_unexpected=False
    )
    lines = pa.array([b'{"c":{"k%d":"v"},"n":1}' % n for n in range(KEYS_MAX + 1)])
    assert len(decoder.decode(lines).refused) == len(lines)
    assert not len(decoder.decode(pa.array([b'{"n":1}', b'{"c":null,"n":2}'])).refused)
