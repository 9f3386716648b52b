"""Records of a few shapes with equal values in every format, for the matrix.

Rules of this file:
- A record follows from its shape and number alone. Its ``target`` names its table where there are
  many; its ``id`` comes again after three quarters of the records, so upserts have work to do.
- Every format's schema is made from the table's, so that all say the same.
- In every format a record is the bytes of its first two fields, then those of the others: the
  latter are made once for ``VARIANTS`` of them, as making records must not take all the time.
"""

from __future__ import annotations

import io
import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
from google.protobuf import message_factory
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from connect.records.converters.protobuf.protobuf_schema import pool_of

PARTITIONS = 4
TABLES_MAX = 50
VARIANTS = 8_191  # a prime, so that consecutive ids use all variants
SEED = 11
_HEAD = 2
Row = dict[str, Any]
Encoder = Callable[[Row], bytes]

_ids = itertools.count(1)
_CURRENCIES = ("EUR", "USD", "GBP", "CHF")
_CITIES = ("Berlin", "Paris", "Madrid", "Wien", "Oslo", "Roma")


def _struct(**fields: IcebergType) -> StructType:
    return StructType(*(NestedField(next(_ids), n, t, required=False) for n, t in fields.items()))


def _list(element: IcebergType) -> ListType:
    return ListType(next(_ids), element, element_required=False)


def _map(value: IcebergType) -> MapType:
    return MapType(next(_ids), StringType(), next(_ids), value, value_required=False)


def _schema(**fields: IcebergType) -> Schema:
    return Schema(*_struct(**fields).fields)


@dataclass(frozen=True, slots=True)
class Shape:
    """Records of one shape.

    Attributes:
        name: of the shape.
        schema: of its tables.
        make: everything of a record but ``id`` and ``target``, by rng.
        records: how many a cell has by default.
    """

    name: str
    schema: Schema
    make: Callable[[random.Random], Row]
    records: int

    def head(self, number: int, count: int) -> Row:
        """Return the first fields of a record; ``count`` is the number of records."""
        key = number % keys_of(count)
        return {"id": key, "target": table_name(self.name, key)}

    def variants(self) -> list[Row]:
        """Return the variants of the other fields."""
        rng = random.Random(SEED)
        return [self.make(rng) for _ in range(VARIANTS)]


