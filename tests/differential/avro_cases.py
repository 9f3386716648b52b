"""Random Avro schemas and data, written by fastavro."""

from __future__ import annotations

import io
import random
from typing import Any

import fastavro

PRIMITIVES = ["boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL: list[dict[str, Any]] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
    {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5},
    {"type": "int", "logicalType": "DATE"},
    {"type": "long", "logicalType": "timestamp-millis", "connect.name": "x"},
    {"type": "int", "connect.type": "int8"},
    {"type": "int", "connect.type": "int16"},
    {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"},
    {"type": "long", "connect.name": "org.apache.kafka.connect.data.Timestamp"},
    {"type": "int", "connect.name": "io.debezium.time.Date"},
    {"type": "int", "connect.name": "io.debezium.time.Time"},
    {"type": "int", "connect.name": "io.debezium.time.Year"},
]
_WHOLE = [
    0,
    1,
    -1,
    63,
    64,
    -64,
    -65,
    127,
    128,
    8191,
    8192,
    10**6,
    86_399_999,
    86_400_000,
    2**31 - 1,
]
_LONG = [2**31, 2**53 + 1, 2**55, 2**56 - 1, -(2**56), 2**62, 2**63 - 1, -(2**63), 1700000000123]
_FLOATS = [0.0, -0.0, 1.0, 1.5, -2.25, 0.1, 1e10, 16777217.0, 1e300, float("nan"), float("inf")]
_TEXTS = ["", "a", "true", "12", "1.5", "2024-01-02", "2024-01-02T03:04:05Z", "é😀", "x" * 200]


class SchemaGenerator:
    """Makes one schema and data of it.

    Args:
        chance: the seed decides everything.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._names = 0

    def record(self, fields: int, depth: int = 2) -> dict[str, Any]:
        """A record schema; its fields are ``f0``, ``f1``, and so on."""
        self._names += 1
        name = f"n.R{self._names}"
        listed = [{"name": f"f{i}", "type": self.type(depth)} for i in range(fields)]
        return {"type": "record", "name": name, "fields": listed}

    def type(self, depth: int) -> Any:
        """Any type."""
        chance = self.chance
        pick = chance.random()
        if depth <= 0 or pick < 0.4:
            return self._scalar()
        if pick < 0.6:
            inner = self._not_union(depth - 1)
            return chance.choice([["null", inner], [inner, "null"]])
        if pick < 0.7:
            return {"type": "array", "items": self.type(depth - 1)}
        if pick < 0.8:
            return {"type": "map", "values": self.type(depth - 1)}
        if pick < 0.9:
            return self.record(chance.randrange(1, 4), depth - 1)
        return chance.sample(["null", "int", "string", "double", "boolean"], chance.randrange(1, 4))

    def _not_union(self, depth: int) -> Any:
        while isinstance(found := self.type(depth), list):
            pass
        return found

    def _scalar(self) -> Any:
        chance = self.chance
        pick = chance.random()
        if pick < 0.5:
            return chance.choice(PRIMITIVES)
        if pick < 0.85:
            return dict(chance.choice(LOGICAL))
        self._names += 1
        if pick < 0.92:
            return {"type": "enum", "name": f"n.E{self._names}", "symbols": ["A", "B", "true"]}
        return {"type": "fixed", "name": f"n.F{self._names}", "size": chance.choice([0, 1, 4, 16])}

    def value(self, schema: Any) -> Any:
        """Any value of a type, as fastavro takes it without logical types."""
        chance = self.chance
        if isinstance(schema, list):
            return self.value(chance.choice(schema))
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "record":
            return {f["name"]: self.value(f["type"]) for f in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(chance.randrange(0, 4))]
        if kind == "map":
            keys = chance.sample(["a", "b", "k", "é"], chance.randrange(0, 4))
            return {key: self.value(schema["values"]) for key in keys}
        if kind == "enum":
            return chance.choice(schema["symbols"])
        if kind == "fixed":
            return chance.randbytes(schema["size"])
        if kind == "bytes":
            return chance.randbytes(chance.choice([0, 1, 2, 4, 8, 9, 12, 16, 17]))
        if kind == "int" and isinstance(schema, dict) and chance.random() < 0.7:
            return chance.choice([0, 1, -1, 100, 126])
        choices: dict[str, list[Any]] = {
            "null": [None],
            "boolean": [True, False],
            "int": _WHOLE,
            "long": [*_WHOLE, *_LONG],
            "float": [f for f in _FLOATS if f != 1e300],
            "double": _FLOATS,
            "string": _TEXTS,
        }
        return chance.choice(choices[kind])


def plain(schema: Any) -> Any:
    """The schema without logical types: fastavro then writes the values as they are."""
    if isinstance(schema, list):
        return [plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema["type"] == "record":
        fields = [{**f, "type": plain(f["type"])} for f in schema["fields"]]
        return {**schema, "fields": fields}
    attributes = {k: v for k, v in schema.items() if k != "logicalType"}
    for part in ("items", "values"):
        if part in attributes:
            attributes[part] = plain(attributes[part])
    return attributes


def encode(schema: Any, value: Any) -> bytes:
    """The binary datum."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain(schema)), value)
    return out.getvalue()
