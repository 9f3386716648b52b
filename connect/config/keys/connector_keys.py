"""All keys of connector configurations.

Parsing, REST answers, docs/reference/configuration.md, and the tests for documented and used keys
are based on these declarations.
"""

from __future__ import annotations

from connect.config.key import Key, Prefix
from connect.config.keys import framework_keys, iceberg_keys

FRAMEWORK_KEYS: tuple[Key, ...] = framework_keys.COMMON_KEYS + framework_keys.SINK_KEYS
CONNECTOR_KEYS: tuple[Key, ...] = iceberg_keys.JAVA_KEYS + iceberg_keys.OWN_KEYS
TABLE_KEYS: tuple[Key, ...] = iceberg_keys.TABLE_KEYS
KEYS: dict[str, Key] = {key.name: key for key in FRAMEWORK_KEYS + CONNECTOR_KEYS}
PREFIXES: tuple[Prefix, ...] = framework_keys.PREFIXES + iceberg_keys.PREFIXES

CONNECTOR_CLASS = "org.apache.iceberg.connect.IcebergSinkConnector"
CONNECTOR_CLASSES = frozenset({CONNECTOR_CLASS, "io.tabular.iceberg.connect.IcebergSinkConnector"})
CONNECTOR_ALIASES = frozenset({"IcebergSinkConnector", "IcebergSink"})


def prefix_of(name: str) -> Prefix | None:
    """Return the longest declared prefix of a key, or None."""
    matching = [
        prefix for prefix in PREFIXES if name.startswith(prefix.name) and name != prefix.name
    ]
    return max(matching, key=lambda prefix: len(prefix.name), default=None)


def is_ours(name: str) -> bool:
    """Return whether a key belongs to this connector.

    An unknown ``icefloe.`` key is an error. An unknown ``iceberg.`` key is a warning, because the
    Java sink accepts it and a later version of that sink may know it.
    """
    return name.startswith(("iceberg.", "icefloe."))
