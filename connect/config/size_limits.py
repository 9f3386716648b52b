"""Size limits of configurations, checked before validation.

Rules of this file:
- Time and memory of validation are proportional to the size of the request. These limits keep both
  small.
- A request has at most 1 MiB. A change must not make a stored configuration larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connect.config.placeholders import placeholders
from connect.errors import ConfigError

KEYS_MAX: Final = 5_000
NAME_CHARACTERS_MAX: Final = 1_024
VALUE_CHARACTERS_MAX: Final = 262_144
CONNECTOR_CHARACTERS_MAX: Final = 255
"""Of a connector's name, which is in paths of the API and in a label of each of its metrics."""
WHOLE_CHARACTERS_MAX: Final = 1_048_576
PLACEHOLDERS_MAX: Final = 500
RESOLVED_CHARACTERS_MAX: Final = 4_194_304
ALIASES_MAX: Final = 100
ALIAS_CHARACTERS_MAX: Final = 256
SENTENCES_MAX: Final = 20
RULE_SENTENCES_MAX: Final = 200
SUGGESTED_NAMES_MAX: Final = 200
LISTED_MAX: Final = 20
TOPIC_PATTERNS_MAX: Final = 100
TOPIC_MATCHES_MAX: Final = 1_000_000
ERRORS_CHARACTERS_MAX: Final = 262_144
SENTENCE_CHARACTERS_MAX: Final = 4_096


def check_size(raw: Mapping[str, str | None]) -> None:
    """Check the size of a configuration as sent.

    Raises:
        ConfigError: ``config_too_large``.
    """
    if len(raw) > KEYS_MAX:
        raise _too_large(f"it has {len(raw)} keys, more than {KEYS_MAX}")
    if len(raw.get("name") or "") > CONNECTOR_CHARACTERS_MAX:
        raise _too_large(f"its name has more than {CONNECTOR_CHARACTERS_MAX} characters")
    characters = count = 0
    for name, value in raw.items():
        text = value or ""
        if len(name) > NAME_CHARACTERS_MAX:
            raise _too_large(f"a key has more than {NAME_CHARACTERS_MAX} characters")
        if len(text) > VALUE_CHARACTERS_MAX:
            raise _too_large(f"the value of {name} has more than {VALUE_CHARACTERS_MAX} characters")
        characters += len(name) + len(text)
        count += sum(1 for _ in placeholders(text))
    if characters > WHOLE_CHARACTERS_MAX:
        raise _too_large(f"it has more than {WHOLE_CHARACTERS_MAX} characters")
    if count > PLACEHOLDERS_MAX:
        raise _too_large(f"it has {count} placeholders, more than {PLACEHOLDERS_MAX}")


def check_resolved(characters: int) -> None:
    """Check the total size of the resolved values.

    Raises:
        ConfigError: ``config_too_large``.
    """
    if characters > RESOLVED_CHARACTERS_MAX:
        raise _too_large(
            f"the values of its placeholders have more than {RESOLVED_CHARACTERS_MAX} characters"
        )


def _too_large(why: str) -> ConfigError:
    return ConfigError(f"The configuration is too large: {why}", code="config_too_large")
