r"""Java regular expressions, matched in bounded time, and Java's replacement texts.

Rules of this file:
- A construct has the meaning that it has in Java, or it is a configuration error. Classes like
  ``\d`` match ASCII only, a dot does not match a line terminator, a brace starts a quantifier.
- Nested character classes and intersections are an error, because Python reads them as characters.
- Tenants supply the expressions and may supply the texts. RE2 matches the expressions that it
  supports in linear time. Expressions with lookaround, back-references or possessive quantifiers
  are matched by backtracking with a time limit. Both release the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, Literal

import re2
import regex

from connect.clock import SystemClock
from connect.errors import ConfigError

LENGTH_MAX: Final = 10_000
BACKTRACKING_LENGTH_MAX: Final = 2_000
CLASSES_MAX: Final = 50
MATCH_S: Final = 0.05
LIST_MS: Final = 1_000
_SHOWN_MAX: Final = 200
_PROGRAM_BYTES: Final = 4 * 2**20
Dialect = Literal["python", "re2", "regex"]

_POSIX_CLASSES: Final = {
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "Graph": "!-~",
    "Print": " -~",
    "Lower": "a-z",
    "Upper": "A-Z",
    "Space": r"\s",
    "XDigit": "0-9a-fA-F",
    "Punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
}
_BLANKS: Final = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_LINE_ENDS: Final = r"\n\x0b\f\r\x85\u2028\u2029"
_SETS: Final = {
    "h": (_BLANKS, ""),
    "H": (_BLANKS, "^"),
    "v": (_LINE_ENDS, ""),
    "V": (_LINE_ENDS, "^"),
}
_NO_LINE_END: Final = r"[^\n\r\x85\u2028\u2029]"
_ESCAPES: Final = {
    "R": rf"(?:\r\n|[{_LINE_ENDS}])",
    "z": r"\Z",
    "Z": r"(?=(?:\r\n|[\n\r\x85\u2028\u2029])?\Z)",
    "e": r"\x1b",
}
_SPACE: Final = r"\t\n\x0b\f\r "
_CATEGORIES: Final = re.compile(
    "L[ulmto]?|M[cen]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfson]?", re.ASCII
)
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = _PROGRAM_BYTES
_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    r"|\\(?P<sign>[pP])(?:\{(?P<named>[^}]*)\}|(?P<short>[A-Z]))"
    r"|\\k<(?P<group>\w+)>"
    r"|\\x\{(?P<point>[0-9a-fA-F]+)\}"
    r"|\\(?P<escaped>.)"
    r"|\(\?<(?P<naming>[A-Za-z]\w*>)"
    r"|\{(?P<count>\d+(?:,\d*)?\})?"
    r"|(?P<other>.)",
    re.DOTALL,
)


class _BacktrackingError(Exception):
    """RE2 does not support the expression, or gives it another meaning."""


class JavaMatch:
    """A match of the whole text.

    Attributes:
        regex: the regular expression.
    """

    def __init__(self, matching: JavaRegex, find: Callable[[], Any]) -> None:
        self.regex = matching
        self._find = find
        self._match: Any = None

    def __getitem__(self, group: int | str) -> str | None:
        if self._match is None:
            self._match = self._find()
        text: str | None = self._match[group]
        return text


class JavaRegex:
    """A compiled regular expression.

    Attributes:
        pattern: the pattern as written for Java.
        groups: number of groups.
        groupindex: group number by name.

    Raises:
        ConfigError: ``route_regex``; the pattern is invalid or too large.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        if len(pattern) > LENGTH_MAX:
            raise _wrong(
                pattern, f"it has {len(pattern)} characters, at most {LENGTH_MAX} are allowed"
            )
        try:
            checked = re.compile(_translated(pattern, "python"), re.ASCII)
        except (re.error, OverflowError) as error:
            raise _wrong(pattern, str(error)) from None
        except RecursionError:
            raise _wrong(pattern, "its groups are nested too deeply") from None
        self.groups, self.groupindex = checked.groups, dict(checked.groupindex)
        self._is_folding = bool(re.search(r"\(\?[a-z]*i", pattern))
        self._is_repeating_groups = self.groups > 0 and bool(re.search(r"\)[*+?{]", pattern))
        self._backtracking: Any = None
        self._linear: Any = None
        with contextlib.suppress(_BacktrackingError, re2.error):
            self._linear = re2.compile(_translated(pattern, "re2"), _OPTIONS)
        if self._linear is None:
            self._compile_backtracking()

    @property
    def is_linear(self) -> bool:
        """Whether RE2 supports the expression, with the meaning that it has in Java."""
        return self._linear is not None

    def fullmatch(self, text: str) -> JavaMatch | None:
        """Match the whole text; return None if it does not match.

        Raises:
            ConfigError: ``regex_slow``; backtracking took longer than ``MATCH_S``.
        """
        if not self._is_linear_for(text):
            match = self._backtrack(text)
            return None if match is None else JavaMatch(self, lambda: match)
        match = self._linear.fullmatch(text)
        if match is None:
            return None
        # RE2 captures another text for the last iteration of a repeated group
        if self._is_repeating_groups:
            return JavaMatch(self, lambda: self._backtrack(text) or match)
        return JavaMatch(self, lambda: match)

    def matching(self, texts: Iterable[str], *, until_ms: int | None = None) -> list[str]:
        """Return the texts that match as a whole.

        Args:
            texts: a list.
            until_ms: end of the time, if several expressions share one; on the monotonic clock.

        Raises:
            ConfigError: ``regex_slow``; one text took longer than ``MATCH_S``, or all texts
                together took longer than ``LIST_MS``.
        """
        clock = SystemClock()
        if until_ms is None:
            until_ms = clock.monotonic_ms() + LIST_MS
        matching = []
        for text in texts:
            if self.fullmatch(text) is not None:
                matching.append(text)
            if self._linear is None and clock.monotonic_ms() > until_ms:
                raise self._slow(f"{LIST_MS / 1000:g} s on a list of texts")
        return matching

    def _is_linear_for(self, text: str) -> bool:
        if self._linear is None:
            return False
        if self._is_folding and not (text.isascii() and self.pattern.isascii()):
            return False  # Java ignores case for ASCII letters only, RE2 for all letters
        try:
            text.encode()
        except UnicodeEncodeError:  # an unpaired surrogate
            return False
        return True

    def _backtrack(self, text: str) -> Any:
        if self._backtracking is None:
            self._compile_backtracking()
        try:
            return self._backtracking.fullmatch(text, timeout=MATCH_S, concurrent=True)
        except TimeoutError:
            raise self._slow(f"{MATCH_S:g} s on a text of {len(text)} characters") from None

    def _compile_backtracking(self) -> None:
        if len(self.pattern) > BACKTRACKING_LENGTH_MAX:
            raise _wrong(
                self.pattern,
                f"it has {len(self.pattern)} characters, at most {BACKTRACKING_LENGTH_MAX} are "
                "allowed with lookaround, back-references or possessive quantifiers",
            )
        try:
            self._backtracking = regex.compile(
                _translated(self.pattern, "regex"), regex.ASCII | regex.VERSION0
            )
        except (regex.error, OverflowError, RecursionError) as error:
            raise _wrong(self.pattern, str(error)) from None

    def _slow(self, limit: str) -> ConfigError:
        return ConfigError(
            f"regular expression {_displayed(self.pattern)} took longer than {limit}: write it "
            "without lookaround, back-references and possessive quantifiers",
            code="regex_slow",
        )


