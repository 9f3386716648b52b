"""Expected types as functions.

A ``Shape`` checks the writer's type and returns a ``Make``, which converts fastavro's values of
that type. Record fields are matched by field id. They may be in any order, and nullable if the
writer's schema is; unexpected fields are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from control_schemas.avro import AvroType
from control_schemas.datum import INT_MAX, INT_MIN
from control_schemas.errors import MalformedEvent
from control_schemas.limits import STRING_BYTES_MAX

Make: TypeAlias = Callable[[Any], Any]
Shape: TypeAlias = Callable[[AvroType], Make]

UUID_BYTES = 16


class Column(NamedTuple):
    """An expected field: its name for messages, its shape, and whether it is required."""

    name: str
    shape: Shape
    is_required: bool = False


class Step(NamedTuple):
    """The conversion of one field of a record.

    Attributes:
        slot: index of the value among the columns; skipped fields use the index after the last.
        type: the writer's type.
        make: converts the value.
    """

    slot: int
    type: AvroType
    make: Make


# ---------------------------------------------------------------- scalars


def _int(value: int) -> int:
    if not INT_MIN <= value <= INT_MAX:
        raise MalformedEvent("datum: an int has more than 32 bits")
    return value


def _boolean(value: bytes) -> bool:
    if value > b"\x01":
        raise MalformedEvent(f"datum: a boolean is {value[0]}")
    return value == b"\x01"


def _bytes(value: bytes) -> bytes:
    if len(value) > STRING_BYTES_MAX:
        raise MalformedEvent(f"datum: a string of {len(value)} bytes, more than {STRING_BYTES_MAX}")
    return value


def _string(value: str) -> str:
    if len(value) > STRING_BYTES_MAX // 4:  # of bytes there are at most four for a character
        _bytes(value.encode())
    return value


def as_read(value: Any) -> Any:
    """Return fastavro's value unchanged."""
    return value


_SCALARS: dict[str, Make] = {
    "boolean": _boolean,
    "int": _int,
    "long": as_read,
    "float": as_read,
    "double": as_read,
    "bytes": _bytes,
    "string": _string,
}


def scalar(kind: str) -> Shape:
    """Return the shape of a primitive type with any logical type."""

    def shape(node: AvroType) -> Make:
        if node.kind != kind:
            raise MalformedEvent(f"schema: {described(node)} where {kind} is expected")
        return _SCALARS[kind]

    return shape


def timestamp(node: AvroType) -> Make:
    """Shape of microseconds since 1970 UTC; a long without logical type is valid, as in Java."""
    if logical_type(node) not in (None, "timestamp-micros"):
        raise MalformedEvent(f"schema: {described(node)} where microseconds are expected")
    return scalar("long")(node)


def uuid(node: AvroType) -> Make:
    """Shape of a UUID: a fixed of 16 bytes with the logical type."""
    if node.kind != "fixed" or node.size != UUID_BYTES or logical_type(node) != "uuid":
        raise MalformedEvent(f"schema: {described(node)} where a uuid is expected")
    return lambda value: UUID(bytes=value)


# ---------------------------------------------------------------- nulls, lists, maps


def nullable(shape: Shape) -> Shape:
    """Return the shape of a type, or of a union with null in either order."""

    def maker(node: AvroType) -> Make:
        if node.kind != "union":
            return shape(node)
        makes = [shape(branch) for branch in node.branches if branch.kind != "null"]
        if len(makes) > 1:
            raise MalformedEvent(f"schema: {described(node)} of several types")
        make = makes[0] if makes else as_read
        return lambda value: None if value is None else make(value)

    return maker


def list_of(shape: Shape) -> Shape:
    """Return the shape of an array; its value is a tuple."""

    def maker(node: AvroType) -> Make:
        make = shape(_items(node, "array"))
        if make is as_read:
            return tuple
        return lambda value: tuple([make(item) for item in value])

    return maker


def int_map(kind: str) -> Shape:
    """Return the shape of Iceberg's map with integer keys: an array with the logical type map."""

    def maker(node: AvroType) -> Make:
        pair = _items(node, "array")
        names = [(field.name, field.type.kind) for field in pair.fields]
        if logical_type(node) != "map" or names != [("key", "int"), ("value", kind)]:
            raise MalformedEvent(f"schema: {described(node)} where a map of {kind} is expected")

        def make(pairs: list[dict[str, Any]]) -> dict[int, Any]:
            values = {pair["key"]: pair["value"] for pair in pairs}
            if values:
                _int(min(values))
                _int(max(values))
                if kind == "bytes":
                    _bytes(max(values.values(), key=len))
            return values

        return make

    return maker


