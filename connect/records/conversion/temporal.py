"""Conversion to date, time, timestamp and timestamptz columns.

The results are integers, which pyarrow accepts for its temporal types: days since 1970 for dates,
microseconds since midnight for times, microseconds since 1970 for timestamps, nanoseconds for those
of format version 3. As in Java, years outside 1 to 9999 are supported.

Rules of this file:
- Text is ISO 8601 as Java's formatters parse it. An offset may have a colon before its minutes. A
  date or time of day may end with Z, as Debezium's ``IsoDate`` and ``IsoTime`` do.
- Digits beyond microseconds are truncated and counted (``TruncationCounts.sub_micro``), where the
  column does not have them.
- A non-zero UTC offset is an error for a column without time zone, because its instant would be
  lost.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

from connect.model.records import Date, Time, Timestamp
from connect.records.conversion.conversion_failure import Unconvertible, wrong_type
from connect.records.conversion.numbers import (
    FLOATS,
    INT_MAX,
    INT_MIN,
    INTEGERS,
    LONG_MAX,
    LONG_MIN,
    whole,
    whole_number,
)

TimestampUnit = Literal["ns", "us", "ms", "s"]

_DAY_MS: Final = 86_400_000
_DAY_US: Final = 86_400_000_000
_EPOCH_ORDINAL: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - treats local time as UTC
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICRO: Final = dt.timedelta(microseconds=1)
_NUMBERS: Final = INTEGERS | FLOATS | {Decimal}
_UNIT_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000}

_YEAR: Final = r"([+-]?[0-9]{4,10})"
_CLOCK: Final = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{0,9}))?)?"
_DATE_TEXT: Final = re.compile(_YEAR + r"-([0-9]{2})-([0-9]{2})Z?")
_TIME_TEXT: Final = re.compile(_CLOCK + "Z?")
_TIMESTAMP_TEXT: Final = re.compile(
    _YEAR + r"-([0-9]{2})-([0-9]{2})[Tt ]" + _CLOCK + r"([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)


@dataclass(slots=True)
class TruncationCounts:
    """Counts the digits that conversions truncate.

    Attributes:
        sub_micro: number of values with truncated digits beyond microseconds.
    """

    sub_micro: int = 0


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a proleptic Gregorian date in any year.

    Raises:
        Unconvertible: the date does not exist.
    """
    try:
        if 1 <= year <= 9999:
            return dt.date(year, month, day).toordinal() - _EPOCH_ORDINAL
        cycles, of_cycle = divmod(year - 1, 400)  # the calendar repeats every 400 years
        ordinal = dt.date(of_cycle + 1, month, day).toordinal()
    except ValueError:
        raise Unconvertible("bad_text", "the text is a date that does not exist") from None
    return ordinal + cycles * 146_097 - _EPOCH_ORDINAL


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 1970-01-01."""
    shifted = days + 719_468
    era, of_era = divmod(shifted, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted_month = (5 * of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted_month + 2) // 5 + 1


def _days(year: str, month: str, day: str) -> int:
    signed = year[0] in "+-"
    digits = len(year) - signed
    # Java's ISO dates: a plus sign if and only if the year has more than four digits, no minus zero
    if (digits > 4) != (year[0] == "+") and year[0] != "-":
        raise Unconvertible("bad_text", "the text is not an ISO date")
    if year[0] == "-" and int(year) == 0:
        raise Unconvertible("bad_text", "the text is not an ISO date")
    return days_from_civil(int(year), int(month), int(day))


def _clock(hour: str, minute: str, second: str | None, fraction: str | None) -> tuple[int, int]:
    """Return microseconds since midnight, and the nanoseconds beyond them."""
    hours, minutes, seconds = int(hour), int(minute), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise Unconvertible("bad_text", "the text is not a time of day")
    micros, nanos = divmod(int(fraction.ljust(9, "0")), 1000) if fraction else (0, 0)
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros, nanos


def to_date(value: Any) -> int:
    """Convert a date, a number of days since 1970, an instant (its UTC day) or ISO text."""
    kind = type(value)
    if kind is str:
        match = _DATE_TEXT.fullmatch(value)
        if match is None:
            raise Unconvertible("bad_text", "the text is not an ISO date")
        days = _days(match[1], match[2], match[3])
    elif kind is Date:
        days = value.days
    elif kind is Timestamp:
        days = value.millis // _DAY_MS
    elif kind is dt.date:
        return int(value.toordinal()) - _EPOCH_ORDINAL
    elif kind in _NUMBERS:
        return whole(value, INT_MIN, INT_MAX, "date")
    else:
        raise wrong_type(value, "date")
    if INT_MIN <= days <= INT_MAX:
        return days
    raise Unconvertible("out_of_range", "the date is outside the range of date")


def time_converter(losses: TruncationCounts, unit: TimestampUnit = "ms") -> Callable[[Any], int]:
    """Build the converter of a time column.

    Args:
        losses: counts truncated digits.
        unit: unit of plain numbers since midnight.
    """

    def to_time(value: Any) -> int:
        kind = type(value)
        if kind is str:
            match = _TIME_TEXT.fullmatch(value)
            if match is None:
                raise Unconvertible("bad_text", "the text is not an ISO time of day")
            micros, nanos = _clock(match[1], match[2], match[3], match[4])
            losses.sub_micro += nanos != 0
            return micros
        if kind is Time or kind is Timestamp:
            millis = value.millis
        elif kind is Date:
            millis = value.days * _DAY_MS
        elif kind is dt.time and value.tzinfo is None:
            seconds: int = (value.hour * 60 + value.minute) * 60 + value.second
            return seconds * 1_000_000 + int(value.microsecond)
        elif kind in _NUMBERS:
            return _time_of(value, unit, losses)
        else:
            raise wrong_type(value, "time")
        return _time_of(millis, "ms", losses)

    return to_time


def _time_of(number: Any, unit: TimestampUnit, losses: TruncationCounts) -> int:
    micros = _from_number(number, unit, losses)
    if 0 <= micros < _DAY_US:
        return micros
    raise Unconvertible("out_of_range", "the time of day is outside one day")


def timestamp_converter(
    *, zoned: bool, unit: TimestampUnit, losses: TruncationCounts
) -> Callable[[Any], int]:
    """Build the converter of a timestamp (``zoned`` false) or timestamptz column.

    Args:
        zoned: whether the column is timestamptz.
        unit: unit of plain numbers.
        losses: counts truncated digits.
    """
    column = "timestamptz" if zoned else "timestamp"

    def to_timestamp(value: Any) -> int:
        kind = type(value)
        if kind is str:
            micros, nanos = _parse_timestamp(value, zoned=zoned)
            losses.sub_micro += nanos != 0
        elif kind in _NUMBERS:
            micros = _from_number(value, unit, losses)
        elif kind is Timestamp:
            micros = value.millis * 1000 + value.nanos // 1000
            losses.sub_micro += value.nanos % 1000 != 0
        elif kind is Time:
            micros = value.millis * 1000
        elif kind is Date:
            micros = value.days * _DAY_US
        elif kind is dt.datetime:
            micros = _from_datetime(value, zoned=zoned)
        else:
            raise wrong_type(value, column)
        if LONG_MIN <= micros <= LONG_MAX:
            return micros
        raise Unconvertible("out_of_range", f"the instant is outside the range of {column}")

    return to_timestamp


def nano_timestamp_converter(*, zoned: bool, unit: TimestampUnit) -> Callable[[Any], int]:
    """Build the converter of a timestamp_ns (``zoned`` false) or timestamptz_ns column.

    Args:
        zoned: whether the column is timestamptz_ns.
        unit: unit of plain numbers.
    """
    column = "timestamptz_ns" if zoned else "timestamp_ns"

    def to_timestamp(value: Any) -> int:
        kind = type(value)
        if kind is str:
            micros, rest = _parse_timestamp(value, zoned=zoned)
            nanos = micros * 1000 + rest
        elif kind in _NUMBERS:
            nanos = _nanos_of_number(value, unit)
        elif kind is Timestamp:
            nanos = value.millis * 1_000_000 + value.nanos
        elif kind is Time:
            nanos = value.millis * 1_000_000
        elif kind is Date:
            nanos = value.days * _DAY_US * 1000
        elif kind is dt.datetime:
            nanos = _from_datetime(value, zoned=zoned) * 1000
        else:
            raise wrong_type(value, column)
        if LONG_MIN <= nanos <= LONG_MAX:
            return nanos
        raise Unconvertible("out_of_range", f"the instant is outside the range of {column}")

    return to_timestamp


def _nanos_of_number(value: Any, unit: TimestampUnit) -> int:
    if unit == "s" and type(value) not in INTEGERS:
        return _of_seconds(value, 1_000_000_000)[0]
    number = int(value) if type(value) in INTEGERS else whole_number(value)
    return number * (1 if unit == "ns" else _UNIT_US[unit] * 1000)


def _of_seconds(value: Any, per_second: int) -> tuple[int, bool]:
    """Return seconds with a fraction in a smaller unit, and whether digits are truncated."""
    seconds = value if type(value) is Decimal else Decimal(repr(float(value)))
    if not seconds.is_finite() or seconds.adjusted() > 20:
        raise Unconvertible("out_of_range", "the number is not a valid instant")
    whole_units = int((seconds * per_second).to_integral_value(rounding="ROUND_FLOOR"))
    return whole_units, whole_units != seconds * per_second


def _from_number(value: Any, unit: TimestampUnit, losses: TruncationCounts) -> int:
    if unit == "ns":
        micros, rest = divmod(whole(value, LONG_MIN, LONG_MAX, "timestamp"), 1000)
        losses.sub_micro += rest != 0
        return micros
    if unit == "s" and type(value) not in INTEGERS:
        # many clients send instants as seconds with a fraction
        micros, is_truncated = _of_seconds(value, 1_000_000)
        losses.sub_micro += is_truncated
        return micros
    number = int(value) if type(value) in INTEGERS else whole_number(value)
    return number * _UNIT_US[unit]


def utc_day(text: str) -> Date:
    """Return the day of an ISO timestamp, in UTC.

    Raises:
        Unconvertible: bad_text.
    """
    return Date(_parse_timestamp(text, zoned=True)[0] // _DAY_US)


def _from_datetime(value: dt.datetime, *, zoned: bool) -> int:
    offset = value.utcoffset()
    if offset is None:
        return (value - _EPOCH) // _MICRO
    if offset and not zoned:
        raise Unconvertible("zone", "a UTC offset does not go into a column without zone")
    return (value - _EPOCH_UTC) // _MICRO


def _parse_timestamp(text: str, *, zoned: bool) -> tuple[int, int]:
    """Return microseconds since 1970, and the nanoseconds beyond them."""
    match = _TIMESTAMP_TEXT.fullmatch(text)
    if match is None:
        raise Unconvertible("bad_text", "the text is not an ISO timestamp")
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    micros, nanos = _days(year, month, day) * _DAY_US, 0
    if hour == "24" and offset and not f"{minute}{second or ''}{fraction or ''}".strip("0"):
        micros += _DAY_US  # ISO's 24:00, which Java accepts before an offset
    else:
        clock, nanos = _clock(hour, minute, second, fraction)
        micros += clock
    if offset is None or offset in "Zz":
        return micros, nanos
    hours, minutes = int(offset[1:3]), int(offset[-2:]) if len(offset) > 3 else 0
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        raise Unconvertible("bad_text", "the UTC offset of the text is out of range")
    shift_us = (hours * 60 + minutes) * 60_000_000
    if shift_us and not zoned:
        raise Unconvertible("zone", "a UTC offset does not go into a column without zone")
    return (micros - shift_us if offset[0] == "+" else micros + shift_us), nanos
