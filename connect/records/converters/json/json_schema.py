"""Connect schemas in JSON envelopes, and the conversion of payloads with them.

Rules of this file:
- A payload of another type than its schema is an error. Java reads it as 0, false or null, or
  truncates it.
- Decimals keep all digits of the payload, even if they exceed the schema's scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from connect.model.records import ConnectSchema, Date, Float32, Struct, Time, Timestamp
from connect.records.conversion.binary import decode_base64
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.conversion.numbers import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    double_to_float32,
    integer_to_double,
    to_float,
    whole_number,
)
from connect.records.converters.json.json_text import double_of
from connect.records.converters.payload_errors import PayloadMismatch

SCHEMA_DEPTH_MAX: Final = 100
_DAY_MS: Final = 86_400_000
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_TYPES: Final = {
    "boolean": "boolean",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "bytes",
    "string": "string",
}
_RANGES: Final = {
    "int8": (-128, 127),
    "int16": (-32768, 32767),
    "int32": (INT_MIN, INT_MAX),
    "int64": (LONG_MIN, LONG_MAX),
}

Reader = Callable[[Any], Any]
ReaderOf = Callable[[ConnectSchema], Reader]


@dataclass(frozen=True, slots=True)
class ReadableSchema:
    """A schema and the function that converts its payloads, including JSON null."""

    schema: ConnectSchema
    read: Reader


def readable_schema(
    source: Any, *, default_for_null: bool, depth: int = 0
) -> ReadableSchema | None:
    """Parse the ``schema`` field of an envelope.

    Args:
        source: parsed JSON; None for no schema.
        default_for_null: the option ``replace.null.with.default``.
        depth: nesting depth of this schema.

    Raises:
        PayloadMismatch: the schema is invalid.
        Unconvertible: the default does not match the schema.
    """
    if source is None:
        return None
    if depth > SCHEMA_DEPTH_MAX:
        raise PayloadMismatch(f"the schema is nested deeper than {SCHEMA_DEPTH_MAX} levels")
    if type(source) is not dict or type(source.get("type")) is not str:
        raise PayloadMismatch("a schema must be an object with a string 'type'")
    kind = source["type"]
    parts: dict[str, Any] = {}
    compound = _COMPOUND.get(kind)
    if compound is not None:
        parts["type"] = kind
        reader = compound(source, parts, default_for_null, depth + 1)
    elif kind in _TYPES:
        parts["type"] = _TYPES[kind]
        reader = _always(_SCALARS[_TYPES[kind]])
    else:
        raise PayloadMismatch("the schema type is unknown")
    parts.update(_common(source))
    logical = _logical(parts)
    if logical is not None:
        reader = _always(logical)
    schema = ConnectSchema(**parts, keeps_nulls=not default_for_null)
    if source.get("default") is not None:
        default = reader(schema)(source["default"])
        schema = replace(schema, default=default, has_default=True)
    read = with_nulls(schema, reader(schema), default_for_null=default_for_null)
    return ReadableSchema(schema, read)


def _always(read: Reader) -> ReaderOf:
    return lambda _: read


def _common(source: Mapping[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = {"optional": source.get("optional") is True}
    for key, kind in (("optional", bool), ("name", str), ("version", int), ("doc", str)):
        value = source.get(key)
        if value is not None and type(value) is not kind:
            raise PayloadMismatch(f"{key!r} of a schema must be of type {kind.__name__}")
        if key != "optional" and value is not None:
            parts[key] = value
    parameters = source.get("parameters")
    if parameters is not None:
        if type(parameters) is not dict or not all(type(v) is str for v in parameters.values()):
            raise PayloadMismatch("'parameters' of a schema must be an object with string values")
        parts["parameters"] = parameters
    return parts


def with_nulls(schema: ConnectSchema, read: Reader, *, default_for_null: bool) -> Reader:
    """Return a reader that converts null to the default or None, or rejects it."""
    default, optional, kind = schema.default, schema.optional, schema.type
    fill = default_for_null and default is not None
    as_is = _READ_AS_IS.get(read)

    def read_or_null(value: Any) -> Any:
        if type(value) is as_is:
            return value
        if value is not None:
            return read(value)
        if fill:
            return default
        if optional:
            return None
        raise PayloadMismatch(f"a required {kind} field is null")

    return read_or_null


def _array(source: Mapping[str, Any], parts: dict[str, Any], nulls: bool, depth: int) -> ReaderOf:
    items = readable_schema(source.get("items"), default_for_null=nulls, depth=depth)
    if items is None:
        raise PayloadMismatch("an array schema lacks 'items'")
    parts["value_schema"] = items.schema
    read = items.read

    def read_array(value: Any) -> list[Any]:
        if type(value) is not list:
            raise PayloadMismatch("the payload of an array must be a JSON array")
        return [read(item) for item in value]

    return _always(read_array)


def _map(source: Mapping[str, Any], parts: dict[str, Any], nulls: bool, depth: int) -> ReaderOf:
    keys = readable_schema(source.get("keys"), default_for_null=nulls, depth=depth)
    values = readable_schema(source.get("values"), default_for_null=nulls, depth=depth)
    if keys is None or values is None:
        raise PayloadMismatch("a map schema lacks 'keys' or 'values'")
    parts["key_schema"], parts["value_schema"] = keys.schema, values.schema
    read_key, read_value = keys.read, values.read

    def read_object(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise PayloadMismatch("the payload of a map with string keys must be a JSON object")
        return {key: read_value(item) for key, item in value.items()}

    def read_pairs(value: Any) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for pair in _pairs(value):
            key = read_key(pair[0])
            if type(key) in (dict, list, Struct):
                raise PayloadMismatch("a map, array or struct cannot be a map key")
            if key in entries:
                raise PayloadMismatch("two entries of a map have the same key")
            entries[key] = read_value(pair[1])
        return entries

    return _always(read_object if keys.schema.type == "string" else read_pairs)


def _pairs(value: Any) -> list[list[Any]]:
    if type(value) is not list:
        raise PayloadMismatch(
            "the payload of a map without string keys must be a JSON array of pairs"
        )
    if not all(type(pair) is list and len(pair) == 2 for pair in value):
        raise PayloadMismatch("an entry of a map must be an array of two items")
    return value


def _struct(source: Mapping[str, Any], parts: dict[str, Any], nulls: bool, depth: int) -> ReaderOf:
    fields = source.get("fields")
    if type(fields) is not list:
        raise PayloadMismatch("'fields' of a struct schema must be an array")
    readers: dict[str, Reader] = {}
    named: list[tuple[str, ConnectSchema]] = []
    for field in fields:
        if type(field) is not dict or type(field.get("field")) is not str or not field["field"]:
            raise PayloadMismatch("a field of a struct schema lacks a string 'field'")
        inner = readable_schema(field, default_for_null=nulls, depth=depth)
        assert inner is not None
        if field["field"] in readers:
            raise PayloadMismatch("two fields of a struct schema have the same name")
        readers[field["field"]] = inner.read
        named.append((field["field"], inner.schema))
    parts["fields"] = tuple(named)
    steps = tuple(readers.items())

    def reader_of(schema: ConnectSchema) -> Reader:
        def read_struct(value: Any) -> Struct:
            if type(value) is not dict:
                raise PayloadMismatch("the payload of a struct must be a JSON object")
            return Struct(schema, {name: read(value.get(name)) for name, read in steps})

        return read_struct

    return reader_of


_COMPOUND: Final = {"array": _array, "map": _map, "struct": _struct}


NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
"""JSON has no such numbers: Kafka's converter writes them as texts."""


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise PayloadMismatch("the payload of a boolean must be true or false")
    return value


