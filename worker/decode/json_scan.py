"""Scanners of JSON values, one per type: each moves all cursors over a value and collects it.

Rules of this file:
- A scanner takes less than JSON allows, and reads what it takes as Arrow's parser does. Rows with
  any other value are refused, and another decoder takes them.
- Fields are expected in one order, as a producer writes them. Each may be missing or null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from worker.decode.column_builders import Fields, ListValues, Optional, RowValues
from worker.decode.json_cursor import Bytes, Ints, JsonCursor, Mask, Pattern
from worker.decode.json_scalars import (
    PLAIN_QUOTE,
    SCALARS,
    Value,
    inner_text,
    outer_text,
    passed,
    text,
)

Path = tuple[str, ...]
Scanner = Callable[[JsonCursor], Optional]
Document = Callable[[JsonCursor], Fields]

ITEM: Final = "[]"
"""In a path: into a list."""
ENTRY: Final = "{}"
"""In a path: into a map."""

_NULL: Final = Pattern(b"null")
_QUOTE: Final = ord(PLAIN_QUOTE)


@dataclass(frozen=True, slots=True)
class JsonLayout:
    """The form of documents.

    Attributes:
        keys: by path, the keys of an object in their order, including those that are not asked for.
        comma: between two items or fields.
        colon: between key and value.
        quote: around texts, keys included.
        embedded: fields of the document that are texts and hold documents, and the form of these.
    """

    keys: Mapping[Path, Sequence[str]]
    comma: bytes = b","
    colon: bytes = b":"
    quote: bytes = PLAIN_QUOTE
    embedded: Mapping[str, JsonLayout] = field(default_factory=dict)

    @property
    def text(self) -> Value:
        """Return the scanner of a text."""
        if self.quote != PLAIN_QUOTE:
            return inner_text
        return outer_text if self.embedded else text


def document_scanner(fields: Mapping[str, pa.DataType], layout: JsonLayout) -> tuple[Document, int]:
    """Return the scanner of documents with some fields, and how many bytes it compares at once.

    A field that holds embedded documents has their type, a struct.
    """
    kind = pa.struct(list(fields.items()))
    layouts = (layout, *layout.embedded.values())
    key_names = [name for each in layouts for keys in each.keys.values() for name in keys]
    longest = max(len(name.encode()) for name in (*_names(kind), *key_names))
    around = max(len(each.comma + each.colon + each.quote * 2) for each in layouts) + 1
    read = _fields_scanner(kind, (), layout)
    return lambda cursor: read(cursor, cursor.byte()), longest + around


def can_scan(kind: pa.DataType) -> bool:
    """Return whether there is a scanner for a type."""
    types = pa.types
    if types.is_struct(kind):
        fields = list(kind)
        return bool(fields) and all(is_plain(f.name) and can_scan(f.type) for f in fields)
    if types.is_union(kind):
        return is_choice(kind)
    if types.is_list(kind):
        return can_scan(kind.value_type)
    if types.is_map(kind):
        return types.is_string(kind.key_type) and can_scan(kind.item_type)
    return types.is_string(kind) or str(kind) in SCALARS


def is_choice(kind: pa.DataType) -> bool:
    """Return whether the first byte of a value decides which type of a union it has."""
    members = [str(kind.field(i).type) for i in range(kind.num_fields)]
    return set(members) <= _FIRST_BYTES.keys() and len(
        {_FIRST_BYTES[member] for member in members}
    ) == len(members)


def without_choices(kind: pa.DataType) -> pa.DataType:
    """Return a type for decoders that take no unions: null where one is inside."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([(f.name, without_choices(f.type)) for f in kind])
    if types.is_union(kind):
        return pa.null()
    if types.is_list(kind) or types.is_map(kind):
        inner = kind.value_type if types.is_list(kind) else kind.item_type
        return kind if without_choices(inner) == inner else pa.null()
    return kind


_NUMBERS: Final = b"-0123456789"
_FIRST_BYTES: Final = {"string": b'"', "bool": b"tf", "int64": _NUMBERS, "double": _NUMBERS}


