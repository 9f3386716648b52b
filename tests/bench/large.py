"""Cost of records of 900 KB in a worker: ``python -m tests.bench.large [--records 1000]``.

JSON of one long text, that compresses or does not, with and without a field in the second half of
the records which the table lacks; each into a stack of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.bench.measured_stack import PARTITIONS, MeasuredStack, connector, measured_stack, wait

RECORD_BYTES = 900_000
CELLS = [(text, evolves) for text in ("none", "lz4", "zstd") for evolves in (False, True)]


def values(count: int, *, compresses: bool, evolves: bool) -> Iterator[bytes]:
    """Return JSON objects of that size."""
    text = "x" * RECORD_BYTES
    for number in range(count):
        if not compresses:
            text = os.urandom(RECORD_BYTES // 2).hex()
        more = ',"more":1' if evolves and number >= count // 2 else ""
        yield f'{{"id":{number},"text":"{text}"{more}}}'.encode()


def measure(
    stack: MeasuredStack, compression: str, records: int, *, evolves: bool
) -> dict[str, Any]:
    """Measure one case; also whether the worker was not restarted."""
    stack.topic("large")
    settings = {"compression.type": compression, "message.max.bytes": 2_000_000, "linger.ms": 50}
    producer = Producer({**stack.kafka, **settings})
    compresses = compression != "none"
    for number, value in enumerate(values(records, compresses=compresses, evolves=evolves)):
        producer.produce("large", value, partition=number % PARTITIONS)
        producer.flush(60) if number % 50 == 49 else producer.poll(0)
    assert producer.flush(60) == 0
    more = {"iceberg.tables.evolve-schema-enabled": str(evolves).lower()}
    config = connector("large", "large", "db.large", **more)
    with stack.measured() as cost:
        stack.create("large", config)
        wait(lambda: stack.rows("db.large") >= records)
    assert stack.rows("db.large") == records
    started = (stack.stack.state_dir / "node.log").read_text().count('"started"')
    return {
        "compression": compression,
        "evolves": evolves,
        "seconds": round(cost[0].seconds),
        "worker_peak_mb": cost[0].rss_peak_mb["worker"],
        "worker_cpu_s": cost[0].cpu_s["worker"],
        "children_started": started,
    }


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--compression", choices=("none", "lz4", "zstd"))
    chosen = parser.parse_args()
    for compression, evolves in CELLS:
        if chosen.compression in {None, compression}:
            with (
                tempfile.TemporaryDirectory(prefix="bench-large-") as folder,
                measured_stack(Path(folder)) as stack,
            ):
                figures = measure(stack, compression, chosen.records, evolves=evolves)
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
