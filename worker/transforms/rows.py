"""Rows on their way through transformations by columns, and what a chain needs of records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from worker.batch.blocks import Block, one_chunk
from worker.decode.byte_prefilters import may_hold, raw_bytes
from worker.decode.json_cursor import Seen
from worker.decode.scanned_json import ScannedJson

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Fields = dict[str, pa.DataType]


class TooManyRows(Exception):  # noqa: N818 - a verdict about a block
    """Steps make more rows of a block than should be held at once."""


class KeyColumns(Protocol):
    """Reads message keys by columns."""

    @property
    def is_typed(self) -> bool:
        """Whether keys have a schema."""
        ...

    def read(self, block: Block, places: Positions) -> tuple[pa.Array, Mask | None]:
        """The keys of some rows, null where there is none, and rows only the reference reads."""
        ...


class OriginColumns:
    """Where rows come from, read when a step asks for it.

    Args:
        block: of the rows.
        places: their positions in it; one position may stand there several times.
        keys: reads their keys, None where nothing asks for them.
        is_text: whether the values are JSON texts that name every field.
        seen: what stands in all of them, where that is known.
    """

    def __init__(
        self,
        block: Block,
        places: Positions,
        keys: KeyColumns | None = None,
        *,
        is_text: bool = True,
        seen: Seen | None = None,
    ) -> None:
        self._block = block
        self.places = places
        self._keys = keys
        self._is_text = is_text
        self._seen = seen
        is_all = len(places) == block.count and bool((places == np.arange(block.count)).all())
        self._chosen = None if is_all else pa.array(places)

    def picked(self, rows: Positions) -> OriginColumns:
        """The origins of some of the rows."""
        return OriginColumns(
            self._block, self.places[rows], self._keys, is_text=self._is_text, seen=self._seen
        )

    def column(self, name: str) -> pa.Array:
        """``topic``, ``partition``, ``offset`` or ``timestamp`` (milliseconds or null)."""
        if name == "timestamp":
            found = self._block.timestamps_ms
        else:
            found = one_chunk(self._block.table.column(name))
        found = self._picked(found)
        return found if name == "topic" else found.cast(pa.int64())

    @property
    def has_key(self) -> Mask:
        """Rows whose record has a key."""
        return np.asarray(self._block.has_key[self.places])

    @property
    def may_have_map_key(self) -> Mask:
        """Rows whose key may be read as a map."""
        return np.asarray(self._block.may_have_map_key[self.places])

    def keys(self) -> tuple[pa.Array, Mask | None]:
        """The keys, and rows whose key only the reference reads."""
        if self._keys is None:
            return pa.nulls(len(self.places)), self.has_key
        return self._keys.read(self._block, self.places)

    @property
    def has_typed_keys(self) -> bool:
        """Whether keys have a schema."""
        return self._keys is not None and self._keys.is_typed

    def with_null(self, rows: Mask) -> Mask:
        """Those of the rows whose value's text may hold a null."""
        if self._seen is not None and not self._seen.has_null:
            return np.zeros(len(rows), np.bool_)
        return self._holding("null", rows)

    def with_name(self, name: str, rows: Mask) -> Mask:
        """Those of the rows whose value's text may have a field of a name."""
        if self._seen is not None and name not in self._seen.names:
            return np.zeros(len(rows), np.bool_)
        return self._holding(quoted(name), rows)

    def _holding(self, text: str, rows: Mask) -> Mask:
        if not self._is_text:
            return rows
        found = np.zeros(len(rows), np.bool_)
        places = np.flatnonzero(rows)
        if len(places):
            values = self._block.values.take(pa.array(self.places[places]))
            found[places] = holding(values, [text])
        return found

    def with_empty_names(self) -> Mask:
        """Rows whose text has a field with an empty name."""
        found = np.zeros(len(self.places), np.bool_)
        if self._is_text and (self._seen is None or "" in self._seen.names):
            values = self._picked(self._block.values)
            places = np.flatnonzero(as_mask(pc.match_substring(values, b'""')))
            some = values.take(pa.array(places))
            found[places] = as_mask(pc.match_substring_regex(some, rb'[{,]\s*""\s*:'))
        return found

    def _picked(self, column: pa.Array) -> pa.Array:
        return column if self._chosen is None else column.take(self._chosen)


