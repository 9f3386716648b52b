"""Avro schemas, read from their JSON with bounds.

Rules of this file:
- Whoever writes to a topic may choose the schema. A schema that contains itself is refused, so are
  deep ones and those that become huge when their names are written out: everything behind this
  file recurses over schemas.
- What Avro ignores (unknown properties, logical types on a wrong base) is ignored here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from unicodedata import category

from connect.converters.json_text import JsonReader, NotJson

NAMESPACE: Final = "io.confluent.connect.avro"
UNION_NAME: Final = f"{NAMESPACE}.Union"
SCHEMA_BYTES_MAX: Final = 4 * 2**20
DEPTH_MAX: Final = 64
NODES_MAX: Final = 50_000
FIXED_BYTES_MAX: Final = 2**20
DIGITS_MAX: Final = 1000
PRECISION_UNTOLD: Final = 64
"""Confluent's word for a decimal that tells no precision."""

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_NAME_CATEGORIES: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd"})
_LAST_CHARACTER: Final = "\uffff"
"""Avro judges names by units of UTF-16, so no letter lies beyond."""
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


class BadSchema(ValueError):  # noqa: N818 - a verdict about a schema
    """The schema is not usable: it is malformed, recursive or beyond the bounds."""


@dataclass(frozen=True, slots=True, eq=False)
class AvroField:
    """A field of a record.

    Attributes:
        name: its name.
        type: its type.
        doc: documentation.
        default: the default as JSON has it; see ``has_default``.
        has_default: tells a null default from none.
        aliases: further names of the field, for resolution.
    """

    name: str
    type: AvroType
    doc: str | None = None
    default: Any = None
    has_default: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class AvroType:
    """A type, names resolved.

    Attributes:
        kind: Avro's word: a primitive, ``record``, ``enum``, ``fixed``, ``array``, ``map`` or
            ``union``.
        name: full name of a record, enum or fixed.
        fields: of a record.
        items: of an array, or the values of a map.
        branches: of a union.
        symbols: of an enum.
        size: bytes of a fixed.
        logical: logical type, None when there is none or its base is wrong.
        precision: digits of a decimal.
        scale: of a decimal.
        properties: everything the JSON object held.
        aliases: further full names.
        depth: levels in this type.
        weight: nodes of this type with names written out.
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


def parse_avro(text: str, references: Sequence[str] = ()) -> AvroType:
    """Read a schema.

    Args:
        text: the schema's JSON.
        references: schemas that define names the text uses, those they need before them.

    Raises:
        BadSchema: see there.
    """
    names: dict[str, AvroType] = {}
    size = 0
    for source in (*references, text):
        size += len(source)
        if size > SCHEMA_BYTES_MAX:
            raise BadSchema(f"the schema has more than {SCHEMA_BYTES_MAX} bytes")
        try:
            document = JsonReader(decimals=False).read(source.encode("utf-8", "replace"))
        except NotJson as error:
            raise BadSchema(f"the schema is not JSON: {error}") from None
        found = _Parser(names).parse(document, "", 1)
    return found


Named = tuple[str, str, tuple[str, ...]]


def _is_name(name: str) -> bool:
    """Whether a full name is one to Avro: words of letters, digits and ``_``, in any script."""
    return all(
        word[:1] != ""
        and category(word[0]) != "Nd"
        and all(
            c == "_" or (c <= _LAST_CHARACTER and category(c) in _NAME_CATEGORIES) for c in word
        )
        for word in name.split(".")
    )


class _Parser:
    """Reads one schema; shares the names with those read before."""

    def __init__(self, names: dict[str, AvroType]) -> None:
        self._names = names
        self._open: set[str] = set()

    def parse(self, source: Any, namespace: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise BadSchema(f"the schema is nested deeper than {DEPTH_MAX}")
        if type(source) is str:
            return self._named(source, namespace)
        if type(source) is list:
            return self._union(source, namespace, depth)
        if type(source) is not dict:
            raise BadSchema("a type is a text, an object or an array")
        return self._object(source, namespace, depth)

    def _object(self, source: dict[str, Any], namespace: str, depth: int) -> AvroType:
        kind = source.get("type")
        if kind in {"record", "error", "enum", "fixed"}:
            named = self._name(source, namespace)
            known = self._names.get(named[0])
            if known is not None and known.properties == source:
                return known  # as to Avro: the same definition again is none
            if known is not None or named[0] in self._open:
                raise BadSchema(f"the name {named[0][:200]} is defined twice")
            if kind in {"enum", "fixed"}:
                return (self._enum if kind == "enum" else self._fixed)(source, named)
            return self._record(source, named, depth)
        if kind in {"array", "map"}:
            items = self.parse(
                source.get("items" if kind == "array" else "values"), namespace, depth + 1
            )
            return _checked(AvroType(kind, items=items, properties=source, **_size((items,))))
        if type(kind) is str and kind in PRIMITIVES:
            return AvroType(kind, properties=source, **_logical(source, kind, 0))
        if kind is None:
            raise BadSchema("a type without 'type'")
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
            found = self._names.get(candidate)
            if found is not None:
                return found
        raise BadSchema(f"the type {name[:200]!r} is not defined")

    def _name(self, source: Mapping[str, Any], namespace: str) -> Named:
        """Full name, namespace for what is inside, full aliases."""
        name, space = source.get("name"), source.get("namespace")
        if type(name) is not str:
            raise BadSchema("a record, enum or fixed without a name")
        if "." in name:
            space, _, short = name.rpartition(".")
            name = name if space else short
        else:
            space = space if type(space) is str else namespace
            name = f"{space}.{name}" if space else name
        if not _is_name(name) or name in PRIMITIVES:
            raise BadSchema(f"{name[:200]!r} is no name for a record, enum or fixed")
        given = source.get("aliases")
        aliases = tuple(
            alias if "." in alias or not space else f"{space}.{alias}"
            for alias in (given if type(given) is list else ())
            if type(alias) is str
        )
        return name, space, aliases

    def _record(self, source: Mapping[str, Any], named: Named, depth: int) -> AvroType:
        name, space, aliases = named
        self._open.add(name)
        listed = source.get("fields")
        if type(listed) is not list:
            raise BadSchema(f"the record {name[:200]} has no 'fields'")
        fields: dict[str, AvroField] = {}
        for field in listed:
            if type(field) is not dict or type(field.get("name")) is not str:
                raise BadSchema(f"a field of {name[:200]} has no name")
            if field["name"] in fields:
                raise BadSchema(f"two fields of {name[:200]} have one name")
            fields[field["name"]] = self._field(field, space, depth)
        self._open.discard(name)
        types = [field.type for field in fields.values()]
        found = AvroType(
            "record",
            name,
            tuple(fields.values()),
            properties=source,
            aliases=aliases,
            **_size(types),
        )
        self._names[name] = _checked(found)
        return found

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
        )

    def _enum(self, source: Mapping[str, Any], named: Named) -> AvroType:
        name, _, aliases = named
        symbols = source.get("symbols")
        if type(symbols) is not list or not all(type(s) is str for s in symbols):
            raise BadSchema(f"the enum {name[:200]} has no 'symbols'")
        if len(set(symbols)) != len(symbols):
            raise BadSchema(f"the enum {name[:200]} has a symbol twice")
        found = AvroType("enum", name, symbols=tuple(symbols), properties=source, aliases=aliases)
        self._names[name] = found
        return found

    def _fixed(self, source: Mapping[str, Any], named: Named) -> AvroType:
        name, _, aliases = named
        size = source.get("size")
        if type(size) is not int or not 0 <= size <= FIXED_BYTES_MAX:
            raise BadSchema(f"the fixed {name[:200]} has no size from 0 to {FIXED_BYTES_MAX}")
        found = AvroType(
            "fixed",
            name,
            size=size,
            properties=source,
            aliases=aliases,
            **_logical(source, "fixed", size),
        )
        self._names[name] = found
        return found

    def _union(self, source: list[Any], namespace: str, depth: int) -> AvroType:
        branches = tuple(self.parse(branch, namespace, depth + 1) for branch in source)
        kinds = [branch.name or branch.kind for branch in branches]
        if any(branch.kind == "union" for branch in branches) or len(set(kinds)) != len(kinds):
            raise BadSchema("a union holds a union, or one type twice")
        return _checked(AvroType("union", branches=branches, **_size(branches)))


def _size(parts: Sequence[AvroType]) -> dict[str, Any]:
    return {
        "depth": 1 + max((part.depth for part in parts), default=0),
        "weight": 1 + sum(part.weight for part in parts),
    }


def _checked(found: AvroType) -> AvroType:
    if found.depth > DEPTH_MAX:
        raise BadSchema(f"the schema is nested deeper than {DEPTH_MAX}")
    if found.weight > NODES_MAX:
        raise BadSchema(
            f"the schema has more than {NODES_MAX} types when its names are written out"
        )
    return found


def _logical(source: Mapping[str, Any], kind: str, size: int) -> dict[str, Any]:
    logical = source.get("logicalType")
    if type(logical) is not str:
        return {}
    logical = logical.lower()
    if kind not in _LOGICAL_BASES.get(logical, ()):
        return {}
    if logical != "decimal":
        return {"logical": logical}
    # to Avro a decimal of odd precision or scale is its base type, to Connect a decimal
    precision, scale = source.get("precision", PRECISION_UNTOLD), source.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return {}
    if max(abs(precision), abs(scale)) > DIGITS_MAX or (kind == "fixed" and not size):
        return {}
    return {"logical": logical, "precision": precision, "scale": scale}
