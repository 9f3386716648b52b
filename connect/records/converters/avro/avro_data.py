"""Avro data into Connect's data model, as Java's AvroData gives it.

Rules of this file:
- fastavro reads the datum (``avro_datum``); ``avro_values`` converts and checks its values.
- Micro- and nanoseconds stay plain numbers, as in Java. The schema carries their unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

from connect.model.records import ConnectSchema
from connect.records.conversion.numbers import INT_MAX
from connect.records.converters.avro.avro_datum import AvroDatumReader, is_nullable, takes_no_bytes
from connect.records.converters.avro.avro_defaults import with_default
from connect.records.converters.avro.avro_schema import (
    NAMESPACE,
    PRECISION_DEFAULT,
    UNION_NAME,
    AvroType,
    BadSchema,
)
from connect.records.converters.avro.avro_values import (
    Convert,
    to_boolean,
    to_date,
    to_decimal,
    to_empty_items,
    to_entries,
    to_float,
    to_int,
    to_items,
    to_map,
    to_optional,
    to_small,
    to_struct,
    to_symbol,
    to_time,
    to_timestamp,
    to_union,
)

DECIMAL_NAME: Final = "org.apache.kafka.connect.data.Decimal"


@dataclass(frozen=True, slots=True)
class AvroReader:
    """Reads data of one writer's schema, one datum at a time.

    Attributes:
        type: the writer's schema.
        schema: the same in Connect's model.
        datum: reads the values.
        convert: converts the values; None where they are Connect's already.
    """

    type: AvroType
    schema: ConnectSchema
    datum: AvroDatumReader
    convert: Convert | None

    def read(self, data: bytes, position: int = 0) -> tuple[ConnectSchema | None, Any]:
        """Read one datum that ends at the end of the message.

        Args:
            data: the message.
            position: index of the datum's first byte.

        Raises:
            Malformed: the bytes are no datum of the schema.
        """
        value = self.datum.read(data, position)
        if self.convert is not None:
            value = self.convert(value)
        return (None, None) if value is None else (self.schema, value)


def avro_reader(source: AvroType, options: Mapping[str, str]) -> AvroReader:
    """Build the reader of a schema.

    Args:
        source: the writer schema.
        options: options of the converter; ``enhanced.avro.schema.support`` is used.

    Raises:
        BadSchema: no Connect schema corresponds to it.
    """
    enhanced = str(options.get("enhanced.avro.schema.support", "false")).strip().lower() == "true"
    compiled = _AvroCompiler(enhanced=enhanced).compile(source)
    return AvroReader(source, compiled.schema, AvroDatumReader(source), compiled.convert)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A type in Connect's model.

    Attributes:
        schema: Connect's schema.
        convert: converts values; None where they are Connect's already.
        steps: of a record, the conversions of its fields.
    """

    schema: ConnectSchema
    convert: Convert | None = None
    steps: tuple[tuple[str, Convert], ...] | None = None

    def with_schema(self, schema: ConnectSchema) -> _Compiled:
        """Return the type with another schema, which structs carry."""
        if self.steps is None:
            return replace(self, schema=schema)
        return _Compiled(schema, partial(to_struct, self.steps, schema), self.steps)


