"""The converter interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

from connect.errors import ConfigError, RecordError
from connect.model.records import ConnectSchema

Role = Literal["key", "value", "header"]
Headers = tuple[tuple[str, bytes | None], ...]

STAGES: Final[Mapping[Role, str]] = {
    "key": "KEY_CONVERTER",
    "value": "VALUE_CONVERTER",
    "header": "HEADER_CONVERTER",
}


class Converter(Protocol):
    """Converts a record's key, value or header to Connect's data model."""

    def to_connect(
        self, topic: str, headers: Headers, data: bytes | None
    ) -> tuple[ConnectSchema | None, Any]:
        """Convert bytes to a schema and a value.

        Args:
            topic: the source topic.
            headers: raw headers of the record.
            data: raw bytes; None is a tombstone.

        Returns:
            The schema, or None without one, and the value.

        Raises:
            RecordError: stage KEY_CONVERTER, VALUE_CONVERTER or HEADER_CONVERTER.
        """
        ...


def refusal(role: Role, code: str, message: str) -> RecordError:
    """Build the RecordError of a converter, with the stage of its role."""
    return RecordError(message, stage=STAGES[role], code=code)


def boolean_option(options: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Parse a boolean option as Kafka does.

    Raises:
        ConfigError: the value is neither true nor false.
    """
    text = options.get(key)
    if text is None:
        return default
    lowered = str(text).strip().lower()
    if lowered not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, not {text!r}", code="converter_option")
    return lowered == "true"
