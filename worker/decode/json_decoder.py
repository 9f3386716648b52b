"""Blocks of JSON documents into Arrow columns.

Rules of this file:
- A row is decoded only when it is exactly one object and every value asked for reads as
  ``connect.records.converters.json.json_text`` reads it. Other rows are refused and go to the
  record path.
- Between two documents are ``}``, a newline and ``{``. Inside an object or array these do not
  parse, and inside a string the newline does not. So as many rows as documents means one row each.
- Types are learned from the data: a column that does not parse as guessed gets the type it holds.
- Work on bad rows is bounded: where too many rows of a block fail, its rest is refused unread.
- The cost of fields that are not asked for is bounded, too: each becomes a column of all rows.
  Documents with thousands of names, and blocks with too many new ones for their rows, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from worker.convert.texts import refused_rows
from worker.decode.ambiguous_numbers import (
    Mask,
    ambiguous_zeros,
    either,
    far_decimals,
    many_names,
    matches,
    not_finite,
)
from worker.decode.byte_prefilters import counts_by_row, may_hold_digits, openings, raw_bytes
from worker.decode.json_cursor import Seen
from worker.decode.json_types import extra_rows, leaf_count, learned_schema, pruned

Rows = npt.NDArray[np.int64]
Piece = tuple[Rows, pa.Table]
_ROW: Final = re.compile(r" in row (\d+)$")
_UNEXPECTED: Final = "unexpected field"
_SAMPLE_ROWS: Final = 2_000
_FAILURES_MIN: Final = 16
_STEP_MIN: Final = 16
_WINDOWS: Final = 6
_FRUITLESS_MAX: Final = 63
_LONG_BYTES: Final = 300
_DEEP_BYTES: Final = 1_900
_OPENINGS_MAX: Final = 900
_NAMED_BYTES: Final = 65_536
_NAMES_MAX: Final = 5_000
_PROBES: Final = (8, 64, 512)  # rows
_CELLS_MAX: Final = 16_000_000  # of about 16 bytes
_WHITE: Final = " \t\r\n"

# numbers that Arrow's parser and Java read differently
_ENDLESS: Final = r"0{300}|[0-9]{900}"
# numbers that the record path refuses, also in fields that are not asked for
INEXACT: Final = r"[:\[,]\s*-?(?:[0-9]+(?:\.[0-9]+)?[eE]|[0-9]{16,}\.|NaN|Inf)"


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """The decoded and the refused rows of a block.

    Attributes:
        table: the decoded rows; columns are those asked for.
        rows: their positions in the block, None when they are all of it, in order.
        refused: positions of the rows that the record path must read.
        unexpected: positions of decoded rows that hold values in fields that are not asked for;
            empty unless the decoder reports them.
        seen: names and nulls in the decoded documents, which hold no escapes, and in documents
            within their texts; None: any.
    """

    table: pa.Table
    rows: Rows | None
    refused: Rows
    unexpected: Rows
    seen: Seen | None = None


class _TooManyNames(Exception):  # noqa: N818 - caught in the decoder
    """A block brings more new fields than there can be columns."""


class JsonDecoder:
    """Decodes blocks of objects; keeps what it learned for the next block.

    Args:
        fields: first guess of the Arrow type of every field asked for: bool, int64, double,
            string, decimals, structs and lists of them; null for a field that only the record path
            can read.
        report_unexpected: report rows with fields that are not asked for.
        keeps: keep these fields in the table instead of reporting their rows.
    """

    def __init__(
        self, fields: Mapping[str, pa.DataType], *, report_unexpected: bool, keeps: bool = False
    ) -> None:
        self._guess = pa.schema(list(fields.items()))
        self._schema = self._guess
        self._report = report_unexpected
        self._keeps = keeps
        self._behavior = "error"
        self._failures_max: int | None = None
        self._is_multiline = False
        self._fruitless = 0
        self._skip_learning = 0
        self._unexpected: list[Rows] = []

    @property
    def schema(self) -> pa.Schema:
        """Return the current types: learned, or the first guess."""
        return self._schema

    def decode(self, values: pa.Array) -> DecodedBlock:
        """Decode a block.

        Args:
            values: binary, no nulls, one chunk; less than 2 GB.
        """
        texts, suspect = _texts(values, names_max=_NAMES_MAX if self._report else None)
        suspect = either(suspect, far_decimals(texts, self._guess))
        places = np.arange(len(texts))
        if suspect is not None:
            places = np.flatnonzero(~suspect)
            texts = texts.take(pa.array(places))
        try:
            pieces_read = self._pieces(texts)
        except _TooManyNames:
            pieces_read = []
        pieces = [self._checked(piece, texts) for piece in pieces_read]
        table = self._together([piece for piece in pieces if piece[1].num_rows])
        rows = places[_concatenated([rows for rows, _ in pieces])]
        refused = np.ones(len(values), np.bool_)
        refused[rows] = False
        extra = np.concatenate([*self._unexpected, np.empty(0, np.int64)])
        self._unexpected = []
        is_all = len(rows) == len(values)
        return DecodedBlock(table, None if is_all else rows, np.flatnonzero(refused), places[extra])

    def _together(self, pieces: list[Piece]) -> pa.Table:
        """Join the pieces."""
        if len(pieces) <= 1:
            return pieces[0][1] if pieces else self._schema.empty_table()
        try:
            return pa.concat_tables(
                [table for _, table in pieces], promote_options="permissive"
            ).combine_chunks()
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # in fields that are not asked for
            return pa.concat_tables([self._without_extra(*p) for p in pieces]).combine_chunks()

    def _without_extra(self, rows: Rows, table: pa.Table) -> pa.Table:
        """Return the table with the fields asked for, and report rows with others."""
        if table.schema == self._schema:
            return table
        self._unexpected.append(rows[extra_rows(table, self._schema)])
        return pruned(table, self._schema)

    # -------------------------------------------------------------- pieces that parse

    def _pieces(self, texts: pa.Array) -> list[Piece]:
        """Parse all rows, or those that can be parsed."""
        if not len(texts):
            return []
        if self._behavior == "infer":
            self._probe(texts)
        table, row = self._attempt(texts, self._schema)
        if table is None and not self._is_multiline and matches(texts, r"\n") is not None:
            self._is_multiline = True
            table, row = self._attempt(texts, self._schema)
        if table is None and self._learn(texts):
            table, row = self._attempt(texts, self._schema)
        if table is not None:
            self._failures_max = None
            return [(np.arange(len(texts)), table)]
        total = len(texts)
        budget = self._failures_max or total // 16 + _FAILURES_MIN
        pieces, is_exhausted = self._split(texts, self._schema, row, budget)
        self._failures_max = max(_FAILURES_MIN, total // 256) if is_exhausted else None
        return pieces

    def _split(
        self, texts: pa.Array, schema: pa.Schema, first_bad: int | None, budget: int
    ) -> tuple[list[Piece], bool]:
        """Parse the rows that can be parsed; return whether the budget of bad rows ended first.

        Steps grow while rows parse and shrink to the distance between bad rows. So the work is in
        proportion to the rows, independent of how many are bad.
        """
        pieces: list[Piece] = []
        start, total = 0, len(texts)
        step = total // 2 if first_bad is None else max(first_bad, 1)
        usual, bad = step, first_bad  # a bad row, if those before it parse
        while start < total and budget > 0:
            size = min(step, total - start)
            if bad != start:
                table, row = self._attempt(texts.slice(start, size), schema)
                if table is not None:
                    pieces.append((np.arange(start, start + size), table))
                    start, step = start + size, step * 2
                    continue
                if row is not None and 0 < row < size:
                    step, bad = row, start + row
                    continue
                if row is None and size > 1:
                    step = size // 2
                    continue
            usual = (usual + step) // 2
            budget -= 1
            start, step = start + 1, max(usual, _STEP_MIN)
        return pieces, start < total

    def _attempt(self, texts: pa.Array, schema: pa.Schema) -> tuple[pa.Table | None, int | None]:
        """Parse; return the table, or None and the row that does not parse, if Arrow names it."""
        try:
            table = _read(_joined(texts), schema, self._behavior, is_multiline=self._is_multiline)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if _UNEXPECTED not in str(error):
                return None, _row_of(error)
            self._behavior = "infer" if self._report else "ignore"  # from now on
            if self._report:
                self._probe(texts)
            return self._attempt(texts, schema)
        return (table, None) if table.num_rows == len(texts) else (None, None)

    def _probe(self, texts: pa.Array) -> None:
        """Parse a few rows, then more, before each new name becomes a column of all rows."""
        known_leaves = leaf_count(self._schema.types)
        steps = [rows for rows in _PROBES if rows < len(texts)]
        before = new_before = 0
        for rows, ahead in zip(steps, [*steps[1:], len(texts)], strict=False):
            places = np.linspace(0, len(texts) - 1, rows).astype(np.int64)
            part = _joined(texts.take(pa.array(places)))
            try:
                inferred = _read(part, None, "infer", is_multiline=self._is_multiline).schema
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return
            new = max(0, leaf_count(inferred.types) - known_leaves)
            more = (new - new_before) / (rows - before) if before else 0
            if new + more * (ahead - rows) > min(_NAMES_MAX, _CELLS_MAX / ahead):
                raise _TooManyNames
            before, new_before = rows, new

    # -------------------------------------------------------------- learning types

    def _learn(self, texts: pa.Array) -> bool:
        """Learn types from the first rows; return whether they change how rows are decoded.

        Of the current types and those found in the sample, the types that parse most rows are used:
        one odd row must not decide for the others.
        """
        if self._skip_learning > 0:
            self._skip_learning -= 1
            return False
        sample = texts.slice(0, _SAMPLE_ROWS)
        best, fewest = self._schema, self._failures(sample, self._schema)
        for candidate in (self._guess, *self._candidates(sample)):
            if fewest and candidate != best and (f := self._failures(sample, candidate)) < fewest:
                best, fewest = candidate, f
        if best == self._schema:
            self._fruitless = min(self._fruitless * 2 + 1, _FRUITLESS_MAX)
            self._skip_learning = self._fruitless
            return False
        self._schema, self._fruitless = best, 0
        return True

    def _candidates(self, sample: pa.Array) -> list[pa.Schema]:
        candidates = []
        start = 0
        for _ in range(_WINDOWS):
            window = sample.slice(start)
            if not len(window):
                break
            try:
                inferred = _read(_joined(window), None, "infer", is_multiline=True).schema
                candidates.append(learned_schema(self._guess, self._schema, inferred))
                break
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
                row = _row_of(failure)
                good = len(window) // 2 if row is None else row
                window = window.slice(0, good)
                start += max(good, 1)
            if good:
                try:
                    inferred = _read(_joined(window), None, "infer", is_multiline=True).schema
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                    continue
                candidates.append(learned_schema(self._guess, self._schema, inferred))
        return candidates

    def _failures(self, sample: pa.Array, schema: pa.Schema) -> int:
        """Return how many rows of the sample do not parse; all of them when there are many."""
        table, row = self._attempt(sample, schema)
        if table is not None:
            return 0
        pieces, is_exhausted = self._split(sample, schema, row, len(sample) // 8 + 8)
        parsed = sum(len(rows) for rows, _ in pieces)
        return len(sample) if is_exhausted else len(sample) - parsed

    # -------------------------------------------------------------- checks after parsing

    def _checked(self, piece: Piece, texts: pa.Array) -> Piece:
        """Remove rows whose numbers Arrow reads differently from Java."""
        rows, table = piece
        part = texts.slice(int(rows[0]), len(rows))
        ambiguous = either(ambiguous_zeros(table, part), not_finite(table))
        if self._behavior == "ignore":
            ambiguous = either(ambiguous, matches(part, INEXACT))
        if ambiguous is not None:  # first, because a table without columns has no rows
            rows, table = rows[~ambiguous], table.filter(pa.array(~ambiguous))
        if self._report and not self._keeps:
            table = self._without_extra(rows, table)
        return rows, table


def _read(
    data: pa.Buffer, schema: pa.Schema | None, behavior: str, *, is_multiline: bool
) -> pa.Table:
    table = pj.read_json(
        pa.BufferReader(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=max(data.size + 1, 1 << 16)),
        parse_options=pj.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=is_multiline,
            unexpected_field_behavior=behavior,
        ),
    )
    if behavior == "infer":
        try:
            table.validate()
        except pa.ArrowInvalid:
            # a list that begins with nulls has too few items if its type is inferred
            if schema == table.schema:
                raise
            return _read(data, table.schema, behavior, is_multiline=is_multiline)
    return table


def _concatenated(parts: list[Rows]) -> Rows:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _row_of(error: Exception) -> int | None:
    row = _ROW.search(str(error))
    return None if row is None else int(row[1])


def _joined(texts: pa.Array) -> pa.Buffer:
    """Return all documents, with a newline between two."""
    bounds = pa.array([0, len(texts)], pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(bounds, texts), "\n")[0].as_buffer()


# ------------------------------------------------------------------ checks before parsing


def _texts(values: pa.Array, *, names_max: int | None) -> tuple[pa.Array, Mask | None]:
    """Return values as UTF-8 text without white space around, and a mask of rows to refuse."""
    try:
        texts, suspect = values.cast(pa.string()), None
    except pa.ArrowInvalid:
        suspect = refused_rows(values, lambda part: part.cast(pa.string()))
        texts = pc.if_else(pa.array(suspect), b"", values).cast(pa.string())
    shape, longest, lowest = _misshapen(texts)
    if shape.any():
        texts = pc.utf8_trim(texts, _WHITE)
        shape, longest, lowest = _misshapen(texts)
    if shape.any():
        suspect = either(suspect, shape)
    if lowest == 0:
        suspect = either(suspect, matches(texts, r"\x00"))
    if longest > _LONG_BYTES:
        suspect = either(suspect, _long_suspects(texts, longest))
    if names_max is not None and longest > _NAMED_BYTES:
        suspect = either(suspect, many_names(texts, _NAMED_BYTES, names_max))
    return texts, suspect


def _misshapen(texts: pa.Array) -> tuple[Mask, int, int]:
    """Return rows not between ``{`` and ``}``, the longest row's bytes, and the lowest byte.

    Arrow's parser takes a zero byte for the end of its input.
    """
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(bounds)
    if data is None or not data.size:
        return np.ones(len(texts), np.bool_), 0, 1
    raw = np.frombuffer(data, np.uint8)
    first = raw[np.minimum(bounds[:-1], len(raw) - 1)]
    last = raw[np.maximum(bounds[1:] - 1, 0)]
    shape = (lengths < 2) | (first != ord("{")) | (last != ord("}"))
    inner = raw[bounds[0] : bounds[-1]]
    return shape, int(lengths.max(initial=0)), int(inner.min(initial=1))


def _long_suspects(texts: pa.Array, longest: int) -> Mask | None:
    """Return long rows with very long numbers, or nested deeper than Java's parser allows."""
    raw = raw_bytes(texts)
    suspects: Mask | None = None
    if longest > _DEEP_BYTES:
        ends = np.cumsum(pc.binary_length(texts).to_numpy(), dtype=np.int64)
        deep = counts_by_row(openings(raw), ends) > _OPENINGS_MAX
        suspects = deep if deep.any() else None
    if may_hold_digits(raw):
        rows = np.flatnonzero(pc.greater(pc.binary_length(texts), _LONG_BYTES))
        endless = matches(texts.take(pa.array(rows)), _ENDLESS)
        if endless is not None:
            mask = np.zeros(len(texts), np.bool_)
            mask[rows[endless]] = True
            suspects = either(suspects, mask)
    return suspects
