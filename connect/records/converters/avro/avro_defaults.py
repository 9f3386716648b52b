"""Conversion of default values in Avro schemas to Connect's data model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from connect.model.records import ConnectSchema, Date, Float32, Struct, Time, Timestamp
from connect.records.conversion.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from connect.records.converters.avro.avro_schema import UNION_NAME, AvroType, BadSchema
from connect.records.converters.binary_values import FLOAT, decimal_of

_CONNECT: Final = "org.apache.kafka.connect.data."
_INSTANTS: Final[Mapping[tuple[str, str | None], Callable[[int], Any]]] = {
    ("int", _CONNECT + "Date"): Date,
    ("int", _CONNECT + "Time"): Time,
    ("long", _CONNECT + "Timestamp"): Timestamp,
}


_MISFITS: Final = (TypeError, ValueError, KeyError, AttributeError)


def with_default(source: AvroType, schema: ConnectSchema, value: Any) -> ConnectSchema:
    """Return the schema with a default value. As in Java, map entries have no default.

    Raises:
        BadSchema: the default does not fit its type.
    """
    if value is None or (source.kind == "array" and schema.type == "map"):
        return schema
    return replace(schema, default=default_of(source, schema, value), has_default=True)


def default_of(source: AvroType, schema: ConnectSchema, value: Any) -> Any:
    """Convert a default value from JSON to Connect's data model.

    Raises:
        BadSchema: the default does not fit its type.
    """
    try:
        return _default_value(source, schema, value)
    except _MISFITS as error:
        raise BadSchema(f"a default does not fit its type: {type(error).__name__}") from None


def _default_value(source: AvroType, schema: ConnectSchema, value: Any) -> Any:
    kind = source.kind
    if kind == "union":
        return _default_of_union(source, schema, value)
    if kind == "record":
        fields = {f.name: f for f in source.fields}
        filled = {n: value.get(n, f.default) for n, f in fields.items()}
        values = {
            name: None
            if filled[name] is None
            else _default_value(fields[name].type, inner, filled[name])
            for name, inner in schema.fields
        }
        return Struct(schema, values)
    if kind == "array" and source.items is not None:
        if schema.type == "map":
            return {}
        assert schema.value_schema is not None
        return [_default_value(source.items, schema.value_schema, item) for item in value]
    if kind == "map" and source.items is not None and schema.value_schema is not None:
        inner = schema.value_schema
        return {k: _default_value(source.items, inner, v) for k, v in value.items()}
    return _default_of_scalar(source, schema, value)


def _default_of_union(source: AvroType, schema: ConnectSchema, value: Any) -> Any:
    """Convert a default to the first branch of the union that it fits."""
    if source.branches[0].kind == "null" or value is None:
        return None
    branches = [branch for branch in source.branches if branch.kind != "null"]
    if schema.name != UNION_NAME:
        return _default_value(branches[0], schema, value)
    names = dict.fromkeys(n for n, _ in schema.fields)
    for branch, (name, inner) in zip(branches, schema.fields, strict=True):
        try:
            return Struct(schema, {**names, name: _default_value(branch, inner, value)})
        except _MISFITS:
            continue
    raise TypeError


def _default_of_scalar(source: AvroType, schema: ConnectSchema, value: Any) -> Any:
    kind, logical = source.kind, source.logical
    if kind in ("bytes", "fixed"):
        data = value.encode("iso-8859-1")
        return decimal_of(data, source.scale) if logical == "decimal" else data
    if kind in ("int", "long"):
        low, high = (INT_MIN, INT_MAX) if kind == "int" else (LONG_MIN, LONG_MAX)
        if type(value) is not int or not low <= value <= high:
            raise TypeError
        wrap = _INSTANTS.get((kind, schema.name))
        return wrap(value) if wrap else value
    if kind in ("float", "double"):
        number = float(value)
        return Float32(FLOAT.unpack(FLOAT.pack(number))[0]) if kind == "float" else number
    expected = {"boolean": bool, "string": str, "enum": str, "null": type(None)}.get(kind)
    if expected is None or type(value) is not expected:
        raise TypeError
    return value
