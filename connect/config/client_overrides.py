"""Kafka client properties that a connector may override.

Rules of this file:
- ``client_names`` lists the properties that a connector may set. Only these reach a client.
- As in Kafka, unknown names only cause a warning, unless they are similar to forbidden names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from connect.config.key import typed
from connect.config.keys.client_keys import CLIENT_KEYS
from connect.config.keys.client_names import (
    ALLOWED,
    LIBRDKAFKA_ONLY,
    LIBRDKAFKA_SECURITY,
    REFUSED,
)

PREFIXES = ("consumer.override.", "producer.override.", "iceberg.kafka.")

_ROLES = ("consumer.", "producer.", "admin.")
_SECURITY = ("sasl.", "ssl.", "security.")
_REFUSED_PATTERN = re.compile(
    r".*\.(class|classes|location|path|paths|file|dir|cmd|url|jaas\.config|reporters|providers)"
    r"|.*\.(deserializer|serializer|callback\.handler\..*)|library\..*|.*\.library\..*"
    r"|spark\..*|config\.providers.*|plugin\..*|debug|.*_cb"
)

_REFUSAL = (
    "A connector cannot set {name}: set names of classes, files, libraries, logins, commands "
    "and services in the node's properties."
)
_LOGIN_REFUSAL = (
    "A connector cannot set {name}: all connectors have the login of the node. Set "
    "sasl.jaas.config in the node's properties, or run this connector on other nodes, whose login "
    "may read its topics."
)


def split(raw: Mapping[str, str | None], prefix: str) -> dict[str, str]:
    """Return the properties with a prefix, without the prefix and without nulls."""
    return {
        name.removeprefix(prefix): value
        for name, value in raw.items()
        if name.startswith(prefix) and name != prefix and value is not None
    }


def is_refused(name: str) -> bool:
    """Return whether connectors cannot set a client property."""
    return name in REFUSED or (name not in ALLOWED and bool(_REFUSED_PATTERN.fullmatch(name)))


def is_unknown_client_property(name: str) -> bool:
    """Return whether a node property is meant for Kafka's clients, and no client knows it."""
    role = next((role for role in _ROLES if name.startswith(role)), "")
    if not role and not name.startswith(_SECURITY):
        return False
    known_names = ALLOWED | REFUSED.keys() | LIBRDKAFKA_ONLY | LIBRDKAFKA_SECURITY
    return name.removeprefix(role) not in known_names


def allowed_overrides(raw: Mapping[str, str | None], prefix: str) -> dict[str, str]:
    """Return the overrides with a prefix that are passed to a client."""
    return {name: value for name, value in split(raw, prefix).items() if name in ALLOWED}


def override_errors(raw: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yield key and error message for each invalid client property of a connector."""
    for prefix in PREFIXES:
        for name, value in split(raw, prefix).items():
            full = prefix + name
            if is_refused(name):
                text = _LOGIN_REFUSAL if name.endswith("sasl.jaas.config") else _REFUSAL
                yield full, text.format(name=full)
            elif name in CLIENT_KEYS:
                yield from ((full, why) for why in typed(CLIENT_KEYS[name], value).errors)
