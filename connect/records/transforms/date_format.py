"""Java's ``SimpleDateFormat`` in UTC and English, for the patterns of topics and fields.

Rules of this file:
- Parsing is lenient, as in Java: month 13 is January, and text after the pattern is ignored.
- The letters are y M d D E a H k K h m s S u X Z z. Other letters are a configuration error.
- Two-digit years are 1969 to 2068. In Java, they are relative to the day when the worker started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from connect.errors import ConfigError
from connect.records.conversion.temporal import civil_from_days, days_from_civil

PATTERN_CHARACTERS_MAX: Final = 1_000
_DAY_MS: Final = 86_400_000
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LETTERS: Final = frozenset("yMdDEaHkKhmsSuXZz")
_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "M": (1, 12),
    "d": (1, 31),
    "D": (1, 366),
    "H": (0, 23),
    "k": (1, 24),
    "K": (0, 11),
    "h": (1, 12),
    "m": (0, 59),
    "s": (0, 59),
    "S": (0, 999),
}
_NUMERIC: Final = frozenset("ydDHkKhmsSu")
_PIECE: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_ZONE: Final = re.compile(r"(?:GMT|UTC)?([+-])([0-9]{1,2}):?([0-9]{2})?|GMT|UTC|Z")
_X_ZONES: Final = {
    1: re.compile(r"([+-])([0-9]{2})()|Z"),
    2: re.compile(r"([+-])([0-9]{2})([0-9]{2})|Z"),
    3: re.compile(r"([+-])([0-9]{2}):([0-9]{2})|Z"),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A literal text, or a pattern letter with its count."""

    letter: str
    count: int
    text: str = ""

    @property
    def is_number(self) -> bool:
        """Return whether the piece is formatted as digits."""
        return self.letter in _NUMERIC or (self.letter == "M" and self.count < 3)


class DateFormat:
    """A date pattern.

    Args:
        pattern: a pattern of ``SimpleDateFormat``.

    Attributes:
        pieces: the pieces of the pattern in order.

    Raises:
        ConfigError: the pattern has an unknown letter or an unterminated quote.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.pieces = _pieces(pattern)

    def format(self, millis: int) -> str:
        """Format an instant given as milliseconds since 1970 UTC."""
        days, clock = divmod(millis, _DAY_MS)
        year, month, day = civil_from_days(days)
        parts = _Parts(year, month, day, days, clock)
        return "".join(
            piece.text if not piece.letter else _WRITERS[piece.letter](parts, piece.count)
            for piece in self.pieces
        )

    def parse(self, text: str, *, strict: bool = False) -> int:
        """Parse an instant and return its milliseconds since 1970 UTC.

        Args:
            text: the text to parse.
            strict: reject text after the pattern, and parts out of range such as month 13.

        Raises:
            ValueError: the text does not match the pattern.
        """
        numbers: dict[str, int] = {}
        index = 0
        for number, piece in enumerate(self.pieces):
            if not piece.letter:
                index = _literal(piece.text, text, index)
                continue
            following = self.pieces[number + 1] if number + 1 < len(self.pieces) else None
            abuts = following is not None and following.is_number
            index = read_part(piece, text, index, numbers, abuts=abuts)
        if strict:
            _check(numbers, text, index)
        return instant_of(numbers)

    @property
    def letters(self) -> frozenset[str]:
        """Return the letters of the pattern."""
        return frozenset(piece.letter for piece in self.pieces if piece.letter)

    @property
    def has_zone(self) -> bool:
        """Return whether the pattern contains a UTC offset."""
        return any(piece.letter and piece.letter in "XZz" for piece in self.pieces)


def day_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01. The day may exceed the length of the month."""
    return days_from_civil(year, month, 1) + day - 1


def _pieces(pattern: str) -> tuple[Piece, ...]:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        longest = f"A pattern has at most {PATTERN_CHARACTERS_MAX} characters"
        raise ConfigError(longest, code="date_format")
    pieces: list[Piece] = []
    index = 0
    while index < len(pattern):
        match = _PIECE.match(pattern, index)
        if match is None:
            raise ConfigError("Unterminated quote", code="date_format")
        index = match.end()
        letter = match[2]
        if letter is None:
            quoted = match[1]
            text = match[0] if quoted is None else quoted.replace("''", "'") or "'"
            pieces.append(Piece("", 0, text))
        elif letter in _LETTERS:
            pieces.append(Piece(letter, len(match[0])))
        else:
            raise ConfigError(f"Illegal pattern character '{letter}'", code="date_format")
    return tuple(pieces)


# ------------------------------------------------------------------ writing


@dataclass(frozen=True, slots=True)
class _Parts:
    year: int
    month: int
    day: int
    days: int
    clock: int

    @property
    def hour(self) -> int:
        return self.clock // 3_600_000


def _named(names: tuple[str, ...], index: int, count: int) -> str:
    return names[index] if count > 3 else names[index][:3]


def _year(parts: _Parts, count: int) -> str:
    return f"{parts.year % 100:02d}" if count == 2 else str(parts.year).zfill(count)


def _month(parts: _Parts, count: int) -> str:
    if count >= 3:
        return _named(_MONTHS, parts.month - 1, count)
    return str(parts.month).zfill(count)