def _items(node: AvroType, kind: str) -> AvroType:
    if node.kind != kind or node.items is None:
        raise MalformedEvent(f"schema: {described(node)} where {kind} is expected")
    return node.items


# ---------------------------------------------------------------- records


def record(
    name: str,
    columns: Mapping[int, Column],
    make: Callable[..., Any],
    *,
    extra: Shape | None = None,
) -> Shape:
    """Return the shape of a record; its value is ``make(*values)`` in the order of ``columns``."""

    def maker(node: AvroType) -> Make:
        steps = record_steps(node, name, columns, extra=extra)
        size = len(columns)

        def make_record(datum: dict[str, Any]) -> Any:
            values: list[Any] = [None] * (size + 1)
            for (slot, _, make_field), value in zip(steps, datum.values(), strict=True):
                values[slot] = make_field(value)
            del values[size]
            return make(*values)

        return make_record

    return maker


def record_steps(
    node: AvroType, name: str, columns: Mapping[int, Column], *, extra: Shape | None = None
) -> tuple[Step, ...]:
    """Return the conversions of a record's fields, in the writer's order.

    Args:
        node: the writer's type.
        name: required full name of the record.
        columns: expected fields by field id.
        extra: shape of unexpected fields; by default they are skipped.

    Raises:
        MalformedEvent: the record has another name, a duplicate field id, a wrong type or no
            required field.
    """
    ids = field_ids(node)
    if node.kind != "record" or node.name != name:
        raise MalformedEvent(f"schema: {described(node)} where record {name} is expected")
    slots = {field_id: slot for slot, field_id in enumerate(columns)}
    steps: list[Step] = []
    seen: set[int] = set()
    for field, field_id in zip(node.fields, ids, strict=True):
        if field_id in seen:
            raise MalformedEvent(f"schema: {name} has field-id {field_id} twice")
        if field_id is not None:
            seen.add(field_id)
        column = columns.get(field_id) if field_id is not None else None
        if column is None or field_id is None:
            steps.append(Step(len(columns), field.type, (extra or passed_over)(field.type)))
            continue
        make = nullable(column.shape)(field.type)
        if column.is_required and field.type.kind == "union":
            make = _never_null(make, f"{name}.{column.name}")
        steps.append(Step(slots[field_id], field.type, make))
    for field_id, column in columns.items():
        if column.is_required and field_id not in seen:
            raise MalformedEvent(f"schema: {name} has no {column.name} (field-id {field_id})")
    return tuple(steps)


def _never_null(make: Make, where: str) -> Make:
    def make_present(value: Any) -> Any:
        if value is None:
            raise MalformedEvent(f"datum: {where} is null")
        return make(value)

    return make_present


# ---------------------------------------------------------------- unexpected fields


def passed_over(_node: AvroType) -> Make:
    """Shape of any type; its value is discarded."""
    return as_read


def null_only(node: AvroType) -> Make:
    """Shape of a nullable type; its only valid value is null."""
    optional = node.branches if node.kind == "union" else (node,)
    if not any(branch.kind == "null" for branch in optional):
        raise MalformedEvent(f"schema: additional required field ({described(node)}) in a file")

    def refuse(value: Any) -> None:
        if value is not None:
            raise MalformedEvent("datum: a file has an additional field with a value")

    return refuse


def described(node: AvroType) -> str:
    """Return a short description of a writer's type, for messages."""
    logical = logical_type(node)
    displayed = f" ({logical[:40]})" if logical else ""
    return f"{node.kind} {(node.name or '')[:80]}".rstrip() + displayed


def logical_type(node: AvroType) -> str | None:
    """Return the logical type in the writer's schema, if it is text."""
    value = (node.properties or {}).get("logicalType")
    return value if isinstance(value, str) else None


def field_ids(node: AvroType) -> list[int | None]:
    """Return the Iceberg id of each field of a record; None for a field without id.

    Raises:
        MalformedEvent: an id is not an integer.
    """
    ids = [(field.properties or {}).get("field-id") for field in node.fields]
    if any(field_id is not None and type(field_id) is not int for field_id in ids):
        raise MalformedEvent("schema: a field-id is not an integer")
    return ids