class _AvroCompiler:
    def __init__(self, *, enhanced: bool) -> None:
        self._enhanced = enhanced
        self._by_type: dict[int, _Compiled] = {}

    def compile(self, source: AvroType) -> _Compiled:
        """Return schema and conversion of a type; named types are compiled once."""
        annotated = self._by_type.get(id(source))
        if annotated is None:
            build = _BUILDERS.get(source.kind)
            compiled = build(self, source) if build is not None else _primitive(source)
            annotated = self._by_type[id(source)] = _with_properties(compiled, source)
        return annotated

    def record(self, source: AvroType) -> _Compiled:
        steps: list[tuple[str, Convert]] = []
        fields: list[tuple[str, ConnectSchema]] = []
        parameters: dict[str, str] = {}
        doc = (source.properties or {}).get("doc")
        if type(doc) is str:
            parameters[f"{NAMESPACE}.record.doc"] = doc
        for field in source.fields:
            compiled = self.compile(field.type)
            schema = compiled.schema
            if field.doc is not None:
                parameters[f"{NAMESPACE}.field.doc.{field.name}"] = field.doc
            if field.has_default and field.default is not None and field.type.kind != "union":
                marked = {**(schema.parameters or {}), f"{NAMESPACE}.field.default": "true"}
                schema = with_default(field.type, schema, field.default)
                schema = replace(schema, parameters=marked)
            fields.append((field.name, schema))
            if compiled.convert is not None:
                steps.append((field.name, compiled.convert))
        schema = ConnectSchema(
            "struct", name=source.name, parameters=parameters or None, fields=tuple(fields)
        )
        return _Compiled(schema, steps=tuple(steps))

    def union(self, source: AvroType) -> _Compiled:
        rest = [branch for branch in source.branches if branch.kind != "null"]
        if is_nullable(source):
            inner = self.compile(rest[0])
            inner = inner.with_schema(replace(inner.schema, optional=True))
            if inner.convert is None:
                return inner
            return _Compiled(inner.schema, partial(to_optional, inner.convert))
        members: dict[str, ConnectSchema] = {}
        branches: dict[str, tuple[str, Convert | None]] = {}
        for index, branch in enumerate(source.branches):
            if branch.kind == "null":
                continue
            name = (branch.name or branch.kind) if self._enhanced else branch.short_name
            if name in members:
                raise BadSchema(
                    f"two types of a union have the name {name[:200]}; set "
                    "enhanced.avro.schema.support to true"
                )
            member = self.compile(branch)
            member = member.with_schema(replace(member.schema, optional=True))
            members[name] = member.schema
            branches[str(index)] = (name, member.convert)
        has_null = len(rest) < len(source.branches)
        union = ConnectSchema(
            "struct", optional=has_null, name=UNION_NAME, fields=tuple(members.items())
        )
        return _Compiled(union, partial(to_union, branches, union))

    def array(self, source: AvroType) -> _Compiled:
        assert source.items is not None
        items = self.compile(source.items)
        of_items: Convert | None = None
        if takes_no_bytes(source.items):
            of_items = partial(to_empty_items, items.convert)
        elif items.convert is not None:
            of_items = partial(to_items, items.convert)
        if _is_entry(source.items):
            fields = dict(items.schema.fields)
            key, value = fields.get("key"), fields.get("value")
            if key is not None and value is not None and of_items is not None:
                of_map = ConnectSchema("map", key_schema=key, value_schema=value)
                structs = of_items
                return _Compiled(of_map, lambda entries: to_entries(structs(entries)))
        return _Compiled(ConnectSchema("array", value_schema=items.schema), of_items)

    def map(self, source: AvroType) -> _Compiled:
        assert source.items is not None
        values = self.compile(source.items)
        of_map = ConnectSchema(
            "map", key_schema=ConnectSchema("string"), value_schema=values.schema
        )
        return _Compiled(of_map, partial(to_map, values.convert))

    def enum(self, source: AvroType) -> _Compiled:
        properties = source.properties or {}
        parameters = {f"{NAMESPACE}.Enum": source.name or ""}
        for key in ("doc", "default"):
            if type(properties.get(key)) is str:
                parameters[f"{NAMESPACE}.enum.{key}.{source.short_name}"] = properties[key]
        parameters |= {f"{NAMESPACE}.Enum.{symbol}": symbol for symbol in source.symbols}
        schema = ConnectSchema("string", name=source.name, parameters=parameters)
        return _Compiled(schema, partial(to_symbol, source.symbols))

    def fixed(self, source: AvroType) -> _Compiled:
        if source.logical == "decimal":
            return _Compiled(_decimal_schema(source), partial(to_decimal, source.scale))
        parameters = {"connect.fixed.size": str(source.size)}
        schema = ConnectSchema("bytes", name=source.name, parameters=parameters)
        return _Compiled(schema)


def _is_entry(source: AvroType) -> bool:
    """Return whether an array contains the entries of a Connect map."""
    is_reported = (source.properties or {}).get("connect.internal.type") == "MapEntry"
    return is_reported or source.name == f"{NAMESPACE}.MapEntry"


_BUILDERS: Final[Mapping[str, Callable[[_AvroCompiler, AvroType], _Compiled]]] = {
    "record": _AvroCompiler.record,
    "union": _AvroCompiler.union,
    "array": _AvroCompiler.array,
    "map": _AvroCompiler.map,
    "enum": _AvroCompiler.enum,
    "fixed": _AvroCompiler.fixed,
}


# ------------------------------------------------------------------ Connect's properties


