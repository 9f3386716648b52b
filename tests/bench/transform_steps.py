"""What a transformation costs by columns: CPU seconds per million records, beside none.

``python -m tests.bench.transform_steps [RECORDS]``; one process, no Spark, no broker.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from tests.differential.support import config, plan, run_batches, source

KAFKA = "org.apache.kafka.connect.transforms."
OWN = "icefloe.transforms."
PATTERN = "yyyy-MM-dd HH:mm:ss"
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
    "TimestampRouter": {"type": f"{KAFKA}TimestampRouter"},
    "TimestampConverter read": {
        "type": f"{KAFKA}TimestampConverter$Value",
        "field": "day",
        "target.type": "unix",
        "format": "yyyy-MM-dd HH:mm:ss",
    },
    "TimestampConverter write": {
        "type": f"{KAFKA}TimestampConverter$Value",
        "field": "at",
        "target.type": "string",
        "format": "yyyy-MM-dd HH:mm:ss",
    },
    "ParseTimestamp": {"type": f"{OWN}ParseTimestamp", "fields": "day", "format": PATTERN},
    "ParseTimestamp iso8601": {"type": f"{OWN}ParseTimestamp", "fields": "iso"},
    "Jmespath paths": {"type": f"{OWN}Jmespath", "fields.origin": "note", "fields.id": "at"},
    "Jmespath where": {"type": f"{OWN}Jmespath", "where": "ok && currency != 'GBP'"},
    "Jmespath to date": {
        "type": f"{OWN}Jmespath",
        "fields.origin": "substr(epoch_millis_to_iso8601(at), `0`, `10`)",
    },
    "Flatten": {"type": f"{KAFKA}Flatten$Value", "delimiter": "_"},
    "Explode": {"type": f"{OWN}Explode", "field": "rows", "spread": "true"},
    "ParseJson": {"type": f"{OWN}ParseJson", "field": "text"},
    "Debezium": {"type": f"{ICEBERG}DebeziumTransform"},
    "Dms": {"type": f"{ICEBERG}DmsTransform"},
}
SHAPES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "ExtractField": lambda row: {"row": row},
    "Flatten": lambda row: {"pay": row},
    "Explode": lambda row: {"rows": [row]},
    "ParseJson": lambda row: {"text": json.dumps(row)},
    "Debezium": lambda row: {
        "before": None,
        "after": row,
        "source": {"version": "2.1", "connector": "x", "db": "d", "schema": "s", "table": "t"},
        "op": "c",
        "ts_ms": 1_700_000_000_000,
    },
    "Dms": lambda row: {
        "data": row,
        "metadata": {"operation": "insert", "schema-name": "s", "table-name": "t"},
    },
}


def seconds(name: str, count: int, folder: Path, *, reference_only: bool = False) -> float:
    """CPU seconds for some records through the pipeline, into files."""
    link = LINKS[name]
    keys = {f"transforms.t.{key}": value for key, value in link.items()}
    connector = config(**({"transforms": "t", **keys} if link else {}))
    shape = SHAPES.get(name, dict)
    rows = [
        shape(
            {
                "id": i,
                "account": f"DE{i % 5000:018d}",
                "amount": i / 7,
                "currency": "EUR" if i % 3 else "USD",
                "at": 1_700_000_000_000 + i,
                "ok": i % 2 == 0,
                "note": f"payment {i % 100}",
                **extra(name, i),
            }
        )
        for i in range(min(count, 65_536))
    ]
    values: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    batch = source(values)
    batches = [batch] * -(-count // len(values))
    tables = [plan(folder, schema_of(name))]
    run_batches(connector, tables, [batch], reference_only=reference_only)
    before = time.process_time()
    run_batches(connector, tables, batches, reference_only=reference_only)
    return (time.process_time() - before) * 1e6 / (len(batches) * len(values))


def extra(name: str, number: int) -> dict[str, str]:
    """The text that a step about times reads."""
    clock = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
    if "iso8601" in name:
        return {"iso": f"2024-02-29T{clock}Z"}
    return {"day": f"2024-02-29 {clock}"} if "read" in name or name == "ParseTimestamp" else {}


def schema_of(name: str) -> Schema:
    """The table: its columns have the names and types that the step leaves."""
    fields = list(SCHEMA.fields)
    if name == "Flatten":
        fields = [NestedField(f.field_id, f"pay_{f.name}", f.field_type) for f in fields]
    if name == "ParseJson":
        inner = StructType(*(NestedField(f.field_id + 20, f.name, f.field_type) for f in fields))
        fields = [NestedField(1, "text", inner)]
    if name == "TimestampConverter write":
        fields[4] = NestedField(5, "at", StringType())
    if name == "TimestampConverter read":
        fields.append(NestedField(8, "day", LongType()))
    if name.startswith("ParseTimestamp"):
        column = "iso" if "iso8601" in name else "day"
        fields.append(NestedField(8, column, TimestamptzType()))
    if name == "Debezium":
        names = ("op", "source", "target")
        cdc = StructType(*(NestedField(40 + i, n, StringType()) for i, n in enumerate(names)))
        fields.append(NestedField(8, "_cdc", cdc))
    return Schema(*fields)


def main(arguments: list[str]) -> None:
    """Print the table."""
    count = int(arguments[0]) if arguments else 500_000
    names = arguments[1:] or list(LINKS)
    with tempfile.TemporaryDirectory() as folder:
        run = partial(seconds, count=count, folder=Path(folder))
        print(f"{'transformation':26} CPU s / M records   against none   record by record")
        for name in names:
            # one after the other: what else runs costs both the same
            both = [(run("none"), run(name)) for _ in range(3)]
            base, found = (min(times) for times in zip(*both, strict=True))
            slow = seconds(name, min(count, 5_000), Path(folder), reference_only=True)
            print(f"{name:26} {found:17.2f}   {found / base - 1:+12.0%}   {slow:16.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
