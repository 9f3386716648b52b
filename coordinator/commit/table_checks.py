"""Whether a table is the one that was announced, and what a commit leaves to clear up.

Rules of this file:
- A table under the right name with another identity is another table.
"""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused
from control_schemas.events import DataWritten
from coordinator.commit.floor import TableState
from coordinator.kernel.effects import TableCommit

_FORMAT_VERSION = 2


def refuse_other_table(table: Table, commit: TableCommit) -> None:
    """Raise when files were written for another table than this.

    Raises:
        CommitRefused: ``table_replaced``, ``format_version_unsupported``.
    """
    announced = {commit.table.table_uuid}
    for envelope in commit.announcements:
        if isinstance(envelope.event.payload, DataWritten):
            announced.add(envelope.event.payload.table.table_uuid)
    others = announced - {None, table.metadata.table_uuid}
    if others:
        raise CommitRefused(
            f"the table is now {table.metadata.table_uuid}; files were written for "
            f"{', '.join(sorted(map(str, others)))}",
            code="table_replaced",
            present_uuid=table.metadata.table_uuid,
        )
    if table.metadata.format_version != _FORMAT_VERSION:
        raise CommitRefused(
            f"the table has format version {table.metadata.format_version}; only version 2 can be "
            "written",
            code="format_version_unsupported",
        )


def refuse_foreign_table(commit: TableCommit, state: TableState, config: ConnectorConfig) -> None:
    """Raise when files are announced for a table that the connector does not write to.

    Anybody who can write to the control topic can name any table. A table that the connector has
    committed to stays its own after it was taken out of the configuration: what was announced
    before then is still to be committed.

    Raises:
        CommitRefused: ``table_not_configured``.
    """
    name = str(commit.table)
    has_written = bool(state.floor) and config.granted_tables is None
    if not has_written and not config.may_write(name):
        raise CommitRefused(
            f"files were announced for {name}, which connector {config.name} neither writes to by "
            "its configuration nor has written to; if they are its own, add the table to "
            "iceberg.tables, else drop them with icefloe tables skip",
            code="table_not_configured",
        )


def superseded_metadata(before: TableMetadata, after: TableMetadata) -> list[str]:
    """Metadata files that a commit pushed out of the log, where the table wants them deleted.

    A commit that goes straight to the catalog skips what Iceberg's own table operations do for
    ``write.metadata.delete-after-commit.enabled``.
    """
    if after.properties.get("write.metadata.delete-after-commit.enabled", "").lower() != "true":
        return []
    kept = {entry.metadata_file for entry in after.metadata_log}
    return [e.metadata_file for e in before.metadata_log if e.metadata_file not in kept]
