"""Which values may be secrets, and sentences without them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from connect.config.keys.connector_keys import KEYS, prefix_of
from connect.config.placeholders import has_placeholder, is_placeholder, placeholders
from connect.errors import ConfigError
from connect.redaction.secret_values import KNOWN, MASK, SecretValues

_SECRET = re.compile(
    r"password|passwd|secret|token|credential|jaas|private|api[._-]?key|access[._-]?key|user\.info",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"://([^/?#\s]*)@")
_QUOTED = re.compile(r'"([^"]*)"')
_OPTIONS = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


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
        if is_placeholder(password or user):
            return found[0]
        return f"://{user}:{MASK}@" if colon else f"://{MASK}@"

    return _USER_INFO.sub(masked, value)


class Masker:
    """Puts what was sent in place of what it resolves to, the longest values first.

    Every resolved value counts here, however short: the texts are about this configuration. What
    else the process knows (``connect.redaction.secret_values``) is masked, too.

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
        self._sentences, self._names = SecretValues(), SecretValues()
        for name, value in sent.items():
            if value is None:
                continue
            resolved = self._add_resolved(value, resolve) if has_placeholder(value) else value
            if is_inline_masked:
                for text in _inline(name, resolved) if resolved == value else ():
                    self._sentences.add(text)
                for text in _USER_INFO.findall(resolved):
                    for part in (text, *text.split(":", 1)[1:]):
                        self._sentences.add(part)

    def __call__(self, text: str) -> str:
        """A sentence without them."""
        return KNOWN.mask(self._sentences.mask(text))

    def name(self, text: str) -> str:
        """A name without them: of a key or a group, in which short values stay."""
        return KNOWN.mask(self._names.mask(text))

    def _add_resolved(self, value: str, resolve: Callable[[str], str]) -> str:
        """The value with its placeholders replaced; it and they are masked from now on."""
        whole = _resolved(value, resolve)
        for sent in dict.fromkeys((value, *(found.text for found in placeholders(value)))):
            if (resolved := _resolved(sent, resolve)) != sent:
                self._sentences.add(resolved, sent, with_short=True)
                self._names.add(resolved, sent)
        return whole


def _resolved(text: str, resolve: Callable[[str], str]) -> str:
    try:
        return resolve(text)
    except ConfigError:  # told at its key
        return text


def secrets_in(name: str, value: str) -> Iterator[str]:
    """Secrets that are written into a property, by its name."""
    if may_be_secret(name):
        quoted = [text for key, text in _OPTIONS.findall(value) if _SECRET.search(key)]
        yield from quoted or [value]
        if not quoted:
            yield from value.split(":", 1)[1:]  # id:secret


def _inline(name: str, value: str) -> Iterator[str]:
    """Secrets that are written into the configuration."""
    if may_be_secret(name):
        yield value
        yield from (*_QUOTED.findall(value), *value.split(":", 1)[1:])  # key="...", id:secret
