"""What records cost, counted: the work that decides how many a core can take."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from tests.bench.streams import SCHEMAS, STREAMS, batches, measure
from tests.differential.support import config, plan, run_batches, source
from tests.support.counted_calls import counted_calls

RECORDS = 600


@pytest.mark.parametrize("name", ["plain", "numeric", "types", "header", "schemas"])
def test_no_record_of_common_streams_takes_the_record_path(name: str) -> None:
    """Also with bytes, decimals, 32-bit floats, structs and lists of them, and many schemas."""
    stream = STREAMS[name]
    count = RECORDS * (4 if name == "schemas" else 1)
    _, rows, alone = measure(stream, list(batches(stream, count)))
    assert (rows, alone) == (count, 0)


@pytest.mark.parametrize("name", ["numeric", "schemas"])
def test_a_record_alone_costs_one_parse_and_no_search_for_changes(name: str) -> None:
    """Schemas are parsed, compared with their table's and transformed once, in any order."""
    stream = STREAMS[name]
    given = list(batches(stream, RECORDS))
    with counted_calls() as calls:
        _, rows, alone = measure(stream, given, alone_only=True)
    schemas = SCHEMAS if name == "schemas" else 1
    assert (rows, alone) == (RECORDS, RECORDS)
    assert calls["JsonReader.value"] <= RECORDS + 2 * schemas
    assert calls["changes"] <= 2 * schemas
    assert calls["struct_like"] <= schemas
    assert calls["_StructPlans._steps"] <= 4 * schemas


def test_records_that_take_the_record_path_have_a_reason(tmp_path: Path) -> None:
    """Each one is counted once; tombstones are none of them."""
    table = plan(tmp_path, Schema(NestedField(1, "a", IntegerType(), required=False)))
    values = [*[b'{"a":1}'] * 9, b'{"a":', *[b'{"a":3000000000}'] * 2, None]
    result = run_batches(config(**{"errors.tolerance": "all"}), [table], [source(values)])
    (progress,) = result.progress.values()
    assert progress.alone == {"not_decoded": 1, "not_converted": 2}
    assert (progress.written, progress.dropped, progress.dead_lettered) == (9, 1, 3)
