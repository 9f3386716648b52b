"""Masks the values of secrets in every text that leaves the process.

Rules of this file:
- A value is masked unchanged, and as URLs, JSON and Python spell it; the longest spelling first.
  The parts of a list (``a,b``) and the lines of a longer text are masked, too.
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
from collections.abc import Iterable, Iterator, Mapping
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
        self._displayed: dict[str, tuple[str, re.Pattern[str] | None]] = {}
        self._ordered: list[tuple[str, str, re.Pattern[str] | None]] | None = []

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
                    self._displayed[form] = instead, _alone(form)
                    self._ordered = None

    def replacements(self) -> dict[str, str]:
        """Return every masked text and its replacement, for another process of this node."""
        with self._lock:
            return {text: instead for text, (instead, _) in self._displayed.items()}

    def add_all(self, replacements: Mapping[str, str]) -> None:
        """Mask the texts that another process masks."""
        for text, instead in replacements.items():
            self.add(text, instead, with_short=True)

    def mask(self, text: str) -> str:
        """Return the text with the values replaced."""
        for value, instead, alone in self._by_length():
            if value not in text:
                continue
            text = text.replace(value, instead) if alone is None else _masked(text, alone, instead)
        return text

    def _by_length(self) -> list[tuple[str, str, re.Pattern[str] | None]]:
        ordered = self._ordered
        if ordered is None:
            with self._lock:
                secrets = [(value, *displayed) for value, displayed in self._displayed.items()]
                ordered = self._ordered = sorted(secrets, key=lambda each: -len(each[0]))
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


def _forms(value: str) -> Iterator[str]:
    for part in _parts(value):
        yield part
        if not part.isalnum():
            yield from (quote(part, ""), quote_plus(part), repr(part)[1:-1])
            yield from (json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1])


def _parts(value: str) -> Iterable[str]:
    whole = (value, value.strip())
    parts = (part.strip() for part in _SEPARATORS.split(value, PARTS_MAX))
    return filter(None, dict.fromkeys((*whole, *parts)))


def _masked(text: str, alone: re.Pattern[str], instead: str) -> str:
    return alone.sub(lambda _: instead, text)


def _alone(value: str) -> re.Pattern[str] | None:
    if len(value) > ALONE_CHARACTERS_MAX:
        return None
    return re.compile(rf"(?<![A-Za-z0-9_]){re.escape(value)}(?![A-Za-z0-9_])")
