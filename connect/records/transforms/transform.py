"""The transformation interface, and functions shared by transformations.

Rules of this file:
- A transformation is a function of one record. It keeps no state except caches by schema, so that
  records can be retried.
- Values are immutable, because a record may pass through more than one chain.
- Error messages contain types of values, but no values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from connect.config.key import Distinct, Key, list_of, missing, typed
from connect.errors import ConfigError, RecordError
from connect.model.records import (
    ConnectSchema,
    Date,
    Float32,
    Int8,
    Int16,
    Int32,
    SinkRecord,
    Struct,
    Time,
    Timestamp,
)

Side = Literal["key", "value"]
Options = Mapping[str, Any]
Apply = Callable[[SinkRecord], "SinkRecord | Sequence[SinkRecord] | None"]
"""Transforms a record: returns one record, several records, or None to drop it."""

KAFKA: Final = "org.apache.kafka.connect.transforms."
ICEBERG: Final = "org.apache.iceberg.connect.transforms."
TABULAR: Final = "io.tabular.iceberg.connect.transforms."
OWN: Final = "icefloe.transforms."

DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"

STRING_SCHEMA: Final = ConnectSchema("string")
OPTIONAL_STRING: Final = ConnectSchema("string", optional=True)

NULL_DEFAULT: Final = Key(
    "replace.null.with.default",
    "BOOLEAN",
    "Replace a null field with its default value, if it has one.",
    "true",
)
_SCHEMAS_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class Example:
    """An example of a transformation, which is shown on its page and run by a test.

    Attributes:
        config: configuration of the transformation.
        before: parts of the input record: ``value``, and optionally ``key``, ``topic``,
            ``timestamp`` (milliseconds) and ``headers`` (a map).
        after: the same parts of the output record; a list for several records, None if the record
            is dropped.
        says: one sentence that explains the example.
    """

    config: Mapping[str, str]
    before: Mapping[str, Any]
    after: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    says: str = ""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of a transformation.

    Attributes:
        name: simple class name, without ``$Key`` or ``$Value``.
        package: package of the class name in REST answers, with a trailing dot.
        doc: description for its page.
        make: builds the function from typed options; raises ConfigError.
        example: example for its page.
        keys: its configuration keys.
        has_sides: whether there are two classes, ``$Key`` and ``$Value``.
        also: other packages of the class in existing configurations.
        families: key prefixes with free suffixes, and their documentation. Options contain a map
            for each prefix.
        differs: differences from the Java class, for its page.
        is_column: whether it has a column form.
        needs_headers: whether it reads headers; a key if it does so only with that key.
        is_query: whether Spark runs it over micro-batches. The function of ``make`` is not used.
    """

    name: str
    package: str
    doc: str
    make: Callable[[Options, Side], Apply]
    example: Example
    keys: tuple[Key, ...] = ()
    has_sides: bool = False
    also: tuple[str, ...] = ()
    families: Mapping[str, str] = field(default_factory=dict)
    differs: str = ""
    is_column: bool = False
    needs_headers: bool | str = False
    is_query: bool = False

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the full class names in REST answers, one per side."""
        name = self.package + self.name
        return (f"{name}$Key", f"{name}$Value") if self.has_sides else (name,)


def typed_options(
    keys: Sequence[Key],
    raw: Mapping[str, str],
    *,
    prefix: str = "",
    families: Mapping[str, str] | None = None,
) -> Options:
    """Convert the configuration of a transformation to typed options.

    Args:
        keys: declared keys.
        families: key prefixes with free suffixes.
        raw: configuration with keys without prefix.
        prefix: prefix of the keys in the connector's configuration, for errors of missing keys.

    Raises:
        ConfigError: a value is missing or invalid; the message is the first error in Kafka's
            format.
    """
    options: dict[str, Any] = {}
    for key in keys:
        if key.name not in raw and key.is_required:
            raise ConfigError(missing(prefix + key.name), code="transform_option")
        text = raw.get(key.name, key.default_text)
        if text is not None and isinstance(key.check, Distinct):
            text = ",".join(dict.fromkeys(list_of(text.strip())))
        result = typed(key, text)
        if result.errors:
            raise ConfigError(result.errors[0], code="transform_option")
        options[key.name] = result.value
    for family in families or {}:
        ends = {n.removeprefix(family): v for n, v in raw.items() if n.startswith(family)}
        options[family] = ends
    return options


def refused(message: str, code: str = "transformation") -> RecordError:
    """Build the RecordError of a transformation."""
    return RecordError(message, stage="TRANSFORMATION", code=code)


# ------------------------------------------------------------------ sides of a record


def side_of(record: SinkRecord, side: Side) -> tuple[ConnectSchema | None, Any]:
    """Return the schema and value of a record's key or value."""
    if side == "key":
        return record.key_schema, record.key
    return record.value_schema, record.value


def with_side(
    record: SinkRecord, side: Side, schema: ConnectSchema | None, value: Any
) -> SinkRecord:
    """Return a copy of the record with another key or value."""
    if side == "key":
        return dataclasses.replace(record, key_schema=schema, key=value)
    return SinkRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.key,
        record.key_schema,
        value,
        schema,
        record.headers,
        record.timestamp_type,
    )


