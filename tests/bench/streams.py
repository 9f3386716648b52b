"""CPU seconds per million records of the pipeline, for streams unlike payments.

``python -m tests.bench.streams [--streams numeric,schemas] [--records 20000] [--rounds 3]
[--alone]``. One process, no Spark, no broker, as ``tests.bench.formats``. ``alone`` counts records
that took the record path.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import StructType

from connect.records.conversion.text import unscaled_bytes
from connect.records.tables.type_inference import type_of
from tests.differential.support import config, plan, source
from tests.golden.records_model import schema_of
from worker.batch.descriptors import collect
from worker.pipeline import record_fallback
from worker.pipeline.pipeline import PipelineSpec, run

BATCH_ROWS = 10_000
SCHEMAS = 40
_DATA = "org.apache.kafka.connect.data."
EVOLVING = {
    "value.converter.schemas.enable": "true",
    "iceberg.tables.evolve-schema-enabled": "true",
}
DEBEZIUM = {
    **EVOLVING,
    "transforms": "d",
    "transforms.d.type": "org.apache.iceberg.connect.transforms.DebeziumTransform",
}
FILTER = {
    "transforms": "f",
    "transforms.f.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.f.predicate": "h",
    "predicates": "h",
    "predicates.h.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "predicates.h.name": "skip",
}


def _field(name: str, kind: str, /, **more: Any) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": True, **more}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _number(text: str) -> str:
    return _base64(unscaled_bytes(Decimal(text)))


PLAIN = [
    _field("id", "int64", optional=False),
    _field("customer", "string"),
    _field("status", "string", default="new"),
    _field("city", "string"),
    _field("quantity", "int32"),
    _field("weight", "double"),
    _field("is_paid", "boolean"),
    _field("note", "string"),
    _field("created", "int64", name="io.debezium.time.MicroTimestamp", version=1),
    _field("due", "int32", name="io.debezium.time.Date", version=1),
    _field("reference", "string"),
]
CDC = _field(
    "_cdc",
    "struct",
    fields=[
        _field("op", "string"),
        _field("ts", "int64", name=_DATA + "Timestamp", version=1),
        _field("offset", "int64"),
        _field("source", "string"),
        _field("target", "string"),
        _field("key", "string"),
    ],
)
NUMERIC = _field("amount", "bytes", name=_DATA + "Decimal", version=1, parameters={"scale": "2"})
TYPES = [
    NUMERIC,
    _field("real", "float"),
    _field("data", "bytes"),
    _field("bits", "bytes", name="io.debezium.data.Bits", version=1, parameters={"length": "9"}),
    _field("amounts", "array", items={**NUMERIC}),
    _field(
        "any_number",
        "struct",
        name="io.debezium.data.VariableScaleDecimal",
        version=1,
        fields=[_field("scale", "int32", optional=False), _field("value", "bytes", optional=False)],
    ),
    _field(
        "place",
        "struct",
        name="io.debezium.data.geometry.Point",
        version=1,
        fields=[
            _field("x", "double", optional=False),
            _field("y", "double", optional=False),
            _field("wkb", "bytes"),
            _field("srid", "int32"),
        ],
    ),
]


def _plain(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"customer-{rng.randrange(10**6):08d}",
        "status": rng.choice(("new", "paid", "sent", None)),
        "city": rng.choice(("Berlin", "Oslo", "Rome")),
        "quantity": rng.randrange(1, 99),
        "weight": rng.randrange(10**6) / 128,
        "is_paid": rng.random() < 0.5,
        "note": f"note {rng.getrandbits(60):x}",
        "created": 1_770_000_000_000_000 + rng.randrange(10**12),
        "due": 20_000 + rng.randrange(400),
        "reference": f"{rng.getrandbits(64):016x}",
    }


def _numeric(rng: random.Random, number: int) -> dict[str, Any]:
    return {**_plain(rng, number), "amount": _number(f"{rng.randrange(10**9) / 100:.2f}")}


def _types(rng: random.Random, number: int) -> dict[str, Any]:
    amount = _number(f"{rng.randrange(10**6) / 100:.2f}")
    wkb = _base64(rng.randbytes(21))
    return {
        **_numeric(rng, number),
        "real": rng.randrange(10**6) / 64,
        "data": _base64(rng.randbytes(rng.randrange(24))),
        "bits": _base64(rng.randbytes(2)),
        "amounts": [amount] * rng.randrange(3),
        "any_number": {"scale": rng.randrange(5), "value": amount},
        "place": {"x": rng.random(), "y": rng.random(), "wkb": wkb, "srid": None},
    }


def event_schema(fields: list[dict[str, Any]], name: str = "orders") -> dict[str, Any]:
    """The schema of Debezium's change events for PostgreSQL."""
    row = {"type": "struct", "optional": True, "fields": fields, "name": f"shop.{name}.Value"}
    texts = ("version", "connector", "name", "db", "sequence", "schema", "table")
    counts = ("ts_us", "ts_ns", "txId", "lsn", "xmin")
    return {
        "type": "struct",
        "optional": False,
        "name": f"shop.{name}.Envelope",
        "version": 2,
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            _field(
                "source",
                "struct",
                optional=False,
                name="io.debezium.connector.postgresql.Source",
                fields=[
                    *(_field(n, "string") for n in texts),
                    *(_field(n, "int64") for n in counts),
                ],
            ),
            _field("op", "string", optional=False),
            _field("ts_ms", "int64"),
        ],
    }


