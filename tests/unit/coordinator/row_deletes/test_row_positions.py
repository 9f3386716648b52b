"""Position delete files: rows by the path of their data file."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from coordinator.row_deletes import row_positions
from coordinator.row_deletes.limits import NotResolved
from coordinator.row_deletes.parquet_rows import open_parquet
from coordinator.row_deletes.row_positions import positions_by_path


def written(rows: pa.Table) -> pq.ParquetFile:
    """A Parquet file."""
    out = io.BytesIO()
    pq.write_table(rows, out, row_group_size=100_000)
    return open_parquet(pa.BufferReader(out.getvalue()))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_positions_are_found_in_any_order(kind: Any) -> None:
    """Over batches and row groups; a position counts once."""
    rows = 2 * row_positions._BATCH_ROWS + 5
    marks = [("c", 5), *(("ab"[n % 2], rows - n) for n in range(rows)), ("b", 7), ("a", 2**40)]
    paths = pa.array([path for path, _ in marks], kind)
    table = pa.table({"file_path": paths, "pos": [at for _, at in marks]})
    assert positions_by_path(written(table), lambda: None) == {
        path: BitMap64([at for other, at in marks if other == path]) for path in "abc"
    }
    assert positions_by_path(written(table.slice(0, 0)), lambda: None) == {}


@pytest.mark.parametrize(
    "columns",
    [
        {"pos": [1]},
        {"file_path": ["a"]},
        {"file_path": ["a"], "pos": ["1"]},
        {"file_path": ["a"], "pos": pa.array([None], pa.int64())},
        {"file_path": pa.array([None], pa.string()), "pos": [1]},
    ],
    ids=["no path", "no position", "text", "null position", "null path"],
)
def test_other_files_are_refused(columns: dict[str, Any]) -> None:
    """Rows must not come back because a file was misread."""
    with pytest.raises(NotResolved) as caught:
        positions_by_path(written(pa.table(columns)), lambda: None)
    assert caught.value.reason == "position_deletes"


def test_the_time_is_checked_while_a_file_is_read() -> None:
    """A large one ends with the limit."""

    def check() -> None:
        raise NotResolved("time", "late")

    with pytest.raises(NotResolved, match="late"):
        positions_by_path(written(pa.table({"file_path": ["a"], "pos": [1]})), check)
