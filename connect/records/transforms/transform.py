"""What every transformation is, and what they share.

Rules of this file:
- A transformation is a function of one record; it keeps nothing from record to record but what it
  built from schemas, so records may be tried again.
- Values are never changed in place: a record may go through more than one chain.
- Errors name kinds of values, never the values.
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
"""Gets a record; returns it changed, several records in its place, or None to drop it."""

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
    "A null field with a default takes the default.",
    "true",
)
_SCHEMAS_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class Example:
    """A use of a transformation, shown on its page and run by a test.

    Attributes:
        config: its own keys.
        before: parts of the record: ``value``, and where they matter ``key``, ``topic``,
            ``timestamp`` (milliseconds) and ``headers`` (a map).
        after: the same parts of the record that comes out; a list for several records, None when
            the record is dropped.
        says: one sentence about it.
    """

    config: Mapping[str, str]
    before: Mapping[str, Any]
    after: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    says: str = ""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A transformation as configurations name it.

    Attributes:
        name: simple class name, without ``$Key`` or ``$Value``.
        package: of the class name that answers show, with its last dot.
        doc: what it does, a few sentences for its page.
        make: builds the function from typed options; raises ConfigError.
        example: for its page.
        keys: its configuration.
        has_sides: whether there are two classes, ``$Key`` and ``$Value``.
        also: further packages under which existing configurations name it.
        families: prefixes of keys whose ends are free, with what they mean; options hold a map for
            each.
        differs: what it does differently from the Java class, for its page.
        is_column: whether records go through it column by column.
        needs_headers: whether it looks at headers, so that they must be read.
        is_query: whether Spark runs it over micro-batches, so that ``make``'s function never does.
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
    needs_headers: bool = False
    is_query: bool = False

    @property
    def class_names(self) -> tuple[str, ...]:
        """The full names that answers show, one per side."""
        name = self.package + self.name
        return (f"{name}$Key", f"{name}$Value") if self.has_sides else (name,)


def typed_options(
    keys: Sequence[Key],
    raw: Mapping[str, str],
    *,
    prefix: str = "",
    families: Mapping[str, str] | None = None,
) -> Options:
    """Type a transformation's own configuration.

    Args:
        keys: declarations.
        families: prefixes of keys whose ends are free.
        raw: keys without prefix.
        prefix: of the keys in the connector's configuration, for sentences about missing ones.

    Raises:
        ConfigError: the first sentence about it, in Kafka's words.
    """
    found: dict[str, Any] = {}
    for key in keys:
        if key.name not in raw and key.is_required:
            raise ConfigError(missing(prefix + key.name), code="transform_option")
        text = raw.get(key.name, key.default_text)
        if text is not None and isinstance(key.check, Distinct):
            text = ",".join(dict.fromkeys(list_of(text.strip())))
        result = typed(key, text)
        if result.errors:
            raise ConfigError(result.errors[0], code="transform_option")
        found[key.name] = result.value
    for family in families or {}:
        ends = {n.removeprefix(family): v for n, v in raw.items() if n.startswith(family)}
        found[family] = ends
    return found


def refused(message: str, code: str = "transformation") -> RecordError:
    """Build the error of a transformation about a record."""
    return RecordError(message, stage="TRANSFORMATION", code=code)


# ------------------------------------------------------------------ sides of a record


def side_of(record: SinkRecord, side: Side) -> tuple[ConnectSchema | None, Any]:
    """The schema and value that a transformation works on."""
    if side == "key":
        return record.key_schema, record.key
    return record.value_schema, record.value


def with_side(
    record: SinkRecord, side: Side, schema: ConnectSchema | None, value: Any
) -> SinkRecord:
    """The record with another key or value."""
    if side == "key":
        return dataclasses.replace(record, key_schema=schema, key=value)
    return dataclasses.replace(record, value_schema=schema, value=value)


def a_map(value: Any, purpose: str) -> dict[Any, Any]:
    """The value, which must be a map.

    Raises:
        RecordError: Kafka's sentence.
    """
    if type(value) is dict:
        return value
    raise refused(
        f"Only Map objects supported in absence of schema for [{purpose}], "
        f"found: {java_class(value)}",
        "wrong_type",
    )


def a_struct(value: Any, purpose: str) -> Struct:
    """The value, which must be a struct.

    Raises:
        RecordError: Kafka's sentence.
    """
    if type(value) is Struct:
        return value
    raise refused(
        f"Only Struct objects supported for [{purpose}], found: {java_class(value)}", "wrong_type"
    )


# ------------------------------------------------------------------ structs and schemas


def field_schema(schema: ConnectSchema, name: str) -> ConnectSchema | None:
    """The schema of a struct's field, None when it has no such field."""
    return next((inner for known, inner in schema.fields if known == name), None)


def field_value(struct: Struct, name: str, schema: ConnectSchema, *, default: bool = True) -> Any:
    """A field's value; a null one with a default takes it where that is wanted."""
    value = struct.values.get(name)
    return schema.default if value is None and default else value


def all_values(struct: Struct, *, default: bool = True) -> dict[str, Any]:
    """Every field's value, as ``field_value`` gives it."""
    return {n: field_value(struct, n, s, default=default) for n, s in struct.schema.fields}


def struct_like(
    schema: ConnectSchema, fields: Sequence[tuple[str, ConnectSchema]], **changes: Any
) -> ConnectSchema:
    """A struct schema with the name, version and doc of another.

    Raises:
        RecordError: two fields have one name.
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
class PerSchema:
    """What is built from a schema, kept for the schemas seen last.

    Attributes:
        make: builds it.
    """

    make: Callable[[ConnectSchema], ConnectSchema]
    _kept: dict[int, tuple[ConnectSchema, ConnectSchema]] = field(default_factory=dict)

    def __call__(self, schema: ConnectSchema) -> ConnectSchema:
        """Build, or what was built for the same object."""
        known = self._kept.get(id(schema))
        if known is not None and known[0] is schema:
            return known[1]
        built = self.make(schema)
        if len(self._kept) >= _SCHEMAS_KEPT:
            self._kept.clear()
        self._kept[id(schema)] = (schema, built)
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
    """The name that Kafka's sentences have for a value's kind."""
    known = _JAVA_CLASSES.get(type(value))
    return known or ("java.math.BigDecimal" if type(value).__name__ == "Decimal" else "an object")


def connect_type(value: Any) -> str | None:
    """Connect's type of a value without schema; None for what it has no type for."""
    return _CONNECT_TYPES.get(type(value))
