"""Tables that have a log of numbered versions, without the client that reads the log.

Rules of this file:
- A version is written once, on condition that it does not exist. It holds transaction identifiers,
  which the table keeps: the last version of each.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

File = TypeVar("File")
File_contra = TypeVar("File_contra", contravariant=True)


class TableVersion(Protocol[File_contra]):
    """One version of a table; ``File_contra`` is a data file in the form that its format needs.

    Attributes:
        location: of the table, with a scheme.
        version: its number.
        table_uuid: the table's identity.
        schema: as Iceberg schema.
        spec: its partition columns.
    """

    @property
    def location(self) -> str: ...  # noqa: D102 - see Attributes
    @property
    def version(self) -> int: ...  # noqa: D102
    @property
    def table_uuid(self) -> uuid.UUID: ...  # noqa: D102
    @property
    def schema(self) -> Schema: ...  # noqa: D102
    @property
    def spec(self) -> PartitionSpec: ...  # noqa: D102

    def transaction(self, app_id: str) -> int | None:
        """Return the last version of a transaction identifier; None if it was never written."""
        ...

    def append(
        self,
        files: Sequence[File_contra],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        now_ms: int,
    ) -> int:
        """Commit files as the next version, on condition that it does not exist.

        Returns:
            That version; readers see its files.

        Raises:
            CommitConflict, CommitStateUnknown, CommitRefused, RetriableError: after each of them
                the commit may be in the log.
        """
        ...

    def committed_version(self, key: str, value: str) -> int | None:
        """Return the newest version whose commit has a metadata entry; None if none is found."""
        ...


class TableLogs(Protocol[File_contra]):
    """The tables of a connector."""

    def load(self, identifier: Sequence[str]) -> TableVersion[File_contra]:
        """Return the newest version of a table.

        Raises:
            CommitRefused: ``table_missing`` and others; RetriableError: ``catalog_unavailable``.
        """
        ...
