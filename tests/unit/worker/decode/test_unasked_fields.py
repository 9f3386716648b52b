"""What fields nobody asked for may cost, where they are looked for."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from worker.decode import json_decoder
from worker.decode.json_decoder import DecodedBlock, JsonDecoder

ROWS = 2_000


def decoded(*rows: Any) -> DecodedBlock:
    """Rows decoded as a table with the column ``id``, looking for others."""
    decoder = JsonDecoder({"id": pa.int64()}, report_unexpected=True)
    return decoder.decode(pa.array([json.dumps(row).encode() for row in rows], pa.binary()))


def test_an_object_of_thousands_of_names_is_refused() -> None:
    """Each would be a column: the reference counts them; rows beside it are decoded."""
    found = decoded({"id": 1}, {f"a rather long name {i}": i for i in range(6_000)}, {"id": 2})
    assert found.refused.tolist() == [1]
    assert found.table["id"].to_pylist() == [1, 2]


def test_a_long_object_of_few_names_is_decoded() -> None:
    """It is names that cost, not bytes."""
    found = decoded({"id": 1, "more": "x" * 100_000})
    assert (found.refused.tolist(), found.unexpected.tolist()) == ([], [0])


@pytest.mark.parametrize("first", [0, ROWS // 2])
def test_a_block_of_thousands_of_names_is_refused(first: int) -> None:
    """Names of which each record has others would be columns of all rows, each of them."""
    rows = [{"id": i} for i in range(first)]
    rows += [{"id": i, **{f"n{i}-{j}": 1 for j in range(20)}} for i in range(first, ROWS)]
    assert len(decoded(*rows).refused) == ROWS


def test_blocks_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once documents have shown fields that nobody asked for, they are expected."""
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
    assert parsed.count(max(parsed)) == 5  # the other times a few rows were looked at


@pytest.mark.parametrize("each", [1, 40])
def test_names_that_are_new_in_every_record_are_refused(each: int) -> None:
    """A column for each takes the square of the records, though a sample brings few."""
    count = 6_000 // each
    rows = [{"id": i, **{f"n{i}-{j}": 1 for j in range(each)}} for i in range(count)]
    assert len(decoded(*rows).refused) == count


def test_names_that_come_again_are_columns() -> None:
    """Hundreds of them, in any order."""
    rows = [{"id": i, **{f"n{(i + j) % 300}": 1 for j in range(20)}} for i in range(ROWS)]
    assert not len(decoded(*rows).refused)
