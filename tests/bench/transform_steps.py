"""CPU seconds per million records of transformations by columns, compared with none.

``python -m tests.bench.transform_steps [RECORDS [NAMES]]``; one process, no Spark, no broker. None
gets the same records, into a table of the columns that they have before the transformation.
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
    ListType,
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
    "ParseJson of line breaks": {"type": f"{OWN}ParseJson", "field": "text"},
    "Debezium": {"type": f"{ICEBERG}DebeziumTransform"},
    "Dms": {"type": f"{ICEBERG}DmsTransform"},
    "HoistField": {"type": f"{KAFKA}HoistField$Value", "field": "row"},
    "HeaderFrom": {
        "type": f"{KAFKA}HeaderFrom$Value",
        "fields": "note",
        "headers": "note",
        "operation": "move",
    },
    "ValueToKey": {"type": f"{KAFKA}ValueToKey", "fields": "id,account"},
    "ExtractField of keys": {"type": f"{KAFKA}ExtractField$Key", "field": "id"},
    "Cast of keys": {"type": f"{KAFKA}Cast$Key", "spec": "id:string"},
    "ReplaceField of keys": {"type": f"{KAFKA}ReplaceField$Key", "exclude": "id"},
}
SHAPES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "ExtractField": lambda row: {"row": row},
    "Flatten": lambda row: {"pay": row},
    "Explode": lambda row: {"rows": [row]},
    "ParseJson": lambda row: {"text": json.dumps(row)},
    "ParseJson of line breaks": lambda row: {"text": json.dumps(row)},
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


def seconds(name: str, count: int, folder: Path, way: str = "columns") -> float:
    """CPU seconds per million records through the pipeline, into files.

    Args:
        name: of the transformation.
        count: records.
        folder: for the files.
        way: ``columns``, ``records``, or ``none``: the same records without the transformation.
    """
    link = LINKS[name] if way != "none" else {}
    keys = {f"transforms.t.{key}": value for key, value in link.items()}
    connector = config(**({"transforms": "t", **keys} if link else {}), **key_converter(name))
    is_flat = way == "none" and name.startswith("ParseJson")
    shape = dict if is_flat else SHAPES.get(name, dict)
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
    has_keys = name.endswith("of keys")
    batch = source(values, keys=[b'{"id": %d}' % i for i in range(len(rows))] if has_keys else None)
    batches = [batch] * -(-count // len(values))
    tables = [plan(folder, schema_before(name) if way == "none" else schema_of(name))]
    run = partial(run_batches, connector, tables, reference_only=way == "records")
    run([batch])
    before = time.process_time()
    run(batches)
    return (time.process_time() - before) * 1e6 / (len(batches) * len(values))


def key_converter(name: str) -> dict[str, str]:
    """Return the converter of JSON keys, for transformations of keys."""
    if not name.endswith("of keys"):
        return {}
    converter = "org.apache.kafka.connect.json.JsonConverter"
    return {"key.converter": converter, "key.converter.schemas.enable": "false"}


def extra(name: str, number: int) -> dict[str, str]:
    """Return the text for steps about times; each tenth record has a note with a line break."""
    if name.endswith("line breaks"):
        return {"note": f"payment\n{number}"} if number % 10 == 1 else {}
    clock = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
    if "iso8601" in name:
        return {"iso": f"2024-02-29T{clock}Z"}
    return {"day": f"2024-02-29 {clock}"} if "read" in name or name == "ParseTimestamp" else {}


def texts(*names: str) -> StructType:
    """Return a struct of texts."""
    return StructType(*(NestedField(i, n, StringType()) for i, n in enumerate(names, 40)))


def schema_before(name: str) -> Schema:
    """Return the table without the step, with the columns that the step uses."""
    fields = list(SCHEMA.fields)
    row = StructType(*(NestedField(f.field_id + 20, f.name, f.field_type) for f in fields))
    if name in ("ReplaceField rename", "Jmespath paths"):
        fields[6] = NestedField(7, "note", StringType())
    if extra(name, 0):
        fields.append(NestedField(8, *extra(name, 0), StringType()))
    if name in ("ExtractField", "Flatten"):
        fields = [NestedField(1, "row" if name == "ExtractField" else "pay", row)]
    if name == "Explode":
        fields = [NestedField(1, "rows", ListType(2, row))]
    if name == "Debezium":
        origin = texts("db", "schema", "table")
        fields = [NestedField(1, "after", row), NestedField(2, "op", StringType())]
        fields += [NestedField(3, "ts_ms", LongType()), NestedField(4, "source", origin)]
    if name == "Dms":
        origin = texts("operation", "schema-name", "table-name")
        fields = [NestedField(1, "data", row), NestedField(4, "metadata", origin)]
    return Schema(*fields)


def schema_of(name: str) -> Schema:
    """Return the table with the names and types after the step."""
    fields = list(SCHEMA.fields)
    if name == "Flatten":
        fields = [NestedField(f.field_id, f"pay_{f.name}", f.field_type) for f in fields]
    if name.startswith("ParseJson"):
        inner = StructType(*(NestedField(f.field_id + 20, f.name, f.field_type) for f in fields))
        fields = [NestedField(1, "text", inner)]
    if name == "HoistField":
        row = StructType(*(NestedField(f.field_id + 20, f.name, f.field_type) for f in fields))
        fields = [NestedField(1, "row", row)]
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
        print(f"{'CPU s / M records':26} by columns      none   against none   record by record")
        for name in names:
            run = partial(seconds, name, folder=Path(folder))
            # alternately: other load affects both equally
            both = [(run(count=count, way="none"), run(count=count)) for _ in range(3)]
            base, found = (min(times) for times in zip(*both, strict=True))
            slow = run(count=min(count, 5_000), way="records")
            share = found / base - 1
            print(f"{name:26} {found:10.2f} {base:9.2f} {share:+14.0%} {slow:18.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
