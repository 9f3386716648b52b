"""Presets for Debezium's connectors: values of other keys that ``icefloe.debezium`` sets.

Rules of this file:
- A key of the configuration wins over its preset, and a preset over the default.
- A preset contains declared keys only, so validation shows its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from connect.config.key import Raw

_EVERY: Final[Mapping[str, str]] = {
    "iceberg.tables.no-key": "append",
    "iceberg.tables.no-key-changes": "dead-letter",
    "icefloe.debezium.types": "typed",
}
_WITH_PLACEHOLDERS: Final[Mapping[str, str]] = {
    **_EVERY,
    "iceberg.tables.unavailable-value": "error",
}
"""Of databases that do not log large values which an update leaves unchanged."""
PRESETS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "postgres": _WITH_PLACEHOLDERS,
        "mysql": _EVERY,
        "mariadb": _EVERY,
        "sqlserver": _EVERY,
        "oracle": _WITH_PLACEHOLDERS,
        "mongodb": _EVERY,
    }
)


def preset_values(raw: Raw) -> Mapping[str, str]:
    """Return the values that a configuration takes from its preset, by key."""
    name = (raw.get("icefloe.debezium") or "").strip()
    return {key: text for key, text in PRESETS.get(name, {}).items() if key not in raw}