_WRITERS: Final[Mapping[str, Callable[[_Parts, int], str]]] = {
    "y": _year,
    "M": _month,
    "d": lambda p, n: str(p.day).zfill(n),
    "D": lambda p, n: str(p.days - day_of(p.year, 1, 1) + 1).zfill(n),
    "E": lambda p, n: _named(_DAYS, (p.days + 3) % 7, n),
    "u": lambda p, n: str((p.days + 3) % 7 + 1).zfill(n),
    "a": lambda p, _: "AM" if p.hour < 12 else "PM",
    "H": lambda p, n: str(p.hour).zfill(n),
    "k": lambda p, n: str(p.hour or 24).zfill(n),
    "K": lambda p, n: str(p.hour % 12).zfill(n),
    "h": lambda p, n: str(p.hour % 12 or 12).zfill(n),
    "m": lambda p, n: str(p.clock // 60_000 % 60).zfill(n),
    "s": lambda p, n: str(p.clock // 1_000 % 60).zfill(n),
    "S": lambda p, n: str(p.clock % 1_000).zfill(n),
    "X": lambda *_: "Z",
    "Z": lambda *_: "+0000",
    "z": lambda _, n: "UTC" if n < 4 else "Coordinated Universal Time",
}


# ------------------------------------------------------------------ reading


def _literal(literal: str, text: str, index: int) -> int:
    for char in literal:
        if index >= len(text) or text[index] != char:
            raise ValueError("the text does not match the pattern")
        index += 1
    return index


def read_part(piece: Piece, text: str, index: int, numbers: dict[str, int], *, abuts: bool) -> int:
    """Parse the part of a text for one pattern letter, after optional blanks.

    Args:
        piece: the pattern letter and its count.
        text: the text to parse.
        index: index of the part in the text.
        numbers: receives the number by letter.
        abuts: another number follows directly, so this one has as many digits as letters.

    Returns:
        The index after the part.

    Raises:
        ValueError: the text does not match the letter.
    """
    while index < len(text) and text[index] in " \t":
        index += 1
    letter = piece.letter
    if letter in "XZz":
        match = (_X_ZONES.get(piece.count, _ZONE) if letter == "X" else _ZONE).match(text, index)
        if match is None:
            raise ValueError("the text has no time zone where the pattern requires one")
        sign = 0 if match[1] is None else -1 if match[1] == "-" else 1
        numbers[letter] = sign * (int(match[2] or 0) * 60 + int(match[3] or 0))
        return match.end()
    if letter in "Ea" or (letter == "M" and piece.count >= 3):
        names = {"E": _DAYS, "a": ("AM", "PM"), "M": _MONTHS}[letter]
        number, index = _name(names, text, index)
        numbers[letter] = number + (letter == "M")
        return index
    digits = re.compile(rf"\d{{{piece.count}}}" if abuts else r"-?\d{1,18}(?!\d)")
    match = digits.match(text, index)
    if match is None:
        raise ValueError("the text has no number where the pattern requires one")
    number = int(match[0])
    if letter == "y" and piece.count <= 2 and len(match[0]) == 2 and number >= 0:
        number += 1900 if number >= 69 else 2000
    numbers[letter] = number
    return match.end()


def _name(names: tuple[str, ...], text: str, index: int) -> tuple[int, int]:
    rest = text[index:].lower()
    for number, name in enumerate(names):
        for form in (name, name[:3]):
            if rest.startswith(form.lower()):
                return number, index + len(form)
    raise ValueError("the text has no name where the pattern requires one")


def _check(numbers: Mapping[str, int], text: str, end: int) -> None:
    if end < len(text):
        raise ValueError("the text continues after the time")
    if any(char.isdecimal() and not char.isascii() for char in text):
        raise ValueError("the text has digits of another script")
    for letter, number in numbers.items():
        low, high = _RANGES.get(letter, (-(2**63), 2**63))
        if not low <= number <= high:
            raise ValueError("a part of the time is out of range")
    year, month, day = numbers.get("y", 1970), numbers.get("M", 1), numbers.get("d", 1)
    days = day_of(year, month, day)
    if civil_from_days(days) != (year, month, day):
        raise ValueError("the day does not exist in the month")


def _weekday(letter: str, number: int) -> int:
    """Return the days since Monday. As in Java, ``u`` beyond 1 to 7 counts from Sunday."""
    return number if letter == "E" else number - 1 if 1 <= number <= 7 else number - 2


def instant_of(numbers: dict[str, int]) -> int:
    """Return the milliseconds since 1970 UTC for the parts of a time."""
    year = numbers.get("y", 1970)
    years, month = divmod(numbers.get("M", 1) - 1, 12)
    reported = [letter for letters in ("Eu", "dD") for letter in numbers if letter in letters]
    last = reported[-1] if reported else "d"
    if last == "D":
        days = day_of(year, 1, numbers["D"])
    elif last in "Eu":
        first = day_of(year + years, month + 1, 1)
        days = first + (_weekday(last, numbers[last]) - first - 3) % 7
    else:
        days = day_of(year + years, month + 1, numbers.get("d", 1))
    hour = numbers.get(
        "H", numbers.get("k", 0) % 24 if numbers.get("k") == 24 else numbers.get("k", 0)
    )
    for letter in "hK":
        if letter in numbers:
            half = numbers[letter] % 12 if numbers[letter] == 12 else numbers[letter]
            hour = half + 12 * numbers.get("a", 0)
    zone = next((numbers[letter] for letter in "XZz" if letter in numbers), 0)
    minutes = hour * 60 + numbers.get("m", 0) - zone
    return days * _DAY_MS + minutes * 60_000 + numbers.get("s", 0) * 1_000 + numbers.get("S", 0)
