"""Generate Avro schemas that are not recorded, each with a datum, from a seed."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from tests.golden import generated_values as values
from tests.golden.generated_records import Case

Write = Callable[[], bytes]
Default = Callable[[], Any]
Made = tuple[Any, Write, Default]
"""A type as its schema has it, what writes a datum of it, what makes a default for it."""

_WHOLE = {"int": 31, "long": 63}
_LOGICAL = (
    *(("int", "date"), ("int", "time-millis"), ("long", "time-micros")),
    *(("long", "timestamp-millis"), ("long", "timestamp-micros"), ("long", "timestamp-nanos")),
    *(("long", "local-timestamp-millis"), ("long", "local-timestamp-micros")),
    *(("string", "uuid"), ("string", "date"), ("int", "timestamp-millis"), ("long", "moon-phase")),
)
_CONNECT = "org.apache.kafka.connect.data."
_CONNECT_NAMED = {
    "int": (_CONNECT + "Date", _CONNECT + "Time", "my.Name"),
    "long": (_CONNECT + "Timestamp", "io.debezium.time.MicroTimestamp", "my.Name"),
    "bytes": ("my.Bytes",),
    "string": ("io.debezium.data.Uuid", "io.debezium.time.ZonedTimestamp"),
}


def avro(rng: Random) -> Case:
    """One case of ``converters/AvroData``."""
    maker = _SchemaGenerator(rng)
    schema, write, _ = maker.record(3) if rng.random() < 0.75 else maker.type(3)
    config = {}
    if rng.random() < 0.35:
        config["enhanced.avro.schema.support"] = rng.choice(("true", "true", "false"))
    if rng.random() < 0.1:
        config["connect.meta.data"] = rng.choice(("true", "false"))
    if rng.random() < 0.1:
        config["schemas.cache.config"] = "1"
    data = base64.b64encode(write()).decode()
    source = {"avro_schema": schema, "bytes": data}
    return {"converter": "AvroData", "role": "value", "config": config, "input": source}


class _SchemaGenerator:
    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._names: dict[str, Made] = {}
        self._open: list[str] = []

    def type(self, depth: int) -> Made:
        kind = self._rng.random()
        if self._names and kind < 0.06:
            name = self._rng.choice(list(self._names))
            return (name, *self._names[name][1:])
        if kind < 0.1:
            return self.enum()
        if kind < 0.15:
            return self.fixed()
        if kind < 0.22:
            return self.decimal()
        if depth and kind < 0.32:
            return self.record(depth - 1)
        if depth and kind < 0.5:
            return self.union(depth - 1)
        if depth and kind < 0.56:
            return self.array(depth - 1)
        if depth and kind < 0.62:
            return self.map(depth - 1)
        if depth and kind < 0.67:
            return self.entries(depth - 1)
        return self.logical() if kind < 0.78 else self.primitive()

    # ------------------------------------------------------------------ primitives

    def primitive(self) -> Made:
        primitives = ("null", "boolean", "int", "int", "long", "float", "double", "bytes", "string")
        kind = self._rng.choice(primitives)
        write, default = self._writer(kind), self._default(kind)
        if self._rng.random() < 0.6:
            return kind, write, default
        schema: dict[str, Any] = {"type": kind}
        if kind == "int" and self._rng.random() < 0.5:
            schema["connect.type"] = small = self._rng.choice(("int8", "int16", "int16", "int32"))
            default = lambda: self._rng.choice((0, 127, -128))  # noqa: E731
            if small != "int32" and self._rng.random() < 0.8:
                write = lambda: _zigzag(self._rng.choice((0, 1, -1, 127, -128, 5)))  # noqa: E731
            if self._rng.random() < 0.1:
                schema["connect.name"] = _CONNECT + "Date"
        elif kind in _CONNECT_NAMED and self._rng.random() < 0.5:
            schema["connect.name"] = self._rng.choice(_CONNECT_NAMED[kind])
        return self._reported(schema, default), write, default

    def logical(self) -> Made:
        kind, logical = self._rng.choice(_LOGICAL)
        write, default = self._writer(kind), self._default(kind)
        if logical == "time-millis":
            default = lambda: self._rng.choice((0, 86_399_999))  # noqa: E731
            if self._rng.random() < 0.9:
                write = lambda: _zigzag(self._rng.choice((0, 1, 86_399_999)))  # noqa: E731
        if self._rng.random() < 0.03:
            logical = logical.upper()
        return self._reported({"type": kind, "logicalType": logical}, default), write, default

    def decimal(self) -> Made:
        """Of bytes, with precision and scale of all kinds."""
        precision, scale = self._rng.choice(((9, 2), (9, 0), (38, 10), (64, 2), (2, 2), (1, 0)))
        schema: dict[str, Any] = {"type": "bytes", "logicalType": "decimal", "precision": precision}
        if scale or self._rng.random() < 0.5:
            schema["scale"] = scale
        if self._rng.random() < 0.15:
            schema |= self._rng.choice(({"scale": 70}, {"precision": 0}, {"scale": -1}))
        elif self._rng.random() < 0.1:
            del schema["precision"]
        write = lambda: _bytes(self._rng.choice(_UNSCALED))  # noqa: E731
        default = lambda: self._rng.choice(_UNSCALED).decode("latin-1")  # noqa: E731
        return self._reported(schema, default), write, default

    def _writer(self, kind: str) -> Write:
        rng = self._rng
        if kind in _WHOLE:
            return lambda: _zigzag(_bounded(values.integer(rng), _WHOLE[kind]))
        return {
            "null": lambda: b"",
            "boolean": lambda: rng.choice((b"\x00", b"\x01")),
            "float": lambda: struct.pack("<f", _float(rng)),
            "double": lambda: struct.pack("<d", rng.choice((_float(rng), values.double(rng)))),
            "bytes": lambda: _bytes(rng.randbytes(rng.choice((0, 1, 4)))),
            "string": lambda: _text(values.text(rng)),
        }[kind]

    def _default(self, kind: str) -> Default:
        rng = self._rng
        if kind in _WHOLE:
            return lambda: _bounded(values.integer(rng), _WHOLE[kind])
        return {
            "null": lambda: None,
            "boolean": lambda: rng.random() < 0.5,
            "float": lambda: rng.choice((0, 1, 0.5, -1.5, 0.1, 1e10)),
            "double": lambda: rng.choice((0, 1, values.double(rng))),
            "bytes": lambda: rng.choice(("", "a", "\u00ff\u0000", "AQI=")),
            "string": lambda: values.text(rng),
        }[kind]

    def _reported(self, schema: dict[str, Any], default: Default) -> dict[str, Any]:
        """With some properties that Connect's own serializers write."""
        rng = self._rng
        if rng.random() < 0.7 or schema["type"] == "null":
            return schema
        for key, made in (
            ("connect.name", lambda: rng.choice(("my.Name", "x", ""))),
            ("connect.version", lambda: rng.choice((1, 3, 3, "3", 2**31))),
            ("connect.doc", lambda: rng.choice(("cd", ""))),
            ("connect.parameters", lambda: rng.choice(({"p": "q"}, {}, {"p": "1", "z": ""}))),
            ("connect.default", default),
            ("doc", lambda: "a doc"),
            ("x", lambda: 1),
        ):
            if key not in schema and rng.random() < 0.25:
                schema[key] = made()
        return schema

    # ------------------------------------------------------------------ named types

    def _name(self) -> dict[str, Any]:
        """Name and namespace of a new type; the full name is unique."""
        rng = self._rng
        short = f"{rng.choice('QRS')}{len(self._names) + len(self._open)}"
        schema: dict[str, Any] = {"type": "", "name": short}
        if rng.random() < 0.15:
            return {**schema, "name": f"P{rng.randrange(2)}", "namespace": rng.choice("abc")}
        if rng.random() < 0.3:
            schema["name"] = f"n.m.{short}"
        elif rng.random() < 0.8:
            schema["namespace"] = rng.choice(("a", "b", "n.m", ""))
        if rng.random() < 0.15:
            schema["doc"] = rng.choice(("a doc", ""))
        if rng.random() < 0.1:
            schema["aliases"] = ["Old", "o.Older"]
        return schema

    def _kept(self, schema: dict[str, Any], write: Write, default: Default) -> Made:
        if "." in schema["name"] or "namespace" in schema:
            space = "" if "." in schema["name"] else schema["namespace"]
            full = f"{space}.{schema['name']}" if space else schema["name"]
            self._names[full] = (schema, write, default)
        return schema, write, default

    def enum(self) -> Made:
        rng = self._rng
        symbols = rng.sample(("A", "B", "RED", "_x", "b1"), rng.randrange(1, 5))
        schema = {**self._name(), "type": "enum", "symbols": symbols}
        if rng.random() < 0.3:
            schema["default"] = rng.choice(symbols)
        default = lambda: rng.choice(symbols)  # noqa: E731
        write = lambda: _zigzag(rng.randrange(len(symbols)))  # noqa: E731
        return self._kept(self._reported(schema, default), write, default)

    def fixed(self) -> Made:
        rng = self._rng
        size = rng.choice((1, 2, 4, 12, 16))
        schema = {**self._name(), "type": "fixed", "size": size}
        if size == 12 and rng.random() < 0.7:
            schema["logicalType"] = "duration"
        elif rng.random() < 0.3:
            schema |= {"logicalType": "decimal", "precision": 2, "scale": rng.choice((0, 1))}
        default = lambda: rng.randbytes(size).decode("latin-1")  # noqa: E731
        return self._kept(self._reported(schema, default), lambda: rng.randbytes(size), default)

    def record(self, depth: int) -> Made:
        rng = self._rng
        schema = {**self._name(), "type": "record"}
        self._open.append(schema["name"])
        fields: list[dict[str, Any]] = []
        made: list[Made] = []
        for name in rng.sample(("a", "b", "c", "id", "A", "_cdc", "x1"), rng.randrange(6)):
            one = self.type(depth)
            field = {"name": name, "type": one[0]}
            if rng.random() < 0.15:
                field["doc"] = rng.choice(("field doc", ""))
            if rng.random() < 0.1:
                field["aliases"] = ["old"]
            if rng.random() < 0.1:
                field |= {"order": "ignore", "connect.name": "at.Field"}
            if rng.random() < 0.3:
                field["default"] = one[2]()
            fields.append(field)
            made.append(one)
        self._open.pop()
        schema["fields"] = fields

        def default() -> Any:
            return {
                field["name"]: one[2]()
                for field, one in zip(fields, made, strict=True)
                if "default" not in field or rng.random() < 0.5
            }

        write = lambda: b"".join(one[1]() for one in made)  # noqa: E731
        return self._kept(self._reported(schema, default), write, default)

    # ------------------------------------------------------------------ compound types

    def union(self, depth: int) -> Made:
        rng = self._rng
        null: Made = ("null", lambda: b"", lambda: None)
        others = [self.type(depth) for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 3)))]
        branches, seen = [], set()
        if rng.random() < 0.8:
            others.insert(rng.choice((0, 0, len(others))), null)
        for one in others:
            key = _branch(one[0])
            if key is not None and key not in seen:
                seen.add(key)
                branches.append(one)
        branches = branches or [null]
        at = 0 if rng.random() < 0.8 else rng.randrange(len(branches))

        def write() -> bytes:
            index = rng.randrange(len(branches))
            return _zigzag(index) + branches[index][1]()

        return [one[0] for one in branches], write, branches[at][2]

    def array(self, depth: int) -> Made:
        items, write, default = self.type(depth)
        schema = self._reported({"type": "array", "items": items}, list)
        return schema, lambda: self._blocks(write), lambda: self._some(default)

    def map(self, depth: int) -> Made:
        items, write, default = self.type(depth)
        schema = self._reported({"type": "map", "values": items}, dict)
        entry = lambda: _text(self._rng.choice(("", "k", "\u00e9", "a.b"))) + write()  # noqa: E731
        return (
            schema,
            lambda: self._blocks(entry),
            lambda: dict(zip("kl", self._some(default), strict=False)),
        )

    def entries(self, depth: int) -> Made:
        """A map as Connect writes one whose keys are no texts: an array of records."""
        rng = self._rng
        key, write_key, key_default = self.type(0)
        while _branch(key) in ("float", "double"):  # NaN is no key that compares
            key, write_key, key_default = self.type(0)
        value, write_value, value_default = self.type(depth)
        fields = [{"name": "key", "type": key}, {"name": "value", "type": value}]
        record = {**self._name(), "type": "record", "fields": fields}
        if rng.random() < 0.8:
            record["connect.internal.type"] = "MapEntry"
        else:
            record |= {"name": "MapEntry", "namespace": "io.confluent.connect.avro"}
        schema = {"type": "array", "items": record}
        if "io.confluent.connect.avro.MapEntry" in self._names:
            return self.primitive()
        self._kept(record, lambda: write_key() + write_value(), dict)
        pair = lambda: {"key": key_default(), "value": value_default()}  # noqa: E731
        return (
            self._reported(schema, list),
            lambda: self._blocks(lambda: write_key() + write_value()),
            lambda: self._some(pair),
        )

    def _some(self, made: Default) -> list[Any]:
        return [made() for _ in range(self._rng.choice((0, 0, 1, 2)))]

    def _blocks(self, write: Write) -> bytes:
        """Items in up to two blocks, with or without their size."""
        encoded = b""
        for _ in range(self._rng.choice((0, 1, 1, 2))):
            items = [write() for _ in range(self._rng.randrange(1, 4))]
            data = b"".join(items)
            if self._rng.random() < 0.3:
                encoded += _zigzag(-len(items)) + _zigzag(len(data)) + data
            else:
                encoded += _zigzag(len(items)) + data
        return encoded + b"\x00"


