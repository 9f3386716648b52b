"""Rows that pass through column transformations, and the fields that a chain needs."""

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
from worker.convert.typed_columns import plain_numbers
from worker.decode.byte_prefilters import may_hold, raw_bytes
from worker.decode.json_cursor import Seen
from worker.decode.scanned_json import ScannedJson

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Fields = dict[str, pa.DataType]


class TooManyRows(Exception):  # noqa: N818 - a result about a block
    """Steps make more rows of a block than fit into memory at once."""


class MessageKeyReader(Protocol):
    """Reads message keys by columns."""

    @property
    def is_typed(self) -> bool:
        """Whether keys have a schema."""
        ...

    def read(self, block: Block, places: Positions) -> tuple[pa.Array, Mask | None]:
        """Return the keys of some rows, null where there is none, and ambiguous rows."""
        ...


class OriginColumns:
    """Records that rows come from, read when a step asks for them.

    Args:
        block: of the rows.
        places: their positions in it; a position may occur several times.
        keys: reads their keys, None where no step asks for them.
        is_text: whether the values are JSON texts that name every field.
        seen: names and nulls in all of them, where known.
        schema_name: of the schema that all of them have; None if it has no name.
    """

    def __init__(
        self,
        block: Block,
        places: Positions,
        keys: MessageKeyReader | None = None,
        *,
        is_text: bool = True,
        seen: Seen | None = None,
        schema_name: str | None = None,
    ) -> None:
        self._block = block
        self.places = places
        self._keys = keys
        self._is_text = is_text
        self._seen = seen
        self.schema_name = schema_name
        is_all = len(places) == block.count and bool((places == np.arange(block.count)).all())
        self._chosen = None if is_all else pa.array(places)

    def picked(self, rows: Positions) -> OriginColumns:
        """Return the origins of some rows."""
        return OriginColumns(
            self._block,
            self.places[rows],
            self._keys,
            is_text=self._is_text,
            seen=self._seen,
            schema_name=self.schema_name,
        )

    def column(self, name: str) -> pa.Array:
        """Return ``topic``, ``partition``, ``offset`` or ``timestamp`` (milliseconds or null)."""
        if name == "timestamp":
            column = self._block.timestamps_ms
        else:
            column = one_chunk(self._block.table.column(name))
        column = self._picked(column)
        return column if name == "topic" else column.cast(pa.int64())

    @property
    def has_key(self) -> Mask:
        """Return rows whose record has a key."""
        return np.asarray(self._block.has_key[self.places])

    @property
    def may_have_map_key(self) -> Mask:
        """Return rows whose key may be read as a map."""
        return np.asarray(self._block.may_have_map_key[self.places])

    def with_header(self, name: str) -> Mask:
        """Return rows whose record came with a header of a name."""
        mask = np.zeros(self._block.count, np.bool_)
        headers = self._block.column("headers")
        if headers is not None and headers.null_count < len(headers):
            is_such = pc.equal(pc.struct_field(headers.flatten(), "key"), name)
            mask[pc.list_parent_indices(headers).filter(is_such).to_numpy()] = True
        return mask[self.places]

    def keys(self) -> tuple[pa.Array, Mask | None]:
        """Return the keys, and rows whose key is ambiguous."""
        if self._keys is None:
            return pa.nulls(len(self.places)), self.has_key
        return self._keys.read(self._block, self.places)

    @property
    def has_typed_keys(self) -> bool:
        """Whether keys have a schema."""
        return self._keys is not None and self._keys.is_typed

    def with_null(self, rows: Mask) -> Mask:
        """Return those of the rows whose value's text may hold a null."""
        if self._seen is not None and not self._seen.has_null:
            return np.zeros(len(rows), np.bool_)
        return self._holding("null", rows)

    def with_name(self, name: str, rows: Mask) -> Mask:
        """Return those of the rows whose value's text may have a field of a name."""
        if self._seen is not None and name not in self._seen.names:
            return np.zeros(len(rows), np.bool_)
        return self._holding(quoted(name), rows)

    def _holding(self, text: str, rows: Mask) -> Mask:
        if not self._is_text:
            return rows
        mask = np.zeros(len(rows), np.bool_)
        places = np.flatnonzero(rows)
        if len(places):
            values = self._block.values.take(pa.array(self.places[places]))
            mask[places] = holding(values, [text])
        return mask

    def with_empty_names(self) -> Mask:
        """Return rows whose text has a field with an empty name."""
        mask = np.zeros(len(self.places), np.bool_)
        if self._is_text and (self._seen is None or "" in self._seen.names):
            values = self._picked(self._block.values)
            places = np.flatnonzero(as_mask(pc.match_substring(values, b'""')))
            some = values.take(pa.array(places))
            mask[places] = as_mask(pc.match_substring_regex(some, rb'[{,]\s*""\s*:'))
        return mask

    def _picked(self, column: pa.Array) -> pa.Array:
        return column if self._chosen is None else column.take(self._chosen)


