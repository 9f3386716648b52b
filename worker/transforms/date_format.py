"""Date patterns of fixed width over columns of texts; values are those of ``date_format``.

Rules of this file:
- A text is read if it has exactly the digits and marks of the pattern and its day exists. All other
  texts go to the record path, lenient or strict.
- Years 0 to 9999 are written.
- Patterns without a fixed width are applied to the distinct values, where these are few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connect.records.transforms.date_format import DateFormat, Piece
from worker.convert.texts import StringColumn
from worker.transforms.rows import Mask, valid

Whole = npt.NDArray[np.int64]

_DAY_MS: Final = 86_400_000
_WIDTHS: Final = {"y": 4, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2}
_RANGES: Final = {"M": (1, 12), "d": (1, 31), "H": (0, 23), "m": (0, 59), "s": (0, 59)}
_OFFSETS: Final = {("X", 1): "shh", ("X", 2): "shhmm", ("X", 3): "shh:mm", ("Z", 1): "shhmm"}
_DISTINCT_MAX: Final = 2_000
_YEAR_MIN_MS: Final = -62_167_219_200_000  # year 0
_YEAR_MAX_MS: Final = 253_402_300_800_000  # year 10000


def read_texts(form: DateFormat, column: pa.Array, *, strict: bool) -> tuple[Whole, Mask]:
    """Read texts as milliseconds since 1970 UTC.

    Args:
        form: the pattern.
        column: of strings.
        strict: as in ``DateFormat.parse``.

    Returns:
        the milliseconds, and the ambiguous rows.
    """
    pieces = _readable(form)
    if pieces is None:
        return _by_distinct(column, lambda text: form.parse(text, strict=strict))
    texts = StringColumn(column)
    good = np.ones(len(column), np.bool_)
    parts: dict[str, Whole] = {}
    at = 0
    for piece in pieces:
        if piece.letter in "XZ" and piece.letter:
            width, parts["zone"], fits = _zone(texts, at, _OFFSETS[piece.letter, piece.count])
            good &= fits & (texts.lengths == at + width)
            at = -1
            break
        if not piece.letter:
            for byte in piece.text.encode():
                good &= texts.at(at) == byte
                at += 1
            continue
        parts[piece.letter], fits = _digits(texts, at, piece.count)
        good &= fits
        at += piece.count
    if at >= 0:
        good &= texts.lengths == at
    for letter, (low, high) in _RANGES.items():
        if letter in parts:
            good &= (parts[letter] >= low) & (parts[letter] <= high)
    if strict and "S" in parts:
        good &= parts["S"] <= 999
    year, month, day = (parts.get(letter, _first(good, first)) for letter, first in _FIRST)
    days = _days_from_civil(year, np.clip(month, 1, 12), day)
    good &= day <= _month_days(year, np.clip(month, 1, 12))
    minutes = parts.get("H", 0) * np.int64(60) + parts.get("m", 0) - parts.get("zone", 0)
    millis = days * _DAY_MS + minutes * 60_000 + parts.get("s", 0) * np.int64(1000)
    millis = millis + parts.get("S", 0)
    return np.where(good, millis, 0), ~good & valid(column)


_FIRST: Final = (("y", 1970), ("M", 1), ("d", 1))


def _first(rows: Mask, number: int) -> Whole:
    return np.full(len(rows), number, np.int64)


def write_texts(form: DateFormat, millis: Whole, null: Mask) -> tuple[pa.Array, Mask]:
    """Write milliseconds since 1970 UTC as texts.

    Args:
        form: the pattern.
        millis: instants; any value where there is none.
        null: rows without one.

    Returns:
        the texts, and the ambiguous rows.
    """
    ambiguous = ((millis < _YEAR_MIN_MS) | (millis >= _YEAR_MAX_MS)) & ~null
    millis = np.where(ambiguous | null, 0, millis)
    if not _is_writable(form):
        texts, more = _written_by_distinct(form, millis, null)
        return texts, ambiguous | more
    days = millis // _DAY_MS
    clock = (millis - days * _DAY_MS).astype(np.uint32)
    year, month, day = _civil_from_days(days)
    seconds = clock // np.uint32(1000)
    minutes = seconds // np.uint32(60)
    hours = minutes // np.uint32(60)
    values: dict[str, Any] = {
        "y": year,
        "M": month,
        "d": day,
        "H": hours,
        "m": minutes - hours * np.uint32(60),
        "s": seconds - minutes * np.uint32(60),
        "S": clock - seconds * np.uint32(1000),
    }
    columns: list[Any] = []
    for piece in form.pieces:
        if piece.letter in values:
            columns += _written_digits(values[piece.letter].astype(np.uint16), piece.count)
        else:
            text = {"X": "Z", "Z": "+0000"}.get(piece.letter, piece.text)
            columns += [np.full(len(millis), byte) for byte in text.encode()]
    width = len(columns)
    raw = np.empty((len(millis), width), np.uint8)
    for index, column in enumerate(columns):
        raw[:, index] = column
    offsets = np.arange(len(millis) + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(raw)]
    texts = pa.Array.from_buffers(pa.string(), len(millis), buffers)
    return _with_nulls(texts, null | ambiguous), ambiguous


def _with_nulls(texts: pa.Array, null: Mask) -> pa.Array:
    if not null.any():
        return texts
    return texts.take(pa.array(np.arange(len(texts)), mask=null))


# ------------------------------------------------------------------ which patterns


def _readable(form: DateFormat) -> tuple[Piece, ...] | None:
    """Return the pieces of a pattern of one width, except for an offset at the end."""
    letters = [piece.letter for piece in form.pieces if piece.letter]
    if len(set(letters)) < len(letters):
        return None
    for index, piece in enumerate(form.pieces):
        if not piece.letter:
            if not piece.text.isascii() or piece.text[:1].isdigit():
                return None
        elif piece.letter in "XZ":
            is_last = index == len(form.pieces) - 1
            if not is_last or (piece.letter, piece.count) not in _OFFSETS:
                return None
        elif piece.letter == "S":
            if piece.count > 9:
                return None
        elif _WIDTHS.get(piece.letter) != piece.count:
            return None
    return form.pieces


def _is_writable(form: DateFormat) -> bool:
    return all(
        _WIDTHS.get(piece.letter) == piece.count
        or (piece.letter == "S" and 3 <= piece.count <= 15)
        or piece.letter in ("X", "Z")
        or (not piece.letter and piece.text.isascii())
        for piece in form.pieces
    )


# ------------------------------------------------------------------ parts of texts


def _digits(texts: StringColumn, at: int, count: int) -> tuple[Whole, Mask]:
    number = np.zeros(len(texts.starts), np.uint32)  # of at most nine digits
    good = np.ones(len(texts.starts), np.bool_)
    for position in range(at, at + count):
        digit = texts.at(position) - np.uint8(48)
        good &= digit <= 9
        number = number * np.uint32(10) + digit
    return number.astype(np.int64), good


def _written_digits(number: npt.NDArray[np.uint16], count: int) -> list[Any]:
    """Return the digits of small numbers as bytes; numpy divides small unsigned types fastest."""
    digits: list[Any] = []
    for _ in range(count):
        tens = number // np.uint16(10)
        digits.append((number - tens * np.uint16(10)).astype(np.uint8) + np.uint8(48))
        number = tens
    return digits[::-1]


def _zone(texts: StringColumn, at: int, shape: str) -> tuple[Any, Whole, Mask]:
    """Return width and minutes of an offset or the letter Z, and whether it fits."""
    is_zed = texts.at(at) == ord("Z")
    sign = texts.at(at)
    good = (sign == ord("+")) | (sign == ord("-"))
    minutes = np.zeros(len(is_zed), np.int64)
    hours, fits = _digits(texts, at + 1, 2)
    good &= fits
    minutes += hours * 60
    if shape.endswith("mm"):
        place = at + len(shape) - 2
        rest, fits = _digits(texts, place, 2)
        good &= fits
        minutes += rest
    if ":" in shape:
        good &= texts.at(at + 3) == ord(":")
    minutes = np.where(sign == ord("-"), -minutes, minutes)
    width = np.where(is_zed, 1, len(shape))
    return width, np.where(is_zed, 0, minutes), is_zed | good


def _by_distinct(column: pa.Array, read: Callable[[str], int]) -> tuple[Whole, Mask]:
    encoded = column.dictionary_encode()
    texts = encoded.dictionary.to_pylist() if len(encoded.dictionary) <= _DISTINCT_MAX else []
    numbers, bad = np.zeros(len(texts) + 1, np.int64), np.ones(len(texts) + 1, np.bool_)
    for index, text in enumerate(texts):
        try:
            number = read(text)
        except ValueError:
            continue
        if -(2**63) <= number < 2**63:
            numbers[index], bad[index] = number, False
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    codes = np.minimum(codes, len(texts))
    return numbers[codes], bad[codes] & valid(column)


def _written_by_distinct(form: DateFormat, millis: Whole, null: Mask) -> tuple[pa.Array, Mask]:
    different, codes = np.unique(millis, return_inverse=True)
    if len(different) > _DISTINCT_MAX:
        return pa.nulls(len(millis), pa.string()), ~null
    texts = pa.array(
        [form.format(int(instant_ms)) for instant_ms in different.tolist()], pa.string()
    )
    return _with_nulls(texts.take(pa.array(codes)), null), np.zeros(len(millis), np.bool_)


# ------------------------------------------------------------------ calendar


def _days_from_civil(year: Whole, month: Whole, day: Whole) -> Whole:
    """Return days since 1970-01-01; the months of a year begin with March."""
    year = year - (month <= 2)
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days: Whole = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return days


def _civil_from_days(days: Whole) -> tuple[Whole, Whole, Whole]:
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted_month = (5 * of_year + 2) // 153
    month = np.where(shifted_month < 10, shifted_month + 3, shifted_month - 9)
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted_month + 2) // 5 + 1


def _month_days(year: Whole, month: Whole) -> Whole:
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    lengths = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
    days: Whole = lengths[month - 1] + (is_leap & (month == 2))
    return days
