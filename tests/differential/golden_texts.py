"""Recorded values as texts of messages."""

from __future__ import annotations

import json
from typing import Any


def text_of(value: Any) -> str:
    """The recorded value as JSON text, or KeyError where JSON has none for it."""
    if isinstance(value, dict):
        if len(value) == 1 and (name := next(iter(value))).startswith("$"):
            if name in ("$int64", "$bigint"):
                return str(value[name])
            if name == "$float64" and value[name] == "-0.0":
                return "-0.0"
            raise KeyError(name)
        return "{" + ",".join(f"{json.dumps(k)}:{text_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return json.dumps(value)