@dataclass(slots=True)
class Rows:
    """Rows that pass through the steps.

    Attributes:
        columns: fields by name, one chunk each.
        origins: the records they come from.
        ambiguous: rows that the record path must take.
        dropped: rows that a filter dropped.
        topics: their topics, None until a step changed them.
        is_typed: whether the records have a schema; then each of its fields is a column.
        had_schema: whether they came with one: without it, the structs inside still have theirs.
        refused: positions in the block of records that left no row and are ambiguous.
        whole: the value itself where it is no struct and no map: then there are no columns.
        absent: of keys, the rows without one; None where all have one.
        key: the keys, None until a step read them.
        tombstones: rows without a value, which have the fields of their key; None where there are
            none. Only the last step makes them.
    """

    columns: dict[str, pa.Array]
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
    tombstones: Mask | None = None

    @property
    def count(self) -> int:
        """Return how many rows there are."""
        return len(self.ambiguous)

    @property
    def is_mixed(self) -> bool:
        """Return whether the value is a map that holds structs, which most steps refuse."""
        return self.had_schema and not self.is_typed

    @property
    def current_topics(self) -> pa.Array:
        """Return the topics after the steps so far."""
        return self.origins.column("topic") if self.topics is None else self.topics

    def column(self, name: str) -> pa.Array:
        """A field; nulls when no step before left one."""
        column = self.columns.get(name)
        return pa.nulls(self.count) if column is None else column

    def suspect(self, rows: Mask | None) -> None:
        """Mark rows as ambiguous, unless they were dropped before."""
        if rows is not None:
            self.ambiguous |= rows & ~self.dropped

    def suspect_all(self) -> None:
        """Mark all rows as ambiguous that were not dropped before."""
        self.suspect(np.ones(self.count, np.bool_))

    def drop(self, rows: Mask) -> None:
        """Drop rows, unless they are ambiguous."""
        self.dropped |= rows & ~self.ambiguous

    def lose_schema(self) -> None:
        """Note that the value became a map, without the types of its schema."""
        if not self.is_typed:
            return
        self.is_typed = False
        for name, column in self.columns.items():
            self.columns[name] = plain_numbers(column)


@dataclass(slots=True)
class ChainPlan:
    """The fields that a chain needs of the records.

    Attributes:
        fields: what to decode, with the first guess of each type.
        shadowed: names of fields; a record that has one goes to the record path.
        reads_text: whether a step searches the records' texts for names.
        key: type that the key is needed as, None where it is not needed.
        evolves: whether tables get columns for fields they lack.
        is_hopeless: whether too many fields would have to be decoded.
        whole: type that the value itself is needed as, where a step makes a field or a key of it.
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

    def plan(self, chain_plan: ChainPlan) -> None:
        """Replace the fields that the following steps need by those that this step needs."""
        ...

    def apply(self, rows: Rows) -> None:
        """Transform the rows."""
        ...


# ------------------------------------------------------------------ texts and columns


def holding(values: pa.Array, texts: Sequence[str]) -> Mask:
    """Return rows whose text holds one of the texts, or a name with an escape."""
    raw, mask = raw_bytes(values), np.zeros(len(values), np.bool_)
    disguises = (b"\\u", b"\\/") if any("/" in text for text in texts) else (b"\\u",)
    for text in (*disguises, *(text.encode() for text in texts)):
        if may_hold(raw, text):
            mask |= as_mask(pc.match_substring(values, text))
    return mask


def quoted(name: str) -> str:
    """Return a name as JSON texts have it."""
    return json.dumps(name, ensure_ascii=False)


def valid(column: pa.Array) -> Mask:
    """Return rows that are not null."""
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def as_mask(column: pa.Array) -> Mask:
    """Return Booleans of Arrow as a mask, null as false."""
    mask: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's
    return mask


def child(column: pa.Array, name: str) -> pa.Array:
    """Return a struct's field, null where the struct is; nulls if it has no field of that name."""
    index = column.type.get_field_index(name) if pa.types.is_struct(column.type) else -1
    return pc.struct_field(column, [index]) if index >= 0 else pa.nulls(len(column))


