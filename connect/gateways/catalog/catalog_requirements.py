"""Requirements that PyIceberg's in-process catalogs leave out.

Rules of this file:
- For SQL, Hive, Glue and DynamoDB the client checks requirements itself, against the metadata it
  has just loaded and under the compare-and-swap that follows. So stricter checks can be put in;
  a REST server makes its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    TableRequirement,
    TableUpdate,
)


def check_strictly(
    metadata: TableMetadata,
    requirements: Sequence[TableRequirement],
    updates: Sequence[TableUpdate],
) -> tuple[TableRequirement, ...]:
    """Check what PyIceberg checks wrongly or not at all; return what is left for it to check.

    - A branch that must not exist: PyIceberg refuses any branch but main on a table without
      snapshots.
    - Sequence numbers belong to the table: for a stale one PyIceberg raises a bare ValueError,
      and for a snapshot without a parent it does not look at all.

    Raises:
        CommitFailedException: a requirement failed.
    """
    left = []
    for requirement in requirements:
        if isinstance(requirement, AssertRefSnapshotId) and requirement.snapshot_id is None:
            if requirement.ref in metadata.refs:
                raise CommitFailedException(
                    f"Requirement failed: {requirement.ref} was created concurrently"
                )
        else:
            left.append(requirement)
    last = getattr(metadata, "last_sequence_number", 0)
    for update in updates:
        if isinstance(update, AddSnapshotUpdate) and update.snapshot.sequence_number:
            if update.snapshot.sequence_number <= last:
                raise CommitFailedException(
                    f"Requirement failed: sequence number {update.snapshot.sequence_number} is "
                    f"not above {last}"
                )
            break
    return tuple(left)