def keys_of(count: int) -> int:
    """Return the number of different ``id`` of ``count`` records; each is in one partition."""
    return max(count * 3 // 4 // PARTITIONS, 1) * PARTITIONS


def table_name(shape: str, key: int) -> str:
    """Return the table of a key, with several tables."""
    return f"bench.{shape}_{key % TABLES_MAX:02d}"


def _instant(rng: random.Random) -> str:
    return (
        f"2026-03-{rng.randrange(1, 29):02d}T{rng.randrange(24):02d}:"
        f"{rng.randrange(60):02d}:{rng.randrange(60):02d}.{rng.randrange(1000):03d}Z"
    )


def _narrow(rng: random.Random) -> Row:
    return {
        "customer": f"cust-{rng.randrange(10**6):08d}",
        "merchant": f"m-{rng.randrange(5000):05d}",
        "amount": rng.randrange(10**6) / 100,
        "currency": rng.choice(_CURRENCIES),
        "ts": _instant(rng),
        "card": f"{rng.getrandbits(64):016x}",
        "fraud": rng.random() < 0.01,
    }


_WIDE = (
    [(f"count_{i:02d}", LongType()) for i in range(16)]
    + [(f"value_{i:02d}", DoubleType()) for i in range(12)]
    + [(f"kind_{i:02d}", StringType()) for i in range(12)]
    + [(f"flag_{i:02d}", BooleanType()) for i in range(4)]
    + [(f"at_{i:02d}", TimestamptzType()) for i in range(4)]
)


def _wide(rng: random.Random) -> Row:
    bits = rng.getrandbits(960)
    row: Row = {}
    for name, kind in _WIDE:
        part = bits & 0xFFFFF
        bits >>= 20
        if isinstance(kind, LongType):
            row[name] = part
        elif isinstance(kind, DoubleType):
            row[name] = part / 128
        elif isinstance(kind, BooleanType):
            row[name] = part & 1 == 1
        elif isinstance(kind, TimestamptzType):
            row[name] = _instant(rng)
        else:
            row[name] = f"{name}-{part % 997}"
    return row


_NESTED: dict[str, IcebergType] = {
    "customer": _struct(
        name=StringType(),
        address=_struct(
            street=StringType(),
            city=StringType(),
            geo=_struct(lat=DoubleType(), lon=DoubleType()),
        ),
    ),
    "items": _list(_struct(sku=StringType(), quantity=LongType(), price=DoubleType())),
    "tags": _list(StringType()),
    "attributes": _map(StringType()),
    "ts": TimestamptzType(),
}


def _nested(rng: random.Random) -> Row:
    return {
        "customer": {
            "name": f"cust-{rng.randrange(10**6):08d}",
            "address": {
                "street": f"Street {rng.randrange(10**4)}",
                "city": rng.choice(_CITIES),
                "geo": {"lat": rng.randrange(10**6) / 8192, "lon": rng.random()},
            },
        },
        "items": [
            {
                "sku": f"sku-{rng.randrange(10**5):06d}",
                "quantity": rng.randrange(1, 9),
                "price": rng.randrange(10**5) / 100,
            }
            for _ in range(rng.randrange(1, 4))
        ],
        "tags": [f"tag-{rng.randrange(40)}" for _ in range(rng.randrange(3))],
        "attributes": {
            key: f"v{rng.randrange(1000)}"
            for key in rng.sample(("source", "device", "os", "language", "campaign"), 3)
        },
        "ts": _instant(rng),
    }


SHAPES: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape(
            "narrow",
            _schema(
                id=LongType(),
                target=StringType(),
                customer=StringType(),
                merchant=StringType(),
                amount=DoubleType(),
                currency=StringType(),
                ts=TimestamptzType(),
                card=StringType(),
                fraud=BooleanType(),
            ),
            _narrow,
            600_000,
        ),
        Shape("wide", _schema(id=LongType(), target=StringType(), **dict(_WIDE)), _wide, 150_000),
        Shape("nested", _schema(id=LongType(), target=StringType(), **_NESTED), _nested, 200_000),
    )
}


# ------------------------------------------------------------------ formats

_AVRO = {"long": "long", "double": "double", "boolean": "boolean"}
_PROTOBUF = {"long": "int64", "double": "double", "boolean": "bool"}
_CONNECT = {"long": "int64", "double": "double", "boolean": "boolean"}
_JSON_SCHEMA = {"long": "integer", "double": "number", "boolean": "boolean"}
_TEXTS = ("json", "envelope", "json-schema")


def avro_schema(kind: IcebergType, name: str = "Record") -> Any:
    """The Avro schema of a type, every field optional."""
    if isinstance(kind, StructType):
        fields = [
            {"name": f.name, "type": ["null", avro_schema(f.field_type, f"{name}_{f.name}")]}
            for f in kind.fields
        ]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, ListType):
        return {"type": "array", "items": avro_schema(kind.element_type, f"{name}_item")}
    if isinstance(kind, MapType):
        return {"type": "map", "values": avro_schema(kind.value_type, f"{name}_value")}
    return _AVRO.get(str(kind), "string")


def connect_schema(kind: IcebergType, *, optional: bool = True) -> dict[str, Any]:
    """The schema of a type in the form of Kafka Connect's JSON envelopes."""
    if isinstance(kind, StructType):
        fields = [{"field": f.name, **connect_schema(f.field_type)} for f in kind.fields]
        return {"type": "struct", "optional": optional, "fields": fields}
    if isinstance(kind, ListType):
        items = connect_schema(kind.element_type, optional=False)
        return {"type": "array", "optional": optional, "items": items}
    if isinstance(kind, MapType):
        return {
            "type": "map",
            "optional": optional,
            "keys": {"type": "string", "optional": False},
            "values": connect_schema(kind.value_type, optional=False),
        }
    return {"type": _CONNECT.get(str(kind), "string"), "optional": optional}