def event(row: dict[str, Any], number: int, table: str = "orders") -> dict[str, Any]:
    """A change event of a row."""
    return {
        "before": None,
        "after": row,
        "source": {
            "version": "3.6.0.Final",
            "connector": "postgresql",
            "name": "shop",
            "db": "shop",
            "sequence": f'["{number}","{number}"]',
            "schema": "public",
            "table": table,
            "ts_us": 1_770_000_000_000_000 + number,
            "ts_ns": 1_770_000_000_000_000_000 + number,
            "txId": number,
            "lsn": number * 64,
            "xmin": None,
        },
        "op": "c",
        "ts_ms": 1_770_000_000_000 + number,
    }


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _events(
    fields: list[dict[str, Any]], row: Callable[[random.Random, int], dict[str, Any]]
) -> Callable[[random.Random, int], bytes]:
    schema = _text(event_schema(fields))
    return lambda rng, n: b'{"schema":%b,"payload":%b}' % (schema, _text(event(row(rng, n), n)))


def _schemas(rng: random.Random, number: int) -> bytes:
    own = rng.randrange(SCHEMAS)
    schema = {"type": "struct", "optional": False, "name": f"s{own}", "fields": PLAIN}
    return b'{"schema":%b,"payload":%b}' % (_text(schema), _text(_plain(rng, number)))


_LINES = ('Größe: "L"', 'Übergabe am Montag\nbei "Müller & Söhne"', "straße 12\t(Hof)")


def _long(rng: random.Random, number: int) -> bytes:
    text = "\n".join(f"{rng.choice(_LINES)} {rng.getrandbits(30)}" for _ in range(250))
    return _text({**_plain(rng, number), "note": text})


@dataclass(frozen=True, slots=True)
class Stream:
    """Records of one kind, with the table and the connector's keys.

    Attributes:
        make: a value by rng and number.
        fields: of the table.
        keys: of the connector.
        headers: of each record.
        share: of the number of records asked for.
    """

    make: Callable[[random.Random, int], bytes]
    fields: list[dict[str, Any]]
    keys: Mapping[str, str]
    headers: tuple[tuple[str, bytes], ...] = ()
    share: float = 1.0


STREAMS: Mapping[str, Stream] = {
    "plain": Stream(_events(PLAIN, _plain), [*PLAIN, CDC], DEBEZIUM),
    "numeric": Stream(_events([*PLAIN, NUMERIC], _numeric), [*PLAIN, NUMERIC, CDC], DEBEZIUM),
    "types": Stream(_events([*PLAIN, *TYPES], _types), [*PLAIN, *TYPES, CDC], DEBEZIUM),
    "schemas": Stream(_schemas, PLAIN, EVOLVING),
    "header": Stream(lambda r, n: _text(_plain(r, n)), PLAIN, FILTER, (("source", b"shop"),)),
    "texts": Stream(_long, PLAIN, {}, share=0.1),
}


def table_of(fields: list[dict[str, Any]]) -> Schema:
    """The table of a row's fields."""
    found = schema_of({"type": "struct", "fields": fields})
    assert found is not None
    kind = type_of(found, force_optional=True)
    assert isinstance(kind, StructType)
    return assign_fresh_schema_ids(Schema(*kind.fields))


def batches(stream: Stream, count: int) -> Iterator[pa.RecordBatch]:
    """The records in the blocks of a Spark task."""
    rng = random.Random(7)
    for start in range(0, count, BATCH_ROWS):
        numbers = range(start, min(start + BATCH_ROWS, count))
        batch = source([stream.make(rng, n) for n in numbers], start=start)
        if stream.headers:
            column = pa.array([list(stream.headers)] * len(numbers), batch["headers"].type)
            place = batch.schema.get_field_index("headers")
            batch = batch.set_column(place, batch.schema.field(place), column)
        yield batch


def measure(
    stream: Stream, given: list[pa.RecordBatch], *, alone_only: bool = False
) -> tuple[float, int, int]:
    """Return the CPU seconds, the rows written, and the records that took the record path."""
    alone = [0]
    take = record_fallback.RecordPath.take

    def counted(self: Any, *args: Any, **more: Any) -> int:
        alone[0] += 1
        return take(self, *args, **more)

    with tempfile.TemporaryDirectory() as folder:
        spec = PipelineSpec(
            config(**stream.keys),
            (plan(Path(folder), table_of(stream.fields)),),
            reference_only=alone_only,
        )
        blocks = [batch.select(list(spec.columns())) for batch in given]
        record_fallback.RecordPath.take = counted  # type: ignore[method-assign]
        began = time.process_time()
        result = collect(pa.Table.from_batches(list(run(spec)(iter(blocks)))))
        used = time.process_time() - began
        record_fallback.RecordPath.take = take  # type: ignore[method-assign]
    rows = sum(file.record_count for listed in result.files.values() for file in listed)
    return used, rows, alone[0]


def main() -> None:
    """Print a line of JSON per stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", default=",".join(STREAMS))
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="all records by the record path")
    given = parser.parse_args()
    for name in given.streams.split(","):
        stream = STREAMS[name]
        count = int(given.records * stream.share)
        records = list(batches(stream, count))
        runs = [measure(stream, records, alone_only=given.alone) for _ in range(given.rounds)]
        used, rows, alone = min(runs)
        line = {
            "stream": name,
            "records": count,
            "rows": rows,
            "cpu_s_per_million": round(used / count * 1e6, 1),
            "alone": alone,
            "load": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
