"""The commits of a connector in a table, and the snapshot that a rewind goes back to.

Rules of this file:
- A cut is the control offsets that a commit stored. A table is at a cut when it holds every file
  that was announced for it below the cut, and no other file of the connector.
- The snapshots of the connector above the cut leave the branch. Snapshots of others above the
  first of them must have kept all rows (``replace``, as a compaction does), or nothing is changed.
- Expired snapshots are not guessed: what they added may be above the cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from connect.errors import CommitRefused
from connect.protocol.control_offsets import covers, parse_offsets
from connect.protocol.snapshot_ancestry import (
    REWIND_PROPERTY,
    ancestry,
    engine,
    is_cut_off,
    summary,
)
from coordinator.commit.iceberg.floor import FloorKeys, valid_through_text

FOREIGN_COMMIT = "foreign_commit"
HISTORY_EXPIRED = "history_expired"
_KEEPS_ROWS = "replace"


@dataclass(frozen=True, slots=True)
class OwnCommit:
    """A commit of the connector to a table.

    Attributes:
        table: its name.
        snapshot_id: of the commit.
        committed_ms: timestamp of the snapshot.
        offsets: control partition -> next control offset, as the commit stored it.
        rewind_id: of the rewind that made it, if one did.
    """

    table: str
    snapshot_id: int
    committed_ms: int
    offsets: Mapping[int, int]
    rewind_id: str | None = None


@dataclass(frozen=True, slots=True)
class Rollback:
    """What a rewind does to one table.

    Attributes:
        head: the branch's snapshot; None without any.
        target: the snapshot whose rows remain; None for an empty table.
        removed: snapshots that leave the branch, newest first.
        floor: control offsets of the connector's newest commit that remains; empty without one.
        valid_through: the last VTTS of the connector in what remains.
        is_history_expired: older snapshots than the removed ones existed and have expired.
    """

    head: Snapshot | None
    target: Snapshot | None
    removed: tuple[Snapshot, ...]
    floor: Mapping[int, int]
    valid_through: str | None
    is_history_expired: bool = False

    @property
    def target_id(self) -> int | None:
        """Id of the snapshot whose rows remain."""
        return None if self.target is None else self.target.snapshot_id


def own_commits(table: str, metadata: TableMetadata, keys: FloorKeys) -> Iterator[OwnCommit]:
    """Yield the connector's commits to the branch, newest first, as far as they are kept."""
    for snapshot in ancestry(metadata, keys.branch):
        offsets = _own_offsets(snapshot, keys)
        if offsets is not None:
            rewind_id = summary(snapshot).get(REWIND_PROPERTY)
            yield OwnCommit(table, snapshot.snapshot_id, snapshot.timestamp_ms, offsets, rewind_id)


def rollback(
    metadata: TableMetadata,
    keys: FloorKeys,
    cut: Mapping[int, int] | None,
    *,
    may_have_expired: bool = False,
) -> Rollback:
    """Return what takes a table back to a cut.

    Args:
        metadata: of the table.
        keys: where the connector keeps its floor.
        cut: control offsets of a commit; None takes out every commit of the connector.
        may_have_expired: the operator knows that the expired snapshots hold rows of the connector
            only.

    Raises:
        CommitRefused: ``foreign_commit``, ``history_expired``, ``floor_unreadable``.
    """
    chain = list(ancestry(metadata, keys.branch))
    head = chain[0] if chain else None
    count, floor = 0, None
    for distance, snapshot in enumerate(chain, start=1):
        offsets = _own_offsets(snapshot, keys)
        if offsets is None:
            continue
        if cut is not None and covers(cut, offsets):
            floor = offsets
            break
        count = distance
    is_expired = floor is None and bool(chain) and is_cut_off(chain[-1], metadata)
    if is_expired and not count:
        floor = _mirrored(metadata, keys, cut)  # the commits expired, or there never was one
        is_expired = floor is None
    if is_expired:
        if not may_have_expired:
            raise CommitRefused(
                "older snapshots have expired, and commits of this connector that would have to "
                "be removed may be among them",
                code=HISTORY_EXPIRED,
            )
        count = len(chain)
    _refuse_foreign(chain[:count], keys)
    return Rollback(
        head,
        chain[count] if count < len(chain) else None,
        tuple(chain[:count]),
        floor or {},
        valid_through_text(chain[count:], keys),
        is_expired,
    )


def _mirrored(
    metadata: TableMetadata, keys: FloorKeys, cut: Mapping[int, int] | None
) -> Mapping[int, int] | None:
    """Return the floor in the table's properties if the cut covers it; empty if there is none."""
    mirror = parse_offsets(metadata.properties.get(keys.mirror))
    if not mirror or (cut is not None and covers(cut, mirror)):
        return mirror
    return None


def _refuse_foreign(removed: list[Snapshot], keys: FloorKeys) -> None:
    for snapshot in removed:
        operation = snapshot.summary.operation.value if snapshot.summary else "unknown"
        if _own_offsets(snapshot, keys) is None and operation != _KEEPS_ROWS:
            at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
            raise CommitRefused(
                f"snapshot {snapshot.snapshot_id} ({operation}, {at:%Y-%m-%dT%H:%M:%SZ}, by "
                f"{engine(summary(snapshot))}) was committed by another writer after the "
                "connector's commits that would have to be removed",
                code=FOREIGN_COMMIT,
                snapshot_id=snapshot.snapshot_id,
            )


def _own_offsets(snapshot: Snapshot, keys: FloorKeys) -> Mapping[int, int] | None:
    text = summary(snapshot).get(keys.summary)
    return parse_offsets(text) if text else None
