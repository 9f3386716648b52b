"""Transformations by columns give what they give record by record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from tests.differential.both_paths import both
from tests.differential.cases import NUMBERS, OTHERS, TEXTS
from tests.differential.chains import EVOLVE, ICEBERG, chain, value
from tests.differential.examples import generated, part
from tests.differential.support import config, decoded_by_columns, plan, run_batches, source
from worker.transforms.step_chain import steps_for

ALL = {"errors.tolerance": "all"}
TYPES = {
    "a": LongType(),
    "b": StringType(),
    "c": DoubleType(),
    "d": BooleanType(),
    "e": ListType(21, LongType(), element_required=False),
    "f": StructType(
        NestedField(31, "x", LongType(), required=False),
        NestedField(32, "topic", StringType(), required=False),
        NestedField(33, "offset", LongType(), required=False),
    ),
    "g": DecimalType(10, 2),
    "t": TimestamptzType(),
    "i": IntegerType(),
}
SCHEMA = Schema(
    *(NestedField(i, name, kind, required=False) for i, (name, kind) in enumerate(TYPES.items(), 1))
)


METADATA = {"type": f"{ICEBERG}KafkaMetadataTransform"}
CHAINS: dict[str, dict[str, str]] = {
    "rename": chain(value("ReplaceField", renames="x:a,a:b", exclude="c")),
    "swap": chain(value("ReplaceField", renames="a:b,b:a", include="a,b,c")),
    "two into one": chain(value("ReplaceField", renames="x:a,y:a")),
    "insert": chain(
        value("InsertField", topic_field="b", offset_field="a", partition_field="i"),
        value("InsertField", timestamp_field="t", static_field="g", static_value="1.25"),
    ),
    "metadata": chain({**METADATA, "field_name": "f", "nested": "true"}),
    "flat metadata": chain(
        METADATA, value("ReplaceField", renames="_kafka_metadata_topic:b,_kafka_metadata_offset:a")
    ),
    "copy": chain(
        {"type": f"{ICEBERG}CopyValue", "source.field": "a", "target.field": "g"},
        {"type": f"{ICEBERG}CopyValue", "source.field": "b", "target.field": "c"},
        {"type": f"{ICEBERG}CopyValue", "source.field": "x", "target.field": "b"},
    ),
    "mask": chain(value("MaskField", fields="a,b,c,d,e,f,g,x")),
    "mask by text": chain(value("MaskField", fields="b", replacement="**")),
    "mask by large number": chain(value("MaskField", fields="a,b,c,g", replacement="3000000000")),
    "mask by number": chain(value("MaskField", fields="a,b,c,g", replacement="7.5")),
    "extract": chain(value("ExtractField", field="x")),
    "extract deep": chain(
        {**value("ExtractField", field="x.y"), "field.syntax.version": "V2"},
        value("Cast", spec="a:string"),
    ),
    "drop all": chain({"type": "Filter"}),
    "filter": chain(value("Cast", spec="a:int8"), {"type": "Filter", "predicate": "p"}),
    "filter negated": chain({"type": "Filter", "predicate": "p", "negate": "true"}),
    "not tombstones": chain({"type": "Filter", "predicate": "tomb"}),
    "route and filter": chain(
        {"type": "RegexRouter", "regex": "(.)", "replacement": "u"},
        {"type": "Filter", "predicate": "p"},
    ),
    "time router": chain(
        {"type": "TimestampRouter", "topic.format": "u-${timestamp}", "timestamp.format": "HHmm"},
        value("InsertField", topic_field="b"),
    ),
    "bad router": chain({"type": "RegexRouter", "regex": "u", "replacement": "$1"}),
    "conditional": chain({**value("MaskField", fields="a,b"), "predicate": "p"}),
    "headers": chain({"type": "InsertHeader", "header": "h", "value.literal": "1"}),
    **{
        f"cast {kind}": chain(value("Cast", spec=",".join(f"{name}:{kind}" for name in "abcdegix")))
        for kind in ("int8", "int16", "int32", "int64", "float64", "boolean", "string")
    },
}
PLAIN = {
    "rename": (chain(value("ReplaceField", renames="x:a")), '{"x":1,"b":"y"}'),
    "exclude": (chain(value("ReplaceField", exclude="x")), '{"a":1,"x":"y"}'),
    "insert": (chain(value("InsertField", topic_field="b", offset_field="a")), '{"c":1.5}'),
    "metadata": (chain({**METADATA, "field_name": "f", "nested": "true"}), '{"a":1}'),
    "cast": (chain(value("Cast", spec="a:int8,b:string,c:int32,d:boolean")), '{"a":1,"b":"y"}'),
    "cast to text": (chain(value("Cast", spec="b:string")), '{"a":1,"b":5}'),
    "mask": (chain(value("MaskField", fields="a,b")), '{"a":1,"b":"y"}'),
    "extract": (chain(value("ExtractField", field="x")), '{"x":{"a":1,"b":"y"}}'),
    "filter": (chain({"type": "Filter", "predicate": "p"}), '{"a":1}'),
    "copy": (CHAINS["copy"], '{"a":1}'),
}


def records(fields: str, values: list[str]) -> list[bytes | None]:
    return [f'{{"{name}":{text}}}'.encode() for name in fields for text in values]


@pytest.mark.parametrize("name", CHAINS)
def test_the_chains_use_the_column_path(name: str) -> None:
    """Otherwise a path would be compared with itself."""
    assert steps_for(config(**CHAINS[name])) is not None


@pytest.mark.parametrize("extra", [{}, EVOLVE], ids=["fixed", "evolving"])
@pytest.mark.parametrize("name", CHAINS)
def test_every_value_in_every_field_is_equal_on_both_paths(
    name: str, extra: dict[str, str], tmp_path: Path
) -> None:
    """Unusual values among plain ones: the same rows, refusals and requests."""
    connector, plans = config(**ALL, **CHAINS[name], **extra), [plan(tmp_path, SCHEMA)]
    odd = [*NUMBERS[::4], *(f'"{text}"' for text in TEXTS[::5]), *OTHERS[::3]]
    plain = ['{"a":1,"b":"x","c":1.5,"x":{"a":5,"b":"z","y":{"a":6}},"y":3}'] * 6
    lines: list[bytes | None] = [b'{"a":1,"b":"x","x":5}', None, b"[]", b'{"\\u0061":7,"x":8}']
    place = 2 * list(CHAINS).index(name) + bool(extra)
    for record in part(records("abcdx", odd), place, of=4):
        lines += [record, *(text.encode() for text in plain[:2])]
    lines += [b'{"x":{"a":%d,"y":{"a":1}},"y":null,"a":null}' % i for i in range(50)]
    batches = [source(lines[i : i + 400], start=i) for i in range(0, len(lines), 400)]
    batches.append(source(lines[:50], topic="u"))
    by_column, by_record = both(connector, plans, batches)
    if extra and by_column["schemas"]:  # both ask; what else they saw depends on where they stopped
        assert by_column["schemas"] == by_record["schemas"]
        return
    assert by_column == by_record


@pytest.mark.parametrize("extra", [{}, EVOLVE], ids=["fixed", "evolving"])
@pytest.mark.parametrize("field", ["a", "b", "c", "zz"])
def test_numbers_that_java_refuses_are_not_dropped(
    field: str, extra: dict[str, str], tmp_path: Path
) -> None:
    """A filter drops records, and no value that is not JSON."""
    connector, plans = config(**ALL, **CHAINS["drop all"], **extra), [plan(tmp_path, SCHEMA)]
    texts = ["Infinity", "-Infinity", "NaN", "[Infinity]", '{"q":[NaN]}']
    for text in texts:
        lines: list[bytes | None] = [f'{{"{field}":{text}}}'.encode(), b'{"a":1,"b":"x"}']
        for batch in (source(lines), source(lines[:1])):
            by_column, by_record = both(connector, plans, [batch])
            assert by_column == by_record
            assert len(by_record["letters"]) == 1


def test_whole_numbers_are_masked_as_such(tmp_path: Path) -> None:
    """A fraction in place of a whole number is cut, also if its column has fractions."""
    connector, plans = config(**ALL, **CHAINS["mask by number"]), [plan(tmp_path, SCHEMA)]
    lines: list[bytes | None] = [b'{"c":1}', b'{"c":1.0}', b'{"c":1.5}', b'{"c":-86399999}']
    for batch in (source(lines), *(source([line]) for line in lines)):
        by_column, by_record = both(connector, plans, [batch])
        assert by_column == by_record


@pytest.mark.parametrize("extra", [{}, EVOLVE], ids=["fixed", "evolving"])
@pytest.mark.parametrize("name", PLAIN)
def test_common_records_use_the_column_path_only(
    name: str, extra: dict[str, str], tmp_path: Path
) -> None:
    """And the result is that of the reference path."""
    keys, record = PLAIN[name]
    connector, tables = config(**keys, **extra), [plan(tmp_path, SCHEMA)]
    batch = source([record.encode()] * 100)
    by_column, by_record = both(connector, tables, [batch])
    assert by_column == by_record
    (columns,) = decoded_by_columns(connector, tables[0], batch)
    dropped = 0 if columns.dropped is None else len(columns.dropped)
    # it holds fields that the table lacks, about which the reference asks
    is_for_evolution = name == "metadata" and bool(extra)
    assert len(columns.places) + dropped == 100
    assert not len(columns.unexpected) or is_for_evolution


LEAVES = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e6, 1e6) | st.text()
VALUES = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(st.sampled_from("axy"), LEAVES)
DOCUMENTS = st.dictionaries(st.sampled_from("abcdefgtixy"), VALUES, max_size=5)


@generated(30)
@given(
    names=st.lists(st.sampled_from(sorted(CHAINS)), min_size=1, max_size=3),
    documents=st.lists(DOCUMENTS, min_size=1, max_size=20),
)
def test_generated_chains_are_equal_on_both_paths(
    names: list[str], documents: list[Any], tmp_path: Path
) -> None:
    """Over generated records, with two topics."""
    links: list[dict[str, str]] = []
    for name in names:
        keys = CHAINS[name]
        for alias in keys["transforms"].split(","):
            prefix = f"transforms.{alias}."
            own = {k.removeprefix(prefix): v for k, v in keys.items() if k.startswith(prefix)}
            links.append(own)
    connector, plans = config(**ALL, **chain(*links)), [plan(tmp_path, SCHEMA)]
    lines = [json.dumps(document).encode() for document in documents]
    batches: list[pa.RecordBatch] = [source(lines), source(lines, topic="u")]
    by_column, by_record = both(connector, plans, batches)
    assert by_column == by_record


def test_a_missing_timestamp_is_not_inserted(tmp_path: Path) -> None:
    """The field keeps its own value."""
    keys = chain(value("InsertField", timestamp_field="a"))
    batch = source([b'{"a":1}', b'{"a":2}'])
    stamps = pa.array([-1000, 5_000_000], pa.timestamp("us", "UTC"))
    batch = batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", stamps)
    by_column, by_record = both(config(**ALL, **keys), [plan(tmp_path, SCHEMA)], [batch])
    assert by_column == by_record
    result = run_batches(config(**keys), [plan(tmp_path, SCHEMA)], [batch])
    assert result.error is None


@pytest.mark.parametrize("white", [True, False])
@pytest.mark.parametrize("name", ["b", "\u00e9", "a/b", 'q"'])
def test_a_field_renamed_to_an_existing_name(name: str, white: bool, tmp_path: Path) -> None:
    """Their order decides, for any spelling of the name; null counts."""
    connector = config(**ALL, **chain(value("ReplaceField", renames=f"x:{name}")))
    schema = Schema(NestedField(1, name, LongType(), required=False))
    documents = [{"x": 1}, {"x": 1, name: 2}, {name: 2, "x": 1}, {name: None, "x": 1}, {name: 5}]
    separators = (", ", ": ") if white else (",", ":")
    lines: list[bytes | None] = []
    for document in [*documents[:1] * 40, *documents, *documents[:1] * 40]:
        text = json.dumps(document, ensure_ascii=False, separators=separators)
        lines += [text.encode(), json.dumps(document).encode()]
        lines.append(text.replace("/", "\\/").encode())
    for some in (lines[:60], lines):
        by_column, by_record = both(connector, [plan(tmp_path, schema)], [source(some)])
        assert by_column == by_record
