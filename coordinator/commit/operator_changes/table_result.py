"""The result of one table, as the answers to an operator's request report it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from connect.errors import IcefloeError
from coordinator.commit.operator_changes.empty_snapshot import FloorChanged


def table_result(name: str, commit: Callable[[], int | None]) -> dict[str, Any]:
    """Change a table and return the JSON object that reports it.

    Args:
        name: of the table.
        commit: makes the change; returns the id of the snapshot that it committed, None for none.

    Returns:
        ``table``, ``snapshot_id``, and ``code`` and ``message`` of a failure. If the table changed
        during the commit, ``snapshot_id`` is that of the attempt, which may be in the table.
    """
    result: dict[str, Any] = {"table": name, "snapshot_id": None, "code": None, "message": None}
    try:
        result["snapshot_id"] = commit()
    except IcefloeError as error:
        result |= {"code": error.code, "message": str(error)}
        if isinstance(error, FloorChanged):
            result["snapshot_id"] = error.snapshot_id
    return result
