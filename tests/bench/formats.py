"""CPU seconds of the pipeline per million records in each format.

``python -m tests.bench.formats [RECORDS]``. One process,
the same payments in every format, framed with ids of a schema registry (in this
process, asked once) where the format has one. Generating records is not counted.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import message_factory

from connect.converters.protobuf_schema import pool_of
from tests.bench.pipeline import BATCH_ROWS, SCHEMA, payment
from tests.differential.support import config, plan, source
from tests.fakes.schema_registry import SchemaRegistryServer
from worker.descriptors import collect
from worker.pipeline import PipelineSpec, run

CONFLUENT = "io.confluent.connect."
FIELDS = {"id": "long", "customer": "string", "merchant": "string", "amount": "double"} | {
    "currency": "string", "status": "string", "ts": "string", "card": "string", "fraud": "boolean",
}  # fmt: skip
AVRO = {
    "type": "record",
    "name": "bank.Payment",
    "fields": [{"name": n, "type": ["null", t]} for n, t in FIELDS.items()],
}
_PROTO = {"long": "int64", "boolean": "bool"}
PROTOBUF = 'syntax = "proto3"; message Payment {' + "".join(
    f"{_PROTO.get(t, t)} {n} = {i};" for i, (n, t) in enumerate(FIELDS.items(), 1)
) + "}"  # fmt: skip
_JSON = {"long": "integer", "double": "number"}
JSON_SCHEMA = {
    "type": "object",
    "properties": {n: {"type": _JSON.get(t, t)} for n, t in FIELDS.items()},
}
_CONNECT = {"long": "int64"}
ENVELOPE = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"field": n, "type": _CONNECT.get(t, t), "optional": True} for n, t in FIELDS.items()
    ],
}


def encoders() -> dict[str, Callable[[bytes], bytes]]:
    """From a JSON payment to the record of a format."""
    avro = fastavro.parse_schema(AVRO)
    _, file = pool_of(PROTOBUF, {})
    make = message_factory.GetMessageClass(file.message_types_by_name["Payment"])
    head = json.dumps(ENVELOPE).encode()

    def to_avro(record: bytes) -> bytes:
        out = io.BytesIO(b"\0\0\0\0\1")
        out.seek(5)
        fastavro.schemaless_writer(out, avro, json.loads(record))
        return out.getvalue()

    return {
        "json": lambda record: record,
        "avro": to_avro,
        "protobuf": lambda r: b"\0\0\0\0\2\0" + make(**json.loads(r)).SerializeToString(),
        "json schema": lambda record: b"\0\0\0\0\3" + record,
        "json envelope": lambda r: b'{"schema":' + head + b',"payload":' + r + b"}",
    }


def converters(url: str) -> dict[str, dict[str, str | None]]:
    """The converter's keys of each format."""
    registry = {"schemas.enable": None, "schema.registry.url": url}
    classes = {
        "avro": "avro.AvroConverter",
        "protobuf": "protobuf.ProtobufConverter",
        "json schema": "json.JsonSchemaConverter",
    }
    keys: dict[str, dict[str, str | None]] = {"json": {}}
    for name, class_name in classes.items():
        keys[name] = {"value.converter": CONFLUENT + class_name} | {
            f"value.converter.{key}": value for key, value in registry.items()
        }
    keys["json envelope"] = {"value.converter.schemas.enable": "true"}
    return keys


def measure(name: str, records: int, keys: dict[str, str | None]) -> dict[str, Any]:
    """Run one task over payments of a format."""
    chance = random.Random(5)
    encode = encoders()[name]
    batches = [
        source([encode(payment(start + i, chance, 1)) for i in range(BATCH_ROWS)], start=start)
        for start in range(0, records, BATCH_ROWS)
    ]
    folder = Path(tempfile.mkdtemp())
    spec = PipelineSpec(config(**keys), (plan(folder, SCHEMA),))
    given: Iterator[pa.RecordBatch] = iter([b.select(list(spec.columns())) for b in batches])
    try:
        began = time.process_time()
        result = collect(pa.Table.from_batches(list(run(spec)(given))))
        used = time.process_time() - began
    finally:
        shutil.rmtree(folder)
    files = [f for listed in result.files.values() for f in listed]
    assert sum(f.record_count for f in files) == records
    return {
        "format": name,
        "records": records,
        "cpu_s_per_million": round(used / records * 1e6, 2),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    with SchemaRegistryServer() as server:
        server.register("avro", json.dumps(AVRO))
        server.register("protobuf", PROTOBUF, "PROTOBUF")
        server.register("json", json.dumps(JSON_SCHEMA), "JSON")
        for name, keys in converters(server.url).items():
            print(json.dumps(measure(name, count, keys)), flush=True)
