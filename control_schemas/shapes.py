"""Expected types as small functions: a shape takes a written type and gives its reader, or refuses.

Records are read by field id, in whatever order they were written, optional where the writer says
so; a field that nobody expects is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from control_schemas.avro import Node
from control_schemas.datum import (
    Cursor,
    read_block_count,
    read_boolean,
    read_bytes,
    read_double,
    read_exactly,
    read_float,
    read_int,
    read_long,
    read_string,
)
from control_schemas.errors import MalformedEvent

Read: TypeAlias = Callable[[Cursor], Any]
Shape: TypeAlias = Callable[[Node], Read]
Steps: TypeAlias = tuple[tuple[int, Read], ...]

UUID_BYTES = 16

_SCALARS: dict[str, Read] = {
    "boolean": read_boolean,
    "int": read_int,
    "long": read_long,
    "float": read_float,
    "double": read_double,
    "bytes": read_bytes,
    "string": read_string,
}


class Column(NamedTuple):
    """An expected field: its name for messages, its shape, and whether it must be there."""

    name: str
    shape: Shape
    is_required: bool = False


# ---------------------------------------------------------------- scalars


def scalar(kind: str) -> Shape:
    """A primitive type, whatever logical type it carries."""

    def shape(node: Node) -> Read:
        if node.kind != kind:
            raise MalformedEvent(f"schema: {described(node)} where {kind} is expected")
        return _SCALARS[kind]

    return shape


def timestamp(node: Node) -> Read:
    """Microseconds since 1970 UTC; a plain long is taken for them, as Java does."""
    if node.logical_type not in (None, "timestamp-micros"):
        raise MalformedEvent(f"schema: {described(node)} where microseconds are expected")
    return scalar("long")(node)


def uuid(node: Node) -> Read:
    """Sixteen bytes that say that they are a UUID."""
    if node.kind != "fixed" or node.size != UUID_BYTES or node.logical_type != "uuid":
        raise MalformedEvent(f"schema: {described(node)} where a uuid is expected")
    return lambda cursor: UUID(bytes=read_exactly(cursor, UUID_BYTES))


# ---------------------------------------------------------------- nulls, lists, maps


def nullable(shape: Shape) -> Shape:
    """A type, or a union of it and null in either order."""

    def reader(node: Node) -> Read:
        if node.kind != "union":
            return shape(node)
        branches = tuple(None if b.kind == "null" else shape(b) for b in node.branches)

        def read(cursor: Cursor) -> Any:
            branch = branches[read_branch(cursor, len(branches))]
            return None if branch is None else branch(cursor)

        return read

    return reader


def read_branch(cursor: Cursor, branches: int) -> int:
    """The index of a union's branch."""
    index = read_long(cursor)
    if not 0 <= index < branches:
        raise MalformedEvent(f"datum: branch {index} of a union of {branches}")
    return index


def list_of(shape: Shape) -> Shape:
    """An array, read into a tuple."""

    def reader(node: Node) -> Read:
        items = _items(node, "array")
        read_item = shape(items)

        def read(cursor: Cursor) -> tuple[Any, ...]:
            values: list[Any] = []
            while count := read_block_count(cursor):
                cursor.charge(count * items.weight)
                values.extend(read_item(cursor) for _ in range(count))
            return tuple(values)

        return read

    return reader


def int_map(kind: str) -> Shape:
    """Iceberg's map with integer keys: an array of pairs that says it is a map."""

    def reader(node: Node) -> Read:
        pair = _items(node, "array")
        names = [(field.name, field.type.kind) for field in pair.fields]
        if node.logical_type != "map" or names != [("key", "int"), ("value", kind)]:
            raise MalformedEvent(f"schema: {described(node)} where a map of {kind} is expected")
        read_value = _SCALARS[kind]

        def read(cursor: Cursor) -> dict[int, Any]:
            values: dict[int, Any] = {}
            while count := read_block_count(cursor):
                cursor.charge(2 * count)
                for _ in range(count):
                    key = read_int(cursor)
                    values[key] = read_value(cursor)
            return values

        return read

    return reader