def _with_properties(compiled: _Compiled, source: AvroType) -> _Compiled:
    """Apply the ``connect.*`` properties to a schema."""
    schema, convert = compiled.schema, compiled.convert
    properties = source.properties or {}
    changes = _reported(schema, properties)
    small = properties.get("connect.type")
    if source.kind == "int" and small in _SMALL and source.logical is None:
        changes["type"] = small
        convert = partial(to_small, small, *_SMALL[small])
    schema = replace(schema, **changes) if changes else schema
    if schema.type in _SMALL and (source.kind, schema.name) in _NAMED:
        raise BadSchema(f"{schema.name} cannot have the type {schema.type}")
    if source.logical is None and schema.name is not None:
        convert = _named_conversion(source, schema) or convert
    schema = with_default(source, schema, properties.get("connect.default"))
    return replace(compiled, convert=convert).with_schema(schema)


def _reported(schema: ConnectSchema, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema attributes that the properties define, except the type."""
    reported: dict[str, Any] = {}
    doc, parameters = properties.get("connect.doc"), properties.get("connect.parameters")
    if type(doc) is str:
        reported["doc"] = doc
    if type(parameters) is dict:
        texts = {k: v for k, v in parameters.items() if type(v) is str}
        reported["parameters"] = {**(schema.parameters or {}), **texts}
    if schema.version is not None:
        return reported  # a logical type keeps its name and version
    name, version = properties.get("connect.name"), properties.get("connect.version")
    if type(name) is str:
        reported["name"] = name
    if type(version) is int and 0 <= version <= INT_MAX:
        reported["version"] = version
    return reported


def _named_conversion(source: AvroType, schema: ConnectSchema) -> Convert | None:
    """Return the conversion of a logical type that only ``connect.name`` declares.

    Old serializers write it like this.
    """
    if source.kind == "bytes" and schema.name == DECIMAL_NAME:
        text = (schema.parameters or {}).get("scale", "")
        if not re.fullmatch(r"-?[0-9]{1,4}", text):
            raise BadSchema("a decimal schema lacks a valid scale")
        return partial(to_decimal, int(text))
    return _NAMED.get((source.kind, schema.name))


_SMALL: Final = {"int8": (-128, 127), "int16": (-32768, 32767)}


# ------------------------------------------------------------------ primitives


_UNITS: Final[Mapping[str, Literal["us", "ns"]]] = {
    "time-micros": "us",
    "timestamp-micros": "us",
    "local-timestamp-micros": "us",
    "timestamp-nanos": "ns",
    "local-timestamp-nanos": "ns",
}
_CONNECT: Final = "org.apache.kafka.connect.data."
_PRIMITIVES: Final[Mapping[str, _Compiled]] = {
    "null": _Compiled(ConnectSchema("string", optional=True)),
    "boolean": _Compiled(ConnectSchema("boolean"), to_boolean),
    "int": _Compiled(ConnectSchema("int32"), to_int),
    "long": _Compiled(ConnectSchema("int64")),
    "float": _Compiled(ConnectSchema("float32"), to_float),
    "double": _Compiled(ConnectSchema("float64")),
    "bytes": _Compiled(ConnectSchema("bytes")),
    "string": _Compiled(ConnectSchema("string")),
    "date": _Compiled(ConnectSchema("int32", name=_CONNECT + "Date", version=1), to_date),
    "time-millis": _Compiled(ConnectSchema("int32", name=_CONNECT + "Time", version=1), to_time),
    "timestamp-millis": _Compiled(
        ConnectSchema("int64", name=_CONNECT + "Timestamp", version=1), to_timestamp
    ),
}


_NAMED: Final[Mapping[tuple[str, str | None], Convert]] = {
    ("int", _CONNECT + "Date"): to_date,
    ("int", _CONNECT + "Time"): to_time,
    ("long", _CONNECT + "Timestamp"): to_timestamp,
}


def _primitive(source: AvroType) -> _Compiled:
    if source.logical == "decimal":
        return _Compiled(_decimal_schema(source), partial(to_decimal, source.scale))
    compiled = _PRIMITIVES.get(source.logical or "") or _PRIMITIVES[source.kind]
    unit = _UNITS.get(source.logical or "")
    return replace(compiled, schema=replace(compiled.schema, unit=unit)) if unit else compiled


def _decimal_schema(source: AvroType) -> ConnectSchema:
    parameters = {"scale": str(source.scale)}
    if source.precision != PRECISION_DEFAULT:
        parameters["connect.decimal.precision"] = str(source.precision)
    return ConnectSchema("bytes", name=DECIMAL_NAME, version=1, parameters=parameters)
