r"""Checks that Java's matcher needs a bounded time for a regular expression of a query.

Rules of this file:
- Java's matcher backtracks. ``BoundedPatterns.java`` counts each read of a character and ends a
  match with too many reads. This file bounds the work between two reads.
- A quantifier may not repeat a part that can match the empty string, and at most one alternative of
  a group may be empty. So between two reads the matcher visits each part of a pattern a bounded
  number of times, ``visits``.
- Unknown syntax is refused.

Source:
    ``java.util.regex.Pattern`` of Java 17: ``Curly``, ``Loop``, ``Branch``, ``Behind``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

CHARACTERS_MAX: Final = 1_000
VISITS_MAX: Final = 500
COUNT_MAX: Final = 1_000
NESTING_MAX: Final = 32
_TOKEN: Final = re.compile(
    r"""(?P<flags>\(\?[imsuUd]*(?:-[imsuUd]+)?\))
    |(?P<open>\((?:\?(?::|=|!|<=|<!|>|<[a-zA-Z][a-zA-Z0-9]*>|[imsuUd]*(?:-[imsuUd]+)?:))?(?!\?))
    |(?P<close>\))
    |(?P<bar>\|)
    |(?P<quantifier>(?:[*+?]|\{\d{1,9}(?:,\d{0,9})?\})[?+]?)
    |(?P<line_end>\\R)
    |(?P<empty>[\^$]|\\[bBAzZ](?!\{))
    |(?P<back>\\[1-9]\d*|\\k<\w+>)
    |(?P<any>\.)
    |(?P<character>\\[dDwWsShHvVtnrfae]|\\0[0-7]{1,3}|\\x[0-9a-fA-F]{2}|\\x\{[0-9a-fA-F]{1,6}\}
        |\\u[0-9a-fA-F]{4}|\\[pP](?:[A-Z]|\{[\w=]+\})|\\[^a-zA-Z0-9]|[^\\\[{()*+?|^$.])""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)
_IN_CLASS: Final = re.compile(
    r"\\[dDwWsShHvVtnrfae]|\\0[0-7]{1,3}|\\x[0-9a-fA-F]{2}|\\x\{[0-9a-fA-F]{1,6}\}"
    r"|\\u[0-9a-fA-F]{4}|\\[pP](?:[A-Z]|\{[\w=]+\})|\\[^a-zA-Z0-9]|[^\\]",
    re.DOTALL,
)
_LOOKAHEAD: Final = {"(?=", "(?!"}
_LOOKBEHIND: Final = {"(?<=", "(?<!"}
_AT_LINE_START: Final = r"(?:\G|(?<![^\n\r\u0085\u2028\u2029]))"
_PLAIN: Final = frozenset({"any", "character", "line_end", "class"})


class PatternRefusedError(ValueError):
    """A query may not use a pattern; the message is the reason."""


@dataclass(frozen=True, slots=True)
class PatternPart:
    """A part of a pattern.

    Attributes:
        visits: maximum visits of its elements between two reads of a character.
        length_min: minimum number of characters of a match.
        length_max: maximum number of characters of a match; None if unbounded.
        begins_with_any: whether every match begins with ``.*``.
        is_repeating: whether it contains a quantifier or a back reference.
    """

    visits: int = 0
    length_min: int = 0
    length_max: int | None = 0
    begins_with_any: bool = False
    is_repeating: bool = False

    @property
    def may_be_empty(self) -> bool:
        """Return whether it can match the empty string."""
        return self.length_min == 0


def check_pattern(pattern: str) -> PatternPart:
    """Check a regular expression and return its properties.

    Raises:
        PatternRefusedError: Java's matching time is unbounded or unknown.
    """
    if len(pattern) > CHARACTERS_MAX:
        _refuse(f"it has {len(pattern)} characters; the maximum is {CHARACTERS_MAX}")
    part = _PatternParser(_QUOTED.sub(_escaped, pattern)).whole()
    if part.visits > VISITS_MAX:
        _refuse(
            f"the matcher may try {part.visits} parts at one position; the maximum is {VISITS_MAX}"
        )
    return part


def once_per_line(pattern: str) -> str:
    """Return a pattern with the same matches that Java tries only once per line.

    A match of ``.*`` begins at the start of a line, or at the end of the previous match.

    Raises:
        PatternRefusedError: as ``check_pattern``.
    """
    part = check_pattern(pattern)
    if part.begins_with_any and not part.may_be_empty:
        return f"{_AT_LINE_START}(?:{pattern})" if "\\Q" not in pattern else pattern
    return pattern


def check_delimiter(pattern: str) -> None:
    """Check a delimiter that Spark itself matches: its matching time must be linear.

    Raises:
        PatternRefusedError: it has a quantifier or back reference, or as ``check_pattern``.
    """
    if check_pattern(pattern).is_repeating:
        _refuse("a delimiter or key cannot have quantifiers or back references")


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else re.sub(r"([^a-zA-Z0-9])", r"\\\1", match[1])


def _refuse(why: str) -> NoReturn:
    raise PatternRefusedError(why)


class _PatternParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._is_referring = False

    def whole(self) -> PatternPart:
        part = self._choice(0)
        if self._at < len(self._text):
            _refuse(f"the bracket at character {self._at + 1} closes no group")
        if self._is_referring or "(?" in re.sub(r"\(\?(?::|<[a-zA-Z])", "", self._text):
            # flags change the meaning of a dot; look-around and atomic groups may match the start
            return _with_start(part, begins_with_any=False)
        return part

    def _choice(self, depth: int) -> PatternPart:
        if depth > NESTING_MAX:
            _refuse(f"its groups are nested more than {NESTING_MAX} levels deep")
        ways = [self._sequence(depth)]
        while self._text.startswith("|", self._at):
            self._at += 1
            ways.append(self._sequence(depth))
        if sum(way.may_be_empty for way in ways) > 1:
            _refuse("more than one of its alternatives may be empty")
        if len(ways) == 1:
            return ways[0]
        return PatternPart(
            visits=1 + sum(way.visits for way in ways),
            length_min=min(way.length_min for way in ways),
            length_max=_most([way.length_max for way in ways]),
            is_repeating=any(way.is_repeating for way in ways),
        )

    def _sequence(self, depth: int) -> PatternPart:
        sequence = PatternPart()
        is_first = True
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            each = self._quantified(depth)
            sequence = PatternPart(
                sequence.visits + each.visits,
                sequence.length_min + each.length_min,
                _sum(sequence.length_max, each.length_max),
                each.begins_with_any if is_first else sequence.begins_with_any,
                sequence.is_repeating or each.is_repeating,
            )
            is_first = False
        return sequence

    def _quantified(self, depth: int) -> PatternPart:
        kind, part = self._atom(depth)
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup != "quantifier":
            return part
        self._at = match.end()
        if self._text[self._at : self._at + 1] in ("*", "+", "?"):
            _refuse("a quantifier follows a quantifier")
        if part.may_be_empty:
            _refuse("a quantifier repeats a part that may be empty")
        least, most = _counts(match[0])
        if max(least, most or 0) > COUNT_MAX:
            _refuse(f"a quantifier has a count above {COUNT_MAX}")
        return PatternPart(
            visits=1 + part.visits * (1 if kind in _PLAIN else 2),
            length_min=part.length_min * least,
            length_max=None if most is None else _product(part.length_max, most),
            begins_with_any=kind == "any" and match[0] in ("*", "*?"),
            is_repeating=True,
        )

    def _atom(self, depth: int) -> tuple[str, PatternPart]:
        if self._text[self._at] == "[":
            self._class(depth)
            return "class", PatternPart(1, 1, 2)  # a character may be a surrogate pair
        match = _TOKEN.match(self._text, self._at)
        kind = None if match is None else match.lastgroup
        if match is None or kind is None or kind == "quantifier":
            _refuse(f"unknown syntax at character {self._at + 1}: {self._text[self._at :][:8]!r}")
        self._at = match.end()
        if kind == "open":
            return "group", self._group(match[0], depth)
        if kind in ("any", "character"):
            return kind, PatternPart(1, 1, 2)
        if kind == "line_end":
            return kind, PatternPart(2, 1, 2)
        self._is_referring |= kind == "back"
        return kind, PatternPart(1, 0, 0 if kind != "back" else None, is_repeating=kind == "back")

    def _group(self, opening: str, depth: int) -> PatternPart:
        body = self._choice(depth + 1)
        if not self._text.startswith(")", self._at):
            _refuse("a group is not closed")
        self._at += 1
        if opening in _LOOKAHEAD:
            return PatternPart(body.visits + 1, is_repeating=body.is_repeating)
        if opening in _LOOKBEHIND:
            if body.length_max is None:
                _refuse("the length of a look-behind is not bounded")
            starts = body.length_max - body.length_min + 1
            return PatternPart(1 + starts * body.visits, is_repeating=body.is_repeating)
        return PatternPart(
            body.visits + 1,
            body.length_min,
            body.length_max,
            body.begins_with_any,
            body.is_repeating,
        )

    def _class(self, depth: int) -> None:
        """Skip a character class, with nested classes."""
        if depth > NESTING_MAX:
            _refuse(f"its character classes are nested more than {NESTING_MAX} levels deep")
        self._at += 1
        if self._text.startswith("^", self._at):
            self._at += 1
        if self._text.startswith("]", self._at):
            _refuse("a character class begins with its closing bracket: write it as \\]")
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "]":
                self._at += 1
                return
            if char == "[":
                self._class(depth + 1)
                continue
            match = _IN_CLASS.match(self._text, self._at)
            if match is None:
                _refuse(f"unknown syntax at character {self._at + 1}")
            self._at = match.end()
        _refuse("a character class is not closed")


def _counts(quantifier: str) -> tuple[int, int | None]:
    if quantifier[0] != "{":
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[quantifier[0]]
    least, comma, most = quantifier[1 : quantifier.index("}")].partition(",")
    if not comma:
        return int(least), int(least)
    return int(least), int(most) if most else None


def _with_start(part: PatternPart, *, begins_with_any: bool) -> PatternPart:
    return PatternPart(
        part.visits, part.length_min, part.length_max, begins_with_any, part.is_repeating
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _product(length: int | None, times: int) -> int | None:
    return None if length is None else length * times


def _most(lengths: list[int | None]) -> int | None:
    bounded = [length for length in lengths if length is not None]
    return max(bounded) if len(bounded) == len(lengths) else None
