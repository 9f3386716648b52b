"""What a batch costs with 1, 50 and 1,000 tables: each part of its way, in one process.

``python -m tests.bench.tables [--shapes narrow,wide] [--tables 1,50,1000] [--records 1000000]
[--touched 1000] [--rounds 2] [--distribution none,hash] [--through files]``. No Spark, no broker,
no catalog. The records of a micro-batch are divided into two Spark tasks, one after the other;
making the records is not counted. Each cell runs in a process of its own, so that its memory is its
own. ``--touched`` bounds how many of the tables
get rows: with 3 of 1,000 the cost of those without rows shows.

- ``distribution``: with ``hash`` the rows of a table go to one of the two Spark tasks. ``--through
  rows`` makes bytes of them, as for Spark's executors on several machines; what Spark does with
  these is not counted.
- ``task``: CPU s per million records from Spark's Arrow batches to the descriptors, in executors.
- ``driver``: reading the descriptors and encoding the events; ``coordinator``: decoding these.
- ``descriptors_kb``: what Spark's driver receives, of which ``spark.driver.maxResultSize`` bounds
  the sum. ``events_kb``: DataWritten, and as zstd by 1,000 of them.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.compute as pc

from connect.config.table_formats import HASH_DISTRIBUTION, NO_DISTRIBUTION
from control_schemas.codec import decode, encode
from control_schemas.events import DataWritten, Event
from tests.bench.shapes import SHAPES, Shape
from tests.differential.support import config, plan, source
from worker.batch.descriptors import BatchResult, collect
from worker.batch.distribution import TableShares
from worker.pipeline.passed_writing import write_passed
from worker.pipeline.pipeline import PipelineSpec, run

_SPARK_TASKS = 2
_SPARK_BATCH_ROWS = 5_000
_FOLDER = Path("/dev/shm")
_NO_ID = UUID(int=0)


def _batches(shape: Shape, tables: int, records: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Records of one Spark task; each goes to one of the tables, by chance."""
    rng = random.Random(seed)
    tails = [json.dumps(v, separators=(",", ":"))[1:].encode() for v in shape.variants()]
    head = b'{"id":%d,"target":"bench.t%04d",'
    rows = (
        head % (i, rng.randrange(tables)) + tail
        for i, tail in zip(range(records), itertools.cycle(tails), strict=False)
    )
    for start in range(0, records, _SPARK_BATCH_ROWS):
        part = list(itertools.islice(rows, _SPARK_BATCH_ROWS))
        yield source(part, start=start)


def _spec(folder: Path, shape: Shape, tables: int) -> PipelineSpec:
    keys: dict[str, str | None] = {"iceberg.tables": "bench.t0000"}
    if tables > 1:
        keys = {
            "iceberg.tables": None,
            "iceberg.tables.dynamic-enabled": "true",
            "iceberg.tables.route-field": "target",
        }
    names = [f"bench.t{number:04d}" for number in range(tables)]
    plans = tuple(plan(folder, shape.schema, name=name) for name in names)
    for name in names:  # else the first file of a table would make its folder
        (folder / name / "data").mkdir(parents=True)
    return PipelineSpec(config(**keys), plans)


def _events(result: BatchResult, spec: PipelineSpec) -> list[bytes]:
    references = {each.name: each.reference for each in spec.tables}
    return [
        encode(Event(uuid4(), 0, "connect-c", DataWritten(_NO_ID, references[name], files, ())))
        for name, files in result.files.items()
    ]


def _distributed(spec: PipelineSpec, records: int, rows: Path | None) -> PipelineSpec:
    """Return the spec of a batch whose rows are distributed; large tables are not known yet."""
    folder = None if rows is None else str(rows)
    distribution = TableShares().distribution(
        _SPARK_TASKS, read_tasks=_SPARK_TASKS, records=records, folder=folder
    )
    return replace(spec, distribution=distribution)