@lru_cache(maxsize=256)
def compile_java_regex(text: str) -> JavaRegex:
    r"""Compile a regular expression written for Java.

    Constructs that the engines write differently are translated: named groups, ``\Q...\E``,
    POSIX classes such as ``\p{Alpha}``, general categories such as ``\p{L}``, ``\h``, ``\v``,
    ``\R``, ``\z`` and ``\Z``.

    Raises:
        ConfigError: the expression is invalid, too large, or not supported by the engines.
    """
    return JavaRegex(text)


def fault(text: str) -> str | None:
    """Return the error of a regular expression, or None if it is valid."""
    try:
        compile_java_regex(text)
    except ConfigError as error:
        return f"Invalid regex: {error.message}"
    return None


def _wrong(pattern: str, why: str) -> ConfigError:
    return ConfigError(f"regular expression {_displayed(pattern)}: {why}", code="route_regex")


def _displayed(pattern: str) -> str:
    return repr(pattern) if len(pattern) <= _SHOWN_MAX else repr(pattern[:_SHOWN_MAX]) + "..."


def _translated(text: str, dialect: Dialect) -> str:
    """Translate the expression to an engine's syntax.

    Raises:
        re.error: the expression is invalid in Java or not supported in Python.
        _BacktrackingError: RE2 gives the expression another meaning.
    """
    is_dot_all = bool(re.search(r"\(\?[a-z]*s", text))
    dot = "." if is_dot_all else _for(dialect, _NO_LINE_END)
    if dialect == "re2":
        _refuse_other_meanings(text)
    parts: list[str] = []
    in_set = False
    classes = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is None:
            if not in_set:
                raise re.error("a brace starts a quantifier", text, match.start())
            parts.append("{")
        elif kind in _WRITERS:
            classes += kind in {"named", "short"}
            if classes > CLASSES_MAX:
                raise re.error(f"more than {CLASSES_MAX} character classes", text, match.start())
            parts.append(_WRITERS[kind](match, in_set, dialect))
        elif kind != "other":
            parts.append(match[0])
        else:
            char = match["other"]
            if in_set and (char == "[" or text.startswith("&&", match.start())):
                raise re.error("sets within sets are not supported", text, match.start())
            in_set = char == "[" or (in_set and char != "]")
            parts.append(dot if char == "." and not in_set else char)
    return "".join(parts)


