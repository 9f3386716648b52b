r"""Regular expressions written for Java, for Python's engine.

Rules of this file:
- What both engines have means what it means in Java, or is an error of the configuration: classes
  like ``\d`` are ASCII's, a dot takes no line terminator, a brace opens a count.
- Sets within sets and their intersection are refused: Python reads their characters.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Final

from connect.errors import ConfigError

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


def compile_java_regex(text: str) -> re.Pattern[str]:
    r"""Compile a regular expression written for Java.

    What Python has another word for is translated: named groups, ``\Q...\E``, ``\p{Alpha}`` and
    its kin, general categories like ``\p{L}``, ``\h``, ``\v``, ``\R``, ``\z`` and ``\Z``.

    Raises:
        ConfigError: neither engine's, or a construct Python does not have.
    """
    try:
        return re.compile(_translated(text), re.ASCII)
    except (re.error, OverflowError) as error:
        raise ConfigError(f"regular expression {text!r}: {error}", code="route_regex") from None


def fault(text: str) -> str | None:
    """What is wrong with a regular expression; None where nothing is."""
    try:
        compile_java_regex(text)
    except ConfigError as error:
        return f"Invalid regex: {error.message}"
    return None


def _translated(text: str) -> str:
    """The expression in Python's words.

    Raises:
        re.error: what Java refuses or Python cannot.
    """
    dot = "." if re.search(r"\(\?[a-z]*s", text) else _NO_LINE_END
    found: list[str] = []
    in_set = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is None:
            if not in_set:
                raise re.error("a brace opens a count", text, match.start())
            found.append("{")
        elif kind in _WRITERS:
            found.append(_WRITERS[kind](match, in_set))
        elif kind != "other":
            found.append(match[0])
        else:
            char = match["other"]
            if in_set and (char == "[" or text.startswith("&&", match.start())):
                raise re.error("sets within sets are not supported", text, match.start())
            if char == "[" and not in_set:
                in_set = True
            elif char == "]" and in_set:
                in_set = False
            found.append(dot if char == "." and not in_set else char)
    return "".join(found)


def _named_set(match: re.Match[str], in_set: bool) -> str:
    name = match["named"] or match["short"] or ""
    members = _POSIX_CLASSES.get(name) or _category(name.removeprefix("Is"))
    if members is None:
        raise re.error(f"unknown class {name}", match.string, match.start())
    if match["sign"] == "p":
        return members if in_set else f"[{members}]"
    if in_set:
        raise re.error("sets within sets are not supported", match.string, match.start())
    return f"[^{members}]"


def _escape(match: re.Match[str], in_set: bool) -> str:
    char = match["escaped"]
    if char in _SETS:
        members, sign = _SETS[char]
        if in_set and sign:
            raise re.error("sets within sets are not supported", match.string, match.start())
        return members if in_set else f"[{sign}{members}]"
    return match[0] if in_set and char in "RzZ" else _ESCAPES.get(char, match[0])


_WRITERS: Final[dict[str, Callable[[re.Match[str], bool], str]]] = {
    "quoted": lambda match, _: re.escape(match["quoted"]),
    "named": _named_set,
    "short": _named_set,
    "group": lambda match, _: f"(?P={match['group']})",
    "point": lambda match, _: f"\\U{int(match['point'], 16):08x}",
    "escaped": _escape,
    "naming": lambda match, _: f"(?P<{match['naming']}",
}


@cache
def _category(name: str) -> str | None:
    """The characters of a general category of Unicode (``L``, ``Lu``) as ranges of a set."""
    if not re.fullmatch(r"[LMNPSZC][a-z]?", name):
        return None
    ranges: list[str] = []
    start = None
    for point in range(sys.maxunicode + 2):
        is_in = point <= sys.maxunicode and unicodedata.category(chr(point)).startswith(name)
        if is_in and start is None:
            start = point
        elif not is_in and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{point - 1:08x}")
            start = None
    return "".join(ranges) or None