def _integer(low: int, high: int) -> Reader:
    def read_integer(value: Any) -> int:
        number = value
        if type(value) is Decimal:
            number = whole_number(value)
        elif type(value) is not int:
            raise PayloadMismatch("the payload of an integer must be a JSON number")
        if not low <= number <= high:
            raise Unconvertible("out_of_range", "the number is outside the range of its schema")
        return int(number)

    return read_integer


def _float32(value: Any) -> Float32:
    if type(value) is Decimal:
        return Float32(double_to_float32(double_of(value)))
    if type(value) is int:
        return Float32(to_float(value))
    if type(value) is str and value in NOT_FINITE:
        return Float32(float(value))
    raise PayloadMismatch("the payload of a float must be a JSON number")


def _float64(value: Any) -> float:
    if type(value) is Decimal:
        return double_of(value)
    if type(value) is int:
        return integer_to_double(value)
    if type(value) is str and value in NOT_FINITE:
        return float(value)
    raise PayloadMismatch("the payload of a double must be a JSON number")


def _string(value: Any) -> str:
    if type(value) is not str:
        raise PayloadMismatch("the payload of a string must be a JSON string")
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not str:
        raise PayloadMismatch("the payload of bytes must be a JSON string in base64")
    return decode_base64(value, padding_optional=False)


