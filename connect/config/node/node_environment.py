"""Environment variables of a node: each may hold one property.

Rules of this file:
- ``CONNECT_`` and a key, as in common images of Kafka Connect. Unknown keys are reported later.
- ``ICEFLOE_`` and a key, with or without the key's own ``icefloe.``; it replaces the other form.
  Only known keys count: this prefix also begins variables of the client, of connectors, and those
  that Kubernetes sets for a service of that name.
- Keys are in upper case, with ``_`` for ``.``, ``__`` for ``_`` and ``___`` for ``-``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from connect.config.node.node_keys import NODE_KEYS
from connect.config.node.node_prefixes import NODE_PREFIXES

KAFKA_CONNECT_PREFIX: Final = "CONNECT_"
OWN_PREFIX: Final = "ICEFLOE_"
_OWN_KEYS: Final = "icefloe."
_MARKS: Final = {1: ".", 2: "_", 3: "-"}
_NAMES: Final = frozenset(key.name for key in NODE_KEYS)
_FAMILIES: Final = tuple(prefix.name for prefix in NODE_PREFIXES)


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that environment variables hold."""
    properties: dict[str, str] = {}
    for prefix in (KAFKA_CONNECT_PREFIX, OWN_PREFIX):
        for variable, value in environ.items():
            key = _key(variable) if variable.startswith(prefix) else None
            if key is not None:
                properties[key] = value
    return properties


def without_properties(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that hold no property of a node."""
    return {variable: value for variable, value in environ.items() if _key(variable) is None}


def _key(variable: str) -> str | None:
    if variable.startswith(KAFKA_CONNECT_PREFIX):
        return _unmarked(variable.removeprefix(KAFKA_CONNECT_PREFIX))
    if not variable.startswith(OWN_PREFIX):
        return None
    name = _unmarked(variable.removeprefix(OWN_PREFIX))
    keys = (_OWN_KEYS + name, name)
    return next((key for key in keys if key in _NAMES or key.startswith(_FAMILIES)), None)


def _unmarked(name: str) -> str:
    return re.sub(r"_{1,3}", lambda mark: _MARKS[len(mark[0])], name.lower())
