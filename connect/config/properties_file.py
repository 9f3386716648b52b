"""Parser of Java properties files."""

from __future__ import annotations

import re

from connect.errors import ConfigError

_PAIR = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])*)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    r"""Parse the text of a properties file. Of duplicate keys, the last one counts.

    Raises:
        ConfigError: a ``\u`` escape is malformed; the message contains the line number.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        assert match is not None
        properties[_unescape(match["key"], number)] = _unescape(match["value"], number)
    return properties


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    pending: tuple[int, str] | None = None
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        line = natural.lstrip(" \t\f")
        if pending is None and (not line or line[0] in "#!"):
            continue
        first, so_far = pending or (number, "")
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = (first, so_far + line[:-1])
        else:
            pending = None
            lines.append((first, so_far + line))
    if pending is not None:
        lines.append(pending)
    return lines


def _unescape(text: str, line: int) -> str:
    def unescaped(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] == "u":
            if len(code) == 1:
                raise ConfigError(
                    f"malformed \\u escape in line {line}; a backslash is written \\\\"
                )
            return chr(int(code[1:], 16))
        return _CONTROLS.get(code, code)

    return _ESCAPE.sub(unescaped, text)
