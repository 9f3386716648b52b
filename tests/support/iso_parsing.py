"""Parses what ``connect.java_compat.iso_time`` formats, for all 64-bit numbers."""

from __future__ import annotations

import re
from datetime import date

DAYS_PER_CYCLE = 146_097
YEARS_PER_CYCLE = 400
EPOCH = date(1970, 1, 1)
NS_PER_S = 1_000_000_000

DATE = re.compile(r"([+-]?\d{4,10})-(\d\d)-(\d\d)")
TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")


def date_days(text: str) -> int:
    """Return the days since 1970 of a date.

    Raises:
        ValueError: the text is not a date.
    """
    match = DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a date: {text[:40]!r}")
    cycles, year = divmod(int(match[1]) - EPOCH.year, YEARS_PER_CYCLE)
    at = date(year + EPOCH.year, int(match[2]), int(match[3]))
    return (at - EPOCH).days + cycles * DAYS_PER_CYCLE


def time_nanos(text: str) -> int:
    """Return the nanoseconds of a time of day.

    Raises:
        ValueError: the text is not a time of day.
    """
    match = TIME.fullmatch(text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59 or int(match[3] or 0) > 59:
        raise ValueError(f"not a time of day: {text[:40]!r}")
    seconds = (int(match[1]) * 60 + int(match[2])) * 60 + int(match[3] or 0)
    return seconds * NS_PER_S + int((match[4] or "").ljust(9, "0"))


def instant_nanos(text: str) -> int:
    """Return the nanoseconds since 1970 of an instant in UTC; the ``Z`` is optional.

    Raises:
        ValueError: the text is not an instant.
    """
    day, _, rest = text.removesuffix("Z").partition("T")
    return date_days(day) * 86_400 * NS_PER_S + time_nanos(rest)
