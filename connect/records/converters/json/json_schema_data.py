"""Conversion of JSON Schemas and their documents to Connect, as Java's JsonSchemaData does.

Rules of this file:
- Recursive schemas are an error, and so are schemas that are nested too deeply or too large.
- A document of another type than its schema is an error, as in envelopes.
- An object inside a document whose schema names no properties is its JSON text. Java makes a struct
  without fields, which no table can have, and drops the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from connect.model.records import ConnectSchema, Struct
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.conversion.text import to_string
from connect.records.converters.json.json_schema import (
    ReadableSchema,
    Reader,
    logical_reader,
    scalar_reader,
    with_nulls,
)
from connect.records.converters.json.json_text import JsonReader
from connect.records.converters.payload_errors import NotJson, PayloadMismatch
from control_schemas.avro import BadSchema

SCHEMA_BYTES_MAX: Final = 4 * 2**20
DEPTH_MAX: Final = 64
NODES_MAX: Final = 50_000
ONE_OF: Final = "io.confluent.connect.json.OneOf"
_STRING: Final = ConnectSchema("string")
_SMALLER: Final[Mapping[str, tuple[str, ...]]] = {
    "integer": ("int8", "int16", "int32", "int64"),
    "number": ("int8", "int16", "int32", "int64", "float32", "float64", "bytes"),
    "string": ("string", "bytes"),
    "boolean": ("boolean",),
}
_USUAL: Final = {"integer": "int64", "number": "float64", "string": "string", "boolean": "boolean"}


def readable_json_schema(
    text: str, references: Mapping[str, str], *, optional_unless_required: bool
) -> ReadableSchema:
    """Build the reader of documents with a JSON Schema.

    Args:
        text: the schema.
        references: schemas by their name in ``$ref``.
        optional_unless_required: the option ``use.optional.for.nonrequired``.

    Raises:
        BadSchema: the schema is invalid, or no Connect schema corresponds to it.
    """
    if len(text) + sum(map(len, references.values())) > SCHEMA_BYTES_MAX:
        raise BadSchema(f"the schema has more than {SCHEMA_BYTES_MAX} bytes")
    documents = {"": _parsed(text), **{name: _parsed(t) for name, t in references.items()}}
    compiler = _JsonSchemaCompiler(documents, optional_unless_required=optional_unless_required)
    try:
        return compiler.build(documents[""], "", 0, optional=False)
    except (PayloadMismatch, Unconvertible) as error:
        raise BadSchema(f"a default does not match its schema: {error}") from None


def _parsed(text: str) -> Any:
    try:
        return JsonReader(decimals=True).read(text.encode("utf-8", "replace"))
    except NotJson as error:
        raise BadSchema(f"the schema is not JSON: {error}") from None


class _JsonSchemaCompiler:
    def __init__(self, documents: Mapping[str, Any], *, optional_unless_required: bool) -> None:
        self._documents = documents
        self._by_required = optional_unless_required
        self._nodes = 0
        self._open: list[tuple[str, str]] = []

    def build(self, source: Any, base: str, depth: int, *, optional: bool) -> ReadableSchema:
        """Return the schema and reader of a subschema."""
        self._nodes += 1
        if depth > DEPTH_MAX or self._nodes > NODES_MAX:
            raise BadSchema(f"the schema is nested deeper than {DEPTH_MAX} levels, or too large")
        if type(source) is not dict:
            raise BadSchema("a schema must be a JSON object")
        if "$ref" in source:
            return self._referred(source["$ref"], base, depth, optional=optional)
        several = next((source[w] for w in ("oneOf", "anyOf") if type(source.get(w)) is list), None)
        if several is not None:
            return self._choice(source, several, base, depth, optional=optional)
        if type(source.get("allOf")) is list:
            merged = _merged(source)
            return self.build(merged, base, depth + 1, optional=optional)
        kind = source.get("type")
        if type(kind) is list:
            parts = [{**source, "type": k} for k in kind]
            return self._choice(source, parts, base, depth, optional=optional)
        return self._typed(source, kind or _implied(source), base, depth, optional=optional)

    def _typed(
        self, source: dict[str, Any], kind: Any, base: str, depth: int, *, optional: bool
    ) -> ReadableSchema:
        schema: ConnectSchema
        read: Reader | None
        if kind == "object" and depth and _is_free(source):
            schema, read = _STRING, _object_text
        elif kind == "object":
            schema, read = self._object(source, base, depth)
        elif kind == "array":
            schema, read = self._array(source, base, depth)
        elif kind in _USUAL:
            reported = source.get("connect.type")
            schema = ConnectSchema(reported if reported in _SMALLER[kind] else _USUAL[kind])
            read = scalar_reader(schema.type)
        else:
            raise BadSchema("no Connect type corresponds to a schema")
        return self._finished(source, schema, read, optional=optional)

    def _finished(
        self, source: dict[str, Any], schema: ConnectSchema, read: Reader | None, *, optional: bool
    ) -> ReadableSchema:
        """Apply title, description, parameters and default to a schema."""
        texts = {"name": source.get("title"), "doc": source.get("description")}
        changes: dict[str, Any] = {k: v for k, v in texts.items() if type(v) is str}
        if type(source.get("connect.version")) is int:
            changes["version"] = source["connect.version"]
        parameters = source.get("connect.parameters")
        if type(parameters) is dict:
            changes["parameters"] = {k: v for k, v in parameters.items() if type(v) is str}
        schema = replace(schema, optional=optional or schema.optional, **changes)
        logical = logical_reader(schema)
        read_value = _structs(schema, read) if read is None or schema.type == "struct" else read
        if logical is not None and schema.type != "struct":
            read_value = logical
        default = source.get("default")
        if default is not None:
            value = read_value(default)
            schema = replace(schema, default=value, has_default=True)
            read_value = _structs(schema, read) if schema.type == "struct" else read_value
        return ReadableSchema(schema, with_nulls(schema, read_value, default_for_null=True))

    def _object(
        self, source: dict[str, Any], base: str, depth: int
    ) -> tuple[ConnectSchema, Reader | None]:
        if source.get("connect.type") == "map":
            values = self.build(source.get("additionalProperties"), base, depth + 1, optional=False)
            schema = ConnectSchema("map", key_schema=_STRING, value_schema=values.schema)
            return schema, _object_reader(values.read)
        properties = source.get("properties") or {}
        if type(properties) is not dict:
            raise BadSchema("'properties' of a schema must be an object")
        required = source.get("required")
        names = set(required) if type(required) is list and _are_texts(required) else set()
        readers: dict[str, ReadableSchema] = {}
        for name, inner in sorted(properties.items(), key=_place):
            optional = self._by_required and name not in names
            readers[name] = self.build(inner, base, depth + 1, optional=optional)
        fields = tuple((name, readable.schema) for name, readable in readers.items())
        schema = ConnectSchema("struct", fields=fields)
        steps = [(name, readable.read) for name, readable in readers.items()]
        return schema, _fields_reader(steps)

    def _array(
        self, source: dict[str, Any], base: str, depth: int
    ) -> tuple[ConnectSchema, Reader | None]:
        items = source.get("items")
        if type(items) is not dict:
            raise BadSchema("an array schema lacks the type of its items")
        if source.get("connect.type") == "map":
            parts = items.get("properties") or {}
            key = self.build(parts.get("key"), base, depth + 1, optional=False)
            value = self.build(parts.get("value"), base, depth + 1, optional=False)
            schema = ConnectSchema("map", key_schema=key.schema, value_schema=value.schema)
            return schema, _entries_reader(key.read, value.read)
        inner = self.build(items, base, depth + 1, optional=False)
        return ConnectSchema("array", value_schema=inner.schema), _items_reader(inner.read)

    def _choice(
        self, source: dict[str, Any], parts: list[Any], base: str, depth: int, *, optional: bool
    ) -> ReadableSchema:
        rest = [p for p in parts if not (type(p) is dict and p.get("type") == "null")]
        is_null = optional or len(rest) < len(parts)
        if len(rest) == 1:
            readable = self.build(rest[0], base, depth + 1, optional=is_null)
            if source.get("default") is None or readable.schema.default is not None:
                return readable
            schema = replace(
                readable.schema, default=readable.read(source["default"]), has_default=True
            )
            return ReadableSchema(schema, with_nulls(schema, readable.read, default_for_null=True))
        members = [
            (f"{ONE_OF}.field.{i}", self.build(part, base, depth + 1, optional=True))
            for i, part in enumerate(rest)
        ]
        fields = tuple((name, member.schema) for name, member in members)
        schema = ConnectSchema("struct", optional=is_null, name=ONE_OF, fields=fields)
        read = _choice_reader(schema, members)
        return ReadableSchema(schema, with_nulls(schema, read, default_for_null=True))

    def _referred(self, ref: Any, base: str, depth: int, *, optional: bool) -> ReadableSchema:
        if type(ref) is not str:
            raise BadSchema("'$ref' must be a string")
        name, _, pointer = ref.partition("#")
        document = name or base
        if (document, pointer) in self._open:
            raise BadSchema(f"the schema {ref[:200]!r} is recursive")
        if document not in self._documents:
            raise BadSchema(
                f"the schema refers to {ref[:200]!r}, which is not among its references"
            )
        node = self._documents[document]
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if type(node) is not dict or key not in node:
                raise BadSchema(f"the schema refers to {ref[:200]!r}, which does not exist")
            node = node[key]
        self._open.append((document, pointer))
        try:
            return self.build(node, document, depth + 1, optional=optional)
        finally:
            self._open.pop()


def _is_free(source: Mapping[str, Any]) -> bool:
    """Return whether an object may have any properties, and its schema names none."""
    is_closed = source.get("additionalProperties") is False
    return not source.get("properties") and not is_closed and source.get("connect.type") != "map"


def _are_texts(values: list[Any]) -> bool:
    return all(type(value) is str for value in values)


def _place(entry: tuple[str, Any]) -> int:
    """Sort key: fields with ``connect.index`` in its order, then other fields in document order."""
    index = entry[1].get("connect.index") if type(entry[1]) is dict else None
    return index if type(index) is int else 2**31


def _implied(source: Mapping[str, Any]) -> str | None:
    """Return the type of a schema without ``type``, inferred from its other keywords."""
    if "properties" in source or "additionalProperties" in source:
        return "object"
    if "items" in source:
        return "array"
    values = source["enum"] if type(source.get("enum")) is list else [source.get("const")]
    if all(type(value) is str for value in values):
        return "string"
    if all(type(value) is bool for value in values):
        return "boolean"
    return "integer" if all(type(value) is int for value in values) else None


def _merged(source: dict[str, Any]) -> dict[str, Any]:
    """Merge ``allOf``: later keywords override, ``properties`` and ``required`` accumulate."""
    merged = {key: value for key, value in source.items() if key != "allOf"}
    for part in source["allOf"]:
        if type(part) is not dict or "$ref" in part:
            raise BadSchema("'allOf' with references is not supported")
        properties = {**(merged.get("properties") or {}), **(part.get("properties") or {})}
        required = [*(merged.get("required") or []), *(part.get("required") or [])]
        merged |= part
        if properties:
            merged["properties"] = properties
        if required:
            merged["required"] = required
    return merged


# ------------------------------------------------------------------ readers


def _structs(schema: ConnectSchema, read: Reader | None) -> Reader:
    """Return a reader of structs with this schema."""
    assert read is not None
    fields = read
    return lambda value: Struct(schema, fields(value))


def _object_text(value: Any) -> str:
    if type(value) is not dict:
        raise PayloadMismatch("the value of an object must be a JSON object")
    return to_string(value)


def _fields_reader(steps: list[tuple[str, Reader]]) -> Reader:
    def read_fields(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise PayloadMismatch("the value of a struct must be a JSON object")
        return {name: read(value.get(name)) for name, read in steps}

    return read_fields


def _object_reader(read: Reader) -> Reader:
    def read_object(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise PayloadMismatch("the value of a map with string keys must be a JSON object")
        return {key: read(item) for key, item in value.items()}

    return read_object


def _items_reader(read: Reader) -> Reader:
    def read_items(value: Any) -> list[Any]:
        if type(value) is not list:
            raise PayloadMismatch("the value of an array must be a JSON array")
        return [read(item) for item in value]

    return read_items


def _entries_reader(read_key: Reader, read_value: Reader) -> Reader:
    def read_entries(value: Any) -> dict[Any, Any]:
        if type(value) is not list:
            raise PayloadMismatch(
                "the value of a map without string keys must be a JSON array of entries"
            )
        entries: dict[Any, Any] = {}
        for entry in value:
            if type(entry) is not dict or entry.keys() != {"key", "value"}:
                raise PayloadMismatch(
                    "an entry of a map must have the fields 'key' and 'value' only"
                )
            key = read_key(entry["key"])
            if type(key) in (dict, list, Struct):
                raise PayloadMismatch("a map, array or struct cannot be a map key")
            if key in entries:
                raise PayloadMismatch("two entries of a map have the same key")
            entries[key] = read_value(entry["value"])
        return entries

    return read_entries


def _choice_reader(schema: ConnectSchema, members: list[tuple[str, ReadableSchema]]) -> Reader:
    names = dict.fromkeys(name for name, _ in members)

    def read_choice(value: Any) -> Struct:
        for name, member in members:
            try:
                return Struct(schema, {**names, name: member.read(value)})
            except (PayloadMismatch, Unconvertible, NotJson):
                continue
        raise PayloadMismatch("the value matches none of the types in the schema")

    return read_choice
