"""The value forms of the golden records (``records/README.md``) in and out of our model."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import re
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from connect.model.records import (
    ConnectSchema,
    Date,
    Float32,
    Int8,
    Int16,
    Int32,
    Struct,
    Time,
    Timestamp,
)
from connect.records.conversion.temporal import days_from_civil
from connect.records.conversion.text import to_string, unscaled_bytes
from connect.records.converters.json.json_schema import readable_schema
from connect.records.converters.json.json_text import JsonReader


@dataclass(frozen=True)
class JavaOnly:
    """A Java value that Connect's model has no Python form for (an Instant)."""

    text: str


def float32(value: float) -> float:
    """Round to 32 bits, to infinity beyond them."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _floating(value: Any) -> float:
    return float({"Infinity": "inf", "-Infinity": "-inf"}.get(value, value))


def _micro_text(text: str) -> str:
    """Python's clock has six digits; Java's nine are cut, as columns do."""
    return re.sub(r"(\.\d{6})\d+", r"\1", text)


def _millis_of_day(text: str) -> int:
    time = dt.time.fromisoformat(_micro_text(text))
    return ((time.hour * 60 + time.minute) * 60 + time.second) * 1000 + time.microsecond // 1000


def days_of(text: str) -> int:
    """Days since 1970 of an ISO date of any year."""
    year, month, day = text.rsplit("-", 2)
    return days_from_civil(int(year), int(month), int(day))


_TYPED = {
    "$int8": Int8,
    "$int16": Int16,
    "$int32": Int32,
    "$int64": int,
    "$bigint": int,
    "$float32": lambda v: Float32(float32(_floating(v))),
    "$float64": _floating,
    "$decimal": lambda v: Decimal(v) or abs(Decimal(v)),  # Java has no negative zero
    "$bytes": base64.b64decode,
    "$bytebuffer": base64.b64decode,
    "$date": lambda v: Date(days_of(v)),
    "$time": lambda v: Time(_millis_of_day(v)),
    "$timestamp": Timestamp,
    "$localdate": dt.date.fromisoformat,
    "$localtime": lambda v: dt.time.fromisoformat(_micro_text(v)),
    "$localdatetime": lambda v: dt.datetime.fromisoformat(_micro_text(v)),
    "$offsetdatetime": lambda v: dt.datetime.fromisoformat(_micro_text(v)),
    "$instant": JavaOnly,
    "$uuid": uuid.UUID,
    "$map": lambda pairs: {plain(k): plain(v) for k, v in pairs},
}


def plain(value: Any) -> Any:
    """A value without schema."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key in _TYPED:
            return _TYPED[key](inner)
        if key == "$struct":
            return with_schema(inner)[1]
    return {key: plain(item) for key, item in value.items()}


def schema_of(source: Mapping[str, Any] | None) -> ConnectSchema | None:
    """A schema from the envelope's form, also a list or map without schema of its elements."""
    elements = [key for key in ("items", "keys", "values") if key in (source or {})]
    if source is None or not elements or "default" in source:
        return _schema_of(source)
    built = _schema_of({**source, **{key: {"type": "string"} for key in elements}})
    assert built is not None
    return dataclasses.replace(
        built,
        key_schema=schema_of(source.get("keys")),
        value_schema=schema_of(source.get("items", source.get("values"))),
    )


def _schema_of(source: Mapping[str, Any] | None) -> ConnectSchema | None:
    """Read a complete schema; defaults keep their decimals."""
    import json

    exact = JsonReader(decimals=True).read(json.dumps(source).encode())
    readable = readable_schema(exact, default_for_null=True)
    return readable.schema if readable is not None else None


def with_schema(envelope: Mapping[str, Any]) -> tuple[ConnectSchema | None, Any]:
    """An envelope of the golden form."""
    schema = schema_of(envelope["schema"])
    return schema, payload(schema, envelope["payload"])


def _fits(schema: ConnectSchema, value: Any) -> bool:
    """Whether a list or map is one; of lists in a list Java tells the last one's schema."""
    if schema.type == "array":
        return isinstance(value, list)
    if isinstance(value, dict):
        return schema.key_schema is not None
    return isinstance(value, list) and all(isinstance(p, list) and len(p) == 2 for p in value)


