"""A thousand tables at once: every row in its table, files and memory within their bounds."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.differential.support import config, plan, run_batches, source
from worker.pipeline.pipeline import PipelineLimits

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
)
TABLES = 1_000
LIMITS = PipelineLimits(block_rows=4_000, open_files_max=64, buffered_bytes_max=2**20)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_rows_of_a_thousand_tables_are_written(tmp_path: Path) -> None:
    """Few files are open at a time, and memory is bounded."""
    connector = config(
        **{"iceberg.tables": None, "iceberg.tables.name-template": "db.t_${kind}"},
    )
    plans = [plan(tmp_path, SCHEMA, name=f"db.t_{i}") for i in range(TABLES)]
    records = [json.dumps({"id": i, "kind": str(i * 7 % TABLES)}).encode() for i in range(12_000)]
    batches = [source(records[i : i + 4_000], start=i) for i in range(0, 12_000, 4_000)]
    before, peak, is_done = open_files(), [0], threading.Event()

    def watch() -> None:
        while not is_done.wait(0.001):
            peak[0] = max(peak[0], open_files())

    watcher = threading.Thread(target=watch)
    watcher.start()
    held = pa.total_allocated_bytes()
    try:
        result = run_batches(connector, plans, batches, limits=LIMITS)
    finally:
        is_done.set()
        watcher.join()
    assert len(result.files) == TABLES
    assert peak[0] - before <= LIMITS.open_files_max + 8
    assert pa.total_allocated_bytes() - held < 64 * 2**20
    seen: set[int] = set()
    for name, files in result.files.items():
        for file in files:
            table = pq.read_table(file.file_path.removeprefix("file://"))
            assert set(table["kind"].to_pylist()) == {name.removeprefix("db.t_")}
            seen.update(table["id"].to_pylist())
    assert seen == set(range(12_000))