@dataclass(slots=True)
class Rows:
    """Rows on their way through the steps.

    Attributes:
        columns: fields by name, one chunk each.
        count: how many rows.
        origins: where they come from.
        ambiguous: rows that the reference must take.
        dropped: rows that a filter took out.
        topics: their topics, None until a step changed them.
        is_typed: whether the records have a schema; then every field of it is a column.
        had_schema: whether they came with one: without it, the structs inside still have theirs.
        refused: positions in the block of records that left no row and are the reference's.
        whole: the value itself where it is no struct and no map: then there are no columns.
        absent: of keys, the rows without one; None where all have one.
        key: the keys, None until a step looked at them.
    """

    columns: dict[str, pa.Array]
    count: int
    origins: OriginColumns
    ambiguous: Mask
    dropped: Mask
    topics: pa.Array | None = None
    is_typed: bool = False
    had_schema: bool = False
    refused: list[Positions] = field(default_factory=list)
    whole: pa.Array | None = None
    absent: Mask | None = None
    key: Rows | None = None

    @property
    def is_mixed(self) -> bool:
        """Whether the value is a map with structs in it, which most steps refuse to look into."""
        return self.had_schema and not self.is_typed

    @property
    def current_topics(self) -> pa.Array:
        """The topics as changed so far."""
        return self.origins.column("topic") if self.topics is None else self.topics

    def column(self, name: str) -> pa.Array:
        """A field; nulls when no step before left one."""
        found = self.columns.get(name)
        return pa.nulls(self.count) if found is None else found

    def suspect(self, rows: Mask | None) -> None:
        """Leave rows to the reference, unless they were dropped before."""
        if rows is not None:
            self.ambiguous |= rows & ~self.dropped

    def suspect_all(self) -> None:
        """Leave all rows to the reference that were not dropped before."""
        self.suspect(np.ones(self.count, np.bool_))

    def drop(self, rows: Mask) -> None:
        """Take rows out, unless the reference must take them."""
        self.dropped |= rows & ~self.ambiguous

    def lose_schema(self) -> None:
        """The value becomes a map: what its schema said of numbers is gone."""
        if not self.is_typed:
            return
        self.is_typed = False
        for name, column in self.columns.items():
            if pa.types.is_duration(column.type):
                self.columns[name] = column.cast(pa.int64())


@dataclass(slots=True)
class ChainPlan:
    """What a chain needs of the records.

    Attributes:
        fields: what to decode, with the first guess of each type.
        shadowed: names of fields; a record that has one goes to the reference.
        reads_text: whether a step looks for names in the records' texts.
        key: what the key is needed as, None where it is not.
        evolves: whether tables get columns for fields they lack.
        is_hopeless: whether too much would have to be decoded.
        whole: what the value itself is needed as, where a step makes a field of it or it is a key.
        embedded: text fields of which only the document in them is needed, and what decodes it.
    """

    fields: Fields
    shadowed: set[str] = field(default_factory=set)
    reads_text: bool = False
    key: pa.DataType | None = None
    evolves: bool = False
    is_hopeless: bool = False
    whole: pa.DataType | None = None
    embedded: dict[str, ScannedJson] = field(default_factory=dict)


class ColumnStep(Protocol):
    """One transformation."""

    def plan(self, wanted: ChainPlan) -> None:
        """Change what the following steps need into what this one needs."""
        ...

    def apply(self, rows: Rows) -> None:
        """Transform."""
        ...


# ------------------------------------------------------------------ texts and columns


def holding(values: pa.Array, texts: Sequence[str]) -> Mask:
    """Rows whose text holds one of the texts, or any name in a disguise."""
    raw, mask = raw_bytes(values), np.zeros(len(values), np.bool_)
    disguises = (b"\\u", b"\\/") if any("/" in text for text in texts) else (b"\\u",)
    for text in (*disguises, *(text.encode() for text in texts)):
        if may_hold(raw, text):
            mask |= as_mask(pc.match_substring(values, text))
    return mask


def quoted(name: str) -> str:
    """A name as JSON texts have it."""
    return json.dumps(name, ensure_ascii=False)


def valid(column: pa.Array) -> Mask:
    """Rows that are not null."""
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def as_mask(found: pa.Array) -> Mask:
    """Booleans of Arrow, null as false."""
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's
    return mask


def child(column: pa.Array, name: str) -> pa.Array:
    """A struct's field, null where the struct is; nulls where it has none of that name."""
    place = column.type.get_field_index(name) if pa.types.is_struct(column.type) else -1
    return pc.struct_field(column, [place]) if place >= 0 else pa.nulls(len(column))