def _items(node: Node, kind: str) -> Node:
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
    """A record, read into ``make(*values)``, values in the order of ``columns``."""

    def reader(node: Node) -> Read:
        steps = record_steps(node, name, columns, extra=extra)
        size = len(columns)

        def read(cursor: Cursor) -> Any:
            values: list[Any] = [None] * (size + 1)
            for slot, read_field in steps:
                values[slot] = read_field(cursor)
            del values[size]
            return make(*values)

        return read

    return reader


def record_steps(
    node: Node, name: str, columns: Mapping[int, Column], *, extra: Shape | None = None
) -> Steps:
    """How a record is read, field by field as written.

    Args:
        node: the type as written.
        name: full name it must have.
        columns: expected fields by field id.
        extra: reader of fields that nobody expects; passes over them by default.

    Returns:
        Slot and reader per field; the slot after the last column takes what is passed over.

    Raises:
        MalformedEvent: other name, a field id twice, a required field missing, a wrong type.
    """
    if node.kind != "record" or node.name != name:
        raise MalformedEvent(f"schema: {described(node)} where record {name} is expected")
    slots = {field_id: slot for slot, field_id in enumerate(columns)}
    steps: list[tuple[int, Read]] = []
    seen: set[int] = set()
    for field in node.fields:
        if field.field_id in seen:
            raise MalformedEvent(f"schema: {name} has field-id {field.field_id} twice")
        if field.field_id is not None:
            seen.add(field.field_id)
        column = columns.get(field.field_id) if field.field_id is not None else None
        if column is None or field.field_id is None:
            steps.append((len(columns), (extra or passed_over)(field.type)))
            continue
        read = nullable(column.shape)(field.type)
        if column.is_required and field.type.kind == "union":
            read = _never_null(read, f"{name}.{column.name}")
        steps.append((slots[field.field_id], read))
    for field_id, column in columns.items():
        if column.is_required and field_id not in seen:
            raise MalformedEvent(f"schema: {name} lacks {column.name} (field-id {field_id})")
    return tuple(steps)


def _never_null(read: Read, where: str) -> Read:
    def read_value(cursor: Cursor) -> Any:
        value = read(cursor)
        if value is None:
            raise MalformedEvent(f"datum: {where} is null")
        return value

    return read_value


# ---------------------------------------------------------------- what nobody expects


def passed_over(node: Node) -> Read:
    """Read any type and forget it."""
    if node.kind == "record":
        readers = tuple(passed_over(field.type) for field in node.fields)
        return lambda cursor: _pass_fields(cursor, readers)
    if node.kind == "union":
        branches = tuple(passed_over(branch) for branch in node.branches)
        return lambda cursor: branches[read_branch(cursor, len(branches))](cursor)
    if node.items is not None:
        item, weight, is_map = passed_over(node.items), node.items.weight, node.kind == "map"
        return lambda cursor: _pass_items(cursor, item, weight, is_map=is_map)
    if node.kind == "fixed":
        size = node.size
        return lambda cursor: _forget(read_exactly(cursor, size))
    if node.kind == "null":
        return _forget
    read = _SCALARS["int" if node.kind == "enum" else node.kind]
    return lambda cursor: _forget(read(cursor))


def null_only(node: Node) -> Read:
    """A type of which only null is accepted."""
    optional = node.branches if node.kind == "union" else (node,)
    if not any(branch.kind == "null" for branch in optional):
        raise MalformedEvent(f"schema: additional required field ({described(node)}) in a file")

    def read(cursor: Cursor) -> None:
        if node.kind == "union" and optional[read_branch(cursor, len(optional))].kind != "null":
            raise MalformedEvent("datum: a file has an additional field with a value")

    return read


def _pass_fields(cursor: Cursor, readers: tuple[Read, ...]) -> None:
    for read in readers:
        read(cursor)


def _pass_items(cursor: Cursor, read_item: Read, weight: int, *, is_map: bool) -> None:
    while count := read_block_count(cursor):
        cursor.charge(count * (weight + is_map))
        for _ in range(count):
            if is_map:
                read_bytes(cursor)
            read_item(cursor)


def _forget(_value: Any) -> None:
    """Nothing is kept of what is passed over."""


def described(node: Node) -> str:
    """A written type in a few words, for a refusal."""
    logical = f" ({node.logical_type[:40]})" if node.logical_type else ""
    return f"{node.kind} {node.name[:80]}".rstrip() + logical
