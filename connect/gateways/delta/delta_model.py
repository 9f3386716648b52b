"""What a commit to Delta tables needs of them, without the library that reads their logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from pyiceberg.io import FileIO

from connect.gateways.table_log import TableLogs, TableVersion


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


@dataclass(frozen=True, slots=True)
class LiveDeltaFile:
    """A data file of a version.

    Attributes:
        path: below the table's location.
        size_bytes: of the file.
        partition: values of the partition columns, in Iceberg's internal form.
        bounds: lowest and highest value of columns, in Iceberg's internal form.
        has_nulls: by column, whether it has nulls; columns without that statistic are missing.
    """

    path: str
    size_bytes: int
    partition: Mapping[str, Any]
    bounds: Mapping[str, tuple[Any, Any]]
    has_nulls: Mapping[str, bool]


class DeltaVersion(TableVersion[DeltaFile], Protocol):
    """A version whose history can be read."""

    @property
    def io(self) -> FileIO:
        """Opens the table's files."""
        ...

    def files_since(self, since_ms: int) -> frozenset[str] | None:
        """Return the paths, below the location, that versions since then added or removed.

        Args:
            since_ms: milliseconds since 1970.

        Returns:
            The paths; None where the log does not reach so far back.

        Raises:
            RetriableError: ``catalog_unavailable``; CommitRefused: ``metadata_too_large``.
        """
        ...


DeltaStore: TypeAlias = TableLogs[DeltaFile]


class ChangeableDeltaVersion(DeltaVersion, Protocol):
    """A version whose rows can be replaced and deleted."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        ...

    def check_changes(self) -> None:
        """Raise ``CommitRefused``, ``delta_unsupported``, where no file may be removed."""
        ...

    def live_files(self, columns: Iterable[str]) -> list[LiveDeltaFile]:
        """Return the data files, with statistics of some columns.

        Raises:
            RetriableError: ``catalog_unavailable``.
        """
        ...

    def replace(
        self,
        files: Sequence[DeltaFile],
        removed: Sequence[DeltaFile],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        now_ms: int,
    ) -> int:
        """As ``append``, and remove files; their statistics do not matter.

        Raises:
            CommitRefused: ``delta_unsupported`` for the path of a removed file; as ``append``.
        """
        ...
