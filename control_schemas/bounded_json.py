"""Parses untrusted JSON: its nesting depth is checked before the parser runs.

The standard library's parser recurses once per bracket, so a deep text would raise RecursionError.
The check needs one pass over the text.
"""

from __future__ import annotations

import json
import re
from typing import Any

from control_schemas.limits import JSON_DEPTH_MAX

_MARK = re.compile(r'[\[\]{}"\\]')


def loads(text: str) -> Any:
    """Parse a JSON text.

    Raises:
        ValueError: not JSON, or nested deeper than ``JSON_DEPTH_MAX``.
    """
    if _depth(text) > JSON_DEPTH_MAX:
        raise ValueError(f"nested deeper than {JSON_DEPTH_MAX}")
    return json.loads(text)


def _depth(text: str) -> int:
    """Return the nesting depth of brackets outside strings; for invalid JSON, an upper bound."""
    depth = deepest = 0
    is_string = False
    escaped = -1  # position of a character that a backslash escapes
    for match in _MARK.finditer(text):
        mark = match.group()
        if match.start() == escaped:
            continue
        if mark == "\\":
            escaped = match.end()
        elif mark == '"':
            is_string = not is_string
        elif is_string:
            continue
        elif mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest
