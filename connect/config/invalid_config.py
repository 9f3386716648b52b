"""The error of a configuration that lists everything that is wrong with it, key by key."""

from __future__ import annotations

from collections.abc import Mapping

from connect.errors import ConfigError


class InvalidConfigError(ConfigError):
    """A configuration with everything that is wrong with it.

    Attributes:
        errors: sentences per key.
    """

    def __init__(self, connector: str | None, errors: Mapping[str, list[str]]) -> None:
        lines = [f"{name}: {text}" for name, sentences in errors.items() for text in sentences]
        super().__init__(
            f"{len(lines)} error(s) in the configuration: " + "; ".join(lines), connector=connector
        )
        self.errors = {name: tuple(sentences) for name, sentences in errors.items()}
