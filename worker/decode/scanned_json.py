"""Blocks of JSON documents into columns, as one producer writes them and in any other way.

Rules of this file:
- Most producers write the fields of all their documents in one order and without white space, or
  with the same. Such documents are scanned; the order is learned from some of them. What does not
  look like that is another decoder's, which takes any document.
- The scan refuses what the other decoder would read differently: so it is only faster.
- Where it takes too few rows it is left off for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from worker.decode.byte_prefilters import escapes, may_hold, raw_bytes, rows_at_once
from worker.decode.json_cursor import JsonCursor, Seen
from worker.decode.json_decoder import DecodedBlock, JsonDecoder
from worker.decode.json_layout import JsonLayouts
from worker.decode.json_maps import MapDecoder, holds_map
from worker.decode.json_scalars import ESCAPED_QUOTE
from worker.decode.json_scan import Document, JsonLayout, can_scan, document_scanner

Rows = npt.NDArray[np.int64]

_SAMPLE_ROWS: Final = 12
_SAMPLE_BYTES_MAX: Final = 65_536
_KEYS_MAX: Final = 2_000
_REFUSED_SHARE: Final = 8
_FRUITLESS_MAX: Final = 63
_NOTHING: Final = np.empty(0, np.int64)


def json_decoder(
    fields: Mapping[str, pa.DataType],
    *,
    report_unexpected: bool,
    keeps: bool = False,
    embedded: Mapping[str, ScannedJson] | None = None,
) -> ScannedJson:
    """What decodes documents with these fields, which may be maps with text keys.

    Args:
        fields: see ``JsonDecoder`` and ``MapDecoder``.
        report_unexpected: look for fields that are not asked for.
        keeps: see ``JsonDecoder``; without maps.
        embedded: see ``ScannedJson``; without maps.
    """
    if any(holds_map(kind) for kind in fields.values()):
        maps = MapDecoder(fields, report_unexpected=report_unexpected)
        return ScannedJson(fields, maps, report_unexpected=report_unexpected)
    other = JsonDecoder(fields, report_unexpected=report_unexpected, keeps=keeps)
    return ScannedJson(fields, other, report_unexpected=report_unexpected, embedded=embedded)


def together(parts: list[DecodedBlock], count: int) -> tuple[pa.Table, Rows, Rows]:
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
        embedded: of text fields that hold documents, what decodes those. Where it can be, they are
            scanned as they stand in the text around them, and the field is a struct.

    Attributes:
        types: in use by now, of every field asked for.
        passes: whether fields are passed over that are not asked for.
    """

    def __init__(
        self,
        fields: Mapping[str, pa.DataType],
        other: JsonDecoder | MapDecoder,
        *,
        report_unexpected: bool,
        embedded: Mapping[str, ScannedJson] | None = None,
    ) -> None:
        self.types = dict(fields)
        self._other = other
        self.passes = not report_unexpected
        self._embedded = embedded or {}
        self._asked: dict[str, pa.DataType] = {}
        self._is_possible = False
        self._has_maps = any(holds_map(kind) for kind in fields.values())
        self._seen = Seen()
        self._json_layouts = JsonLayouts(passes=self.passes)
        self._inner: dict[str, JsonLayouts] = {}
        self._scan: tuple[Document, int] | None = None
        self._fruitless = 0
        self._left_off = 0
        self._settle()

    def _settle(self) -> None:
        """Scan for the types in use by now, those of embedded documents included."""
        asked, inner = dict(self.types), {}
        for name, decoder in self._embedded.items():
            kind = pa.struct(list(decoder.types.items()))
            if pa.types.is_string(asked[name]) and can_scan(kind):
                asked[name], inner[name] = kind, JsonLayouts(passes=decoder.passes)
        if asked != self._asked:
            self._asked, self._inner, self._scan = asked, inner, None
            self._is_possible = can_scan(pa.struct(list(asked.items())))
            self._fruitless = self._left_off = 0

    def decode(self, values: pa.Array) -> Iterator[DecodedBlock]:
        """Decode a block, perhaps in two parts; see ``JsonDecoder``.

        Args:
            values: binary, no nulls, one chunk; less than 2 GB.
        """
        rest = np.arange(len(values))
        if self._left_off > 0:
            self._settle()  # the other decoders may have found other types
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
                yield DecodedBlock(table, rows if len(rest) else None, rest, _NOTHING, seen)
        if len(rest):
            yield self._by_other(values, rest)

    def _by_other(self, values: pa.Array, rest: Rows) -> DecodedBlock:
        if len(rest) == len(values):
            decoded = self._other.decode(values)
        else:
            found = self._other.decode(values.take(pa.array(rest)))
            rows = rest if found.rows is None else rest[found.rows]
            decoded = DecodedBlock(found.table, rows, rest[found.refused], rest[found.unexpected])
        if self._left_off and isinstance(self._other, JsonDecoder):
            self.types = {field.name: field.type for field in self._other.schema}
        return decoded

    # -------------------------------------------------------------- scanning

    def _scanned(self, values: pa.Array) -> tuple[pa.Table | None, Rows]:
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            return None, _NOTHING
        raw = raw_bytes(texts)
        if raw.min(initial=ord(" ")) < ord(" "):
            return None, _NOTHING
        is_escaped = may_hold(raw, b"\\")
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
                cursor.refuse(_escaped(cursor, end, but_quotes=bool(self._inner)))
            fields = scan(cursor)
            is_good = (cursor.at == end) & ~cursor.bad
            good = np.flatnonzero(is_good)
            if not len(good):
                continue
            if len(good) < len(cursor):
                fields = fields.picked(good)
            arrays = [gathered.array(cursor.data) for _, gathered in fields.fields]
            tables.append(pa.Table.from_arrays(arrays, names=list(self._asked)))
            found.append(good + start)
        if not tables:
            return None, _NOTHING
        return pa.concat_tables(tables).combine_chunks(), np.concatenate(found)

    # -------------------------------------------------------------- learning

    def _learn(self, texts: pa.Array) -> bool:
        """Look at how some documents are written; whether that was not known."""
        all_json_layouts = (self._json_layouts, *self._inner.values())
        before = [json_layouts.known() for json_layouts in all_json_layouts]
        places = np.unique(np.linspace(0, len(texts) - 1, _SAMPLE_ROWS).astype(np.int64))
        kind = pa.struct(list(self._asked.items()))
        for text in texts.take(pa.array(places)).to_pylist():
            if len(text) > _SAMPLE_BYTES_MAX:
                continue
            for name, value in self._json_layouts.note(text, kind):
                if name in self._inner and type(value) is str:
                    self._inner[name].note(value, self._asked[name])
        if [
            json_layouts.known() for json_layouts in all_json_layouts
        ] == before and self._scan is not None:
            return False
        if (
            sum(
                len(keys)
                for json_layouts in all_json_layouts
                for keys in json_layouts.keys.values()
            )
            > _KEYS_MAX
        ):
            self._is_possible = False
        if not self._is_possible or not self._json_layouts.keys:
            self._scan = None
            return False
        inner = {
            name: JsonLayout(json_layouts.keys, *json_layouts.gaps, ESCAPED_QUOTE)
            for name, json_layouts in self._inner.items()
        }
        layout = JsonLayout(self._json_layouts.keys, *self._json_layouts.gaps, embedded=inner)
        self._scan = document_scanner(self._asked, layout)
        return True


def _escaped(cursor: JsonCursor, end: Rows, *, but_quotes: bool) -> npt.NDArray[np.bool_]:
    """Rows with a backslash; one before a quote does not count where such are scanned."""
    found = np.zeros(len(cursor), np.bool_)
    places = escapes(cursor.data[: cursor.parked + 1], but_quotes=but_quotes)
    found[np.searchsorted(end, places, "right")] = True
    return found
