r"""Replacement texts of Java's ``Matcher``: ``$1``, ``${name}``, ``\x``."""

from __future__ import annotations

import re
from collections.abc import Callable

from connect.java_compat.java_regex import JavaMatch


def replacement(text: str) -> Callable[[JavaMatch], str]:
    """Read a replacement text.

    Returns:
        what makes the text for a match. It raises ValueError where Java does: for a group that is
        not there, or a reference that is none.
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
