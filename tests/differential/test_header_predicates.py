"""Transformations of records with a header, by column, give what they give by record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.differential.both_paths import ALL, both
from tests.differential.support import config, plan, run_batches, source

KAFKA = "org.apache.kafka.connect.transforms."
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "a", StringType(), required=False),
    NestedField(3, "tag", StringType(), required=False),
)
HEADERS: list[Any] = [
    None,
    [],
    [("h", b"1")],
    [("H", b"1")],
    [("x", None), ("h", None), ("h", b"2")],
    [("hh", b""), ("", b"h")],
]
VALUES = [
    b'{"id":1,"a":"x"}',
    b'{"id":2}',
    b'{"id":"x"}',
    b'{"id":',
    None,
    b'{"id":4,"a":["p","q"]}',
]
FILTER = {"type": f"{KAFKA}Filter", "predicate": "h"}
UNLESS = {"negate": "true"}
INSERT = {"type": f"{KAFKA}InsertField$Value", "static.field": "tag", "static.value": "t"}
CHAINS: dict[str, tuple[dict[str, str], ...]] = {
    "filter": (FILTER,),
    "unless": ({**FILTER, **UNLESS},),
    "insert": ({**INSERT, "predicate": "h"},),
    "insert unless": ({**INSERT, **UNLESS, "predicate": "h"},),
    "after a step": (INSERT, FILTER),
    "before a step": ({**FILTER, **UNLESS}, INSERT),
    "dropped before": ({"type": f"{KAFKA}DropHeaders", "headers": "h"}, FILTER),
    "dropped after": (FILTER, {"type": f"{KAFKA}DropHeaders", "headers": "h"}),
    "inserted before": (
        {"type": f"{KAFKA}InsertHeader", "header": "h", "value.literal": "1"},
        {**FILTER, **UNLESS},
    ),
    "moved before": (
        {"type": f"{KAFKA}HeaderFrom$Value", "fields": "a", "headers": "h", "operation": "copy"},
        FILTER,
    ),
    "router": (
        {"type": f"{KAFKA}RegexRouter", "regex": "t", "replacement": "u", "predicate": "h"},
        {**FILTER, "predicate": "u"},
    ),
    "key": ({"type": f"{KAFKA}HoistField$Key", "field": "k", "predicate": "h"}, FILTER),
}
PREDICATES = {
    "predicates": "h,u",
    "predicates.h.type": f"{KAFKA}predicates.HasHeaderKey",
    "predicates.h.name": "h",
    "predicates.u.type": f"{KAFKA}predicates.TopicNameMatches",
    "predicates.u.pattern": "u",
}


def chain(steps: tuple[dict[str, str], ...]) -> dict[str, str]:
    """The keys of transformations."""
    names = [f"s{place}" for place in range(len(steps))]
    keys = {
        f"transforms.{n}.{k}": v for n, s in zip(names, steps, strict=True) for k, v in s.items()
    }
    return {"transforms": ",".join(names), **keys, **PREDICATES, **ALL}


def records(values: list[bytes | None], headers: list[Any]) -> pa.RecordBatch:
    """Records with headers."""
    batch = source(values, keys=[b"k"] * len(values))
    column = pa.array(
        [None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers],
        batch.schema.field("headers").type,
    )
    return batch.set_column(batch.schema.get_field_index("headers"), "headers", column)


@pytest.mark.parametrize("name", CHAINS)
def test_chains_with_header_predicates_are_equal_on_both_paths(name: str, tmp_path: Path) -> None:
    """Every header with every value, in blocks that are mixed and that are not."""
    pairs = [(value, headers) for headers in HEADERS for value in VALUES]
    batches = [records(*map(list, zip(*pairs, strict=True)))]
    batches += [records(VALUES, [headers] * len(VALUES)) for headers in HEADERS[1:4]]
    connector = config(**chain(CHAINS[name]))
    for each in batches:
        by_column, by_record = both(connector, [plan(tmp_path, SCHEMA)], [each])
        assert by_column == by_record


@pytest.mark.parametrize("name", ["filter", "unless", "before a step", "dropped after"])
def test_no_record_takes_the_record_path_for_a_header(name: str, tmp_path: Path) -> None:
    """Whether it has the header or not."""
    given = records([b'{"id":1}'] * 40, HEADERS[:4] * 10)
    result = run_batches(config(**chain(CHAINS[name])), [plan(tmp_path, SCHEMA)], [given])
    (progress,) = result.progress.values()
    assert not progress.alone
    assert {progress.written, progress.dropped} == {10, 30}
