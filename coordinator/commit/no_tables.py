"""The committer of a connector without tables, whose rows its tasks send to topics.

Its rounds have no files. They end with CommitComplete and a valid-through time, which says up to
when the rows are in the topics.
"""

from __future__ import annotations

from dataclasses import dataclass

from connect.errors import CommitRefused
from coordinator.commit.rules.commit_rules import failed
from coordinator.kernel.effects import CommitOutcome, TableCommit


@dataclass(frozen=True, slots=True)
class NoTables:
    """Refuses files that another writer of the control topic announces."""

    def commit(self, commit: TableCommit) -> CommitOutcome:
        """Refuse the files of a table."""
        error = CommitRefused(
            f"files were announced for {commit.table}, but the connector has no tables",
            code="table_not_configured",
            table=str(commit.table),
        )
        return failed(commit, error, is_retriable=False)

    def close(self) -> None:
        """Do nothing."""
