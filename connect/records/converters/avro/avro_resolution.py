"""Avro schema resolution: converts data from the writer schema to the reader schema.

A datum is read with the writer schema, then its values are converted to the reader schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from connect.model.records import ConnectSchema, Float32, Struct
from connect.records.conversion.numbers import double_to_float32
from connect.records.converters.avro.avro_data import AvroReader, avro_reader
from connect.records.converters.avro.avro_defaults import default_of
from connect.records.converters.avro.avro_schema import UNION_NAME, AvroField, AvroType, BadSchema
from connect.records.converters.payload_errors import Malformed

Project = Callable[[Any], Any]

_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


def resolved_reader(writer: AvroType, reader: AvroType, options: Mapping[str, str]) -> AvroReader:
    """Build a reader of data with the writer schema that returns values of the reader schema.

    Args:
        writer: the writer schema.
        reader: the reader schema.
        options: options of the converter.

    Raises:
        BadSchema: the schemas are incompatible, or no Connect schema corresponds to one of them.
    """
    source, target = avro_reader(writer, options), avro_reader(reader, options)
    enhanced = str(options.get("enhanced.avro.schema.support", "false")).strip().lower() == "true"
    project = _Resolution(enhanced=enhanced).project(writer, reader, source.schema, target.schema)

    def convert(value: Any) -> Any:
        return project(value if source.convert is None else source.convert(value))

    return AvroReader(writer, target.schema, source.datum, convert)


class _Resolution:
    def __init__(self, *, enhanced: bool) -> None:
        self._enhanced = enhanced

    def project(
        self, writer: AvroType, reader: AvroType, source: ConnectSchema, target: ConnectSchema
    ) -> Project:
        """Return a function that converts values of the writer type to the reader type."""
        if writer.kind == "union":
            return self._from_union(writer, reader, source, target)
        if reader.kind == "union":
            return self._to_union(writer, reader, source, target)
        if not _fits(writer, reader):
            raise BadSchema(f"data of type {writer.kind} cannot be read as {reader.kind}")
        if reader.kind == "record":
            return self._record(writer, reader, source, target)
        if reader.kind in ("array", "map"):
            return self._items(writer, reader, source, target)
        if reader.kind == "enum":
            return _enum(reader)
        return _scalar(writer, reader)

    def _from_union(
        self, writer: AvroType, reader: AvroType, source: ConnectSchema, target: ConnectSchema
    ) -> Project:
        can_be_null = _takes_null(reader)
        if source.name != UNION_NAME:
            (inner,) = (b for b in writer.branches if b.kind != "null")
            project_inner = self.project(inner, reader, source, target)
            return lambda value: (
                project_inner(value) if value is not None else _null(can_be_null=can_be_null)
            )
        schemas = dict(source.fields)
        members: dict[str, Project] = {}
        for branch in writer.branches:
            if branch.kind != "null":
                name = (branch.name or branch.kind) if self._enhanced else branch.short_name
                members[name] = self._or_refuse(branch, reader, schemas[name], target)

        def from_union(value: Any) -> Any:
            if value is None:
                return _null(can_be_null=can_be_null)
            for name, project in members.items():
                if value.values[name] is not None:
                    return project(value.values[name])
            return _null(can_be_null=can_be_null)

        return from_union

    def _or_refuse(
        self, writer: AvroType, reader: AvroType, source: ConnectSchema, target: ConnectSchema
    ) -> Project:
        """Return the conversion of a branch. An incompatible one fails only if a datum uses it."""
        try:
            return self.project(writer, reader, source, target)
        except BadSchema as error:
            return partial(_refuse, str(error))

    def _to_union(
        self, writer: AvroType, reader: AvroType, source: ConnectSchema, target: ConnectSchema
    ) -> Project:
        if writer.kind == "null":
            return lambda _: _null(can_be_null=_takes_null(reader))
        branch = next((b for b in reader.branches if _is_same(writer, b)), None) or next(
            (b for b in reader.branches if _fits(writer, b)), None
        )
        if branch is None:
            raise BadSchema(f"data of type {writer.kind} matches no type of the reader's union")
        if target.name != UNION_NAME:
            return self.project(writer, branch, source, target)
        name = (branch.name or branch.kind) if self._enhanced else branch.short_name
        inner = self.project(writer, branch, source, dict(target.fields)[name])
        names = dict.fromkeys(n for n, _ in target.fields)
        return lambda value: Struct(target, {**names, name: inner(value)})

    def _record(
        self, writer: AvroType, reader: AvroType, source: ConnectSchema, target: ConnectSchema
    ) -> Project:
        written = {field.name: field for field in writer.fields}
        sources = dict(source.fields)
        steps: list[tuple[str, str | None, Any]] = []
        for field, (name, schema) in zip(reader.fields, target.fields, strict=True):
            writer_field = _written(field, written)
            if writer_field is not None:
                inner = self.project(
                    writer_field.type, field.type, sources[writer_field.name], schema
                )
                steps.append((name, writer_field.name, inner))
            elif field.has_default:
                steps.append((name, None, default_of(field.type, schema, field.default)))
            else:
                raise BadSchema(
                    f"the field {name[:200]!r} of the reader's schema has no default and is not "
                    "in the writer's"
                )

        def record(value: Any) -> Struct:
            values = value.values
            return Struct(
                target,
                {
                    name: default_or_project
                    if source_name is None
                    else default_or_project(values[source_name])
                    for name, source_name, default_or_project in steps
                },
            )

        return record

    def _items(
        self, writer: AvroType, reader: AvroType, source: ConnectSchema, target: ConnectSchema
    ) -> Project:
        if (source.type, target.type) not in (("array", "array"), ("map", "map")):
            raise BadSchema("an array of map entries cannot be read as another array")
        assert writer.items is not None
        assert reader.items is not None
        assert source.value_schema is not None
        assert target.value_schema is not None
        if source.type == "map" and writer.kind == "array":
            return lambda value: value  # entries of a Connect map: their types do not change
        inner = self.project(writer.items, reader.items, source.value_schema, target.value_schema)
        if reader.kind == "array":
            return lambda value: [inner(item) for item in value]
        return lambda value: {key: inner(item) for key, item in value.items()}


def _written(field: AvroField, written: Mapping[str, AvroField]) -> AvroField | None:
    return next((written[n] for n in (field.name, *field.aliases) if n in written), None)


def _takes_null(reader: AvroType) -> bool:
    return reader.kind == "null" or any(b.kind == "null" for b in reader.branches)


def _null(*, can_be_null: bool) -> None:
    if not can_be_null:
        raise Malformed(
            "the value is null, but the reader schema does not allow null", "schema_mismatch"
        )


def _refuse(message: str, _: Any) -> Any:
    raise Malformed(message, "schema_mismatch")


def _is_same(writer: AvroType, reader: AvroType) -> bool:
    if writer.kind != reader.kind:
        return False
    return writer.name is None or writer.name in (reader.name, *reader.aliases)


def _fits(writer: AvroType, reader: AvroType) -> bool:
    if writer.kind == reader.kind:
        if writer.logical != reader.logical and "decimal" in (writer.logical, reader.logical):
            return False
        if writer.kind == "fixed":
            return writer.size == reader.size
        return True
    if writer.logical or reader.logical:
        return False
    return reader.kind in _PROMOTIONS.get(writer.kind, ())


def _enum(reader: AvroType) -> Project:
    symbols = frozenset(reader.symbols)
    default = (reader.properties or {}).get("default")

    def enum(value: Any) -> Any:
        if value in symbols:
            return value
        if default in symbols:
            return default
        raise Malformed("an enum symbol is not in the reader schema", "schema_mismatch")

    return enum


def _scalar(writer: AvroType, reader: AvroType) -> Project:
    if writer.kind == reader.kind:
        if writer.logical == reader.logical:
            return lambda value: value
        raise BadSchema(f"data of logical type {writer.logical} cannot be read as {reader.logical}")
    if reader.kind == "float":
        return lambda value: Float32(double_to_float32(float(value)))
    if reader.kind == "double":
        return float
    if reader.kind == "bytes":
        return str.encode
    if reader.kind == "string":
        return _text
    return lambda value: value


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Malformed("bytes that are read as a string are not UTF-8", "bad_text") from None
