"""Avro's binary encoding into Connect's data model, as Java's AvroData gives it.

Rules of this file:
- No message allocates more than it holds: lengths are checked against the bytes left, and items
  that take no bytes are counted.
- Bytes after the datum are refused: they were written with another schema.
- Micro- and nanoseconds stay plain numbers, as in Java; their unit goes along in the schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

from connect.model.records import ConnectSchema, Struct
from connect.records.conversion.numbers import INT_MAX
from connect.records.converters.avro_defaults import with_default
from connect.records.converters.avro_input import (
    Input,
    Malformed,
    Reader,
    read_array,
    read_boolean,
    read_bytes,
    read_date,
    read_decimal,
    read_double,
    read_entries,
    read_enum,
    read_fixed,
    read_fixed_decimal,
    read_float,
    read_int,
    read_long,
    read_map,
    read_null,
    read_small,
    read_string,
    read_time,
    read_timestamp,
    reader_of_branches,
    reader_of_union,
)
from connect.records.converters.avro_schema import (
    NAMESPACE,
    PRECISION_UNTOLD,
    UNION_NAME,
    AvroType,
    BadSchema,
)

DECIMAL_NAME: Final = "org.apache.kafka.connect.data.Decimal"


@dataclass(frozen=True, slots=True)
class AvroReader:
    """Reads data of one writer's schema.

    Attributes:
        type: the writer's schema.
        schema: the same in Connect's model.
        read_datum: reads one datum.
    """

    type: AvroType
    schema: ConnectSchema
    read_datum: Reader

    def read(self, data: bytes, position: int = 0) -> tuple[ConnectSchema | None, Any]:
        """Read one datum that ends with the bytes.

        Args:
            data: the message.
            position: where the datum begins.

        Raises:
            Malformed: see there.
        """
        source = Input(data, position)
        value = self.read_datum(source)
        if source.position != source.end:
            raise Malformed("there are bytes after the datum: it was written with another schema")
        return (None, None) if value is None else (self.schema, value)


def avro_reader(source: AvroType, options: Mapping[str, str]) -> AvroReader:
    """Build the reader of a schema.

    Args:
        source: the writer's schema.
        options: ``enhanced.avro.schema.support`` of the converter.

    Raises:
        BadSchema: Connect has no schema for it.
    """
    enhanced = str(options.get("enhanced.avro.schema.support", "false")).strip().lower() == "true"
    compiled = _AvroCompiler(enhanced=enhanced).compile(source)
    return AvroReader(source, compiled[0], compiled[1])


Compiled = tuple[ConnectSchema, Reader]


class _AvroCompiler:
    def __init__(self, *, enhanced: bool) -> None:
        self._enhanced = enhanced
        self._known: dict[int, Compiled] = {}

    def compile(self, source: AvroType) -> Compiled:
        """Schema and reader of a type; named types once."""
        known = self._known.get(id(source))
        if known is None:
            build = _BUILDERS.get(source.kind)
            if build is not None:
                schema, read = build(self, source)
            else:
                schema, read = _primitive(source)
            known = self._known[id(source)] = _with_properties(schema, read, source)
        return known

    def record(self, source: AvroType) -> Compiled:
        steps: list[tuple[str, Reader]] = []
        fields: list[tuple[str, ConnectSchema]] = []
        parameters: dict[str, str] = {}
        doc = (source.properties or {}).get("doc")
        if type(doc) is str:
            parameters[f"{NAMESPACE}.record.doc"] = doc
        for field in source.fields:
            schema, read = self.compile(field.type)
            if field.doc is not None:
                parameters[f"{NAMESPACE}.field.doc.{field.name}"] = field.doc
            if field.has_default and field.default is not None and field.type.kind != "union":
                marked = {**(schema.parameters or {}), f"{NAMESPACE}.field.default": "true"}
                schema = with_default(field.type, schema, field.default)
                schema = replace(schema, parameters=marked)
            fields.append((field.name, schema))
            steps.append((field.name, read))
        schema = ConnectSchema(
            "struct", name=source.name, parameters=parameters or None, fields=tuple(fields)
        )
        return schema, partial(_no_struct, steps)

    def union(self, source: AvroType) -> Compiled:
        has_null = any(branch.kind == "null" for branch in source.branches)
        rest = [branch for branch in source.branches if branch.kind != "null"]
        if has_null and len(rest) == 1:
            schema, read = self.compile(rest[0])
            readers = [read_null if b.kind == "null" else read for b in source.branches]
            plain = replace(schema, optional=True)
            return plain, reader_of_branches([_restruct(r, schema, plain) for r in readers])
        members: dict[str, ConnectSchema] = {}
        wrapped: list[tuple[str | None, Reader]] = []
        for branch in source.branches:
            if branch.kind == "null":
                wrapped.append((None, read_null))
                continue
            name = (branch.name or branch.kind) if self._enhanced else branch.short_name
            if name in members:
                raise BadSchema(
                    f"two types of a union are called {name[:200]}; set "
                    "enhanced.avro.schema.support to true"
                )
            schema, read = self.compile(branch)
            members[name] = replace(schema, optional=True)
            wrapped.append((name, _restruct(read, schema, members[name])))
        union = ConnectSchema(
            "struct", optional=has_null, name=UNION_NAME, fields=tuple(members.items())
        )
        return union, reader_of_union(wrapped, union)

    def array(self, source: AvroType) -> Compiled:
        assert source.items is not None
        schema, read = self.compile(source.items)
        if _is_entry(source.items):
            key, value = dict(schema.fields).get("key"), dict(schema.fields).get("value")
            if key is not None and value is not None:
                of_map = ConnectSchema("map", key_schema=key, value_schema=value)
                return of_map, partial(read_entries, read)
        return ConnectSchema("array", value_schema=schema), partial(read_array, read)

    def map(self, source: AvroType) -> Compiled:
        assert source.items is not None
        schema, read = self.compile(source.items)
        of_map = ConnectSchema("map", key_schema=ConnectSchema("string"), value_schema=schema)
        return of_map, partial(read_map, read)

    def enum(self, source: AvroType) -> Compiled:
        properties = source.properties or {}
        parameters = {f"{NAMESPACE}.Enum": source.name or ""}
        for word in ("doc", "default"):
            if type(properties.get(word)) is str:
                parameters[f"{NAMESPACE}.enum.{word}.{source.short_name}"] = properties[word]
        parameters |= {f"{NAMESPACE}.Enum.{symbol}": symbol for symbol in source.symbols}
        schema = ConnectSchema("string", name=source.name, parameters=parameters)
        return schema, partial(read_enum, source.symbols)

    def fixed(self, source: AvroType) -> Compiled:
        if source.logical == "decimal":
            return _decimal_schema(source), partial(read_fixed_decimal, source.size, source.scale)
        parameters = {"connect.fixed.size": str(source.size)}
        schema = ConnectSchema("bytes", name=source.name, parameters=parameters)
        return schema, partial(read_fixed, source.size)


def _is_entry(source: AvroType) -> bool:
    """Whether an array's items are the entries of one of Connect's maps."""
    is_reported = (source.properties or {}).get("connect.internal.type") == "MapEntry"
    return is_reported or source.name == f"{NAMESPACE}.MapEntry"


_BUILDERS: Final[Mapping[str, Callable[[_AvroCompiler, AvroType], Compiled]]] = {
    "record": _AvroCompiler.record,
    "union": _AvroCompiler.union,
    "array": _AvroCompiler.array,
    "map": _AvroCompiler.map,
    "enum": _AvroCompiler.enum,
    "fixed": _AvroCompiler.fixed,
}


# ------------------------------------------------------------------ structs know their schema


def _no_struct(steps: list[tuple[str, Reader]], source: Input) -> dict[str, Any]:
    """A record's values; ``_restruct`` gives them their schema when that is final."""
    return {name: read(source) for name, read in steps}