_UNSCALED = (
    *(b"\x00", b"\x01", b"\xff", b"\x7f", b"\x80", b"\x00\x80", b"\x00\x00\x05", b"\xff\xff"),
    *(b"\x30\x39", b"\x7f" + b"\xff" * 7, b"\x80" + b"\x00" * 7, b"\x4b" + b"\x3b" * 15),
)
_SINGLES = frozenset({"array", "map", "null", "boolean", "int", "long", "float", "double", "bytes"})


def _branch(schema: Any) -> str | None:
    """What a union may hold once; None for what it may not hold."""
    if isinstance(schema, list):
        return None
    if isinstance(schema, str):
        return schema
    if schema["type"] in _SINGLES or schema["type"] == "string":
        return str(schema["type"])
    return f"{schema.get('namespace', '')}.{schema['name']}"


def _zigzag(value: int) -> bytes:
    left = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*encoded, left])


def _bounded(value: int, bits: int) -> int:
    return (value + 2**bits) % 2 ** (bits + 1) - 2**bits


def _bytes(data: bytes) -> bytes:
    return _zigzag(len(data)) + data


def _text(text: str) -> bytes:
    return _bytes(text.encode("utf-8", "replace"))


def _float(rng: Random) -> float:
    return rng.choice((0.0, -0.0, 1.5, 0.1, float("nan"), float("inf"), -float("inf"), 3.4e38))
