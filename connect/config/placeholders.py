"""Placeholders of configuration providers within a text: ``${provider:path:key}``.

Rules of this file:
- Time is linear in the text, whatever is in it.

Source:
    ``ConfigTransformer.DEFAULT_PATTERN``, Kafka 4.3.1: provider and key without a colon, a path
    between them that may hold some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One placeholder.

    Attributes:
        text: as it stands, from ``${`` to ``}``.
        start: its place in the text.
        provider: name of the provider.
        path: what the provider looks in; empty when there is none.
        key: what it looks for.
    """

    text: str
    start: int
    provider: str
    path: str
    key: str

    @property
    def end(self) -> int:
        """The place behind it."""
        return self.start + len(self.text)


def placeholders(text: str) -> Iterator[Placeholder]:
    """Every placeholder of a text, in order."""
    close = text.find("}")
    start = text.find("${")
    while start >= 0 and close >= 0:
        if close < start:
            close = text.find("}", start)
            continue
        found = _between(text, start, close)
        if found is not None:
            yield found
            start = text.find("${", close + 1)
        else:  # without a colon none of this brace's openings is one
            is_other = ":" in text[start + 2 : start + 3]
            start = text.find("${", start + 2 if is_other else close + 1)


def has_placeholder(text: str) -> bool:
    """Whether there is one."""
    return next(placeholders(text), None) is not None


def is_placeholder(text: str) -> bool:
    """Whether the text is one and nothing else."""
    return text.startswith("${") and [p.text for p in placeholders(text)] == [text]


def replaced(text: str, value_of: Callable[[Placeholder], str]) -> str:
    """The text with each placeholder replaced."""
    parts, end = [], 0
    for found in placeholders(text):
        parts += [text[end : found.start], value_of(found)]
        end = found.end
    return "".join((*parts, text[end:]))


def _between(text: str, start: int, close: int) -> Placeholder | None:
    first = text.find(":", start, close)
    if first <= start + 2:  # none, or no provider before it
        return None
    last = text.rfind(":", start, close)
    path = text[first + 1 : last] if last > first else ""
    return Placeholder(
        text[start : close + 1], start, text[start + 2 : first], path, text[last + 1 : close]
    )
