"""Masks the values of secrets in every text that leaves the process.

Rules of this file:
- A value is masked in any case, and as URLs, JSON, HTML, Python and base64 spell it; the longest
  spelling first. Errors change the case of what they name, as Java's enums do. The parts
  of a list (``a,b``) and the lines of a longer text are masked, too.
- A value of up to 7 characters is masked only where it stands alone, between characters that are
  no letters, digits or ``_``: else a value like ``rest`` would be masked inside other text.
- A value of up to 3 characters, a whole number of up to 5 digits, ``true``, ``false``, ``none`` and
  ``null`` are no secrets of the process. They are masked only in sentences about the configuration
  that holds them (``connect.config.masking``).
- Names that others depend on (connectors, states, nodes) are never masked.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, Final
from urllib.parse import quote, quote_plus

MASK: Final = "********"
ALONE_CHARACTERS_MAX: Final = 7
SHORT_CHARACTERS_MAX: Final = 3
PARTS_MAX: Final = 1_000
VALUES_MAX: Final = 100_000
_COMMON_VALUES: Final = frozenset({"true", "false", "none", "null"})
_OPEN_NUMBER: Final = re.compile(r"[0-9]{1,5}")
_SEPARATORS: Final = re.compile(r"[,\r\n]")
_KEPT_NAMES: Final = frozenset({"name", "connector", "state", "worker_id", "role", "type"})


class SecretValues:
    """Values of secrets and their replacements. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._displayed: dict[str, str] = {}
        self._ordered: list[_Masked] | None = []

    def add(self, value: str, instead: str = MASK, *, with_short: bool = False) -> None:
        """Mask a value from now on; the first replacement of a text stays.

        Args:
            value: the secret.
            instead: the replacement.
            with_short: mask short values and common values such as ``true``, too.
        """
        if value in self._displayed:
            return
        with self._lock:
            for form in _forms(value):
                is_masked = with_short or not is_open(form)
                if is_masked and form not in self._displayed and len(self._displayed) < VALUES_MAX:
                    self._displayed[form] = instead
                    self._ordered = None

    def mask(self, text: str) -> str:
        """Return the text with the values replaced."""
        lower = text.lower()
        for secret in self._by_length():
            if secret.lower in lower:
                text = secret.replaced(text)
                lower = text.lower()
        return text

    def _by_length(self) -> list[_Masked]:
        ordered = self._ordered
        if ordered is None:
            with self._lock:
                secrets = [_Masked(text, instead) for text, instead in self._displayed.items()]
                ordered = self._ordered = sorted(secrets, key=lambda each: -len(each.text))
        return ordered

    def masked(self, value: Any, *, kept: frozenset[str] = _KEPT_NAMES) -> Any:
        """Return a JSON value with secrets masked.

        Args:
            value: JSON.
            kept: fields that are not masked: names of connectors, states and nodes.
        """
        match value:
            case str():
                return self.mask(value)
            case Mapping():
                return {
                    self.mask(str(key)): each if key in kept else self.masked(each, kept=kept)
                    for key, each in value.items()
                }
            case list() | tuple():
                return [self.masked(each, kept=kept) for each in value]
            case _:
                return value


KNOWN: Final = SecretValues()
"""Every secret that this process has resolved."""


def is_open(value: str) -> bool:
    """Return whether a value is too short or too common to be masked in every text."""
    return (
        len(value) <= SHORT_CHARACTERS_MAX
        or value.lower() in _COMMON_VALUES
        or _OPEN_NUMBER.fullmatch(value) is not None
    )


class _Masked:
    """A text that is masked in every case, and its replacement."""

    __slots__ = ("_instead", "_pattern", "lower", "text")

    def __init__(self, text: str, instead: str) -> None:
        self.text, self.lower = text, text.lower()
        self._instead = instead
        self._pattern: re.Pattern[str] | None = None

    def replaced(self, text: str) -> str:
        """Return a text with the replacement."""
        if self._pattern is None:  # compiled for the few secrets that a text has
            pattern = re.escape(self.text)
            if len(self.text) <= ALONE_CHARACTERS_MAX:
                pattern = rf"(?<![A-Za-z0-9_]){pattern}(?![A-Za-z0-9_])"
            self._pattern = re.compile(pattern, re.IGNORECASE)
        return self._pattern.sub(lambda _: self._instead, text)


def _forms(value: str) -> Iterator[str]:
    for part in _parts(value):
        yield part
        cases = (part.upper(), part.title(), part.swapcase(), part.casefold())
        yield from (case for case in cases if case.lower() != part.lower())
        encoded = part.encode(errors="surrogatepass")
        if len(part) > ALONE_CHARACTERS_MAX:
            yield from (b64encode(encoded).decode(), urlsafe_b64encode(encoded).decode())
        if not (part.isalnum() and part.isascii()):
            yield from (
                quote(encoded, ""),
                quote_plus(encoded),
                repr(part)[1:-1],
                ascii(part)[1:-1],
            )
            yield from (json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1])
            yield from (repr(encoded)[2:-1], escape(part))


def _parts(value: str) -> Iterable[str]:
    whole = (value, value.strip(), " ".join(value.split()))
    parts = (part.strip() for part in _SEPARATORS.split(value, PARTS_MAX))
    return filter(None, dict.fromkeys((*whole, *parts)))