def _refuse_other_meanings(text: str) -> None:
    """Require backtracking for constructs to which RE2 gives another meaning.

    Raises:
        _BacktrackingError: ``$`` before the end of the pattern; in Java it also matches before a
            final line terminator.
    """
    if "$" in text[:-1] or re.search(r"\(\?[a-z]*m", text):
        raise _BacktrackingError


def _for(dialect: Dialect, text: str) -> str:
    """Write a piece of a pattern in the engine's syntax."""
    if dialect != "re2":
        return text
    return re.sub(r"\\u([0-9a-f]{4})", r"\\x{\1}", text).replace(r"\Z", r"\z")


def _named_set(match: re.Match[str], in_set: bool, dialect: Dialect) -> str:
    name = match["named"] or match["short"] or ""
    category = name.removeprefix("Is")
    members = _POSIX_CLASSES.get(name)
    if members is None and not _CATEGORIES.fullmatch(category):
        raise re.error(f"unknown class {name}", match.string, match.start())
    is_negated = match["sign"] == "P"
    if in_set and is_negated:
        raise re.error("sets within sets are not supported", match.string, match.start())
    if members is None:
        if dialect == "re2" and category in {"C", "Cn"}:
            raise _BacktrackingError  # RE2's classes exclude unassigned characters
        if dialect != "python":
            return f"\\{match['sign']}{{{category}}}"
        members = "a-z"  # validation does not depend on the members
    members = _SPACE if members == r"\s" else members
    if in_set:
        return members
    return f"[^{members}]" if is_negated else f"[{members}]"


def _escape(match: re.Match[str], in_set: bool, dialect: Dialect) -> str:
    char = match["escaped"]
    if char in _SETS:
        members, sign = _SETS[char]
        if in_set and sign:
            raise re.error("sets within sets are not supported", match.string, match.start())
        return _for(dialect, members if in_set else f"[{sign}{members}]")
    if dialect == "re2":
        if char in "123456789" or (char == "S" and in_set):
            raise _BacktrackingError
        if char in "sS":
            return _SPACE if in_set else f"[{'^' if char == 'S' else ''}{_SPACE}]"
    return match[0] if in_set and char in "RzZ" else _for(dialect, _ESCAPES.get(char, match[0]))


def _point(match: re.Match[str], in_set: bool, dialect: Dialect) -> str:
    del in_set
    number = int(match["point"], 16)
    return f"\\x{{{number:x}}}" if dialect == "re2" else f"\\U{number:08x}"


_WRITERS: Final[dict[str, Callable[[re.Match[str], bool, Dialect], str]]] = {
    "quoted": lambda match, *_: re.escape(match["quoted"]),
    "named": _named_set,
    "short": _named_set,
    "group": lambda match, *_: f"(?P={match['group']})",
    "point": _point,
    "escaped": _escape,
    "naming": lambda match, *_: f"(?P<{match['naming']}",
}


def replacement(text: str) -> Callable[[JavaMatch], str]:
    r"""Parse a replacement text of Java's ``Matcher``: ``$1``, ``${name}``, ``\x``.

    Returns:
        A function that returns the replacement of a match. As in Java, it raises ValueError for an
        unknown group or an invalid reference.
    """

    def expand(match: JavaMatch) -> str:
        parts: list[str] = []
        index = 0
        while index < len(text):
            char = text[index]
            if char == "\\":
                if index + 1 == len(text):
                    raise ValueError("character to be escaped is missing")
                parts.append(text[index + 1])
                index += 2
            elif char == "$":
                value, index = _group(text, index + 1, match)
                parts.append(value)
            else:
                parts.append(char)
                index += 1
        return "".join(parts)

    return expand


def _group(text: str, index: int, match: JavaMatch) -> tuple[str, int]:
    named = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}").match(text, index)
    if named is not None:
        if named[1] not in match.regex.groupindex:
            raise ValueError(f"No group with name {{{named[1]}}}")
        return match[named[1]] or "", named.end()
    digits = re.compile(r"[0-9]+").match(text, index)
    if digits is None:
        raise ValueError("Illegal group reference")
    number, end = int(digits[0][0]), index + 1
    if number > match.regex.groups:
        raise ValueError(f"No group {number}")
    while end < digits.end() and number * 10 + int(text[end]) <= match.regex.groups:
        number, end = number * 10 + int(text[end]), end + 1
    return match[number] or "", end
