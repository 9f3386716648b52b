"""Partition specs that equality deletes are written under.

Rules of this file:
- An equality delete reaches only rows of its own spec and partition, except under a spec without
  partitions, where it reaches every row of the table.
- So the table's own spec serves only where it is the only one and a key cannot move between its
  partitions: the columns it partitions by are key columns.

Source:
    Iceberg specification, "Scan Planning".
"""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AssertLastAssignedPartitionId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)


def delete_spec(table: Table, key_ids: tuple[int, ...]) -> PartitionSpec | None:
    """Return the spec for deletes by these columns; None when the table has none that serves.

    Args:
        table: as loaded.
        key_ids: field ids of the key columns; none when they are not known yet.
    """
    own = table.spec()
    sources = {field.source_id for field in own.fields}
    if len(table.specs()) == 1 and sources <= set(key_ids):
        return own
    free = [spec for spec in table.specs().values() if not spec.fields]
    return free[0] if free else None


def unpartitioned_spec_added(
    table: Table,
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Return requirements and updates that give a table a spec without partitions.

    The table's default spec stays what it is.
    """
    metadata = table.metadata
    spec_id = max(spec.spec_id for spec in metadata.partition_specs) + 1
    requirements = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertLastAssignedPartitionId.model_validate(
            {"last-assigned-partition-id": metadata.last_partition_id}
        ),
    )
    return requirements, (AddPartitionSpecUpdate(spec=PartitionSpec(spec_id=spec_id)),)