def children(column: pa.Array) -> dict[str, pa.Array]:
    """A struct's fields, null where the struct is."""
    return {f.name: pc.struct_field(column, [i]) for i, f in enumerate(column.type)}


def struct_of(fields: dict[str, pa.Array], count: int, null: Mask | None = None) -> pa.Array:
    """A struct column of fields, null where the mask says."""
    mask = None if null is None or not null.any() else pa.array(null)
    if not fields:
        bits = None if mask is None else pc.invert(mask).buffers()[1]
        return pa.Array.from_buffers(pa.struct([]), count, [bits])
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields), mask=mask)


def numbered(codes: Positions, end: int) -> tuple[Positions, Positions]:
    """The different codes, ascending, and for each row the number of its own.

    Args:
        codes: from 0 on.
        end: larger than all of them.
    """
    if end > 4 * len(codes) + 1024:
        different, places = np.unique(codes, return_inverse=True)
        return different, places.astype(np.int64)
    different = np.flatnonzero(np.bincount(codes, minlength=end))
    index = np.zeros(end, np.int64)
    index[different] = np.arange(len(different))
    return different, index[codes]


def at_path(columns: dict[str, pa.Array], path: Sequence[str], count: int) -> pa.Array:
    """The column at a path; nulls where it ends early."""
    column = columns.get(path[0])
    if column is None:
        return pa.nulls(count)
    for name in path[1:]:
        column = child(column, name)
    return column


def put_at(
    columns: dict[str, pa.Array], path: Sequence[str], new: pa.Array, count: int, *, makes: bool
) -> Mask | None:
    """Put a column at a path; where structs on the way are missing they are made, or stay so.

    Returns:
        rows in which the path leads through something that is no struct.
    """
    first, *rest = path
    if not rest:
        columns[first] = new
        return None
    inner = columns.get(first)
    if inner is None or inner.null_count == count:
        inner = pa.nulls(count, pa.struct([]))
    if not pa.types.is_struct(inner.type):
        return valid(inner)
    fields = children(inner)
    ambiguous = put_at(fields, rest, new, count, makes=makes)
    columns[first] = struct_of(fields, count, None if makes else ~valid(inner))
    return ambiguous


def is_struct(kind: pa.DataType | None) -> bool:
    """Whether a type is there and has fields."""
    return kind is not None and bool(pa.types.is_struct(kind))


def fields_of(kind: pa.DataType | None) -> Fields:
    """The fields of a struct; of what is none, none."""
    return {f.name: f.type for f in kind} if kind is not None and is_struct(kind) else {}


def type_at(kind: pa.DataType | None, path: Sequence[str]) -> pa.DataType | None:
    """The type below a path of structs, None where there is none."""
    for name in path:
        if kind is None or not pa.types.is_struct(kind):
            return None
        place = kind.get_field_index(name)
        kind = kind.field(place).type if place >= 0 else None
    return kind


def with_type_at(kind: pa.DataType | None, path: Sequence[str], leaf: pa.DataType) -> pa.DataType:
    """A type with another one at a path of structs."""
    if not path:
        return leaf
    fields = fields_of(kind)
    fields[path[0]] = with_type_at(fields.get(path[0]), path[1:], leaf)
    return pa.struct(list(fields.items()))


def merged_types(known: pa.DataType | None, other: pa.DataType) -> pa.DataType:
    """What to decode for two uses of a field; the first one wins where they disagree."""
    if known is None or pa.types.is_null(known):
        return other
    if pa.types.is_struct(known) and pa.types.is_struct(other):
        fields: dict[str, Any] = {f.name: f.type for f in known}
        for f in other:
            fields[f.name] = merged_types(fields.get(f.name), f.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(known) and pa.types.is_list(other):
        return pa.list_(merged_types(known.value_type, other.value_type))
    return known


def nested_type(path: Sequence[str], leaf: pa.DataType) -> pa.DataType:
    """A type below a path: the path's own first name is not part of it."""
    for name in reversed(path[1:]):
        leaf = pa.struct([(name, leaf)])
    return leaf


def want(fields: Fields, path: Sequence[str], leaf: pa.DataType) -> None:
    """Ask for a field at a path, beside what is asked for already."""
    fields[path[0]] = merged_types(fields.get(path[0]), nested_type(path, leaf))