def is_plain(name: str) -> bool:
    """Return whether a key needs no escape in a text."""
    return '"' not in name and "\\" not in name and min(name, default=" ") >= " "


def _names(kind: pa.DataType) -> list[str]:
    inner = [kind.field(i) for i in range(kind.num_fields)]
    return [field.name for field in inner] + [n for f in inner for n in _names(f.type)]


def _value(kind: pa.DataType, path: Path, layout: JsonLayout) -> Value:
    if pa.types.is_struct(kind):
        return _fields_scanner(kind, path, layout)
    if pa.types.is_list(kind):
        read = partial(_nullable, _value(kind.value_type, (*path, ITEM), layout))
        return partial(_list, read, layout.comma)
    if pa.types.is_map(kind):
        read = partial(_nullable, _value(kind.item_type, (*path, ENTRY), layout))
        return partial(_map, read, layout)
    if pa.types.is_union(kind):
        members = [kind.field(i) for i in range(kind.num_fields)]
        return partial(
            _choice,
            [(f.name, _FIRST_BYTES[str(f.type)], _value(f.type, path, layout)) for f in members],
        )
    return layout.text if pa.types.is_string(kind) else SCALARS[str(kind)]


def _choice(
    members: Sequence[tuple[str, bytes, Value]], cursor: JsonCursor, first: Bytes
) -> RowValues:
    """Read a value as the member whose values begin with its first byte: a struct with all."""
    fields = []
    is_known = np.zeros(len(cursor), np.bool_)
    for name, beginnings, read in members:
        mask: Mask = np.isin(first, np.frombuffer(beginnings, np.uint8))
        rows = np.flatnonzero(mask)
        part = cursor.part(rows)
        fields.append((name, Optional(mask, read(part, first[rows]))))
        cursor.join(part, rows)
        is_known |= mask
    cursor.refuse(~is_known)
    return Fields(len(cursor), tuple(fields))


def _nullable(read: Value, cursor: JsonCursor) -> Optional:
    first = cursor.byte()
    is_null = first == ord("n")
    if not is_null.any():
        return Optional(np.ones(len(cursor), np.bool_), read(cursor, first))
    cursor.seen.has_null = True
    literal = is_null & cursor.starts_with(_NULL)
    cursor.refuse(is_null & ~literal)
    cursor.at = cursor.at + 4 * literal
    rows = np.flatnonzero(~is_null)
    part = cursor.part(rows)
    values = read(part, first[rows])
    cursor.join(part, rows)
    return Optional(~is_null, values)


# ------------------------------------------------------------------ objects and arrays


@dataclass(frozen=True, slots=True)
class _KeyScan:
    """A key as the first of an object and as a later one, and the scanner of its value."""

    name: str
    first: Pattern
    later: Pattern
    read: Scanner
    is_usual: bool


def _fields_scanner(
    kind: pa.DataType, path: Path, layout: JsonLayout
) -> Callable[[JsonCursor, Bytes], Fields]:
    types = {field.name: field.type for field in kind}
    names = list(layout.keys.get(path, ()))
    steps = []
    for name in (*names, *(n for n in types if n not in names)):
        inner = types.get(name)
        if inner is None:
            read: Value = partial(passed, layout.text, layout.quote)
        elif not path and name in layout.embedded:
            read = partial(_embedded, _value(inner, (), layout.embedded[name]))
        else:
            read = _value(inner, (*path, name), layout)
        key = layout.quote + name.encode() + layout.quote + layout.colon
        first, later = Pattern(b"{" + key), Pattern(layout.comma + key)
        steps.append(_KeyScan(name, first, later, partial(_nullable, read), name in names))
    return partial(_fields, steps, list(types))


