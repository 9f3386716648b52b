r"""Which regular expressions a query may have on a node with users.

Rules of this file:
- RE2 supports the expression with Java's meaning. So it has no look-around, back-reference,
  possessive quantifier, or class within a class.
- Java runs it, because its values are those of Spark. ``BoundedPatterns.java`` counts the reads of
  a character. So Java may not try parts again and again without a read: no quantifier repeats a
  part that may be empty, and at most one alternative of a group may be empty.
- A delimiter, which Spark itself matches, also has no quantifier. This holds on every node.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from connect.errors import ConfigError
from connect.java_compat.java_regex import compile_java_regex

CHARACTERS_MAX: Final = 1_000
VISITS_MAX: Final = 500
_TOKEN: Final = re.compile(
    r"""(?P<flags>\(\?[imsuUd-]+\))
    |(?P<open>\((?:\?(?:[imsuUd-]*:|<[a-zA-Z][a-zA-Z0-9]*>))?(?!\?))
    |(?P<empty>[\^$]|\\[bBAzZ])
    |(?P<item>\[(?!\^?\])\^?(?:\\.|[^\[\]\\&]|&(?!&))+\]
        |\\[pP](?:[A-Z]|\{[^}]*\})|\\0[0-7]{1,3}|\\x(?:\{[^}]*\}|[0-9a-fA-F]{2})
        |\\.|[^\\\[{()*+?|^$])
    |(?P<syntax>[)|*+?]|\{\d+(?:,\d*)?\})""",
    re.VERBOSE | re.DOTALL,
)
_ITEM, _EMPTY = "x", "e"
_SHAPE_OF: Final = {"flags": "", "open": "(", "empty": _EMPTY, "item": _ITEM}
_GROUP: Final = re.compile(r"\(([^()]*)\)")
_MAY_BE_EMPTY: Final = re.compile(r"(?:e|x(?:[*?]|\{0+(?:,\d*)?\})\??)*")
_QUANTIFIER: Final = re.compile(r"[*+?{]")
_REPEATED_EMPTY: Final = re.compile(r"e[*+?{]")
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)
_BEGINS_WITH_ANY: Final = re.compile(r"(?:\((?:\?:|\?<\w+>)?)*\.\*\??(?!\+)")
# flags change the meaning of a dot; what is quoted may end the pattern
_OTHER_MEANING: Final = re.compile(r"\(\?(?!:|<[a-zA-Z])|\\Q")
_AT_LINE_START: Final = r"(?:\G|(?<![^\n\r\u0085\u2028\u2029]))"


class PatternRefusedError(ValueError):
    """A query may not use a pattern; the message is the reason."""


def check_pattern(pattern: str) -> None:
    """Check a regular expression.

    Raises:
        PatternRefusedError: RE2 does not support it, or Java may try it again without reading.
    """
    shape = _shape(pattern)
    _, levels = _reduced(shape)
    if len(shape) * levels > VISITS_MAX:
        _refuse(f"{len(shape)} parts in {levels} levels are too many; the limit is {VISITS_MAX}")


def check_delimiter(pattern: str) -> None:
    """Check a delimiter that Spark itself matches: its matching time must be linear.

    Raises:
        PatternRefusedError: it has a quantifier, or RE2 does not support it.
    """
    if _QUANTIFIER.search(_shape(pattern)):
        _refuse("a delimiter or key cannot have quantifiers")


def once_per_line(pattern: str) -> str:
    """Return a pattern with the same matches that Java tries only once per line.

    A match of ``.*`` begins at the start of a line, or at the end of the previous match.
    """
    begin = _BEGINS_WITH_ANY.match(pattern)
    if begin is None or _OTHER_MEANING.search(pattern):
        return pattern
    opened = begin[0].count("(")
    try:
        rest = _shape("(" * opened + pattern[begin.end() :])
        may_be_empty = _reduced(rest)[0] == _EMPTY
    except PatternRefusedError:
        return pattern
    is_whole = not may_be_empty and _always_begins(rest[opened:], opened)
    return f"{_AT_LINE_START}(?:{pattern})" if is_whole else pattern


def _always_begins(rest: str, opened: int) -> bool:
    """Return whether no alternative and no quantifier is around the begin of a pattern.

    Args:
        rest: shape of what follows the begin.
        opened: number of groups that are open there.
    """
    depth = opened
    for at, part in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(part, 0)
        if part == "|" and depth <= opened:
            return False
        if depth < opened:
            opened = depth
            if _QUANTIFIER.match(rest, at + 1):
                return False
    return True


def _shape(pattern: str) -> str:
    """Return a pattern with ``x`` for what matches a character, and ``e`` for what matches none."""
    if len(pattern) > CHARACTERS_MAX:
        _refuse(f"it has {len(pattern)} characters; the maximum is {CHARACTERS_MAX}")
    try:
        is_supported = compile_java_regex(pattern).is_linear
    except ConfigError:
        is_supported = False
    if not is_supported:
        _refuse("RE2 does not support it with the meaning that it has in Java")
    text, parts, at = _QUOTED.sub(_escaped, pattern), [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            _refuse(f"unknown syntax at character {at + 1}: {text[at:][:8]!r}")
        parts.append(_SHAPE_OF.get(match.lastgroup, match[0]))
        at = match.end()
    return "".join(parts)


def _reduced(shape: str) -> tuple[str, int]:
    """Return what a pattern without its groups matches, and the levels of its groups."""
    levels, count = 0, 1
    while count:
        if _REPEATED_EMPTY.search(shape):
            _refuse("a quantifier repeats a part that may be empty")
        shape, count = _GROUP.subn(lambda group: _choice(group[1]), shape)
        levels += 1
    return _choice(shape), levels


def _choice(ways: str) -> str:
    """Return what alternatives without groups match."""
    empty = sum(_MAY_BE_EMPTY.fullmatch(way) is not None for way in ways.split("|"))
    if empty > 1:
        _refuse("more than one of its alternatives may be empty")
    return _EMPTY if empty else _ITEM


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else re.sub(r"([^a-zA-Z0-9])", r"\\\1", match[1])


def _refuse(why: str) -> NoReturn:
    raise PatternRefusedError(why)
