"""JSON from strangers: nesting is measured before the parser sees it.

The standard library's parser recurses with the text, so a text of brackets ends in
RecursionError; measuring first costs one pass.
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
    """Nesting of brackets outside of strings; for a text that is no JSON, at least that."""
    depth = deepest = 0
    is_string = False
    escaped = -1  # position of a character that a backslash took
    for found in _MARK.finditer(text):
        mark = found.group()
        if found.start() == escaped:
            continue
        if mark == "\\":
            escaped = found.end()
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
