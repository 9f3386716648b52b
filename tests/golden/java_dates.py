"""Java's ``SimpleDateFormat`` where ours differs on purpose: its calendar, and its numbers.

Days before 15 October 1582 are Julian, years before 1 count from 1 again, parts of a time have 32
bits and instants 64, and numbers without a mark between them may be of fewer digits, negative or
none at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

from connect.java_compat.java_numbers import wrapped
from connect.records.transforms import date_format
from connect.records.transforms.date_format import Piece

_FIRST_GREGORIAN = date_format.day_of(1582, 10, 15)
_NUMBER = re.compile(r"(-?)(?:(\d+)(?:E(-?\d{1,9}))?|(∞))")
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


class _Year(int):
    """A year of an era; ``counted`` is 0 and less before the year 1."""

    counted: int


@contextmanager
def java_dates() -> Iterator[None]:
    """Read and write as Java does."""
    ours = date_format.day_of, date_format.civil_from_days, date_format.read_part
    instant_of = date_format.instant_of

    def read(piece: Piece, text: str, index: int, numbers: dict[str, int], *, abuts: bool) -> int:
        if not piece.is_number:
            return ours[2](piece, text, index, numbers, abuts=abuts)
        end = len(text) if not abuts else index + piece.count
        start = index + len(text[index:]) - len(text[index:].lstrip(" \t"))
        if end > len(text) or start >= len(text):
            raise ValueError("there is no number where the pattern has one")
        numbers[piece.letter], index = _number(text[:end], start)
        number = text[start:index]
        if piece.letter == "y" and piece.count <= 2 and len(number) == 2 and number.isdecimal():
            numbers["y"] += 1900 if numbers["y"] >= 69 else 2000
        return index

    date_format.day_of, date_format.civil_from_days = _day_of, _civil_from_days
    date_format.read_part = read
    date_format.instant_of = lambda fields: wrapped(instant_of(fields), 64)
    try:
        yield
    finally:
        date_format.day_of, date_format.civil_from_days, date_format.read_part = ours
        date_format.instant_of = instant_of


def _number(text: str, index: int) -> tuple[int, int]:
    """A number as Java's ``DecimalFormat`` reads it, as its ``intValue``."""
    if text.startswith("NaN", index):
        return 0, index + 3
    match = _NUMBER.match(text, index)
    if match is None:
        raise ValueError("there is no number where the pattern has one")
    sign = -1 if match[1] else 1
    number = _INT_MAX + 1 if match[4] else int(Decimal(match[2]).scaleb(int(match[3] or 0)))
    if match[4] or number * sign not in range(-_LONG_MAX - 1, _LONG_MAX + 1):
        return (_INT_MAX if sign > 0 else -_INT_MAX - 1), match.end()
    return (number * sign + 2**31) % 2**32 - 2**31, match.end()


def _day_of(year: int, month: int, day: int) -> int:
    year = getattr(year, "counted", year)
    gregorian = date_format.days_from_civil(year, month, 1) + day - 1
    if year > 1582 or (year == 1582 and gregorian >= _FIRST_GREGORIAN):
        return gregorian
    earlier = year - (month <= 2)
    months = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5
    return earlier * 365 + earlier // 4 + months + day - 1 - 719_470


def _civil_from_days(days: int) -> tuple[int, int, int]:
    if days >= _FIRST_GREGORIAN:
        return _GREGORIAN(days)
    cycles, of_cycle = divmod(days + 719_470, 1461)
    years = min(of_cycle // 365, 3)
    of_year = of_cycle - years * 365
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    counted = cycles * 4 + years + (month <= 2)
    year = _Year(counted if counted > 0 else 1 - counted)
    year.counted = counted
    return year, month, day


_GREGORIAN = date_format.civil_from_days