def _executed(spec: PipelineSpec, given: list[list[pa.RecordBatch]]) -> list[pa.RecordBatch]:
    """Run all Spark tasks of a batch, one after the other."""
    found: list[pa.RecordBatch] = []
    for batches in given:
        shipped = pickle.loads(pickle.dumps(spec))
        found += list(run(shipped)(iter(batches)))
    if spec.distribution is None:
        return found
    rows = pa.Table.from_batches(found)
    written: list[pa.RecordBatch] = []
    for task in range(_SPARK_TASKS):
        shipped = pickle.loads(pickle.dumps(spec))
        own = rows.filter(pc.equal(rows["task"], task)).to_batches()
        written += list(write_passed(shipped)(iter(own)))
    return written


def _cell(
    shape: Shape, tables: int, touched: int, records: int, *, distribution: str, through: str
) -> dict[str, Any]:
    """Measure one micro-batch, after a small one that fills caches."""
    with tempfile.TemporaryDirectory(dir=_FOLDER if _FOLDER.exists() else None) as folder:
        spec = _spec(Path(folder), shape, tables)
        columns = list(spec.columns())
        each = records // _SPARK_TASKS
        given = [
            [b.select(columns) for b in _batches(shape, min(tables, touched), each, seed)]
            for seed in range(_SPARK_TASKS)
        ]
        few = next(_batches(shape, 1, 100, 0)).select(columns)
        list(run(spec)(iter([few])))
        gc.collect()
        gc.freeze()  # as Spark's Python daemon does
        if distribution == HASH_DISTRIBUTION:
            passed = Path(tempfile.mkdtemp(prefix="passed-")) if through == "files" else None
            spec = _distributed(spec, records, passed)
        before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        began = time.process_time()
        rows = _executed(spec, given)
        used = time.process_time() - began
        if spec.distribution is not None and spec.distribution.folder is not None:
            shutil.rmtree(spec.distribution.folder)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        table = pa.Table.from_batches(rows)
        began = time.process_time()
        result = collect(table)
        assert result.is_whole
        events = _events(result, spec)
        driver = time.process_time() - began
        for event in events[:1]:
            decode(event)
        began = time.process_time()
        for event in events:
            decode(event)
        coordinator = time.process_time() - began
        files = [f for listed in result.files.values() for f in listed]
        assert sum(f.record_count for f in files) == each * _SPARK_TASKS
        packed = sum(
            pa.Codec("zstd").compress(b"".join(events[i : i + 1_000])).size
            for i in range(0, len(events), 1_000)
        )
        return {
            "shape": shape.name,
            "tables": tables,
            "touched": touched,
            "distribution": distribution,
            "records": records,
            "task": round(used / records * 1e6, 2),
            "task_ms": round(used * 1e3),
            "driver": round(driver / records * 1e6, 3),
            "coordinator": round(coordinator / records * 1e6, 3),
            "files": len(files),
            "bytes_per_record": round(sum(f.file_size_in_bytes for f in files) / records, 1),
            "spec_kb": len(pickle.dumps(spec)) >> 10,
            "descriptors_kb": sum(map(len, table["payload"].to_pylist())) >> 10,
            "events_kb": [sum(map(len, events)) >> 10, packed >> 10],
            "memory_mb": peak_mb - before_mb,
            "load": round(os.getloadavg()[0], 1),
        }


def main() -> None:
    """Print a line of JSON per cell; the cheapest of its rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="narrow,wide")
    parser.add_argument("--tables", default="1,50,1000")
    parser.add_argument("--touched", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--distribution", default=NO_DISTRIBUTION)
    parser.add_argument("--through", default="files", choices=("files", "rows"))
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    for shape, tables, mode in itertools.product(
        given.shapes.split(","), given.tables.split(","), given.distribution.split(",")
    ):
        if given.alone:
            cell = _cell(
                SHAPES[shape],
                int(tables),
                given.touched,
                given.records,
                distribution=mode,
                through=given.through,
            )
            print(json.dumps(cell))
            continue
        own = ["--alone", "--shapes", shape, "--tables", tables, "--distribution", mode]
        same = ["--through", given.through]
        same += ["--touched", str(given.touched), "--records", str(given.records)]
        command = [sys.executable, "-m", "tests.bench.tables", *own, *same]
        cells = [
            json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            for _ in range(given.rounds)
        ]
        print(json.dumps(min(cells, key=lambda cell: cell["task"])), flush=True)


if __name__ == "__main__":
    main()
