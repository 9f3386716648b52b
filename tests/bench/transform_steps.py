"""What a transformation costs by columns: CPU seconds per million records, beside none.

``python -m tests.bench.transform_steps [RECORDS]``; one process, no Spark, no broker.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DoubleType, LongType, NestedField, StringType

from tests.differential.support import config, plan, run_batches, source

KAFKA = "org.apache.kafka.connect.transforms."
ICEBERG = "org.apache.iceberg.connect.transforms."
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "account", StringType(), required=False),
    NestedField(3, "amount", DoubleType(), required=False),
    NestedField(4, "currency", StringType(), required=False),
    NestedField(5, "at", LongType(), required=False),
    NestedField(6, "ok", BooleanType(), required=False),
    NestedField(7, "origin", StringType(), required=False),
)
LINKS: dict[str, dict[str, str]] = {
    "none": {},
    "ReplaceField exclude": {"type": f"{KAFKA}ReplaceField$Value", "exclude": "note"},
    "ReplaceField rename": {"type": f"{KAFKA}ReplaceField$Value", "renames": "note:origin"},
    "InsertField": {"type": f"{KAFKA}InsertField$Value", "topic.field": "origin"},
    "KafkaMetadata": {"type": f"{ICEBERG}KafkaMetadataTransform"},
    "Cast": {"type": f"{KAFKA}Cast$Value", "spec": "id:int32,amount:float64"},
    "Cast to text": {"type": f"{KAFKA}Cast$Value", "spec": "id:string"},
    "MaskField": {"type": f"{KAFKA}MaskField$Value", "fields": "account"},
    "CopyValue": {
        "type": f"{ICEBERG}CopyValue",
        "source.field": "account",
        "target.field": "origin",
    },
    "ExtractField": {"type": f"{KAFKA}ExtractField$Value", "field": "row"},
    "RegexRouter": {"type": f"{KAFKA}RegexRouter", "regex": "(.*)", "replacement": "x-$1"},
}


def seconds(link: dict[str, str], count: int, folder: Path) -> float:
    """CPU seconds for some records through the pipeline, into files."""
    keys = {f"transforms.t.{name}": value for name, value in link.items()}
    connector = config(**({"transforms": "t", **keys} if link else {}))
    rows = [
        {
            "id": i,
            "account": f"DE{i % 5000:018d}",
            "amount": i / 7,
            "currency": "EUR" if i % 3 else "USD",
            "at": 1_700_000_000_000 + i,
            "ok": i % 2 == 0,
            "note": f"payment {i % 100}",
        }
        for i in range(min(count, 65_536))
    ]
    if link.get("field"):
        rows = [{"row": row} for row in rows]
    values: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    batch = source(values)
    batches = [batch] * -(-count // len(values))
    tables = [plan(folder, SCHEMA)]
    run_batches(connector, tables, [batch])
    before = time.process_time()
    run_batches(connector, tables, batches)
    return (time.process_time() - before) * 1e6 / (len(batches) * len(values))


def main(arguments: list[str]) -> None:
    """Print the table."""
    count = int(arguments[0]) if arguments else 500_000
    with tempfile.TemporaryDirectory() as folder:
        base = min(seconds({}, count, Path(folder)) for _ in range(3))
        print(f"{'transformation':24} CPU s / M records   against none")
        for name, link in LINKS.items():
            found = min(seconds(link, count, Path(folder)) for _ in range(3))
            print(f"{name:24} {found:17.2f}   {found / base - 1:+12.0%}")


if __name__ == "__main__":
    main(sys.argv[1:])
