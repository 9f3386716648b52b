"""A rewind that was recorded, and what a table says about it.

Rules of this file:
- From the first step on, a tag of the rewind's own keeps the snapshot to go back to, and a branch
  keeps those that leave the table's branch. Iceberg removes no snapshot of a branch that keeps all.
  Other tools keep what a tag or branch names, and nothing before it. So the history that was
  checked when the branch was made counts as long as nothing was committed since.
- A tag has the identity of the rewind and of the attempt to finish it, and each commit of the
  attempt requires the tag. Only the attempt's own first step makes it, and nothing is committed
  before that step has ended. So a process that was frozen commits nothing after the rewind was
  finished or cancelled, even if another frozen process keeps the history once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused
from connect.protocol.snapshot_ancestry import REWIND_PROPERTY, ancestry, summary
from coordinator.commit.iceberg.floor import FloorKeys, floor_keys, valid_through_text
from coordinator.rewind.table_history import HISTORY_EXPIRED, Rollback, rollback

HISTORY_CHANGED = "history_changed"
_BRANCH_PREFIX = "icefloe_rewind-"  # tags of connectors begin with "icefloe-"


@dataclass(frozen=True, slots=True)
class RecordedRewind:
    """A rewind of one connector.

    Attributes:
        config: the connector.
        rewind_id: identity of the rewind.
        cut: control offsets to go back to; None takes out every commit of the connector.
        may_have_expired: see ``rollback``.
        attempt: identity of the attempt to finish it; empty for one of an older node.
    """

    config: ConnectorConfig
    rewind_id: str
    cut: Mapping[int, int] | None
    may_have_expired: bool = False
    attempt: str = ""

    @property
    def branch(self) -> str:
        """Name of the branch that keeps the history of a table until the rewind ends."""
        return _BRANCH_PREFIX + self.rewind_id

    @property
    def tag(self) -> str:
        """Name of the tag on the snapshot to go back to."""
        return f"{self.branch}-target"

    @property
    def fence(self) -> str:
        """Name of the reference that each commit of this attempt requires."""
        return f"{self.branch}-{self.attempt}" if self.attempt else self.branch

    def keys(self, table: str) -> FloorKeys:
        """Return where the connector keeps its floor of a table."""
        return floor_keys(self.config, table)

    def snapshot_in(self, metadata: TableMetadata, keys: FloorKeys) -> int | None:
        """Return the id of the snapshot that this rewind made; None where it has made none."""
        for snapshot in ancestry(metadata, keys.branch):
            if summary(snapshot).get(REWIND_PROPERTY) == self.rewind_id:
                return snapshot.snapshot_id
        return None

    def checked(self, metadata: TableMetadata, keys: FloorKeys, target_id: int | None) -> Rollback:
        """Return what is to be done to a table, which must be what was planned.

        Raises:
            CommitRefused: ``history_changed``, or as ``rollback``.
        """
        try:
            plan = rollback(metadata, keys, self.cut, may_have_expired=self.may_have_expired)
        except CommitRefused as refused:
            checked_before = self._checked_before(metadata, keys, target_id)
            if refused.code != HISTORY_EXPIRED or checked_before is None:
                raise
            return checked_before
        if plan.target_id != target_id:
            raise CommitRefused(
                f"the table would go back to snapshot {plan.target_id} now, the plan was "
                f"{target_id}: its history was changed meanwhile",
                code=HISTORY_CHANGED,
            )
        return plan

    def _checked_before(
        self, metadata: TableMetadata, keys: FloorKeys, target_id: int | None
    ) -> Rollback | None:
        """Return what was checked when the history was kept; None if it no longer holds."""
        branch, kept, tag = (metadata.refs.get(n) for n in (keys.branch, self.branch, self.tag))
        remaining = list(ancestry(metadata, self.tag))
        if branch is None or kept is None or tag is None or not remaining:
            return None
        if branch.snapshot_id != kept.snapshot_id or tag.snapshot_id != target_id:
            return None
        head = next(ancestry(metadata, keys.branch))
        return Rollback(head, remaining[0], (head,), {}, valid_through_text(remaining, keys))
