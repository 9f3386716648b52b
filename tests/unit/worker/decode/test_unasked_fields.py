"""Bounds on the cost of fields that are not asked for, where rows with them are reported."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from worker.decode import json_decoder
from worker.decode.json_decoder import DecodedBlock, JsonDecoder

ROWS = 2_000


def decoded(*rows: Any) -> DecodedBlock:
    """Rows decoded as a table with the column ``id``; rows with other fields are reported."""
    decoder = JsonDecoder({"id": pa.int64()}, report_unexpected=True)
    return decoder.decode(pa.array([json.dumps(row).encode() for row in rows], pa.binary()))


def test_an_object_of_thousands_of_names_is_refused() -> None:
    """Each name would be a column, so the row is refused; other rows are decoded."""
    rows = decoded({"id": 1}, {f"a rather long name {i}": i for i in range(6_000)}, {"id": 2})
    assert rows.refused.tolist() == [1]
    assert rows.table["id"].to_pylist() == [1, 2]


def test_a_long_object_of_few_names_is_decoded() -> None:
    """The limit is on names, not on bytes."""
    rows = decoded({"id": 1, "more": "x" * 100_000})
    assert (rows.refused.tolist(), rows.unexpected.tolist()) == ([], [0])


@pytest.mark.parametrize("first", [0, ROWS // 2])
def test_a_block_of_thousands_of_names_is_refused(first: int) -> None:
    """Different names in each record would each be a column of all rows."""
    rows = [{"id": i} for i in range(first)]
    rows += [{"id": i, **{f"n{i}-{j}": 1 for j in range(20)}} for i in range(first, ROWS)]
    assert len(decoded(*rows).refused) == ROWS


def test_blocks_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields that are not asked for are expected after the first block that has them."""
    parsed: list[int] = []
    read = json_decoder._read

    def counted(data: pa.Buffer, *more: Any, **options: Any) -> pa.Table:
        parsed.append(data.size)
        return read(data, *more, **options)

    monkeypatch.setattr(json_decoder, "_read", counted)
    decoder = JsonDecoder({"id": pa.int64()}, report_unexpected=True)
    block = pa.array([b'{"id":1}'] * 100 + [b'{"id":2,"more":1}'], pa.binary())
    for _ in range(4):
        assert decoder.decode(block).unexpected.tolist() == [100]
    assert parsed.count(max(parsed)) == 5  # the other times a few rows were parsed


@pytest.mark.parametrize("each", [1, 40])
def test_names_that_are_new_in_every_record_are_refused(each: int) -> None:
    """A column for each is refused, though a sample has few of them."""
    count = 6_000 // each
    rows = [{"id": i, **{f"n{i}-{j}": 1 for j in range(each)}} for i in range(count)]
    assert len(decoded(*rows).refused) == count


def test_repeated_names_become_columns() -> None:
    """Hundreds of repeated names are decoded, in any order."""
    rows = [{"id": i, **{f"n{(i + j) % 300}": 1 for j in range(20)}} for i in range(ROWS)]
    assert not len(decoded(*rows).refused)
