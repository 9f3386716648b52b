"""Secrets of a command line, as placeholders of environment variables.

Rules of this file:
- The value of a key that may be a secret appears in no configuration: it is added to the
  environment of the process, and the configuration refers to it.
- The node's provider may read only those variables that the configuration refers to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from connect.config.masking import may_be_secret
from connect.config.placeholders import has_placeholder, placeholders

PREFIX: Final = "ICEFLOE_INGEST_"
_PROVIDER: Final = "env"


def from_environment(name: str) -> str:
    """Return the placeholder of an environment variable."""
    return f"${{{_PROVIDER}:{name}}}"


def with_placeholders(properties: Mapping[str, str], secrets: dict[str, str]) -> dict[str, str]:
    """Replace values that may be secrets by placeholders.

    Args:
        properties: with the values.
        secrets: receives the variables of the placeholders.
    """
    shown: dict[str, str] = {}
    for key, value in properties.items():
        if value and may_be_secret(key) and not has_placeholder(value):
            name = PREFIX + re.sub(r"[^A-Z0-9]+", "_", key.upper())
            secrets[name] = value
            shown[key] = from_environment(name)
        else:
            shown[key] = value
    return shown


def provider_properties(*configurations: Mapping[str, str]) -> dict[str, str]:
    """Return the node properties that resolve the placeholders of these configurations."""
    names = {
        placeholder.key
        for configuration in configurations
        for value in configuration.values()
        for placeholder in placeholders(value)
        if placeholder.provider == _PROVIDER
    }
    if not names:
        return {}
    return {
        "config.providers": _PROVIDER,
        f"config.providers.{_PROVIDER}.class": "EnvVarConfigProvider",
        f"config.providers.{_PROVIDER}.param.allowlist.pattern": "|".join(sorted(names)),
    }
