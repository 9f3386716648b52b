"""Which Kafka client properties a connector may set, and of what type they are.

Rules of this file:
- Which names a connector may set is said in ``client_names``, and only those reach a client.
- Names no client knows pass, as in Kafka, where clients only warn about them, unless they look
  like what is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from connect.config.key import typed
from connect.config.keys.client_keys import CLIENT_KEYS
from connect.config.keys.client_names import ALLOWED, REFUSED

PREFIXES = ("consumer.override.", "producer.override.", "iceberg.kafka.")

_LOOKS_REFUSED = re.compile(
    r".*\.(class|classes|location|path|paths|file|dir|cmd|url|jaas\.config|reporters|providers)"
    r"|.*\.(deserializer|serializer|callback\.handler\..*)|library\..*|.*\.library\..*"
    r"|spark\..*|config\.providers.*|plugin\..*|debug|.*_cb"
)

_REFUSAL = (
    "{name} may not be set by a connector: names of classes, files, libraries, logins, commands "
    "and services belong to the node's properties."
)


def split(raw: Mapping[str, str | None], prefix: str) -> dict[str, str]:
    """The properties below a prefix, prefix removed, nulls left out."""
    return {
        name.removeprefix(prefix): value
        for name, value in raw.items()
        if name.startswith(prefix) and name != prefix and value is not None
    }


def is_refused(name: str) -> bool:
    """Whether no connector may set a client property, whatever its value."""
    return name in REFUSED or (name not in ALLOWED and bool(_LOOKS_REFUSED.fullmatch(name)))


def handed_on(raw: Mapping[str, str | None], prefix: str) -> dict[str, str]:
    """The overrides below a prefix that reach a client."""
    return {name: value for name, value in split(raw, prefix).items() if name in ALLOWED}


def override_errors(raw: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Sentences about client properties in a connector's configuration, with their keys."""
    for prefix in PREFIXES:
        for name, value in split(raw, prefix).items():
            full = prefix + name
            if is_refused(name):
                yield full, _REFUSAL.format(name=full)
            elif name in CLIENT_KEYS:
                yield from ((full, why) for why in typed(CLIENT_KEYS[name], value).errors)
