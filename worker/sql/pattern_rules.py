r"""Which regular expressions a query may use, and what bounds the time of Java's matcher.

Rules of this file:
- Java's matcher backtracks. ``BoundedPatterns.java`` counts each read of a character and ends a
  match that reads too many. This file bounds the work between two reads.
- A choice may have one way at most that reads no character: no quantifier repeats what may be
  empty, and one alternative at most may be empty. So the matcher visits each part of a pattern a
  bounded number of times between two reads. ``visits`` is that number.
- What this file does not know is refused.

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
_LOOK: Final = {"(?=", "(?!"}
_LOOK_BEHIND: Final = {"(?<=", "(?<!"}
_AT_LINE_START: Final = r"(?:\G|(?<![^\n\r\u0085\u2028\u2029]))"
_PLAIN: Final = frozenset({"any", "character", "line_end", "class"})


class PatternRefusedError(ValueError):
    """A pattern that a query may not use, and why."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a pattern.

    Attributes:
        visits: how often the matcher visits something in it between two reads of a character.
        length_min: how many characters it matches at least.
        length_max: and at most; None where nothing bounds it.
        begins_with_any: whether it begins with ``.*``, with nothing to choose before it.
        is_repeating: whether a quantifier or a reference to a group is in it.
    """

    visits: int = 0
    length_min: int = 0
    length_max: int | None = 0
    begins_with_any: bool = False
    is_repeating: bool = False

    @property
    def may_be_empty(self) -> bool:
        """Whether it matches the empty text somewhere."""
        return self.length_min == 0


def judged(pattern: str) -> Part:
    """What a query needs to know of a regular expression.

    Raises:
        PatternRefusedError: the time that Java needs for it has no bound, or is not known.
    """
    if len(pattern) > CHARACTERS_MAX:
        _refuse(f"it has {len(pattern)} characters, {CHARACTERS_MAX} are allowed")
    found = _Judge(_QUOTED.sub(_escaped, pattern)).whole()
    if found.visits > VISITS_MAX:
        _refuse(f"it has {found.visits} parts that may be tried at one place, {VISITS_MAX} may be")
    return found


def executed(pattern: str) -> str:
    """A pattern with the same matches that does not try again inside of a line.

    A match that begins with ``.*`` begins at the start of a line, or where the last match ended.

    Raises:
        PatternRefusedError: as ``judged``.
    """
    part = judged(pattern)
    if part.begins_with_any and not part.may_be_empty:
        return f"{_AT_LINE_START}(?:{pattern})" if "\\Q" not in pattern else pattern
    return pattern


def check_delimiter(pattern: str) -> None:
    """Refuse a delimiter that Spark itself matches, unless the time for it is linear.

    Raises:
        PatternRefusedError: it repeats something, or as ``judged``.
    """
    if judged(pattern).is_repeating:
        _refuse("a delimiter or key cannot have quantifiers and references to groups")


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else re.sub(r"([^a-zA-Z0-9])", r"\\\1", match[1])


def _refuse(why: str) -> NoReturn:
    raise PatternRefusedError(why)


class _Judge:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._is_referring = False

    def whole(self) -> Part:
        found = self._choice(0)
        if self._at < len(self._text):
            _refuse(f"the bracket at character {self._at + 1} closes no group")
        if self._is_referring or "(?" in re.sub(r"\(\?(?::|<[a-zA-Z])", "", self._text):
            # flags change what a dot is; a look-around or an atomic group may see the start
            return _with_start(found, begins_with_any=False)
        return found

    def _choice(self, depth: int) -> Part:
        if depth > NESTING_MAX:
            _refuse(f"its groups are nested more than {NESTING_MAX} deep")
        ways = [self._sequence(depth)]
        while self._text.startswith("|", self._at):
            self._at += 1
            ways.append(self._sequence(depth))
        if sum(way.may_be_empty for way in ways) > 1:
            _refuse("more than one of its alternatives may be empty")
        if len(ways) == 1:
            return ways[0]
        return Part(
            visits=1 + sum(way.visits for way in ways),
            length_min=min(way.length_min for way in ways),
            length_max=_most([way.length_max for way in ways]),
            is_repeating=any(way.is_repeating for way in ways),
        )

    def _sequence(self, depth: int) -> Part:
        found = Part()
        is_first = True
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            each = self._quantified(depth)
            found = Part(
                found.visits + each.visits,
                found.length_min + each.length_min,
                _sum(found.length_max, each.length_max),
                each.begins_with_any if is_first else found.begins_with_any,
                found.is_repeating or each.is_repeating,
            )
            is_first = False
        return found

    def _quantified(self, depth: int) -> Part:
        kind, part = self._atom(depth)
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup != "quantifier":
            return part
        self._at = match.end()
        if self._text[self._at : self._at + 1] in ("*", "+", "?"):
            _refuse("a quantifier follows a quantifier")
        if part.may_be_empty:
            _refuse("a quantifier repeats what may be empty")
        least, most = _counts(match[0])
        if max(least, most or 0) > COUNT_MAX:
            _refuse(f"a quantifier counts to more than {COUNT_MAX}")
        return Part(
            visits=1 + part.visits * (1 if kind in _PLAIN else 2),
            length_min=part.length_min * least,
            length_max=None if most is None else _product(part.length_max, most),
            begins_with_any=kind == "any" and match[0] in ("*", "*?"),
            is_repeating=True,
        )

    def _atom(self, depth: int) -> tuple[str, Part]:
        if self._text[self._at] == "[":
            self._class(depth)
            return "class", Part(1, 1, 2)  # a character of two halves
        match = _TOKEN.match(self._text, self._at)
        kind = None if match is None else match.lastgroup
        if match is None or kind is None or kind == "quantifier":
            _refuse(
                f"the form at character {self._at + 1} is not known: {self._text[self._at :][:8]!r}"
            )
        self._at = match.end()
        if kind == "open":
            return "group", self._group(match[0], depth)
        if kind in ("any", "character"):
            return kind, Part(1, 1, 2)
        if kind == "line_end":
            return kind, Part(2, 1, 2)
        self._is_referring |= kind == "back"
        return kind, Part(1, 0, 0 if kind != "back" else None, is_repeating=kind == "back")

    def _group(self, opening: str, depth: int) -> Part:
        body = self._choice(depth + 1)
        if not self._text.startswith(")", self._at):
            _refuse("a group has no end")
        self._at += 1
        if opening in _LOOK:
            return Part(body.visits + 1, is_repeating=body.is_repeating)
        if opening in _LOOK_BEHIND:
            if body.length_max is None:
                _refuse("the text of a look-behind has no largest length")
            starts = body.length_max - body.length_min + 1
            return Part(1 + starts * body.visits, is_repeating=body.is_repeating)
        return Part(
            body.visits + 1,
            body.length_min,
            body.length_max,
            body.begins_with_any,
            body.is_repeating,
        )

    def _class(self, depth: int) -> None:
        """Pass over a set of characters, with the sets in it."""
        if depth > NESTING_MAX:
            _refuse(f"its sets are nested more than {NESTING_MAX} deep")
        self._at += 1
        if self._text.startswith("^", self._at):
            self._at += 1
        if self._text.startswith("]", self._at):
            _refuse("a set begins with its closing bracket: write it as \\]")
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
                _refuse(f"the form at character {self._at + 1} is not known")
            self._at = match.end()
        _refuse("a set of characters has no end")


def _counts(quantifier: str) -> tuple[int, int | None]:
    if quantifier[0] != "{":
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[quantifier[0]]
    least, comma, most = quantifier[1 : quantifier.index("}")].partition(",")
    if not comma:
        return int(least), int(least)
    return int(least), int(most) if most else None


def _with_start(part: Part, *, begins_with_any: bool) -> Part:
    return Part(part.visits, part.length_min, part.length_max, begins_with_any, part.is_repeating)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _product(one: int | None, times: int) -> int | None:
    return None if one is None else one * times


def _most(lengths: list[int | None]) -> int | None:
    known = [length for length in lengths if length is not None]
    return max(known) if len(known) == len(lengths) else None
