"""What a commit to Delta tables needs of them, without the library that reads their logs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A data file to add.

    Attributes:
        path: below the table's location.
        size_bytes: of the file.
        partition_values: by column, in Delta's text form; None is null.
        modified_ms: time of its creation, milliseconds since 1970.
        stats: Delta's statistics, JSON.
    """

    path: str
    size_bytes: int
    partition_values: Mapping[str, str | None]
    modified_ms: int
    stats: str


class DeltaVersion(Protocol):
    """One version of a Delta table; see ``DeltaSnapshot``."""

    @property
    def location(self) -> str: ...  # noqa: D102 - see DeltaSnapshot
    @property
    def version(self) -> int: ...  # noqa: D102
    @property
    def table_uuid(self) -> uuid.UUID: ...  # noqa: D102
    @property
    def schema(self) -> Schema: ...  # noqa: D102
    @property
    def spec(self) -> PartitionSpec: ...  # noqa: D102

    def transaction(self, app_id: str) -> int | None:
        """Return the last version of a transaction identifier."""
        ...

    def append(
        self,
        files: Sequence[DeltaFile],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        now_ms: int,
    ) -> int:
        """Commit files as the next version, on condition that it does not exist."""
        ...

    def committed_version(self, key: str, value: str) -> int | None:
        """Return the newest version whose commit has a metadata entry."""
        ...


class DeltaStore(Protocol):
    """The Delta tables of a connector; see ``DeltaTables``."""

    def load(self, identifier: Sequence[str]) -> DeltaVersion:
        """Return the newest version of a table."""
        ...