_SCALARS: Final[Mapping[str, Reader]] = {
    "boolean": _boolean,
    **{kind: _integer(low, high) for kind, (low, high) in _RANGES.items()},
    "float32": _float32,
    "float64": _float64,
    "string": _string,
    "bytes": _bytes,
}

_READ_AS_IS: Final[Mapping[Reader, type]] = {_boolean: bool, _string: str}


def scalar_reader(kind: str) -> Reader:
    """Return the reader of payloads of a primitive type."""
    return _SCALARS[kind]


def logical_reader(schema: ConnectSchema) -> Reader | None:
    """Return the reader of payloads of a logical type, or None if the type is not logical."""
    return _logical({"name": schema.name, "parameters": schema.parameters})


def _logical(parts: Mapping[str, Any]) -> Reader | None:
    name = parts.get("name")
    if name == _DECIMAL:
        return _decimal(parts.get("parameters"))
    if name == "org.apache.kafka.connect.data.Date":
        return _date
    if name == "org.apache.kafka.connect.data.Time":
        return _time
    if name == "org.apache.kafka.connect.data.Timestamp":
        return _timestamp
    return None


def _decimal(parameters: Mapping[str, str] | None) -> Reader:
    text = (parameters or {}).get("scale", "")

    def read_decimal(value: Any) -> Decimal:
        if type(value) is Decimal:
            return value
        if type(value) is int:
            return Decimal(value)
        data = _bytes(value)
        try:
            scale = int(text)
        except ValueError:
            raise PayloadMismatch("a decimal schema lacks a 'scale'") from None
        if not data or not -10_000 <= scale <= 10_000:
            raise PayloadMismatch("a decimal has no bytes")
        if len(data) > 256:
            raise PayloadMismatch("a decimal has more than 256 bytes")
        unscaled = int.from_bytes(data, "big", signed=True)
        digits = tuple(map(int, str(abs(unscaled))))
        return Decimal((int(unscaled < 0), digits, -scale))

    return read_decimal


def _date(value: Any) -> Date:
    return Date(_whole(value, INT_MIN, INT_MAX, "date"))


def _time(value: Any) -> Time:
    return Time(_whole(value, 0, _DAY_MS - 1, "time"))


def _timestamp(value: Any) -> Timestamp:
    return Timestamp(_whole(value, LONG_MIN, LONG_MAX, "timestamp"))


def _whole(value: Any, low: int, high: int, kind: str) -> int:
    if type(value) is not int:
        raise PayloadMismatch(f"the payload of a {kind} must be a whole JSON number")
    if not low <= value <= high:
        raise Unconvertible("out_of_range", f"the number is outside the range of {kind}")
    return value


def plain_values(value: Any) -> Any:
    """Replace decimals with doubles, for payloads without schema.

    Raises:
        NotJson: a number does not fit a double.
    """
    kind = type(value)
    if kind is Decimal:
        return double_of(value)
    if kind is list:
        return [plain_values(item) for item in value]
    if kind is dict:
        return {key: plain_values(item) for key, item in value.items()}
    return value
