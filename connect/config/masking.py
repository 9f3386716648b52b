"""Detection of secrets in configurations, and masking of secrets in texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from connect.config.keys.connector_keys import KEYS, prefix_of
from connect.config.keys.output_keys import output_key
from connect.config.keys.topic_keys import topic_key
from connect.config.placeholders import has_placeholder, is_placeholder, placeholders
from connect.errors import ConfigError
from connect.redaction.secret_values import KNOWN, MASK, SecretValues

_SECRET = re.compile(
    r"password|passwd|secret|token|credential|jaas|private|api[._-]?key|access[._-]?key|user\.info"
    r"|keystore\.key|key\.pem",
    re.IGNORECASE,
)
_REFERENCES = re.compile(r"(?:\$\{[^}]*\})+")
_USER_INFO = re.compile(r"://([^/?#\s]*)@")
_QUOTED = re.compile(r"""(["'])(.*?)\1""", re.DOTALL)
_OPTIONS = re.compile(r"""([\w.]+)\s*=\s*(["'])((?:\\.|(?!\2).)*)\2""", re.DOTALL)


def may_be_secret(key: str) -> bool:
    """Return whether the value of a key may be a secret, by declaration or by name."""
    declared = KEYS.get(key)
    if declared is not None:
        return declared.is_secret or declared.type == "PASSWORD"
    of_output = output_key(key)
    if of_output is not None:
        return of_output.is_secret
    of_topic = topic_key(key)
    if of_topic is not None:
        return bool(_SECRET.search(of_topic.option or ""))
    prefix = prefix_of(key)
    rest = key.removeprefix(prefix.name) if prefix is not None else key
    return bool(_SECRET.search(rest))


def without_logins(value: str) -> str:
    """Return a value with masked credentials in URLs. Placeholders are not masked."""

    def masked(match: re.Match[str]) -> str:
        user, colon, password = match[1].partition(":")
        if is_placeholder(password or user):
            return match[0]
        return f"://{user}:{MASK}@" if colon else f"://{MASK}@"

    return _USER_INFO.sub(masked, value)


def displayed_value(key: str, value: str) -> str:
    """Return a value for display: possible secrets are masked, references to them are not."""
    if _REFERENCES.fullmatch(value):
        return value
    return MASK if may_be_secret(key) else without_logins(value)


class Masker:
    """Replaces resolved values in texts with the placeholders that were sent, longest values first.

    All resolved values are replaced, even short ones, because the texts are about this
    configuration. Other secrets of the process (``connect.redaction.secret_values``) are masked,
    too.

    Args:
        sent: the configuration with placeholders.
        resolve: resolves placeholders.
        is_inline_masked: whether to mask values that may be secrets, and credentials in URLs.
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
        """Return a text with masked values."""
        return KNOWN.mask(self._sentences.mask(text))

    def name(self, text: str) -> str:
        """Return the name of a key or group with masked values. Short values are not masked."""
        return KNOWN.mask(self._names.mask(text))

    def _add_resolved(self, value: str, resolve: Callable[[str], str]) -> str:
        """Resolve a value; mask the result and the resolved placeholders in later texts."""
        whole = _resolved(value, resolve)
        for sent in dict.fromkeys(
            (value, *(placeholder.text for placeholder in placeholders(value)))
        ):
            if (resolved := _resolved(sent, resolve)) != sent:
                self._sentences.add(resolved, sent, with_short=True)
                self._names.add(resolved, sent)
        return whole


def _resolved(text: str, resolve: Callable[[str], str]) -> str:
    try:
        return resolve(text)
    except ConfigError:  # validation reports the error at its key
        return text


def secrets_in(name: str, value: str) -> Iterator[str]:
    """Yield the secrets in the value of a property, depending on its name."""
    if may_be_secret(name):
        quoted = [text for key, _, text in _OPTIONS.findall(value) if _SECRET.search(key)]
        yield from quoted or [value]
        if not quoted:
            yield from value.split(":", 1)[1:]  # id:secret


def _inline(name: str, value: str) -> Iterator[str]:
    """Yield the secrets in the value of a connector's key."""
    if may_be_secret(name):
        yield value
        quoted = (text for _, text in _QUOTED.findall(value))
        yield from (*quoted, *value.split(":", 1)[1:])  # key="...", id:secret
