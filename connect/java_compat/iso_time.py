"""Instants, dates and times of day as Java formats them, for all 64-bit numbers.

Numbers on the wire exceed the range of Python's types, which end with the year 9999 and
microseconds. The calendar repeats every 400 years, so each day is mapped to the cycle from 1970.

Source:
    ``java.time``: ``Instant.toString``, ``LocalDate.toString``, ``LocalTime.toString``.
"""

from __future__ import annotations

from datetime import date, timedelta

_DAYS_PER_CYCLE = 146_097
_YEARS_PER_CYCLE = 400
_EPOCH = date(1970, 1, 1)
_S_PER_DAY = 86_400
_NS_PER_S = 1_000_000_000
_NS_PER_DAY = _S_PER_DAY * _NS_PER_S


def date_text(days: int) -> str:
    """Format a date given as days since 1970: ``2026-01-02``, ``+10000-01-01``, ``-0001-01-01``."""
    cycles, day = divmod(days, _DAYS_PER_CYCLE)
    at = _EPOCH + timedelta(days=day)
    year = at.year + cycles * _YEARS_PER_CYCLE
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{at.month:02}-{at.day:02}"


def time_text(nanos: int, *, has_seconds: bool = False) -> str:
    """Format nanoseconds of a day: ``03:04``, ``03:04:05.678``; fractions have 3, 6 or 9 digits."""
    seconds, fraction = divmod(nanos, _NS_PER_S)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    if seconds % 60 or fraction or has_seconds:
        text += f":{seconds % 60:02}"
    digits = f"{fraction:09}" if fraction else ""
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}" if digits else text


def instant_text(nanos: int) -> str:
    """Format an instant given as nanoseconds since 1970 UTC: ``2026-01-02T03:04:05.678901Z``."""
    days, rest = divmod(nanos, _NS_PER_DAY)
    return f"{date_text(days)}T{time_text(rest, has_seconds=True)}Z"
