"""Source offsets that kafka-delta-ingest has stored in a Delta table.

Rules of this file:
- kafka-delta-ingest stores the last offset that is in the table as version of the transaction
  identifier ``<app_id>-<partition>``, in the commit of the rows.

Source:
    kafka-delta-ingest (c6d42de) ``src/delta_helpers.rs``: ``build_actions``, ``create_txn_action``.
"""

from __future__ import annotations

from collections.abc import Collection

from connect.errors import CommitRefused
from connect.gateways.delta.delta_model import DeltaStore


def continued_offsets(
    store: DeltaStore, table: str, app_id: str, partitions: Collection[int]
) -> dict[int, int]:
    """Return the next offset of each partition from which kafka-delta-ingest has rows in a table.

    Args:
        store: of the table.
        table: ``namespace.table``; it may not exist.
        app_id: of the job.
        partitions: of the topic.

    Raises:
        CommitRefused, RetriableError: as ``DeltaTables.load``, but for a table that does not exist.
    """
    try:
        version = store.load(tuple(table.split(".")))
    except CommitRefused as e:
        if e.code == "table_missing":
            return {}
        raise
    last = {p: version.transaction(f"{app_id}-{p}") for p in partitions}
    return {p: offset + 1 for p, offset in sorted(last.items()) if offset is not None}
