"""The error of an invalid configuration, with all errors by key."""

from __future__ import annotations

from collections.abc import Mapping

from connect.errors import ConfigError


class InvalidConfigError(ConfigError):
    """A configuration has errors.

    Attributes:
        errors: error messages by key.
    """

    def __init__(self, connector: str | None, errors: Mapping[str, list[str]]) -> None:
        lines = [f"{name}: {text}" for name, sentences in errors.items() for text in sentences]
        super().__init__(
            f"{len(lines)} error(s) in the configuration: " + "; ".join(lines), connector=connector
        )
        self.errors = {name: tuple(sentences) for name, sentences in errors.items()}
