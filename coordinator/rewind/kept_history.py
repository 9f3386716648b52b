"""Keeps the snapshots that a rewind needs from being removed, until the rewind ends.

Rules of this file:
- Nothing is announced and no row is changed before each table of the rewind has its branch. So a
  history that is gone by then leaves the connector as it was.
- A rewind is cancelled only if no table was taken back, and its branches are removed first: a
  commit of it that is under way is then refused by the catalog.
- Each function may be repeated. A table that does not exist is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from connect.errors import CommitConflict, CommitRefused, CommitStateUnknown
from connect.gateways.catalog.catalog import CatalogGateway
from connect.protocol.snapshot_ancestry import ancestry
from coordinator.commit.operator_changes.table_result import table_result
from coordinator.rewind.recorded_rewind import RecordedRewind

ATTEMPTS_MAX: Final = 10
AGE_MS: Final = 10**13
"""Three hundred years: no snapshot of the branch is ever too old."""

_Change = tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]


def keep_history(
    catalog: CatalogGateway, rewind: RecordedRewind, targets: Mapping[str, int | None]
) -> list[dict[str, Any]]:
    """Give each table the branch that keeps its history.

    Args:
        catalog: where the tables are.
        rewind: what was recorded.
        targets: table -> id of the snapshot whose rows remain; None empties the table.

    Returns:
        A JSON object for each table: its name, ``code`` and ``message`` of a failure.
    """
    return [
        table_result(name, partial(_keep, catalog, rewind, name, at))
        for name, at in sorted(targets.items())
    ]


def release_history(
    catalog: CatalogGateway, rewind: RecordedRewind, tables: Iterable[str]
) -> list[dict[str, Any]]:
    """Remove these branches; return the same objects as ``keep_history``."""
    return [table_result(name, partial(_release, catalog, rewind, name)) for name in sorted(tables)]


def cancel(
    catalog: CatalogGateway, rewind: RecordedRewind, tables: Iterable[str]
) -> list[dict[str, Any]]:
    """Remove the branches of a rewind that has taken no table back.

    Returns:
        The same objects as ``keep_history``. With any ``code`` the rewind is not cancelled:
        ``table_rewound`` of a table that was taken back, ``table_empty`` of one without a snapshot.
    """
    names = sorted(tables)

    def checked() -> list[dict[str, Any]]:
        return [table_result(name, partial(_refuse_done, catalog, rewind, name)) for name in names]

    before = checked()
    if any(result["code"] for result in before):
        return before
    released = release_history(catalog, rewind, names)
    return released if any(result["code"] for result in released) else checked()


def _keep(
    catalog: CatalogGateway, rewind: RecordedRewind, name: str, target_id: int | None
) -> None:
    keys = rewind.keys(name)

    def change(table: Table) -> _Change | None:
        metadata = table.metadata
        if rewind.snapshot_in(metadata, keys) is not None:
            return None
        head = rewind.checked(metadata, keys, target_id).head
        branch_ref = metadata.refs.get(rewind.branch)
        is_kept = (
            branch_ref is not None
            and head is not None
            and branch_ref.snapshot_id == head.snapshot_id
        )
        if head is None or (is_kept and rewind.fence in metadata.refs):
            return None
        present = {"ref": keys.branch, "snapshot-id": head.snapshot_id}
        kept: dict[str, Any] = {
            "ref-name": rewind.branch,
            "type": SnapshotRefType.BRANCH,
            "snapshot-id": head.snapshot_id,
            "max-snapshot-age-ms": AGE_MS,
            "max-ref-age-ms": AGE_MS,
        }
        refs = [kept]
        if rewind.fence != rewind.branch:
            refs.append(_tag(rewind.fence, head.snapshot_id))
        if target_id is not None:
            refs.append(_tag(rewind.tag, target_id))
        return (
            (AssertRefSnapshotId.model_validate(present),),
            tuple(SetSnapshotRefUpdate.model_validate(ref) for ref in refs),
        )

    _change(catalog, name, change)


def _tag(name: str, snapshot_id: int) -> dict[str, Any]:
    return {
        "ref-name": name,
        "type": SnapshotRefType.TAG,
        "snapshot-id": snapshot_id,
        "max-ref-age-ms": AGE_MS,
    }


def _release(catalog: CatalogGateway, rewind: RecordedRewind, name: str) -> None:
    def change(table: Table) -> _Change | None:
        tags = f"{rewind.branch}-"  # of the target, and of all attempts
        refs = table.metadata.refs
        kept = [ref for ref in refs if ref == rewind.branch or ref.startswith(tags)]
        if not kept:
            return None
        updates = (RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in kept)
        return (), tuple(updates)

    _change(catalog, name, change)


def _refuse_done(catalog: CatalogGateway, rewind: RecordedRewind, name: str) -> None:
    table = catalog.find(name)
    if table is None:
        return
    keys = rewind.keys(name)
    done = rewind.snapshot_in(table.metadata, keys)
    if done is not None:
        raise CommitRefused(
            f"the rewind has taken this table back, with snapshot {done}", code="table_rewound"
        )
    if next(ancestry(table.metadata, keys.branch), None) is None:
        raise CommitRefused(
            "the table has no snapshot, so no branch can tell a commit of this rewind that it was "
            "cancelled",
            code="table_empty",
        )


def _change(
    catalog: CatalogGateway, name: str, change_of: Callable[[Table], _Change | None]
) -> None:
    """Change a table until it needs no change.

    Raises:
        CommitError, RetriableError: the catalog refuses the change, or does not answer.
    """
    for left in range(ATTEMPTS_MAX - 1, -1, -1):
        table = catalog.find(name)
        change = None if table is None else change_of(table)
        if table is None or change is None:
            return
        requirements, updates = change
        uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
        try:
            catalog.commit(table, (uuid, *requirements), updates)
        except (CommitConflict, CommitStateUnknown):
            if not left:
                raise
