"""Avro schema text -> a finite tree of types, names resolved.

Rules of this file:
- The tree is finite and small: recursive types are refused, depth and weight are bounded.
- Names are resolved as Java's Avro does: in the enclosing namespace, then without one. Iceberg
  defines ``uuid_fixed`` and its like without a namespace and uses them by bare name inside
  others, which libraries that follow the specification to the letter refuse.
- Types are not judged here; ``reader`` knows which it wants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from control_schemas import bounded_json
from control_schemas.errors import MalformedEvent
from control_schemas.limits import SCHEMA_DEPTH_MAX, SCHEMA_WEIGHT_MAX, STRING_BYTES_MAX

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record; ``field_id`` is Iceberg's, None where the text has none."""

    name: str
    field_id: int | None
    type: Node


@dataclass(frozen=True, slots=True)
class Node:
    """One type.

    Attributes:
        kind: a primitive's name, record, fixed, enum, array, map or union.
        name: full name of a named type.
        size: bytes of a fixed, symbols of an enum.
        properties: the attributes in the text (``logicalType``, ``precision`` ...).
        items: type of array items or map values.
        branches: types of a union.
        fields: fields of a record.
        weight: values in one datum, each list taken for one value.
        depth: nesting below and including this type.
    """

    kind: str
    name: str = ""
    size: int = 0
    properties: Mapping[str, Any] = field(default_factory=dict)
    items: Node | None = None
    branches: tuple[Node, ...] = ()
    fields: tuple[Field, ...] = ()
    weight: int = 1
    depth: int = 1

    @property
    def logical_type(self) -> str | None:
        """The logical type where it is a text."""
        value = self.properties.get("logicalType")
        return value if isinstance(value, str) else None


def parse_schema(text: str) -> Node:
    """Parse a schema text.

    Raises:
        MalformedEvent: no JSON, no Avro schema, recursive, or beyond the limits.
    """
    try:
        document = bounded_json.loads(text)
    except ValueError as error:
        raise MalformedEvent(f"schema text is not JSON: {error}") from None
    return _Resolver().node(document, "")


class _Resolver:
    """Turns JSON into nodes; knows the types named so far."""

    def __init__(self) -> None:
        self._named: dict[str, Node] = {}

    def node(self, document: Any, namespace: str) -> Node:
        """One type; JSON nesting bounds the recursion."""
        if isinstance(document, str):
            return (
                Node(document) if document in PRIMITIVES else self._named_type(document, namespace)
            )
        if isinstance(document, list):
            return self._union(document, namespace)
        if not isinstance(document, dict):
            raise MalformedEvent("schema: a type is neither text, list nor object")
        kind = document.get("type")
        if kind == "record":
            return self._record(document, namespace)
        if kind in ("fixed", "enum"):
            return self._sized(document, str(kind), namespace)
        if kind in ("array", "map"):
            items = self.node(document.get("items" if kind == "array" else "values"), namespace)
            return _checked(
                Node(str(kind), properties=document, items=items, depth=items.depth + 1)
            )
        if isinstance(kind, str) and kind in PRIMITIVES:
            return Node(kind, properties=document)
        return self.node(kind, namespace)

    def _named_type(self, name: str, namespace: str) -> Node:
        for candidate in (f"{namespace}.{name}", name):
            if candidate in self._named:
                return self._named[candidate]
        raise MalformedEvent(f"schema: type {name[:80]!r} is recursive or defined nowhere")

    def _union(self, document: list[Any], namespace: str) -> Node:
        branches = tuple(self.node(branch, namespace) for branch in document)
        if not branches or any(branch.kind == "union" for branch in branches):
            raise MalformedEvent("schema: a union is empty or holds a union")
        return _checked(
            Node(
                "union",
                branches=branches,
                weight=max(branch.weight for branch in branches),
                depth=1 + max(branch.depth for branch in branches),
            )
        )

    def _record(self, document: dict[str, Any], namespace: str) -> Node:
        name, inner = _full_name(document, namespace)
        listed = document.get("fields")
        if not isinstance(listed, list):
            raise MalformedEvent(f"schema: record {name[:80]!r} has no fields")
        fields = tuple(self._field(item, inner) for item in listed)
        if len({item.name for item in fields}) != len(fields):
            raise MalformedEvent(f"schema: record {name[:80]!r} has two fields of one name")
        return self._define(
            Node(
                "record",
                name=name,
                properties=document,
                fields=fields,
                weight=1 + sum(item.type.weight for item in fields),
                depth=1 + max((item.type.depth for item in fields), default=0),
            )
        )

    def _field(self, document: Any, namespace: str) -> Field:
        name = document.get("name") if isinstance(document, dict) else None
        if not isinstance(name, str) or not name:
            raise MalformedEvent("schema: a field is no object with a name")
        field_id = document.get("field-id")
        if field_id is not None and type(field_id) is not int:
            raise MalformedEvent("schema: a field-id is no integer")
        return Field(name, field_id, self.node(document.get("type"), namespace))

    def _sized(self, document: dict[str, Any], kind: str, namespace: str) -> Node:
        name, _ = _full_name(document, namespace)
        if kind == "fixed":
            size = document.get("size")
        else:
            symbols = document.get("symbols")
            size = len(symbols) if isinstance(symbols, list) else None
        if type(size) is not int or not 0 <= size <= STRING_BYTES_MAX:
            raise MalformedEvent(f"schema: {kind} {name[:80]!r} has no proper size")
        return self._define(Node(kind, name=name, size=size, properties=document))

    def _define(self, node: Node) -> Node:
        if node.name in self._named:
            raise MalformedEvent(f"schema: type {node.name[:80]!r} is defined twice")
        self._named[node.name] = _checked(node)
        return node


def _checked(node: Node) -> Node:
    if node.depth > SCHEMA_DEPTH_MAX or node.weight > SCHEMA_WEIGHT_MAX:
        raise MalformedEvent(
            f"schema: depth {node.depth}, weight {node.weight}, more than "
            f"{SCHEMA_DEPTH_MAX}, {SCHEMA_WEIGHT_MAX}"
        )
    return node


def _full_name(document: dict[str, Any], enclosing: str) -> tuple[str, str]:
    """Full name of a named type, and the namespace inside it."""
    name, namespace = document.get("name"), document.get("namespace", enclosing)
    if not isinstance(name, str) or not name or not isinstance(namespace, str):
        raise MalformedEvent("schema: a named type has no proper name")
    if "." in name:
        return name, name.rpartition(".")[0]
    return (f"{namespace}.{name}" if namespace else name), namespace