def _restruct(read: Reader, before: ConnectSchema, after: ConnectSchema) -> Reader:
    """The same reader for a schema that differs in what is around the fields."""
    if before.type != "struct" or before.name == UNION_NAME or not isinstance(read, partial):
        return read
    return partial(read.func, *read.args[:-1], after) if read.func is _read_struct else read


def _read_struct(steps: list[tuple[str, Reader]], schema: ConnectSchema, source: Input) -> Struct:
    return Struct(schema, {name: read(source) for name, read in steps})


def _with_properties(schema: ConnectSchema, read: Reader, source: AvroType) -> Compiled:
    """Put ``connect.*`` properties over the schema."""
    properties = source.properties or {}
    changes = _reported(schema, properties)
    small = properties.get("connect.type")
    if source.kind == "int" and small in _SMALL and source.logical is None:
        changes["type"] = small
        read = partial(read_small, small, *_SMALL[small])
    schema = replace(schema, **changes) if changes else schema
    if schema.type in _SMALL and (source.kind, schema.name) in _NAMED:
        raise BadSchema(f"{schema.name} is no {schema.type}")
    if source.logical is None and schema.name is not None:
        read = _named_reader(source, schema) or read
    schema = with_default(source, schema, properties.get("connect.default"))
    if isinstance(read, partial) and read.func is _no_struct:
        read = partial(_read_struct, read.args[0], schema)
    return schema, read


