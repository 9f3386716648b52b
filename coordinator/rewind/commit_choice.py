"""Chooses the commit that a rewind goes back to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connect.errors import CommitRefused
from connect.protocol.control_offsets import covers
from connect.protocol.control_topic import OWN_PARTITION
from coordinator.rewind.rewind_plan import instant_text
from coordinator.rewind.rewind_request import RewindRequest
from coordinator.rewind.table_history import OwnCommit

NO_COMMIT = "no_such_commit"


def chosen_commit(
    commits: Sequence[OwnCommit],
    request: RewindRequest,
    control_offset_max: int | None,
    lowest: Mapping[int, int],
) -> OwnCommit:
    """Return the newest commit that fits a request.

    Args:
        commits: of all tables.
        request: where to go back to.
        control_offset_max: the highest control offset that the requested source offsets allow.
        lowest: control partition -> control offset from which the control topic is complete.

    Raises:
        CommitRefused: ``no_such_commit``: none fits, or it is below ``lowest``. A commit that is
            older than the one that fits is never chosen instead: it would remove more rows.
    """
    candidates = [
        c
        for c in commits
        if (request.timestamp_ms is None or c.committed_ms <= request.timestamp_ms)
        and (request.snapshot_id is None or c.snapshot_id == request.snapshot_id)
        and (control_offset_max is None or _at(c) <= control_offset_max)
    ]
    last = max(candidates, key=lambda c: (_at(c), c.committed_ms), default=None)
    if last is not None and covers(last.offsets, lowest):
        return last
    reason = (
        "no commit of the connector that the tables still hold fits"
        if last is None
        else f"the commit of {instant_text(last.committed_ms)} is too old: the control topic no "
        "longer holds what was announced after it"
    )
    possible = [c for c in commits if covers(c.offsets, lowest)]
    oldest = min(possible, key=_at, default=None)
    other = (
        "--to-beginning loads everything again"
        if oldest is None
        else f"the oldest commit to go back to is snapshot {oldest.snapshot_id} of "
        f"{oldest.table}, {instant_text(oldest.committed_ms)}"
    )
    raise CommitRefused(f"{reason}; {other}", code=NO_COMMIT)


def _at(commit: OwnCommit) -> int:
    return commit.offsets.get(OWN_PARTITION, 0)
