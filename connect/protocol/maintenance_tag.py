"""The tag that keeps the history of a table while the maintenance process works on it.

A rewrite needs the snapshot that it read, and every later one, until its commit. The process sets a
tag on the snapshot that it reads. A commit of the connector that expires snapshots keeps the tagged
one and its descendants. The name has the connector and the time: a process that is killed leaves
its tag, which protects nothing after ``AGE_MS_MAX``, and which the next run removes.
"""

from __future__ import annotations

import re
from typing import Final

READ_PROPERTY: Final = "icefloe.maintenance.read-snapshot"
"""Snapshot property of a compaction: the snapshot that it read. Later files still wait."""
AGE_MS_MAX: Final = 6 * 3_600_000  # a run takes six hours at most
_NAME: Final = re.compile(r"icefloe_maintenance-(.+)-([0-9]{1,15})")


def tag_name(connector: str, now_ms: int) -> str:
    """Return the name of a tag that is set now (wall clock)."""
    return f"icefloe_maintenance-{connector}-{now_ms}"


def is_tag_of(name: str, connector: str) -> bool:
    """Return whether a reference is a tag of the maintenance of a connector."""
    match = _NAME.fullmatch(name)
    return match is not None and match[1] == connector


def protects_history(name: str, now_ms: int) -> bool:
    """Return whether a reference is such a tag of a run that may still be under way."""
    match = _NAME.fullmatch(name)
    return match is not None and now_ms - int(match[2]) < AGE_MS_MAX
