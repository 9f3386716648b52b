"""Which values may be secrets, and sentences without them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, quote_plus

from connect.config.declarations import KEYS, prefix_of
from connect.errors import ConfigError

MASK = "********"
PLACEHOLDER = re.compile(r"\$\{[^}:]+:[^}]*\}")
_SECRET = re.compile(
    r"password|passwd|secret|token|credential|jaas|private|api[._-]?key|access[._-]?key|user\.info",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"://([^/?#\s]*)@")
_QUOTED = re.compile(r'"([^"]*)"')
_PART_CHARACTERS_MIN = 4


def may_be_secret(key: str) -> bool:
    """Whether a key's value may be one: by its declaration, or by its name."""
    declared = KEYS.get(key)
    if declared is not None:
        return declared.is_secret or declared.type == "PASSWORD"
    prefix = prefix_of(key)
    rest = key.removeprefix(prefix.name) if prefix is not None else key
    return bool(_SECRET.search(rest))


def without_logins(value: str) -> str:
    """A value with the logins masked that stand in its addresses; references stay."""

    def masked(found: re.Match[str]) -> str:
        user, colon, password = found[1].partition(":")
        if PLACEHOLDER.fullmatch(password or user):
            return found[0]
        return f"://{user}:{MASK}@" if colon else f"://{MASK}@"

    return _USER_INFO.sub(masked, value)


class Masker:
    """Puts what was sent in place of what it resolves to, the longest values first.

    Args:
        sent: the configuration, placeholders unresolved.
        resolve: turns placeholders into values.
        is_inline_masked: values that may be secrets, and logins within addresses, become
            ``MASK``, too.
    """

    def __init__(
        self,
        sent: Mapping[str, str | None],
        resolve: Callable[[str], str],
        *,
        is_inline_masked: bool = False,
    ) -> None:
        pairs: dict[str, str] = {}
        for name, value in sent.items():
            if value is None:
                continue
            for placeholder in dict.fromkeys(PLACEHOLDER.findall(value)):
                pairs |= _forms(_resolved(placeholder, resolve), placeholder)
            resolved = _resolved(value, resolve)
            if resolved != value:
                pairs[resolved] = value
            if is_inline_masked:
                pairs |= dict.fromkeys(_inline(name, resolved), MASK) if resolved == value else {}
                for text in _USER_INFO.findall(resolved):
                    for part in (text, *text.split(":", 1)[1:]):
                        for form in _forms(part, MASK):
                            pairs.setdefault(form, MASK)
        self._pairs = sorted(pairs.items(), key=lambda pair: -len(pair[0]))

    def __call__(self, text: str) -> str:
        """The text without them."""
        for secret, instead in self._pairs:
            text = text.replace(secret, instead)
        return text


def _resolved(text: str, resolve: Callable[[str], str]) -> str:
    try:
        return resolve(text)
    except ConfigError:  # told at its key
        return text


def _forms(text: str, instead: str) -> dict[str, str]:
    """A part as it is and as addresses spell it; short ones are left, or no word would stay."""
    if len(text) < _PART_CHARACTERS_MIN:
        return {}
    return dict.fromkeys((text, quote(text, ""), quote_plus(text)), instead)


def _inline(name: str, value: str) -> Iterator[str]:
    """Secrets that are written into the configuration."""
    if may_be_secret(name):
        yield from _forms(value, MASK)
        for part in (*_QUOTED.findall(value), *value.split(":", 1)[1:]):  # key="...", id:secret
            yield from _forms(part, MASK)