def payload(schema: ConnectSchema | None, value: Any) -> Any:
    """The payload part of a golden envelope."""
    if schema is None or value is None:
        return plain(value)
    if schema.type == "struct":
        return Struct(schema, {name: payload(s, value.get(name)) for name, s in schema.fields})
    if schema.type == "array":
        return [payload(schema.value_schema, item) for item in value]
    if schema.type in ("array", "map") and not _fits(schema, value):
        return plain(value)
    if schema.type == "map":
        pairs = value.items() if isinstance(value, dict) else value
        return {payload(schema.key_schema, k): payload(schema.value_schema, v) for k, v in pairs}
    read = plain(value)
    if schema.type == "float32" and type(read) in (int, float):
        return Float32(float32(read))
    if schema.type == "float64" and type(read) is int:
        return float(read)
    return int(read) if type(read) in (Int8, Int16, Int32) else read


def schema_json(schema: ConnectSchema | None) -> Any:
    """A schema in the envelope's form, fields and attributes in no special order."""
    if schema is None:
        return None
    names = {"float32": "float", "float64": "double"}
    document: dict[str, Any] = {
        "type": names.get(schema.type, schema.type),
        "optional": schema.optional,
    }
    for key in ("name", "version", "doc"):
        if getattr(schema, key) is not None:
            document[key] = getattr(schema, key)
    if schema.parameters:
        document["parameters"] = dict(schema.parameters)
    if schema.has_default:
        document["default"] = _default_json(schema.default)
    if schema.type == "struct":
        document["fields"] = [{**schema_json(s), "field": name} for name, s in schema.fields]
    if schema.type == "array":
        document["items"] = schema_json(schema.value_schema)
    if schema.type == "map":
        document["keys"] = schema_json(schema.key_schema)
        document["values"] = schema_json(schema.value_schema)
    return document


def _default_json(value: Any) -> Any:
    if isinstance(value, Decimal):
        value = unscaled_bytes(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Date):
        return value.days
    if isinstance(value, Time | Timestamp):
        return value.millis
    if isinstance(value, Struct):
        value = value.values
    if isinstance(value, list):
        return [_default_json(item) for item in value]
    return {k: _default_json(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def same(left: Any, right: Any) -> bool:
    """Equality of values of the model: kinds count, NaN equals itself, decimals keep scale."""
    if isinstance(left, Struct) and isinstance(right, Struct):
        return same(dict(left.values), dict(right.values))
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and not isinstance(left, bool):
        return left == right or (left != left and right != right)  # noqa: PLR0124 - NaN
    if isinstance(left, Decimal):
        return str(left) == str(right)
    return bool(left == right)


def alike(left: Any, right: Any) -> bool:
    """``same``, but numbers count by value: of lists in a list Java knows the last one's kind.

    So it is with maps in a list, whose keys Java then shows as texts.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        if right and all(isinstance(key, str) for key in right):
            left = {k if isinstance(k, str) else to_string(k): v for k, v in left.items()}
        return left.keys() == right.keys() and all(alike(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(alike, left, right))
    kinds = (int, float)
    if isinstance(left, kinds) and isinstance(right, kinds) and not isinstance(left, bool):
        return (
            float32(left) == float32(right)
            if Float32 in map(type, (left, right))
            else left == right
        )
    return same(left, right)


def unnamed(value: Any) -> Any:
    """The value with structs as dicts and whole numbers as plain ones, for schemas unprinted."""
    if isinstance(value, Struct):
        value = dict(value.values)
    if isinstance(value, dict):
        return {key: unnamed(item) for key, item in value.items()}
    return [unnamed(item) for item in value] if isinstance(value, list) else value


def displayed(schema: Any, value: Any, expected: Any) -> str:
    """Return a readable difference between a value and the expected value."""
    try:
        return f"{schema} {value!r:.300} for {expected!s:.600}"
    except RecursionError:
        return f"a value nested {depth(value)} deep"


def depth(value: Any) -> int:
    """How deep containers are nested, without recursion."""
    deepest, pending = 0, [(value, 1)]
    while pending:
        item, level = pending.pop()
        if isinstance(item, dict | list):
            deepest = max(deepest, level)
            inner = item.values() if isinstance(item, dict) else item
            pending.extend((i, level + 1) for i in inner)
    return deepest
