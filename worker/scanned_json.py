"""Blocks of JSON documents into columns, as one producer writes them and in any other way.

Rules of this file:
- Most producers write the fields of all their documents in one order and without white space, or
  with the same. Such documents are scanned; the order is learned from some of them. What does not
  look like that is another decoder's, which takes any document.
- The scan refuses what the other decoder would read differently: so it is only faster.
- Where it takes too few rows it is left off for a while.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from worker.decode import Decoded, JsonDecoder
from worker.json_cursor import JsonCursor, Seen
from worker.json_maps import MapDecoder, holds_map
from worker.json_scan import (
    ENTRY,
    ITEM,
    Document,
    Layout,
    Path,
    can_scan,
    document_scanner,
    is_plain,
)
from worker.scans import raw_bytes, rows_at_once

Rows = npt.NDArray[np.int64]

_SAMPLE_ROWS: Final = 12
_SAMPLE_BYTES_MAX: Final = 65_536
_KEYS_MAX: Final = 2_000
_REFUSED_SHARE: Final = 8
_FRUITLESS_MAX: Final = 63
_BACKSLASH: Final = ord("\\")
_NOTHING: Final = np.empty(0, np.int64)


def json_decoder(
    fields: Mapping[str, pa.DataType], *, report_unexpected: bool, keeps: bool = False
) -> ScannedJson:
    """What decodes documents with these fields, which may be maps with text keys.

    Args:
        fields: see ``JsonDecoder`` and ``MapDecoder``.
        report_unexpected: look for fields that are not asked for.
        keeps: see ``JsonDecoder``; without maps.
    """
    if any(holds_map(kind) for kind in fields.values()):
        maps = MapDecoder(fields, report_unexpected=report_unexpected)
        return ScannedJson(fields, maps, report_unexpected=report_unexpected)
    other = JsonDecoder(fields, report_unexpected=report_unexpected, keeps=keeps)
    return ScannedJson(fields, other, report_unexpected=report_unexpected)


def together(parts: list[Decoded], count: int) -> tuple[pa.Table, Rows, Rows]:
    """What was decoded in parts: the rows, where they stand, and those with unexpected fields.

    Of parts that do not go together the largest counts.
    """
    if not parts:
        return pa.table({}), np.empty(0, np.int64), np.empty(0, np.int64)
    rows = [np.arange(count) if part.rows is None else part.rows for part in parts]
    unexpected = np.concatenate([part.unexpected for part in parts])
    tables = [part.table for part in parts]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        largest = max(range(len(parts)), key=lambda i: len(rows[i]))
        return tables[largest], rows[largest], unexpected
    return table, np.concatenate(rows), unexpected


class ScannedJson:
    """Decodes blocks of objects; keeps what it learned for the next block.

    Args:
        fields: first guess of the Arrow type of every field asked for.
        other: decodes what is not scanned.
        report_unexpected: rows with fields that are not asked for are the other's.
    """

    def __init__(
        self,
        fields: Mapping[str, pa.DataType],
        other: JsonDecoder | MapDecoder,
        *,
        report_unexpected: bool,
    ) -> None:
        self._types = dict(fields)
        self._other = other
        self._passes = not report_unexpected
        self._is_possible = can_scan(pa.struct(list(fields.items())))
        self._has_maps = any(holds_map(kind) for kind in fields.values())
        self._seen = Seen()
        self._keys: dict[Path, list[str]] = {}
        self._gaps = (b",", b":")
        self._scan: tuple[Document, int] | None = None
        self._fruitless = 0
        self._left_off = 0

    def decode(self, values: pa.Array) -> Iterator[Decoded]:
        """Decode a block, perhaps in two parts; see ``JsonDecoder``.

        Args:
            values: binary, no nulls, one chunk; less than 2 GB.
        """
        rest = np.arange(len(values))
        if self._left_off > 0:
            self._left_off -= 1
        elif self._is_possible and len(values):
            self._seen = Seen()
            table, rows = self._scanned(values)
            if len(rows) * 2 < len(values):
                self._fruitless = min(self._fruitless * 2 + 1, _FRUITLESS_MAX)
                self._left_off = self._fruitless
            else:
                self._fruitless = 0
            if table is not None:
                refused = np.ones(len(values), np.bool_)
                refused[rows] = False
                rest = np.flatnonzero(refused)
                seen = None if self._has_maps else self._seen  # keys of maps are not told
                yield Decoded(table, rows if len(rest) else None, rest, _NOTHING, seen)
        if len(rest):
            yield self._by_other(values, rest)

    def _by_other(self, values: pa.Array, rest: Rows) -> Decoded:
        if len(rest) == len(values):
            decoded = self._other.decode(values)
        else:
            found = self._other.decode(values.take(pa.array(rest)))
            rows = rest if found.rows is None else rest[found.rows]
            decoded = Decoded(found.table, rows, rest[found.refused], rest[found.unexpected])
        if self._left_off and isinstance(self._other, JsonDecoder):
            self._follow(self._other.schema)
        return decoded

    def _follow(self, schema: pa.Schema) -> None:
        """Scan for the types that the other decoder found in most rows."""
        types = {field.name: field.type for field in schema}
        if types != self._types:
            self._types, self._scan = types, None
            self._is_possible = can_scan(pa.struct(list(types.items())))
            self._fruitless = self._left_off = 0

    # -------------------------------------------------------------- scanning

    def _scanned(self, values: pa.Array) -> tuple[pa.Table | None, Rows]:
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            return None, _NOTHING
        raw = raw_bytes(texts)
        if raw.min(initial=ord(" ")) < ord(" "):
            return None, _NOTHING
        is_escaped = bool((raw == _BACKSLASH).any())
        if self._scan is None:
            self._learn(texts)
        table, rows = self._run(texts, is_escaped=is_escaped)
        if (len(texts) - len(rows)) * _REFUSED_SHARE > len(texts):
            refused = np.ones(len(texts), np.bool_)
            refused[rows] = False
            if self._learn(texts.filter(pa.array(refused))):
                table, rows = self._run(texts, is_escaped=is_escaped)
        return table, rows

    def _run(self, texts: pa.Array, *, is_escaped: bool) -> tuple[pa.Table | None, Rows]:
        if self._scan is None:
            return None, _NOTHING
        scan, ahead = self._scan
        tables: list[pa.Table] = []
        found: list[Rows] = []
        step = rows_at_once(texts)
        for start in range(0, len(texts), step):
            cursor, end = JsonCursor.over(texts.slice(start, step), ahead, self._seen)
            if is_escaped:
                cursor.refuse(_escaped(cursor, end))
            fields = scan(cursor)
            is_good = (cursor.at == end) & ~cursor.bad
            good = np.flatnonzero(is_good)
            if not len(good):
                continue
            if len(good) < len(cursor):
                fields = fields.picked(good)
            arrays = [gathered.array(cursor.data) for _, gathered in fields.fields]
            tables.append(pa.Table.from_arrays(arrays, names=list(self._types)))
            found.append(good + start)
        if not tables:
            return None, _NOTHING
        return pa.concat_tables(tables).combine_chunks(), np.concatenate(found)

    # -------------------------------------------------------------- learning

    def _learn(self, texts: pa.Array) -> bool:
        """Look at how some documents are written; whether that was not known."""
        before = {path: list(keys) for path, keys in self._keys.items()}, self._gaps
        places = np.unique(np.linspace(0, len(texts) - 1, _SAMPLE_ROWS).astype(np.int64))
        kind = pa.struct(list(self._types.items()))
        for text in texts.take(pa.array(places)).to_pylist():
            if len(text) > _SAMPLE_BYTES_MAX:
                continue
            try:
                document = json.loads(text, object_pairs_hook=_Pairs)
            except (ValueError, RecursionError):
                continue
            self._note(document, kind, ())
            self._gaps = _gaps(_names(document), text, self._gaps)
        if (self._keys, self._gaps) == before and self._scan is not None:
            return False
        if sum(map(len, self._keys.values())) > _KEYS_MAX:
            self._is_possible = False
        if not self._is_possible or not self._keys:
            self._scan = None
            return False
        comma, colon = self._gaps
        self._scan = document_scanner(self._types, Layout(self._keys, comma, colon))
        return True

    def _note(self, value: Any, kind: pa.DataType, path: Path) -> None:
        """Take note of the order of keys."""
        if pa.types.is_list(kind) and type(value) is list:
            for item in value:
                self._note(item, kind.value_type, (*path, ITEM))
        elif pa.types.is_map(kind) and isinstance(value, _Pairs):
            for _, item in value:
                self._note(item, kind.item_type, (*path, ENTRY))
        elif pa.types.is_struct(kind) and isinstance(value, _Pairs):
            types = {field.name: field.type for field in kind}
            known, place = self._keys.setdefault(path, []), 0
            for name, item in value:
                if name in known:
                    place = known.index(name) + 1
                elif name in types or (self._passes and is_plain(name)):
                    known.insert(place, name)
                    place += 1
                if name in types:
                    self._note(item, types[name], (*path, name))


class _Pairs(list[tuple[str, Any]]):
    """Keys and values of an object, in their order."""


def _names(value: Any) -> tuple[str | None, str | None]:
    """A name of an object, and one behind another, at any depth."""
    first = second = None
    if not isinstance(value, _Pairs):
        return None, None
    if value:
        first = value[0][0]
    if len(value) > 1:
        second = value[1][0]
    for _, inner in value:
        if second is not None:
            break
        _, second = _names(inner)
    return first, second


def _gaps(
    names: tuple[str | None, str | None], text: str, known: tuple[bytes, bytes]
) -> tuple[bytes, bytes]:
    """What stands between fields, and between a name and its value, where the names tell."""
    found = [name for name in names if name is not None]  # one with an escape is not in the text
    commas = [gap for gap in (", ", ",") if f'{gap}"{names[1]}"' in text and names[1] is not None]
    colons = [gap for name in found for gap in (": ", ":") if f'"{name}"{gap}' in text]
    comma = commas[0].encode() if commas else known[0]
    return comma, colons[0].encode() if colons else known[1]


def _escaped(cursor: JsonCursor, end: Rows) -> npt.NDArray[np.bool_]:
    """Rows with a backslash."""
    found = np.zeros(len(cursor), np.bool_)
    places = np.flatnonzero(cursor.data[: cursor.parked] == _BACKSLASH)
    found[np.searchsorted(end, places, "right")] = True
    return found
