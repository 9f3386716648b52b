"""CPU seconds per million payments of the column path, no Spark: decode, route, convert, Parquet.

Usage: python -m tests.bench.pipeline [records] [tables ...]
With FORMATS=iceberg,delta,parquet in the environment each is measured, one after the other. With
SORT_BY, such as ts or customer,ts, data files are sorted.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from connect.records.tables.sort_order import sort_order_for
from connect.validation.key_checks import split_terms
from tests.differential.support import config, plan, source
from worker.batch.descriptors import collect
from worker.pipeline.pipeline import PipelineSpec, run

BATCH_ROWS = 10_000
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "customer", StringType(), required=False),
    NestedField(3, "merchant", StringType(), required=False),
    NestedField(4, "amount", DoubleType(), required=False),
    NestedField(5, "currency", StringType(), required=False),
    NestedField(6, "status", StringType(), required=False),
    NestedField(7, "ts", TimestamptzType(), required=False),
    NestedField(8, "card", StringType(), required=False),
    NestedField(9, "fraud", BooleanType(), required=False),
)


def payment(number: int, chance: random.Random, tables: int) -> bytes:
    """One payment of about 190 bytes; its status names the table when there are several."""
    status = "settled" if tables == 1 else f"db.t{chance.randrange(tables)}"
    return (
        f'{{"id":{number},"customer":"cust-{chance.randrange(10**6):08d}",'
        f'"merchant":"m-{chance.randrange(5000):05d}","amount":{chance.randrange(10**6) / 100},'
        f'"currency":"{chance.choice(("EUR", "USD", "GBP"))}","status":"{status}",'
        f'"ts":"2024-03-{chance.randrange(1, 29):02d}T{chance.randrange(24):02d}:'
        f'{chance.randrange(60):02d}:{chance.randrange(60):02d}.{chance.randrange(1000):03d}Z",'
        f'"card":"{chance.getrandbits(64):016x}",'
        f'"fraud":{"true" if chance.random() < 0.01 else "false"}}}'
    ).encode()


def measure(records: int, tables: int, table_format: str = "iceberg") -> dict[str, object]:
    """Run one task over distinct payments; generating them is not counted."""
    chance = random.Random(5)
    batches = [
        source([payment(start + i, chance, tables) for i in range(BATCH_ROWS)], start=start)
        for start in range(0, records, BATCH_ROWS)
    ]
    folder = Path(tempfile.mkdtemp(prefix="bench-pipeline-"))
    names = ["db.t1"] if tables == 1 else [f"db.t{i}" for i in range(tables)]
    keys = {"iceberg.tables": "db.t1"}
    if tables > 1:
        keys = {
            "iceberg.tables": None,
            "iceberg.tables.dynamic-enabled": "true",
            "iceberg.tables.route-field": "status",
        }
    connector = config(**keys)
    plans = (plan(folder, SCHEMA, name=name) for name in names)
    order = sort_order_for(split_terms(os.environ.get("SORT_BY")), SCHEMA)
    sort_json = None if order.is_unsorted else order.model_dump_json()
    planned = tuple(replace(each, table_format=table_format, sort_json=sort_json) for each in plans)
    spec = PipelineSpec(connector, planned)
    given: Iterator[pa.RecordBatch] = iter([b.select(list(spec.columns())) for b in batches])
    try:
        began, clock = time.process_time(), time.perf_counter()
        result = collect(pa.Table.from_batches(list(run(spec)(given))))
        used, wall = time.process_time() - began, time.perf_counter() - clock
    finally:
        shutil.rmtree(folder)
    files = [f for listed in result.files.values() for f in listed]
    assert sum(f.record_count for f in files) == records
    return {
        "format": table_format,
        "tables": tables,
        "records": records,
        "cpu_s_per_million": round(used / records * 1e6, 2),
        "records_per_s": round(records / wall),
        "bytes_per_record": round(sum(f.file_size_in_bytes for f in files) / records, 1),
        "files": len(files),
        "peak_arrow_mb": pa.default_memory_pool().max_memory() >> 20,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for width in [int(a) for a in sys.argv[2:]] or [1, 50]:
        for chosen in os.environ.get("FORMATS", "iceberg").split(","):
            print(json.dumps(measure(count, width, chosen)), flush=True)
