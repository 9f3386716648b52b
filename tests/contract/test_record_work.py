"""What records cost, counted: the work that decides how many a core can take."""

from __future__ import annotations

import pytest

from tests.bench.streams import SCHEMAS, STREAMS, batches, measure
from tests.support.counted_calls import counted_calls

RECORDS = 600


@pytest.mark.parametrize("name", ["plain", "numeric", "types"])
def test_no_record_of_common_streams_takes_the_record_path(name: str) -> None:
    """Also with bytes, decimals, 32-bit floats, and structs and lists of them."""
    stream = STREAMS[name]
    _, rows, alone = measure(stream, list(batches(stream, RECORDS)))
    assert (rows, alone) == (RECORDS, 0)


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
