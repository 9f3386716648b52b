"""Placeholders of configuration providers in texts: ``${provider:path:key}``.

Rules of this file:
- The time is linear in the text for any content.

Source:
    ``ConfigTransformer.DEFAULT_PATTERN``, Kafka 4.3.1: provider and key have no colon; the path
    between them may have some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder in a text.

    Attributes:
        text: the placeholder's text, from ``${`` to ``}``.
        start: its index in the text.
        provider: name of the provider.
        path: path for the provider; empty if there is none.
        key: key for the provider.
    """

    text: str
    start: int
    provider: str
    path: str
    key: str

    @property
    def end(self) -> int:
        """Return the index after the placeholder."""
        return self.start + len(self.text)


def placeholders(text: str) -> Iterator[Placeholder]:
    """Yield the placeholders of a text in order."""
    close = text.find("}")
    start = text.find("${")
    while start >= 0 and close >= 0:
        if close < start:
            close = text.find("}", start)
            continue
        placeholder = _between(text, start, close)
        if placeholder is not None:
            yield placeholder
            start = text.find("${", close + 1)
        else:  # without a colon, no opening before this brace starts a placeholder
            is_other = ":" in text[start + 2 : start + 3]
            start = text.find("${", start + 2 if is_other else close + 1)


def has_placeholder(text: str) -> bool:
    """Return whether a text contains a placeholder."""
    return next(placeholders(text), None) is not None


def is_placeholder(text: str) -> bool:
    """Return whether a text is exactly one placeholder."""
    return text.startswith("${") and [p.text for p in placeholders(text)] == [text]


def replaced(text: str, value_of: Callable[[Placeholder], str]) -> str:
    """Return a text with all placeholders replaced."""
    parts, end = [], 0
    for placeholder in placeholders(text):
        parts += [text[end : placeholder.start], value_of(placeholder)]
        end = placeholder.end
    return "".join((*parts, text[end:]))


def _between(text: str, start: int, close: int) -> Placeholder | None:
    first = text.find(":", start, close)
    if first <= start + 2:  # no colon, or no provider before it
        return None
    last = text.rfind(":", start, close)
    path = text[first + 1 : last] if last > first else ""
    return Placeholder(
        text[start : close + 1], start, text[start + 2 : first], path, text[last + 1 : close]
    )
