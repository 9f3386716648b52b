"""A thousand tables: every row in its table; files, memory and work within their bounds."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from connect.clock import SystemClock
from tests.differential.support import config, plan, run_batches, source
from tests.support.counted_calls import counted_calls
from worker.batch.blocks import blocks
from worker.batch.descriptors import collect, to_batch
from worker.batch.pipeline_spec import ChangePlan
from worker.pipeline.pipeline import PipelineLimits, PipelineSpec, PipelineTask

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
)
TABLES = 1_000
BY_KIND = {"iceberg.tables": None, "iceberg.tables.name-template": "db.t_${kind}"}
LIMITS = PipelineLimits(block_rows=4_000, open_files_max=64, buffered_bytes_max=2**20)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_rows_of_a_thousand_tables_are_written(tmp_path: Path) -> None:
    """Few files are open at a time, and memory is bounded."""
    connector = config(**BY_KIND)
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


@pytest.mark.parametrize("upsert", ["false", "true"])
def test_only_tables_with_rows_get_a_writer(tmp_path: Path, upsert: str) -> None:
    """And one table of each kind of columns, for the form of the records."""
    keys = {"iceberg.tables.upsert-mode-enabled": upsert, **BY_KIND}
    changes = ChangePlan((1,), PartitionSpec().model_dump_json()) if upsert == "true" else None
    plans = tuple(
        replace(plan(tmp_path, SCHEMA, name=f"db.t_{i}"), changes=changes) for i in range(TABLES)
    )
    spec = PipelineSpec(config(**keys), plans)
    task = PipelineTask(spec, SystemClock())
    records = [json.dumps({"id": i, "kind": str(100 + i % 3)}).encode() for i in range(30)]
    batch = source(records, keys=[b"k"] * 30).select(list(spec.columns()))
    for block in blocks(iter([batch]), task.limits):
        task.take(block)
    result = collect(pa.Table.from_batches([to_batch(list(task.finish()))]))
    assert set(result.files) == {"db.t_100", "db.t_101", "db.t_102"}
    assert task._tables.made_count == 3 + 1


def test_rows_are_gathered_once_for_all_tables(tmp_path: Path) -> None:
    """Of each block, for any number of tables: what follows them is a slice, and a file each."""
    gathered, written = {}, {}
    for tables in (5, 50):
        names = [f"db.t_{i}" for i in range(tables)]
        plans = tuple(plan(tmp_path / str(tables), SCHEMA, name=name) for name in names)
        spec = PipelineSpec(config(**BY_KIND), plans, limits=LIMITS)
        task = PipelineTask(spec, SystemClock())
        records = [json.dumps({"id": i, "kind": str(i % tables)}).encode() for i in range(12_000)]
        batch = source(records).select(list(spec.columns()))
        with counted_calls() as calls:
            for block in blocks(iter([batch]), task.limits):
                task.take(block)
            rows = list(task.finish())
        assert sum(map(len, collect(pa.Table.from_batches([to_batch(rows)])).files.values())) == (
            tables
        )
        gathered[tables] = [calls[name] for name in ("take_rows", "split_by_codes", "sizes_of")]
        written[tables] = [calls[name] for name in ("TableWriter.append", "TableWriter.finish")]
    assert gathered[5] == gathered[50] == [3, 3, 3]
    assert written == {5: [5, 5], 50: [50, 50]}


def test_descriptors_of_many_files_are_small(tmp_path: Path) -> None:
    """What Spark's driver may receive bounds a batch, so files must not fill it.

    As JSON, a file of so many columns takes more than 3 kB.
    """
    columns = [NestedField(i, f"c{i}", StringType(), required=False) for i in range(3, 51)]
    wide = Schema(*SCHEMA.fields, *columns)
    names = [f"db.t_{i}" for i in range(300)]
    values = {f"c{i}": f"text-{i}" for i in range(3, 51)}
    records = [
        json.dumps({"id": i, "kind": str(i % 300), **values, "c3": str(i)}).encode()
        for i in range(600)
    ]
    spec = PipelineSpec(config(**BY_KIND), tuple(plan(tmp_path, wide, name=n) for n in names))
    task = PipelineTask(spec, SystemClock())
    for block in blocks(iter([source(records).select(list(spec.columns()))]), task.limits):
        task.take(block)
    rows = to_batch(list(task.finish()))
    files = collect(pa.Table.from_batches([rows])).files
    assert list(files) == sorted(names)
    assert all(len(f.upper_bounds or {}) == 50 for listed in files.values() for f in listed)
    assert sum(map(len, rows["payload"].to_pylist())) < 400 * len(names)