def a_map(value: Any, purpose: str) -> dict[Any, Any]:
    """Return the value if it is a map.

    Raises:
        RecordError: the value has another type; the message is Kafka's.
    """
    if type(value) is dict:
        return value
    raise refused(
        f"Only Map objects supported in absence of schema for [{purpose}], "
        f"found: {java_class(value)}",
        "wrong_type",
    )


def a_struct(value: Any, purpose: str) -> Struct:
    """Return the value if it is a struct.

    Raises:
        RecordError: the value has another type; the message is Kafka's.
    """
    if type(value) is Struct:
        return value
    raise refused(
        f"Only Struct objects supported for [{purpose}], found: {java_class(value)}", "wrong_type"
    )


# ------------------------------------------------------------------ structs and schemas


def field_schema(schema: ConnectSchema, name: str) -> ConnectSchema | None:
    """Return the schema of a struct's field, or None if it has no such field."""
    return next((inner for field_name, inner in schema.fields if field_name == name), None)


def field_value(
    struct: Struct, name: str, schema: ConnectSchema, *, default: bool | None = None
) -> Any:
    """Return a field's value.

    Args:
        struct: has the field.
        name: of the field.
        schema: of the field.
        default: whether null becomes the field's default value; None: as its converter does.
    """
    value = struct.values.get(name)
    if value is not None:
        return value
    if default is None:
        return schema.null_value
    return schema.default if default else None


def known_field(struct: Struct, name: str, *, default: bool | None = None) -> Any:
    """Return the value of a field that the struct must have; args as for ``field_value``.

    Raises:
        RecordError: ``unknown_field``.
    """
    schema = field_schema(struct.schema, name)
    if schema is None:
        raise refused(f"Unknown field: {name}", "unknown_field")
    return field_value(struct, name, schema, default=default)


def all_values(struct: Struct, *, default: bool | None = None) -> dict[str, Any]:
    """Return the values of all fields, as ``field_value`` does."""
    if default is None:
        values = struct.values
        return {
            name: schema.null_value if (value := values.get(name)) is None else value
            for name, schema in struct.schema.fields
        }
    return {n: field_value(struct, n, s, default=default) for n, s in struct.schema.fields}


def struct_like(
    schema: ConnectSchema, fields: Sequence[tuple[str, ConnectSchema]], **changes: Any
) -> ConnectSchema:
    """Return a struct schema with the name, version and doc of another schema.

    Raises:
        RecordError: two fields have the same name.
    """
    seen: set[str] = set()
    for name, _ in fields:
        if name in seen:
            raise refused(
                f"Cannot create field because of field name duplication {name}", "ambiguous_name"
            )
        seen.add(name)
    basics = {
        "name": schema.name,
        "version": schema.version,
        "doc": schema.doc,
        "parameters": schema.parameters,
    }
    return ConnectSchema("struct", fields=tuple(fields), **{**basics, **changes})


@dataclass(slots=True)
class SchemaCache:
    """Caches results that are built from schemas, for the most recently used schemas.

    Attributes:
        make: builds the result from a schema, and perhaps another one.
    """

    make: Callable[..., ConnectSchema]
    _kept: dict[tuple[int, int], tuple[ConnectSchema, ConnectSchema | None, ConnectSchema]] = field(
        default_factory=dict
    )

    def __call__(self, schema: ConnectSchema, other: ConnectSchema | None = None) -> ConnectSchema:
        """Return the cached result for the schema objects, or build it."""
        key = (id(schema), id(other))
        cached = self._kept.get(key)
        if cached is not None and cached[0] is schema and cached[1] is other:
            return cached[2]
        built = self.make(schema) if other is None else self.make(schema, other)
        if len(self._kept) >= _SCHEMAS_KEPT:
            self._kept.clear()
        self._kept[key] = (schema, other, built)
        return built


# ------------------------------------------------------------------ kinds of values

_JAVA_CLASSES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "java.lang.Boolean",
    str: "java.lang.String",
    int: "java.lang.Long",
    Int8: "java.lang.Byte",
    Int16: "java.lang.Short",
    Int32: "java.lang.Integer",
    float: "java.lang.Double",
    Float32: "java.lang.Float",
    bytes: "[B",
    list: "java.util.ArrayList",
    dict: "java.util.HashMap",
    Struct: "org.apache.kafka.connect.data.Struct",
    Date: "java.util.Date",
    Time: "java.util.Date",
    Timestamp: "java.util.Date",
}
_CONNECT_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    str: "string",
    int: "int64",
    Int8: "int8",
    Int16: "int16",
    Int32: "int32",
    float: "float64",
    Float32: "float32",
    bytes: "bytes",
    list: "array",
    dict: "map",
    Struct: "struct",
}
WHOLE: Final = frozenset({int, Int8, Int16, Int32})
FRACTIONAL: Final = frozenset({float, Float32})


def java_class(value: Any) -> str:
    """Return the Java class name of a value, for Kafka's error messages."""
    class_name = _JAVA_CLASSES.get(type(value))
    return class_name or (
        "java.math.BigDecimal" if type(value).__name__ == "Decimal" else "an object"
    )


def connect_type(value: Any) -> str | None:
    """Return the Connect type of a value without schema, or None if it has none."""
    return _CONNECT_TYPES.get(type(value))
