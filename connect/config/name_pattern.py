"""Name patterns in node properties and in the grants of users."""

from __future__ import annotations


def matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern, in which ``*`` matches any text."""
    first, *others = pattern.split("*")
    if not others:
        return name == pattern
    *middle, last = others
    if not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in middle:
        index = name.find(piece, at, end)
        if index < 0:
            return False
        at = index + len(piece)
    return at <= end
