"""Regular expressions written for Java, for Python's engine."""

from __future__ import annotations

import re
from typing import Any, Final

from connect.errors import ConfigError

_POSIX_CLASSES: Final = {
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Lower": "a-z",
    "Upper": "A-Z",
    "Space": r"\s",
    "XDigit": "0-9a-fA-F",
    "Punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
}


def compile_java_regex(text: str) -> re.Pattern[str]:
    r"""Compile a regular expression written for Java.

    Differences that Python has a word for are translated: named groups, ``\p{Alpha}`` and its
    kin, ``\z``. Classes like ``\d`` are ASCII's, as in Java.

    Raises:
        ConfigError: neither engine's, or a construct Python does not have.
    """
    pattern = re.sub(r"\(\?<(?![=!])", "(?P<", text).replace(r"\z", r"\Z")
    pattern = re.sub(r"\\p\{(\w+)\}", _posix_class(pattern), pattern)
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ConfigError(f"regular expression {text!r}: {error}", code="route_regex") from None


def fault(text: str) -> str | None:
    """What is wrong with a regular expression; None where nothing is."""
    try:
        compile_java_regex(text)
    except ConfigError as error:
        return f"Invalid regex: {error.message}"
    return None


def _posix_class(pattern: str) -> Any:
    def replace(match: re.Match[str]) -> str:
        members = _POSIX_CLASSES.get(match[1])
        if members is None:
            return match[0]
        opened = pattern.rfind("[", 0, match.start()) > pattern.rfind("]", 0, match.start())
        return members if opened else f"[{members}]"

    return replace
