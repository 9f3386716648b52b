"""Scanners of JSON values of one type each: they move all cursors over a value and gather it.

Rules of this file:
- A scanner takes less than JSON allows, and what it takes it reads as Arrow's parser does: rows
  with anything else are refused, and another decoder has them.
- Fields are looked for in one order, as a producer writes them; each may be missing or null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from worker.gathered import Fields, Gathered, Items, Nothing, Optional, Plain, Spans
from worker.json_cursor import Bytes, Ints, JsonCursor, Mask, Pattern

Path = tuple[str, ...]
Value = Callable[[JsonCursor, Bytes], Gathered]
"""Gets cursors at a value, and the byte each is at."""
Scanner = Callable[[JsonCursor], Optional]
Document = Callable[[JsonCursor], Fields]

ITEM: Final = "[]"
"""In a path: into a list."""
ENTRY: Final = "{}"
"""In a path: into a map."""

_NULL, _TRUE, _FALSE = Pattern(b"null"), Pattern(b"true"), Pattern(b"false")
_EXACT_DIGITS: Final = 15
_INT64_MAX: Final = np.uint64(2**63 - 1)
_QUOTE, _MINUS, _DOT, _ZERO = (ord(c) for c in '"-.0')
_POWERS: Final = 10.0 ** np.arange(_EXACT_DIGITS + 1)
_WHOLE_POWERS: Final = np.array([10**n for n in range(_EXACT_DIGITS + 1)], np.uint64)


@dataclass(frozen=True, slots=True)
class Layout:
    """How documents are written.

    Attributes:
        keys: by path, the keys of an object in their order, those nobody asks for included.
        comma: between two items or fields.
        colon: between key and value.
    """

    keys: Mapping[Path, Sequence[str]]
    comma: bytes = b","
    colon: bytes = b":"


def document_scanner(fields: Mapping[str, pa.DataType], layout: Layout) -> tuple[Document, int]:
    """What scans documents with these fields, and how many bytes it compares at once."""
    kind = pa.struct(list(fields.items()))
    names = [*_names(kind), *(key for keys in layout.keys.values() for key in keys)]
    longest = max(len(name.encode()) for name in names)
    read = _fields_scanner(kind, (), layout)
    return lambda cursor: read(cursor, cursor.byte()), longest + len(
        layout.comma + layout.colon
    ) + 3


def can_scan(kind: pa.DataType) -> bool:
    """Whether there is a scanner for a type."""
    types = pa.types
    if types.is_struct(kind):
        fields = list(kind)
        return bool(fields) and all(is_plain(f.name) and can_scan(f.type) for f in fields)
    if types.is_list(kind):
        return can_scan(kind.value_type)
    if types.is_map(kind):
        return types.is_string(kind.key_type) and can_scan(kind.item_type)
    return str(kind) in _SCALARS


def is_plain(name: str) -> bool:
    """Whether a key stands in a text as it is."""
    return '"' not in name and "\\" not in name and min(name, default=" ") >= " "


def _names(kind: pa.DataType) -> list[str]:
    inner = [kind.field(i) for i in range(kind.num_fields)]
    return [field.name for field in inner] + [n for f in inner for n in _names(f.type)]


def _value(kind: pa.DataType, path: Path, layout: Layout) -> Value:
    if pa.types.is_struct(kind):
        return _fields_scanner(kind, path, layout)
    if pa.types.is_list(kind):
        read = partial(_nullable, _value(kind.value_type, (*path, ITEM), layout))
        return partial(_list, read, layout.comma)
    if pa.types.is_map(kind):
        read = partial(_nullable, _value(kind.item_type, (*path, ENTRY), layout))
        return partial(_map, read, layout)
    return _SCALARS[str(kind)]


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
    found = read(part, first[rows])
    cursor.join(part, rows)
    return Optional(~is_null, found)


# ------------------------------------------------------------------ scalars


def _nothing(cursor: JsonCursor, first: Bytes) -> Gathered:
    """A value that only the reference reads."""
    del first
    cursor.refuse(np.ones(len(cursor), np.bool_))
    return Nothing(len(cursor))


def _text(cursor: JsonCursor, first: Bytes) -> Gathered:
    cursor.expect(_QUOTE, first)
    return Spans(*cursor.text(), pa.string())


def _boolean(cursor: JsonCursor, first: Bytes) -> Gathered:
    del first
    is_true = cursor.starts_with(_TRUE)
    is_false = cursor.starts_with(_FALSE)
    cursor.refuse(~(is_true | is_false))
    cursor.at = cursor.at + (4 * is_true + 5 * is_false)
    return Plain(is_true, pa.bool_())


def _signed(cursor: JsonCursor, first: Bytes) -> tuple[Mask | None, Any, Ints]:
    """Sign, value and number of the digits before a point; at least one, none of them needless."""
    negative = first == _MINUS
    if negative.any():
        cursor.at = cursor.at + negative
        first = cursor.byte()
    value, count = cursor.digits()
    cursor.refuse((count == 0) | ((first == _ZERO) & (count > 1)))
    return (negative if negative.any() else None), value, count


def _long(cursor: JsonCursor, first: Bytes) -> Gathered:
    negative, value, count = _signed(cursor, first)
    cursor.refuse((count > 19) | (value > _INT64_MAX))
    found = value.view(np.int64)
    if negative is not None:
        found = np.where(negative, -found, found)
    return Plain(found, pa.int64())


def _double(cursor: JsonCursor, first: Bytes) -> Gathered:
    begin = cursor.at
    negative, whole, count = _signed(cursor, first)
    is_long = count > _EXACT_DIGITS
    found = whole.astype(np.float64)
    after = cursor.byte()
    rows = np.flatnonzero(after == _DOT)
    if len(rows):
        part = cursor.part(rows)
        part.at = part.at + 1
        fraction, digits = part.digits()
        part.refuse(digits == 0)
        cursor.join(part, rows)
        exact = digits + count[rows] <= _EXACT_DIGITS
        digits = np.where(exact, digits, 0)
        # both are whole numbers below 2^53, so their quotient is the nearest double
        mantissa = whole[rows] * _WHOLE_POWERS[digits] + fraction
        found[rows] = mantissa.astype(np.float64) / _POWERS[digits]
        is_long[rows] = ~exact
        after = cursor.byte()
    is_long |= _exponent(cursor, after)
    if negative is not None:
        found = np.where(negative, -found, found)
    if is_long.any():
        rows = np.flatnonzero(is_long & ~cursor.bad)
        texts = Spans(begin[rows], cursor.at[rows], pa.string()).array(cursor.data)
        found[rows] = texts.cast(pa.float64()).to_numpy()
    return Plain(found, pa.float64())


def _exponent(cursor: JsonCursor, after: Bytes) -> Mask:
    """Move over exponents of up to two digits; rows that have one."""
    has: Mask = (after | 0x20) == ord("e")
    if has.any():
        rows = np.flatnonzero(has)
        part = cursor.part(rows)
        part.at = part.at + 1
        sign = part.byte()
        part.at = part.at + ((sign == _MINUS) | (sign == ord("+")))
        _, digits = part.digits()
        part.refuse((digits == 0) | (digits > 2))
        cursor.join(part, rows)
    return has


def _passed(cursor: JsonCursor, first: Bytes) -> Gathered:
    """A scalar that nobody asks for; the reference refuses some numbers even there."""
    for mask, read in (
        (first == _QUOTE, _text),
        ((first == ord("t")) | (first == ord("f")), _boolean),
        (((first - np.uint8(_ZERO)) < 10) | (first == _MINUS), _passed_number),
    ):
        if mask.any():
            rows = np.flatnonzero(mask)
            part = cursor.part(rows)
            read(part, first[rows])
            cursor.join(part, rows)
            first = np.where(mask, np.uint8(0), first)
    cursor.refuse(first != 0)
    return Nothing(len(cursor))


def _passed_number(cursor: JsonCursor, first: Bytes) -> Gathered:
    _, _, count = _signed(cursor, first)
    rows = np.flatnonzero(cursor.byte() == _DOT)
    if len(rows):
        part = cursor.part(rows)
        part.at = part.at + 1
        _, digits = part.digits()
        part.refuse((digits == 0) | (count[rows] > _EXACT_DIGITS))
        cursor.join(part, rows)
    cursor.refuse((cursor.byte() | 0x20) == ord("e"))
    return Nothing(len(cursor))


_SCALARS: Final[Mapping[str, Value]] = {
    "null": _nothing,
    "bool": _boolean,
    "int64": _long,
    "double": _double,
    "string": _text,
}


# ------------------------------------------------------------------ objects and arrays


@dataclass(frozen=True, slots=True)
class _Field:
    """A key as the first of an object and behind others, and what scans its value."""

    name: str
    first: Pattern
    later: Pattern
    read: Scanner
    is_usual: bool


def _fields_scanner(
    kind: pa.DataType, path: Path, layout: Layout
) -> Callable[[JsonCursor, Bytes], Fields]:
    types = {field.name: field.type for field in kind}
    names = list(layout.keys.get(path, ()))
    steps = []
    for name in (*names, *(n for n in types if n not in names)):
        inner = types.get(name)
        read = _passed if inner is None else _value(inner, (*path, name), layout)
        key = b'"%b"%b' % (name.encode(), layout.colon)
        first, later = Pattern(b"{" + key), Pattern(layout.comma + key)
        steps.append(_Field(name, first, later, partial(_nullable, read), name in names))
    return partial(_fields, steps, list(types))


def _fields(
    steps: Sequence[_Field], names: Sequence[str], cursor: JsonCursor, first: Bytes
) -> Fields:
    fresh: Mask = first == ord("{")
    cursor.refuse(~fresh)
    found: dict[str, Gathered] = {}
    is_over: bool | None = None
    for step in steps:
        if not step.is_usual and is_over is None:
            is_over = bool((cursor.byte() == ord("}")).all())
        if is_over:
            none = step.read(cursor.part(np.empty(0, np.int64))).values
            found[step.name] = Optional(np.zeros(len(cursor), np.bool_), none)
            continue
        found[step.name], fresh = _field(step, cursor, fresh)
    if fresh.any():
        cursor.at = cursor.at + fresh
    cursor.expect(ord("}"))
    return Fields(len(cursor), tuple((name, found[name]) for name in names))


def _field(step: _Field, cursor: JsonCursor, fresh: Mask) -> tuple[Gathered, Mask]:
    """A field's values, and the rows that still have had none."""
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
    given = np.zeros(len(cursor), np.bool_)
    given[rows] = values.present
    return Optional(given, values.values), fresh & ~present


