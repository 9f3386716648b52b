"""Tables that could not be committed: which of them the next round tries again."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from coordinator.kernel.announcements import Identifier
from coordinator.kernel.effects import TableCommitted, TableFailed

OUTAGES: Final = frozenset(
    {"catalog_throttled", "catalog_unavailable", "commit_unknown", "storage_unavailable"}
)
"""Codes of failures that are not about one table: catalog or store cannot be used."""


class FailedTables:
    """The last failure of each table that is not committed.

    Attributes:
        by_table: identifier -> failure; read only for others.
    """

    def __init__(self) -> None:
        self.by_table: dict[Identifier, TableFailed] = {}

    def may_try(self, identifier: Identifier) -> bool:
        """Whether a round commits the table without a decision of the operator."""
        failure = self.by_table.get(identifier)
        return failure is None or failure.is_retriable

    def may_try_any(self, identifiers: Iterable[Identifier]) -> bool:
        """Whether ``may_try`` holds for one of the tables."""
        return any(map(self.may_try, identifiers))

    def note(self, identifier: Identifier, outcome: TableCommitted | TableFailed) -> None:
        """The table's commit ended."""
        if isinstance(outcome, TableFailed):
            self.by_table[identifier] = outcome
        else:
            self.by_table.pop(identifier, None)

    def is_missing(self, identifier: Identifier) -> bool:
        """Whether the catalog has no table of this name, or another table."""
        failure = self.by_table.get(identifier)
        return failure is not None and failure.code in {"table_missing", "table_replaced"}

    def forget(self, identifier: Identifier, kept: Container[Identifier]) -> None:
        """Forget the failure of a table, unless announcements of that name are kept."""
        if identifier not in kept:
            self.by_table.pop(identifier, None)

    def without_outages(self) -> list[Identifier]:
        """Tables whose failure concerns no other table."""
        return [name for name, failure in self.by_table.items() if failure.code not in OUTAGES]
