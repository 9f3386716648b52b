"""CPU time of a new field in a batch: ``python -m tests.bench.new_field [RECORDS]``.

One batch of payments through the pipeline of one Spark task, CPU seconds of everything until its
files are there: run, change of the schema in a SQLite catalog, run again. Making records is not
counted.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from connect.clock import SystemClock
from connect.gateways.catalog.catalog import open_catalog
from connect.validation.parse import parse
from tests.bench.pipeline import BATCH_ROWS, SCHEMA, payment
from tests.differential.support import BASE, source
from worker.batch.descriptors import collect
from worker.pipeline.pipeline import run
from worker.task.tables.task_tables import TaskTables

PLACES = {"none": None, "first record": 0.0, "middle": 0.5, "last record": 1.0}


def measure(where: str, batches: list[pa.RecordBatch], folder: Path) -> dict[str, object]:
    """Run the batch until its files may be announced."""
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": f"file://{folder / 'warehouse'}",
    }
    table = f"db.{where.replace(' ', '_')}"
    connector = parse(
        {
            **BASE,
            **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
            "iceberg.tables": table,
            "iceberg.tables.evolve-schema-enabled": "true",
        }
    )
    gateway = open_catalog("bench", catalog)
    gateway.create(table.split("."), SCHEMA)
    tables = TaskTables(connector, gateway, SystemClock())
    records = sum(batch.num_rows for batch in batches)
    began, runs = time.process_time(), 0
    while True:
        runs += 1
        spec = tables.spec()
        given = iter([batch.select(list(spec.columns())) for batch in batches])
        result = collect(pa.Table.from_batches(list(run(spec)(given))))
        if result.is_usable:
            break
        tables.discard(result)
        tables.apply_requests(result)
    used = time.process_time() - began
    assert sum(f.record_count for listed in result.files.values() for f in listed) == records
    is_there = "note" in gateway.load(table.split(".")).schema().column_names
    assert is_there == (where != "none")
    tables.close()
    return {
        "new_field": where,
        "records": records,
        "runs": runs,
        "cpu_s_per_million": round(used / records * 1e6, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def main(records: int) -> None:
    """Print a line for each position of the first record with the field."""
    chance = random.Random(5)
    values = [payment(number, chance, 1) for number in range(records)]
    for where, share in PLACES.items():
        first = records if share is None else min(int(records * share), records - 1)
        new = [v if i < first else v[:-1] + b',"note":"n"}' for i, v in enumerate(values)]
        batches = [
            source(new[start : start + BATCH_ROWS], start=start)
            for start in range(0, records, BATCH_ROWS)
        ]
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure(where, batches, Path(folder))), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
