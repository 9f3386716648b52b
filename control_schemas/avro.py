"""Parses Avro schemas from JSON into a finite tree of types with resolved names.

Rules of this file:
- Schemas are untrusted: any producer of a topic can set them. Code that uses this tree recurses
  over it. So recursive schemas, deep schemas and those that become huge by expansion of their
  named types are refused.
- Names are resolved as in Avro for Java: first in the enclosing namespace, then without one.
  Iceberg defines types such as ``uuid_fixed`` without a namespace and refers to them from other
  namespaces. Libraries that follow the specification strictly refuse this.
- Like Avro, the parser ignores unknown properties, and logical types on a wrong base type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from unicodedata import category

from control_schemas import bounded_json
from control_schemas.errors import MalformedEvent
from control_schemas.limits import SCHEMA_DEPTH_MAX, SCHEMA_WEIGHT_MAX, STRING_BYTES_MAX

DIGITS_MAX: Final = 1000
PRECISION_DEFAULT: Final = 64
"""Confluent's property for the precision of a decimal without one."""
PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_NAME_CATEGORIES: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd"})
_LAST_CHARACTER: Final = "\uffff"
"""Avro for Java checks names by UTF-16 code unit; no later character is a letter."""
_LOGICAL_BASES: Final[Mapping[str, frozenset[str]]] = {
    "decimal": frozenset({"bytes", "fixed"}),
    "date": frozenset({"int"}),
    "time-millis": frozenset({"int"}),
    "time-micros": frozenset({"long"}),
    "timestamp-millis": frozenset({"long"}),
    "timestamp-micros": frozenset({"long"}),
    "timestamp-nanos": frozenset({"long"}),
    "local-timestamp-millis": frozenset({"long"}),
    "local-timestamp-micros": frozenset({"long"}),
    "local-timestamp-nanos": frozenset({"long"}),
}


class BadSchema(ValueError):  # noqa: N818 - a result about a schema
    """The schema is not usable: it is malformed, recursive or beyond the bounds."""


class Bounds(NamedTuple):
    """Limits of a schema.

    Attributes:
        depth_max: nesting of types after expansion of named types.
        weight_max: number of types after expansion of named types.
        fixed_bytes_max: size of a fixed.
        is_strict: whether to refuse empty unions, namespaces that are not text, and equal
            definitions of the same name, as the Avro version of the Java sink does.
    """

    depth_max: int
    weight_max: int
    fixed_bytes_max: int
    is_strict: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class AvroField:
    """A field of a record.

    Attributes:
        name: its name.
        type: its type.
        doc: documentation.
        default: JSON value of the default; valid if ``has_default``.
        has_default: whether there is a default, which may be null.
        aliases: other names of the field, for schema resolution.
        properties: all properties of the JSON object.
    """

    name: str
    type: AvroType
    doc: str | None = None
    default: Any = None
    has_default: bool = False
    aliases: tuple[str, ...] = ()
    properties: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AvroType:
    """A type with resolved names.

    Attributes:
        kind: Avro's type name: a primitive, ``record``, ``enum``, ``fixed``, ``array``, ``map`` or
            ``union``.
        name: full name of a record, enum or fixed.
        fields: of a record.
        items: of an array, or the values of a map.
        branches: of a union.
        symbols: of an enum.
        size: bytes of a fixed.
        logical: logical type; None if there is none or its base type is wrong.
        precision: digits of a decimal.
        scale: of a decimal.
        properties: all properties of the JSON object.
        aliases: other full names.
        depth: levels of this type.
        weight: number of types in this type after expansion of named types.
    """

    kind: str
    name: str | None = None
    fields: tuple[AvroField, ...] = ()
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    properties: Mapping[str, Any] | None = None
    aliases: tuple[str, ...] = ()
    depth: int = 1
    weight: int = 1

    @property
    def short_name(self) -> str:
        """The name without namespace, or the kind."""
        return self.name.rpartition(".")[2] if self.name else self.kind


Named = tuple[str, str, tuple[str, ...]]


def _is_name(name: str) -> bool:
    """Return whether Avro accepts a full name: parts of letters, digits and ``_``, any script."""
    return all(
        part[:1] != ""
        and category(part[0]) != "Nd"
        and all(
            c == "_" or (c <= _LAST_CHARACTER and category(c) in _NAME_CATEGORIES) for c in part
        )
        for part in name.split(".")
    )