def json_schema(kind: IcebergType) -> dict[str, Any]:
    """The JSON Schema of a type."""
    if isinstance(kind, StructType):
        fields = {f.name: json_schema(f.field_type) for f in kind.fields}
        return {"type": "object", "properties": fields}
    if isinstance(kind, ListType):
        return {"type": "array", "items": json_schema(kind.element_type)}
    if isinstance(kind, MapType):
        values = json_schema(kind.value_type)
        return {"type": "object", "connect.type": "map", "additionalProperties": values}
    return {"type": _JSON_SCHEMA.get(str(kind), "string")}


def protobuf_schema(schema: Schema) -> str:
    """The schema as text of proto3."""
    return 'syntax = "proto3"; ' + _message("Record", schema.as_struct())


def _message(name: str, struct: StructType, first_number: int = 1) -> str:
    inner: list[str] = []
    lines = []
    for number, field in enumerate(struct.fields, first_number):
        kind, label = field.field_type, ""
        if isinstance(kind, ListType):
            kind, label = kind.element_type, "repeated "
        if isinstance(kind, StructType):
            inner.append(_message(f"{field.name.capitalize()}Type", kind))
            reported = f"{field.name.capitalize()}Type"
        elif isinstance(kind, MapType):
            reported = f"map<string, {_PROTOBUF.get(str(kind.value_type), 'string')}>"
        else:
            reported = _PROTOBUF.get(str(kind), "string")
        lines.append(f"{label}{reported} {field.name} = {number};")
    return f"message {name} {{ {' '.join(inner)} {' '.join(lines)} }}"


@dataclass(frozen=True, slots=True)
class Schemas:
    """The schemas of a shape in the forms that a registry stores."""

    avro: str
    protobuf: str
    json: str


def schemas(shape: Shape) -> Schemas:
    """The schemas of a shape."""
    avro = avro_schema(shape.schema.as_struct(), f"{shape.name.capitalize()}Record")
    text = json.dumps(json_schema(shape.schema.as_struct()))
    return Schemas(json.dumps(avro), protobuf_schema(shape.schema), text)


def encoded(
    format_name: str, shape: Shape, schema_id: int, partition: int, count: int
) -> Iterator[bytes]:
    """The records of a partition: every fourth of ``count``; ``schema_id`` as registered."""
    struct = shape.schema.as_struct()
    heads = _encoder(format_name, StructType(*struct.fields[:_HEAD]), 1)
    rest = _encoder(format_name, StructType(*struct.fields[_HEAD:]), 1 + _HEAD)
    tails = [rest(row) for row in shape.variants()]
    start, end = b"", b""
    if format_name in _TEXTS:
        tails = [b"," + tail[1:] for tail in tails]
    if format_name == "envelope":
        head = _compact(connect_schema(struct, optional=False))
        start, end = b'{"schema":%b,"payload":' % head, b"}"
    elif format_name != "json":
        start = b"\0" + schema_id.to_bytes(4, "big") + (b"\0" if format_name == "protobuf" else b"")
    cut = -1 if format_name in _TEXTS else None
    for number in range(partition, count, PARTITIONS):
        yield start + heads(shape.head(number, count))[:cut] + tails[number % VARIANTS] + end


def _encoder(format_name: str, struct: StructType, first_number: int) -> Encoder:
    """Return the function that encodes some fields of a row."""
    if format_name == "avro":
        parsed = fastavro.parse_schema(avro_schema(struct))

        def to_avro(row: Row) -> bytes:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, row)
            return out.getvalue()

        return to_avro
    if format_name == "protobuf":
        _, file = pool_of('syntax = "proto3"; ' + _message("Record", struct, first_number), {})
        make = message_factory.GetMessageClass(file.message_types_by_name["Record"])
        return lambda row: bytes(make(**row).SerializeToString())
    return _compact


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
