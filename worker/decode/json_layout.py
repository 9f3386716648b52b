"""How a producer writes its documents, learned from some of them, and the scan of others like it.

Rules of this file:
- Documents with a byte below a space are not scanned. A backslash is taken only before the quotes
  of embedded documents.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from worker.decode.byte_prefilters import counts_by_row, escapes, may_hold, raw_bytes, rows_at_once
from worker.decode.json_cursor import JsonCursor, Seen
from worker.decode.json_scalars import ESCAPED_QUOTE
from worker.decode.json_scan import (
    ENTRY,
    ITEM,
    Document,
    JsonLayout,
    Path,
    can_scan,
    document_scanner,
    is_plain,
)

Rows = npt.NDArray[np.int64]
Gaps = tuple[bytes, bytes]

_COMPACT: Final = (b",", b":")
_SAMPLE_ROWS: Final = 12
_SAMPLE_BYTES_MAX: Final = 65_536
_KEYS_MAX: Final = 2_000
_REFUSED_SHARE: Final = 8
_NOTHING: Final = np.empty(0, np.int64)


class Pairs(list[tuple[str, Any]]):
    """Keys and values of an object, in their order."""


class JsonLayouts:
    """The order of keys, and the text between them.

    Args:
        passes: whether to learn keys that are not asked for, too.

    Attributes:
        keys: by path, the keys of an object in their order.
        gaps: the text between two fields, and between a name and its value.
    """

    def __init__(self, *, passes: bool) -> None:
        self.keys: dict[Path, list[str]] = {}
        self.gaps: Gaps = _COMPACT
        self._passes = passes

    def known(self) -> tuple[dict[Path, list[str]], Gaps]:
        """Return a copy of what is learned so far."""
        return {path: list(keys) for path, keys in self.keys.items()}, self.gaps

    def note(self, text: str, kind: pa.DataType) -> Pairs:
        """Learn from a document; return its fields, none where it is no object."""
        try:
            document = json.loads(text, object_pairs_hook=Pairs)
        except (ValueError, RecursionError):
            return Pairs()
        self._note(document, kind, ())
        self.gaps = _gaps(_names(document), text, self.gaps)
        return document if isinstance(document, Pairs) else Pairs()

    def _note(self, value: Any, kind: pa.DataType, path: Path) -> None:
        """Learn the order of keys."""
        if pa.types.is_list(kind) and type(value) is list:
            for item in value:
                self._note(item, kind.value_type, (*path, ITEM))
        elif pa.types.is_map(kind) and isinstance(value, Pairs):
            for _, item in value:
                self._note(item, kind.item_type, (*path, ENTRY))
        elif pa.types.is_struct(kind) and isinstance(value, Pairs):
            types = {field.name: field.type for field in kind}
            names, index = self.keys.setdefault(path, []), 0
            for name, item in value:
                if name in names:
                    index = names.index(name) + 1
                elif name in types or (self._passes and is_plain(name)):
                    names.insert(index, name)
                    index += 1
                if name in types:
                    self._note(item, types[name], (*path, name))


class LearnedScanner:
    """Scans documents in the layout that it learned from some of them.

    Args:
        types: of the fields asked for; structs for embedded documents.
        layouts: of the documents.
        embedded: of text fields that hold documents, the layouts of these.

    Attributes:
        types: see above.
        is_possible: whether documents can be scanned.
    """

    def __init__(
        self,
        types: Mapping[str, pa.DataType],
        layouts: JsonLayouts,
        embedded: Mapping[str, JsonLayouts],
    ) -> None:
        self.types = dict(types)
        self.is_possible = can_scan(pa.struct(list(types.items())))
        self._layouts = layouts
        self._embedded = embedded
        self._scan: tuple[Document, int] | None = None

    def scan(self, values: pa.Array, seen: Seen) -> tuple[pa.Table | None, Rows]:
        """Scan a block.

        Args:
            values: binary, no nulls, one chunk.
            seen: takes the names and nulls that are read.

        Returns:
            the rows that are scanned to their end, None for no row, and their positions.
        """
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            return None, _NOTHING
        raw = raw_bytes(texts)
        if raw.min(initial=ord(" ")) < ord(" "):
            return None, _NOTHING
        is_escaped = may_hold(raw, b"\\")
        if is_escaped and not self._embedded and _are_escaped(texts):
            return None, _NOTHING
        if self._scan is None:
            self._learn(texts)
        table, rows = self._run(texts, seen, is_escaped=is_escaped)
        if (len(texts) - len(rows)) * _REFUSED_SHARE > len(texts):
            refused = np.ones(len(texts), np.bool_)
            refused[rows] = False
            if self._learn(texts.filter(pa.array(refused))):
                table, rows = self._run(texts, seen, is_escaped=is_escaped)
        return table, rows

    def _run(
        self, texts: pa.Array, seen: Seen, *, is_escaped: bool
    ) -> tuple[pa.Table | None, Rows]:
        if self._scan is None:
            return None, _NOTHING
        scan, ahead = self._scan
        tables: list[pa.Table] = []
        row_numbers: list[Rows] = []
        step = rows_at_once(texts)
        for start in range(0, len(texts), step):
            cursor, end = JsonCursor.over(texts.slice(start, step), ahead, seen)
            if is_escaped:
                cursor.refuse(_escaped(cursor, end, but_quotes=bool(self._embedded)))
            fields = scan(cursor)
            is_good = (cursor.at == end) & ~cursor.bad
            good = np.flatnonzero(is_good)
            if not len(good):
                continue
            if len(good) < len(cursor):
                fields = fields.picked(good)
            arrays = [gathered.array(cursor.data) for _, gathered in fields.fields]
            tables.append(pa.Table.from_arrays(arrays, names=list(self.types)))
            row_numbers.append(good + start)
        if not tables:
            return None, _NOTHING
        return pa.concat_tables(tables).combine_chunks(), np.concatenate(row_numbers)

    def _learn(self, texts: pa.Array) -> bool:
        """Learn from some documents; return whether there is a new scan."""
        layouts = (self._layouts, *self._embedded.values())
        before = [each.known() for each in layouts]
        places = np.unique(np.linspace(0, len(texts) - 1, _SAMPLE_ROWS).astype(np.int64))
        kind = pa.struct(list(self.types.items()))
        for text in texts.take(pa.array(places)).to_pylist():
            if len(text) > _SAMPLE_BYTES_MAX:
                continue
            for name, value in self._layouts.note(text, kind):
                if name in self._embedded and type(value) is str:
                    self._embedded[name].note(value, self.types[name])
        if self._scan is not None and [each.known() for each in layouts] == before:
            return False
        if sum(len(keys) for each in layouts for keys in each.keys.values()) > _KEYS_MAX:
            self.is_possible = False
        if not self.is_possible or not self._layouts.keys:
            self._scan = None
            return False
        embedded = {
            name: JsonLayout(each.keys, *each.gaps, ESCAPED_QUOTE)
            for name, each in self._embedded.items()
        }
        layout = JsonLayout(self._layouts.keys, *self._layouts.gaps, embedded=embedded)
        self._scan = document_scanner(self.types, layout)
        return True


def _names(value: Any) -> tuple[str | None, str | None]:
    """Return the first name of an object, and a name behind another one, at any depth."""
    first = second = None
    if not isinstance(value, Pairs):
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


def _gaps(names: tuple[str | None, str | None], text: str, last_gaps: Gaps) -> Gaps:
    """Return the text between fields and between a name and its value, found by the names."""
    plain_names = [
        name for name in names if name is not None
    ]  # one with an escape is not in the text
    commas = [gap for gap in (", ", ",") if f'{gap}"{names[1]}"' in text and names[1] is not None]
    colons = [gap for name in plain_names for gap in (": ", ":") if f'"{name}"{gap}' in text]
    comma = commas[0].encode() if commas else last_gaps[0]
    return comma, colons[0].encode() if colons else last_gaps[1]


def _escaped(cursor: JsonCursor, end: Rows, *, but_quotes: bool) -> npt.NDArray[np.bool_]:
    """Return rows with a backslash, without those before a quote if ``but_quotes``."""
    places = escapes(cursor.data[: cursor.parked + 1], but_quotes=but_quotes)
    return counts_by_row(places, end) > 0


def _are_escaped(texts: pa.Array) -> bool:
    """Return whether each document of a sample holds a backslash."""
    places = np.unique(np.linspace(0, len(texts) - 1, _SAMPLE_ROWS).astype(np.int64))
    return bool(pc.all(pc.match_substring(texts.take(pa.array(places)), "\\")).as_py())