def parse_event_schema(text: str) -> AvroType:
    """Parse the schema in the frame of a control event.

    Raises:
        MalformedEvent: it is not JSON, not an Avro schema, recursive, or exceeds a limit.
    """
    try:
        return SchemaParser(_EVENT_BOUNDS).parse(bounded_json.loads(text))
    except BadSchema as error:
        raise MalformedEvent(f"schema: {error}") from None
    except ValueError as error:
        raise MalformedEvent(f"schema text is not JSON: {error}") from None


_EVENT_BOUNDS: Final = Bounds(SCHEMA_DEPTH_MAX, SCHEMA_WEIGHT_MAX, STRING_BYTES_MAX, is_strict=True)


class SchemaParser:
    """Parses several schemas; each may refer to named types of the earlier ones."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._names: dict[str, AvroType] = {}
        self._open: set[str] = set()

    def parse(self, source: Any, namespace: str = "", depth: int = 1) -> AvroType:
        """Parse a type.

        Raises:
            BadSchema: the schema is malformed, recursive or exceeds a limit.
        """
        if depth > self._bounds.depth_max:
            raise BadSchema(f"the schema is nested more than {self._bounds.depth_max} levels deep")
        if type(source) is str:
            return self._named(source, namespace)
        if type(source) is list:
            return self._union(source, namespace, depth)
        if type(source) is not dict:
            raise BadSchema("a type is neither text, list nor object")
        return self._object(source, namespace, depth)

    def _object(self, source: dict[str, Any], namespace: str, depth: int) -> AvroType:
        kind = source.get("type")
        if kind is None:
            raise BadSchema("a type without 'type' is neither text, list nor object")
        if type(kind) is not str:
            return self.parse(kind, namespace, depth + 1)
        if kind in {"record", "error", "enum", "fixed"}:
            named = self._name(source, namespace)
            named_type = self._names.get(named[0])
            is_same = named_type is not None and named_type.properties == source
            if named_type is not None and is_same and not self._bounds.is_strict:
                return named_type  # like Avro for Java: an equal definition has no effect
            if named_type is not None or named[0] in self._open:
                raise BadSchema(f"the name {named[0][:200]} is defined twice")
            if kind in {"enum", "fixed"}:
                return (self._enum if kind == "enum" else self._fixed)(source, named)
            return self._record(source, named, depth)
        if kind in {"array", "map"}:
            items = self.parse(
                source.get("items" if kind == "array" else "values"), namespace, depth + 1
            )
            return self._checked(AvroType(kind, items=items, properties=source, **_size((items,))))
        if kind in PRIMITIVES:
            return AvroType(kind, properties=source, **_logical(source, kind, 0))
        return self.parse(kind, namespace, depth + 1)

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self._open:
                raise BadSchema(
                    f"the record {candidate[:200]} contains itself; recursive schemas are refused"
                )
            named_type = self._names.get(candidate)
            if named_type is not None:
                return named_type
        raise BadSchema(f"the type {name[:200]!r} is not defined")

    def _name(self, source: Mapping[str, Any], namespace: str) -> Named:
        """Return the full name, the namespace of nested names, and the full aliases."""
        name, space = source.get("name"), source.get("namespace")
        if type(name) is not str or (self._bounds.is_strict and type(space or "") is not str):
            raise BadSchema("a record, enum or fixed has no valid name")
        if "." in name:
            space, _, short = name.rpartition(".")
            name = name if space else short
        else:
            space = space if type(space) is str else namespace
            name = f"{space}.{name}" if space else name
        if not _is_name(name) or name in PRIMITIVES:
            raise BadSchema(f"{name[:200]!r} is not a valid name of a record, enum or fixed")
        listed = source.get("aliases")
        aliases = tuple(
            alias if "." in alias or not space else f"{space}.{alias}"
            for alias in (listed if type(listed) is list else ())
            if type(alias) is str
        )
        return name, space, aliases

    def _record(self, source: Mapping[str, Any], named: Named, depth: int) -> AvroType:
        name, space, aliases = named
        self._open.add(name)
        listed = source.get("fields")
        if type(listed) is not list:
            raise BadSchema(f"the record {name[:200]} has no fields")
        fields: dict[str, AvroField] = {}
        for field in listed:
            if type(field) is not dict or type(field.get("name")) is not str:
                raise BadSchema(f"a field of {name[:200]} is not an object with a name")
            if field["name"] in fields:
                raise BadSchema(f"the record {name[:200]} has two fields with the same name")
            fields[field["name"]] = self._field(field, space, depth)
        self._open.discard(name)
        types = [field.type for field in fields.values()]
        record = AvroType(
            "record",
            name,
            tuple(fields.values()),
            properties=source,
            aliases=aliases,
            **_size(types),
        )
        self._names[name] = self._checked(record)
        return record

    def _field(self, source: Mapping[str, Any], namespace: str, depth: int) -> AvroField:
        aliases = source.get("aliases")
        doc = source.get("doc")
        return AvroField(
            source["name"],
            self.parse(source.get("type"), namespace, depth + 1),
            doc if type(doc) is str else None,
            source.get("default"),
            "default" in source,
            tuple(a for a in aliases if type(a) is str) if type(aliases) is list else (),
            source,
        )

    def _enum(self, source: Mapping[str, Any], named: Named) -> AvroType:
        name, _, aliases = named
        symbols = source.get("symbols")
        if type(symbols) is not list or not all(type(s) is str for s in symbols):
            raise BadSchema(f"the enum {name[:200]} has no symbols")
        if len(set(symbols)) != len(symbols):
            raise BadSchema(f"the enum {name[:200]} has a duplicate symbol")
        enum = AvroType("enum", name, symbols=tuple(symbols), properties=source, aliases=aliases)
        self._names[name] = enum
        return enum

    def _fixed(self, source: Mapping[str, Any], named: Named) -> AvroType:
        name, _, aliases = named
        size = source.get("size")
        size_max = self._bounds.fixed_bytes_max
        if type(size) is not int or not 0 <= size <= size_max:
            raise BadSchema(f"the size of the fixed {name[:200]} must be from 0 to {size_max}")
        fixed = AvroType(
            "fixed",
            name,
            size=size,
            properties=source,
            aliases=aliases,
            **_logical(source, "fixed", size),
        )
        self._names[name] = fixed
        return fixed

    def _union(self, source: list[Any], namespace: str, depth: int) -> AvroType:
        branches = tuple(self.parse(branch, namespace, depth + 1) for branch in source)
        if self._bounds.is_strict and not branches:
            raise BadSchema("a union is empty")
        kinds = [branch.name or branch.kind for branch in branches]
        if any(branch.kind == "union" for branch in branches) or len(set(kinds)) != len(kinds):
            raise BadSchema("a union contains a union, or a type twice")
        return self._checked(AvroType("union", branches=branches, **_size(branches)))

    def _checked(self, schema: AvroType) -> AvroType:
        bounds = self._bounds
        if schema.depth > bounds.depth_max:
            raise BadSchema(f"the schema is nested more than {bounds.depth_max} levels deep")
        if schema.weight > bounds.weight_max:
            raise BadSchema(
                f"the schema has more than {bounds.weight_max} types after expansion of its named "
                "types"
            )
        return schema


def _size(parts: Sequence[AvroType]) -> dict[str, Any]:
    return {
        "depth": 1 + max((part.depth for part in parts), default=0),
        "weight": 1 + sum(part.weight for part in parts),
    }


def _logical(source: Mapping[str, Any], kind: str, size: int) -> dict[str, Any]:
    logical = source.get("logicalType")
    if type(logical) is not str:
        return {}
    logical = logical.lower()
    if kind not in _LOGICAL_BASES.get(logical, ()):
        return {}
    if logical != "decimal":
        return {"logical": logical}
    # Avro ignores a decimal with invalid precision or scale; Confluent's converter does not
    precision, scale = source.get("precision", PRECISION_DEFAULT), source.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return {}
    if max(abs(precision), abs(scale)) > DIGITS_MAX or (kind == "fixed" and not size):
        return {}
    return {"logical": logical, "precision": precision, "scale": scale}