def children(column: pa.Array) -> dict[str, pa.Array]:
    """Return a struct's fields, null where the struct is."""
    return {f.name: pc.struct_field(column, [i]) for i, f in enumerate(column.type)}


def struct_of(fields: dict[str, pa.Array], count: int, null: Mask | None = None) -> pa.Array:
    """Return a struct column of fields, null where the mask is set."""
    mask = None if null is None or not null.any() else pa.array(null)
    if not fields:
        bits = None if mask is None else pc.invert(mask).buffers()[1]
        return pa.Array.from_buffers(pa.struct([]), count, [bits])
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields), mask=mask)


def numbered(codes: Positions, end: int) -> tuple[Positions, Positions]:
    """Return the distinct codes, ascending, and the index of each row's code.

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
    """Return the column at a path; nulls where it ends early."""
    column = columns.get(path[0])
    if column is None:
        return pa.nulls(count)
    for name in path[1:]:
        column = child(column, name)
    return column


def put_at(
    columns: dict[str, pa.Array], path: Sequence[str], new: pa.Array, count: int, *, makes: bool
) -> Mask | None:
    """Put a column at a path; structs that are missing on the way are made.

    Returns:
        rows in which the path leads through a value that is no struct.
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
    """Return whether a type is known and has fields."""
    return kind is not None and bool(pa.types.is_struct(kind))


def fields_of(kind: pa.DataType | None) -> Fields:
    """Return the fields of a struct; none of other types."""
    return {f.name: f.type for f in kind} if kind is not None and is_struct(kind) else {}


def type_at(kind: pa.DataType | None, path: Sequence[str]) -> pa.DataType | None:
    """Return the type below a path of structs, None where there is none."""
    for name in path:
        if kind is None or not pa.types.is_struct(kind):
            return None
        index = kind.get_field_index(name)
        kind = kind.field(index).type if index >= 0 else None
    return kind


def with_type_at(kind: pa.DataType | None, path: Sequence[str], leaf: pa.DataType) -> pa.DataType:
    """Return a type with another one at a path of structs."""
    if not path:
        return leaf
    fields = fields_of(kind)
    fields[path[0]] = with_type_at(fields.get(path[0]), path[1:], leaf)
    return pa.struct(list(fields.items()))


def merged_types(kind: pa.DataType | None, other: pa.DataType) -> pa.DataType:
    """Return the type to decode for two uses of a field; the first one wins where they differ."""
    if kind is None or pa.types.is_null(kind):
        return other
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        fields: dict[str, Any] = {f.name: f.type for f in kind}
        for f in other:
            fields[f.name] = merged_types(fields.get(f.name), f.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return pa.list_(merged_types(kind.value_type, other.value_type))
    return kind


def nested_type(path: Sequence[str], leaf: pa.DataType) -> pa.DataType:
    """Return a type below a path, without the path's first name."""
    for name in reversed(path[1:]):
        leaf = pa.struct([(name, leaf)])
    return leaf


def want(fields: Fields, path: Sequence[str], leaf: pa.DataType) -> None:
    """Request a field at a path, in addition to the requested fields."""
    fields[path[0]] = merged_types(fields.get(path[0]), nested_type(path, leaf))
