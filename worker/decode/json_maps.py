"""Blocks of JSON documents with maps into columns: an object with any keys becomes a map.

Rules of this file:
- A map is parsed as a struct of the known keys, and built again row by row. A block with other keys
  is parsed once more with these, too. A map with too many keys goes to the record path. So do rows
  whose text may hold a null in a map: a struct does not show whether the key is missing.
- To find keys, all fields of a document are parsed. ``JsonDecoder``'s bounds of new names hold for
  them, too.
- Entries of a map are in the order in which their keys were first read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from worker.batch.blocks import one_chunk
from worker.convert.scalars import Doubt, join, some, valid_rows
from worker.decode.byte_prefilters import may_hold, raw_bytes
from worker.decode.json_decoder import INEXACT, DecodedBlock, JsonDecoder, Piece
from worker.decode.json_types import extra_rows, has_more

Rows = npt.NDArray[np.int64]
Path = tuple[str, ...]

KEYS_MAX: Final = 64
_ROUNDS: Final = 4
_ITEM: Final = ""  # in a path: into a list
_VALUE: Final = "{}"  # in a path: into a map


def holds_map(kind: pa.DataType) -> bool:
    """Return whether a map is anywhere inside."""
    if pa.types.is_map(kind):
        return True
    return any(holds_map(kind.field(i).type) for i in range(kind.num_fields))


class _Watched(JsonDecoder):
    """Keeps the pieces of the last block, before any field of them is left out."""

    schemas: list[pa.Schema]

    def _together(self, pieces: list[Piece]) -> pa.Table:
        self.schemas = [table.schema for _, table in pieces]
        return super()._together(pieces)


class MapDecoder:
    """Decodes blocks of objects with fields that are maps; remembers the keys.

    Args:
        fields: as ``JsonDecoder``'s; maps at any depth, with text keys.
        report_unexpected: report rows with fields that are not asked for.
    """

    def __init__(self, fields: Mapping[str, pa.DataType], *, report_unexpected: bool) -> None:
        self._fields = fields
        self._report = report_unexpected
        self._keys: dict[Path, list[str]] = {}
        self._hopeless: set[Path] = set()
        self._learned()

    def _learned(self) -> None:
        """Parse with the known keys."""
        parsed_types = {name: self._parsed_as(kind, (name,)) for name, kind in self._fields.items()}
        self._asked = pa.schema(list(parsed_types.items()))
        self._decoder = _Watched(parsed_types, report_unexpected=True, keeps=True)
        names = sorted({re.escape(key) for keys in self._keys.values() for key in keys})
        self._null = rf'"(?:{"|".join(names)})"\s*:\s*null|\\' if names else r"\\"

    def decode(self, values: pa.Array) -> DecodedBlock:
        """Decode a block; see ``JsonDecoder``."""
        for _ in range(_ROUNDS):
            decoded = self._decoder.decode(values)
            if not self._has_grown(self._decoder.schemas):
                break
            self._learned()
        else:  # other keys each time: not worth a column
            nothing = np.empty(0, np.int64)
            empty = pa.schema(list(self._fields.items())).empty_table()
            return DecodedBlock(empty, nothing, np.arange(len(values)), nothing)
        table = decoded.table
        rows = np.arange(len(values)) if decoded.rows is None else decoded.rows
        columns: list[pa.Array] = []
        ambiguous = some(np.isin(rows, decoded.unexpected))
        for name, kind in self._fields.items():
            column, more = self._folded(one_chunk(table[name]), kind, (name,))
            columns.append(column)
            ambiguous = join(ambiguous, more)
        texts = values if decoded.rows is None else values.take(pa.array(rows))
        ambiguous = join(ambiguous, self._may_hold_null(texts))
        unexpected = np.empty(0, np.int64)
        if table.schema.names != self._asked.names or any(
            has_more(field.type, asked_field.type)
            for field, asked_field in zip(table.schema, self._asked, strict=False)
        ):
            if self._report:
                unexpected = rows[extra_rows(table, self._asked)]
            else:
                inexact = pc.match_substring_regex(texts, INEXACT.encode())
                ambiguous = join(ambiguous, some(inexact.to_numpy(zero_copy_only=False)))
        maps = pa.Table.from_arrays(columns, names=list(self._fields))
        if ambiguous is not None:
            rows, maps = rows[~ambiguous], maps.filter(pa.array(~ambiguous)).combine_chunks()
            unexpected = unexpected[np.isin(unexpected, rows)]
        refused = np.ones(len(values), np.bool_)
        refused[rows] = False
        is_all = len(rows) == len(values)
        return DecodedBlock(maps, None if is_all else rows, np.flatnonzero(refused), unexpected)

    # -------------------------------------------------------------- keys

    def _parsed_as(self, kind: pa.DataType, path: Path) -> pa.DataType:
        if pa.types.is_map(kind):
            if path in self._hopeless:
                return pa.null()
            inner = self._parsed_as(kind.item_type, (*path, _VALUE))
            if pa.types.is_null(inner):
                return inner
            return pa.struct([(key, inner) for key in self._keys.get(path, ())])
        if not holds_map(kind):
            return kind
        if pa.types.is_list(kind):
            inner = self._parsed_as(kind.value_type, (*path, _ITEM))
            return inner if pa.types.is_null(inner) else pa.list_(inner)
        return pa.struct([(f.name, self._parsed_as(f.type, (*path, f.name))) for f in kind])

    def _has_grown(self, schemas: list[pa.Schema]) -> bool:
        """Learn keys that were not asked for; return whether there are any."""
        grown = [
            self._grow(schema.field(name).type, kind, (name,))
            for schema in schemas
            for name, kind in self._fields.items()
        ]
        return any(grown)

    def _grow(self, inferred: pa.DataType, kind: pa.DataType, path: Path) -> bool:
        if not holds_map(kind) or path in self._hopeless:
            return False
        if pa.types.is_list(kind):
            is_list = pa.types.is_list(inferred)
            return is_list and self._grow(inferred.value_type, kind.value_type, (*path, _ITEM))
        if not pa.types.is_struct(inferred):
            return False
        types = {f.name: f.type for f in inferred}
        if pa.types.is_struct(kind):
            within = [f for f in kind if f.name in types]
            grown = [self._grow(types[f.name], f.type, (*path, f.name)) for f in within]
            return any(grown)
        keys = self._keys.setdefault(path, [])
        known_keys = set(keys)
        keys.extend(name for name in types if name not in known_keys)
        if len(keys) > KEYS_MAX:
            self._hopeless.add(path)
            del self._keys[path]
            return True
        inner = [self._grow(t, kind.item_type, (*path, _VALUE)) for t in types.values()]
        return len(keys) > len(known_keys) or any(inner)

    def _may_hold_null(self, texts: pa.Array) -> Doubt | None:
        """Return rows that may hold a null in a map."""
        if not may_hold(raw_bytes(texts), b"null"):
            return None
        mask = pc.match_substring(texts, b"null").to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(mask)
        if not len(rows):
            return None
        part = texts.take(pa.array(rows))
        nulls = pc.match_substring_regex(part, self._null.encode())
        ambiguous = np.zeros(len(texts), np.bool_)
        ambiguous[rows[nulls.to_numpy(zero_copy_only=False)]] = True
        return some(ambiguous)

    # -------------------------------------------------------------- from structs to maps

    def _folded(
        self, column: pa.Array, kind: pa.DataType, path: Path
    ) -> tuple[pa.Array, Doubt | None]:
        """Return a parsed column with its maps, and rows whose values do not fit a map."""
        if not holds_map(kind):
            return column, None
        if path in self._hopeless or not _is_parsed(column.type, kind):
            return pa.nulls(len(column), kind), some(valid_rows(column))
        if pa.types.is_map(kind):
            return self._map(column, kind, path)
        mask = pa.array(~valid_rows(column)) if column.null_count else None
        if pa.types.is_list(kind):
            offsets = column.offsets.to_numpy()
            start, end = int(offsets[0]), int(offsets[-1])
            items = column.values.slice(start, end - start)
            values, ambiguous = self._folded(items, kind.value_type, (*path, _ITEM))
            moved = pa.array((offsets - start).astype(np.int32))
            rows = None if ambiguous is None else _of_lists(ambiguous, offsets - start)
            return pa.ListArray.from_arrays(moved, values, mask=mask), rows
        children: list[pa.Array] = []
        ambiguous = None
        for field in kind:
            child = pc.struct_field(column, [column.type.get_field_index(field.name)])
            values, more = self._folded(child, field.type, (*path, field.name))
            children.append(values)
            ambiguous = join(ambiguous, more)
        names = [field.name for field in kind]
        return pa.StructArray.from_arrays(children, names=names, mask=mask), ambiguous

    def _map(
        self, column: pa.Array, kind: pa.DataType, path: Path
    ) -> tuple[pa.Array, Doubt | None]:
        keys = self._keys.get(path, [])
        count = len(column)
        ambiguous: Doubt | None = None
        rows: list[Rows] = []
        values: list[pa.Array] = []
        for key in keys:
            child = pc.struct_field(column, [column.type.get_field_index(key)])
            inner, more = self._folded(child, kind.item_type, (*path, _VALUE))
            ambiguous = join(ambiguous, more)
            if inner.type != kind.item_type:  # learned from the data: the record path decides
                ambiguous = join(ambiguous, some(valid_rows(child)))
                inner = pa.nulls(count, kind.item_type)
            places = np.flatnonzero(valid_rows(inner))
            rows.append(places)
            values.append(inner if len(places) == count else inner.take(pa.array(places)))
        mask = pa.array(~valid_rows(column)) if column.null_count else None
        of_rows = np.concatenate([*rows, np.empty(0, np.int64)]).astype(np.int64)
        order = np.argsort(of_rows, kind="stable")
        of_keys = np.repeat(np.arange(len(keys)), [len(places) for places in rows])[order]
        bounds = np.cumsum(np.bincount(of_rows, minlength=count))
        offsets = pa.array(np.concatenate(([0], bounds)).astype(np.int32))
        items = pa.concat_arrays([*values, pa.array([], kind.item_type)]).take(pa.array(order))
        names = pa.array(keys, pa.string()).take(pa.array(of_keys))
        return pa.MapArray.from_arrays(offsets, names, items, type=kind, mask=mask), ambiguous


def _is_parsed(inferred: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a value was parsed as a type with maps asks for it."""
    if pa.types.is_list(kind):
        return bool(pa.types.is_list(inferred))
    return bool(pa.types.is_struct(inferred))


def _of_lists(ambiguous: Doubt, offsets: Any) -> Doubt | None:
    before = np.concatenate(([0], np.cumsum(ambiguous)))
    return some(before[offsets[1:]] > before[offsets[:-1]])
