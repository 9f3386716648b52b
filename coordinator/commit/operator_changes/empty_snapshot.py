"""Commits one snapshot without files to a table, at an operator's request: a reset or a rewind.

Rules of this file:
- The snapshot is made for the floor and for the control offsets of the last VTTS reset that the
  table had when it was read. Neither goes back: when one of them changed, the table is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyiceberg.table import Table

from connect.errors import RetriableError
from connect.gateways.catalog.catalog import CatalogGateway
from coordinator.commit.commit_retries import WaitingClock
from coordinator.commit.iceberg.commit_attempt import CommitAttempts, StagedSnapshot
from coordinator.commit.iceberg.floor import FloorKeys, TableState
from coordinator.commit.iceberg.snapshots import SnapshotContent
from coordinator.commit.metadata.prepared_manifests import PreparedManifests

RESTARTS_MAX: Final = 3


class FloorChanged(RetriableError):  # noqa: N818 - the field's term
    """The table's floor or VTTS reset is not the one that the snapshot was made for.

    Attributes:
        snapshot_id: of the attempt, which may have been applied and expired since.
    """

    default_code = "floor_moved"

    def __init__(self, snapshot_id: int) -> None:
        super().__init__("the table's control offsets moved meanwhile; repeat the request")
        self.snapshot_id = snapshot_id


@dataclass(frozen=True, slots=True)
class EmptySnapshot:
    """The snapshot without files that a table needs.

    Args:
        catalog: where the table is.
        clock: time and waiting.
        keys: where the connector keeps its floor.
        find: loads the table; None when nothing is to be done.
        state_of: returns the state that the snapshot is made for. It is called again for each
            reloaded table, and raises when the commit must stop.
        content_of: returns the snapshot to commit; None when the table needs none.
    """

    catalog: CatalogGateway
    clock: WaitingClock
    keys: FloorKeys
    find: Callable[[], Table | None]
    state_of: Callable[[Table], TableState]
    content_of: Callable[[Table, TableState], SnapshotContent | None]

    def commit(self) -> int | None:
        """Commit it; return its id, or None when none was needed.

        Raises:
            CommitError, RetriableError: as ``CommitAttempts.commit``; ``floor_moved``.
        """
        tried: int | None = None
        for left in range(RESTARTS_MAX, -1, -1):
            table = self.find()
            if table is None:
                break
            state = self.state_of(table)
            content = self.content_of(table, state)
            if content is None:
                break
            tried = content.snapshot_id
            try:
                self._attempt(table, state, content)
                break
            except FloorChanged:
                if not left:
                    raise
        return tried

    def _attempt(self, table: Table, state: TableState, content: SnapshotContent) -> None:
        def check(reloaded: Table) -> TableState:
            state_now = self.state_of(reloaded)
            if (state_now.floor, state_now.reset_offsets) != (state.floor, state.reset_offsets):
                raise FloorChanged(content.snapshot_id)
            return state_now

        snapshot = StagedSnapshot(self.clock, self.keys, content, None, PreparedManifests())
        attempts = CommitAttempts(self.catalog, table.name(), self.clock, snapshot, check)
        attempts.commit(table, state)