def _reported(schema: ConnectSchema, properties: Mapping[str, Any]) -> dict[str, Any]:
    """What the properties say of the schema around its type."""
    found: dict[str, Any] = {}
    doc, given = properties.get("connect.doc"), properties.get("connect.parameters")
    if type(doc) is str:
        found["doc"] = doc
    if type(given) is dict:
        texts = {k: v for k, v in given.items() if type(v) is str}
        found["parameters"] = {**(schema.parameters or {}), **texts}
    if schema.version is not None:
        return found  # a logical type keeps its name and version
    name, version = properties.get("connect.name"), properties.get("connect.version")
    if type(name) is str:
        found["name"] = name
    if type(version) is int and 0 <= version <= INT_MAX:
        found["version"] = version
    return found


def _named_reader(source: AvroType, schema: ConnectSchema) -> Reader | None:
    """Reader of a logical type that ``connect.name`` alone tells, as old serializers wrote it."""
    if source.kind == "bytes" and schema.name == DECIMAL_NAME:
        text = (schema.parameters or {}).get("scale", "")
        if not re.fullmatch(r"-?[0-9]{1,4}", text):
            raise BadSchema("a decimal without a proper scale")
        return partial(read_decimal, int(text))
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
_PRIMITIVES: Final[Mapping[str, tuple[ConnectSchema, Reader]]] = {
    "null": (ConnectSchema("string", optional=True), read_null),
    "boolean": (ConnectSchema("boolean"), read_boolean),
    "int": (ConnectSchema("int32"), read_int),
    "long": (ConnectSchema("int64"), read_long),
    "float": (ConnectSchema("float32"), read_float),
    "double": (ConnectSchema("float64"), read_double),
    "bytes": (ConnectSchema("bytes"), read_bytes),
    "string": (ConnectSchema("string"), read_string),
    "date": (ConnectSchema("int32", name=_CONNECT + "Date", version=1), read_date),
    "time-millis": (ConnectSchema("int32", name=_CONNECT + "Time", version=1), read_time),
    "timestamp-millis": (
        ConnectSchema("int64", name=_CONNECT + "Timestamp", version=1),
        read_timestamp,
    ),
}


_NAMED: Final[Mapping[tuple[str, str | None], Reader]] = {
    ("int", _CONNECT + "Date"): read_date,
    ("int", _CONNECT + "Time"): read_time,
    ("long", _CONNECT + "Timestamp"): read_timestamp,
}


def _primitive(source: AvroType) -> Compiled:
    if source.logical == "decimal":
        return _decimal_schema(source), partial(read_decimal, source.scale)
    schema, read = _PRIMITIVES.get(source.logical or "") or _PRIMITIVES[source.kind]
    unit = _UNITS.get(source.logical or "")
    return (replace(schema, unit=unit) if unit else schema), read


def _decimal_schema(source: AvroType) -> ConnectSchema:
    parameters = {"scale": str(source.scale)}
    if source.precision != PRECISION_UNTOLD:
        parameters["connect.decimal.precision"] = str(source.precision)
    return ConnectSchema("bytes", name=DECIMAL_NAME, version=1, parameters=parameters)
