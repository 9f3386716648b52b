"""Decodes blocks of JSON documents: most are scanned, another decoder takes the others.

Rules of this file:
- Most producers write the fields of all their documents in one order and with one kind of white
  space. These documents are scanned (``LearnedScanner``). The other decoder takes any document.
- The scanner refuses what the other decoder would read differently. It changes the speed only.
- Where it takes too few rows it is paused for some blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from worker.decode.json_cursor import Seen
from worker.decode.json_decoder import DecodedBlock, JsonDecoder
from worker.decode.json_layout import JsonLayouts, LearnedScanner
from worker.decode.json_maps import MapDecoder, holds_map
from worker.decode.json_scan import can_scan, without_choices

Rows = npt.NDArray[np.int64]

_PAUSED_BLOCKS_MAX: Final = 63
_NOTHING: Final = np.empty(0, np.int64)


def json_decoder(
    fields: Mapping[str, pa.DataType],
    *,
    report_unexpected: bool,
    keeps: bool = False,
    embedded: Mapping[str, ScannedJson] | None = None,
) -> ScannedJson:
    """Return what decodes documents with some fields, which may be maps with text keys.

    Args:
        fields: see ``JsonDecoder`` and ``MapDecoder``; unions of scalars are scanned only, and
            become structs of their members.
        report_unexpected: report rows with fields that are not asked for.
        keeps: see ``JsonDecoder``; without maps.
        embedded: see ``ScannedJson``; without maps.
    """
    others = {name: without_choices(kind) for name, kind in fields.items()}
    if any(holds_map(kind) for kind in others.values()):
        maps = MapDecoder(others, report_unexpected=report_unexpected)
        return ScannedJson(fields, maps, report_unexpected=report_unexpected)
    other = JsonDecoder(others, report_unexpected=report_unexpected, keeps=keeps)
    return ScannedJson(fields, other, report_unexpected=report_unexpected, embedded=embedded)


def together(parts: list[DecodedBlock], count: int) -> tuple[pa.Table, Rows, Rows]:
    """Join what was decoded in parts.

    Returns:
        the decoded rows, their positions, and the positions of rows with unexpected fields. Where
        the parts have types that do not fit, the largest part.
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
        other: decodes documents that are not scanned.
        report_unexpected: rows with fields that are not asked for go to the other decoder.
        embedded: decoders of text fields that hold documents. Where possible, these documents are
            scanned within the text, and the field is a struct.

    Attributes:
        types: current types of the fields asked for.
        passes: whether fields that are not asked for are passed over.
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
        self.passes = not report_unexpected
        self._other = other
        self._embedded = embedded or {}
        self._has_maps = any(holds_map(kind) for kind in fields.values())
        self._layouts = JsonLayouts(passes=self.passes)
        self._scanner = self._scanner_of_types()
        self._pause = 0  # blocks of the last pause
        self._paused = 0  # blocks that are left of it

    def _scanner_of_types(self) -> LearnedScanner:
        """Return a scanner for the current types, including those of embedded documents."""
        scanned_types = dict(self.types)
        inner: dict[str, JsonLayouts] = {}
        for name, decoder in self._embedded.items():
            kind = pa.struct(list(decoder.types.items()))
            if pa.types.is_string(scanned_types[name]) and can_scan(kind):
                scanned_types[name], inner[name] = kind, JsonLayouts(passes=decoder.passes)
        return LearnedScanner(scanned_types, self._layouts, inner)

    def decode(self, values: pa.Array) -> Iterator[DecodedBlock]:
        """Decode a block, perhaps in two parts; see ``JsonDecoder``.

        Args:
            values: binary, no nulls, one chunk; less than 2 GB.
        """
        rest = np.arange(len(values))
        if self._paused > 0:
            scanner = self._scanner_of_types()  # the other decoders may have found other types
            if scanner.types != self._scanner.types:
                self._scanner = scanner
                self._pause = self._paused = 0
        if self._paused > 0:
            self._paused -= 1
        elif self._scanner.is_possible and len(values):
            seen = Seen()
            table, rows = self._scanner.scan(values, seen)
            if len(rows) * 2 < len(values):
                self._pause = min(self._pause * 2 + 1, _PAUSED_BLOCKS_MAX)
                self._paused = self._pause
            else:
                self._pause = 0
            if table is not None:
                refused = np.ones(len(values), np.bool_)
                refused[rows] = False
                rest = np.flatnonzero(refused)
                names = None if self._has_maps else seen  # keys of maps are not in it
                yield DecodedBlock(table, rows if len(rest) else None, rest, _NOTHING, names)
        if len(rest):
            yield self._by_other(values, rest)

    def _by_other(self, values: pa.Array, rest: Rows) -> DecodedBlock:
        if len(rest) == len(values):
            decoded = self._other.decode(values)
        else:
            block = self._other.decode(values.take(pa.array(rest)))
            rows = rest if block.rows is None else rest[block.rows]
            decoded = DecodedBlock(block.table, rows, rest[block.refused], rest[block.unexpected])
        if self._paused and isinstance(self._other, JsonDecoder):
            for field in self._other.schema:
                if without_choices(self.types[field.name]) == self.types[field.name]:
                    self.types[field.name] = field.type
        return decoded