def _list(read: Scanner, comma: bytes, cursor: JsonCursor, first: Bytes) -> Gathered:
    def one(part: JsonCursor) -> tuple[Gathered, Gathered | None]:
        return read(part), None

    return _several(one, comma, b"[]", cursor, first)


def _map(read: Scanner, layout: Layout, cursor: JsonCursor, first: Bytes) -> Gathered:
    colon = Pattern(layout.colon)

    def one(part: JsonCursor) -> tuple[Gathered, Gathered | None]:
        key = _text(part, part.byte())
        is_such = part.starts_with(colon)
        part.refuse(~is_such)
        part.at = part.at + colon.size * is_such
        return read(part), key

    return _several(one, layout.comma, b"{}", cursor, first)


def _several(
    one: Callable[[JsonCursor], tuple[Gathered, Gathered | None]],
    comma: bytes,
    brackets: bytes,
    cursor: JsonCursor,
    first: Bytes,
) -> Gathered:
    """Items between brackets, the first of every row, then the second."""
    opening, closing = brackets
    cursor.expect(opening, first)
    behind = Pattern(comma)
    is_empty = cursor.byte() == closing
    cursor.at = cursor.at + is_empty
    rows = np.flatnonzero(~is_empty & ~cursor.bad)
    rounds: list[tuple[Ints, Gathered, Gathered | None]] = []
    while len(rows):
        part = cursor.part(rows)
        if not cursor.round():
            part.refuse(np.ones(len(rows), np.bool_))
            cursor.join(part, rows)
            break
        rounds.append((rows, *one(part)))
        more = part.starts_with(behind)
        done = part.byte() == closing
        part.refuse(~(more | done))
        part.at = part.at + (behind.size * more + done)
        cursor.join(part, rows)
        rows = rows[more & ~part.bad]
    return Items.ordered(len(cursor), rounds, one(cursor.part(np.empty(0, np.int64))))
