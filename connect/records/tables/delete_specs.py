"""Selection of the partition spec for equality delete files.

Rules of this file:
- An equality delete applies to rows of its own spec and partition only. Under an unpartitioned spec
  it applies to all rows of the table.
- The table's default spec is used only if it is the only spec and its partition columns are key
  columns. Then a key cannot move between partitions.

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
    """Return the spec for deletes by these columns, or None if the table lacks a suitable spec.

    Args:
        table: the loaded table.
        key_ids: field ids of the key columns; empty if they are not known yet.
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
    """Return the requirements and updates that add an unpartitioned spec to a table.

    The table's default spec does not change.
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