def _fields(
    steps: Sequence[_KeyScan], names: Sequence[str], cursor: JsonCursor, first: Bytes
) -> Fields:
    fresh: Mask = first == ord("{")
    cursor.refuse(~fresh)
    by_name: dict[str, RowValues] = {}
    is_over: bool | None = None
    for step in steps:
        if not step.is_usual and is_over is None:
            is_over = bool((cursor.byte() == ord("}")).all())
        if is_over:
            none = step.read(cursor.part(np.empty(0, np.int64))).values
            by_name[step.name] = Optional(np.zeros(len(cursor), np.bool_), none)
            continue
        by_name[step.name], fresh = _field(step, cursor, fresh)
    if fresh.any():
        cursor.at = cursor.at + fresh
    cursor.expect(ord("}"))
    return Fields(len(cursor), tuple((name, by_name[name]) for name in names))


def _field(step: _KeyScan, cursor: JsonCursor, fresh: Mask) -> tuple[RowValues, Mask]:
    """Read a field's values; return them and the rows that have had none so far."""
    size: Any = step.later.size
    has_fresh = bool(fresh.any())
    if not has_fresh:
        present = cursor.starts_with(step.later)
    elif fresh.all():
        present, size = cursor.starts_with(step.first), step.first.size
    else:
        present = np.where(fresh, cursor.starts_with(step.first), cursor.starts_with(step.later))
        size = np.where(fresh, step.first.size, step.later.size)
    if present.any():
        cursor.seen.names.add(step.name)
    if present.all():
        cursor.at = cursor.at + size
        return step.read(cursor), np.zeros(len(cursor), np.bool_) if has_fresh else fresh
    rows = np.flatnonzero(present)
    part = cursor.part(rows)
    part.at = part.at + (size if isinstance(size, int) else size[rows])
    values = step.read(part)
    cursor.join(part, rows)
    has_value = np.zeros(len(cursor), np.bool_)
    has_value[rows] = values.present
    return Optional(has_value, values.values), fresh & ~present


def _embedded(read: Value, cursor: JsonCursor, first: Bytes) -> RowValues:
    """Read a document that is the whole of a text."""
    cursor.expect(_QUOTE, first)
    values = read(cursor, cursor.byte())
    cursor.expect(_QUOTE)
    return values


def _list(read: Scanner, comma: bytes, cursor: JsonCursor, first: Bytes) -> RowValues:
    def read_item(part: JsonCursor) -> tuple[RowValues, RowValues | None]:
        return read(part), None

    return _several(read_item, comma, b"[]", cursor, first)


def _map(read: Scanner, layout: JsonLayout, cursor: JsonCursor, first: Bytes) -> RowValues:
    colon = Pattern(layout.colon)

    def read_entry(part: JsonCursor) -> tuple[RowValues, RowValues | None]:
        key = layout.text(part, part.byte())
        is_such = part.starts_with(colon)
        part.refuse(~is_such)
        part.at = part.at + colon.size * is_such
        return read(part), key

    return _several(read_entry, layout.comma, b"{}", cursor, first)


def _several(
    read_element: Callable[[JsonCursor], tuple[RowValues, RowValues | None]],
    comma: bytes,
    brackets: bytes,
    cursor: JsonCursor,
    first: Bytes,
) -> RowValues:
    """Read items between brackets: the first of each row, then the second."""
    opening, closing = brackets
    cursor.expect(opening, first)
    behind = Pattern(comma)
    is_empty = cursor.byte() == closing
    cursor.at = cursor.at + is_empty
    rows = np.flatnonzero(~is_empty & ~cursor.bad)
    rounds: list[tuple[Ints, RowValues, RowValues | None]] = []
    while len(rows):
        part = cursor.part(rows)
        if not cursor.round():
            part.refuse(np.ones(len(rows), np.bool_))
            cursor.join(part, rows)
            break
        rounds.append((rows, *read_element(part)))
        more = part.starts_with(behind)
        done = part.byte() == closing
        part.refuse(~(more | done))
        part.at = part.at + (behind.size * more + done)
        cursor.join(part, rows)
        rows = rows[more & ~part.bad]
    return ListValues.ordered(len(cursor), rounds, read_element(cursor.part(np.empty(0, np.int64))))
