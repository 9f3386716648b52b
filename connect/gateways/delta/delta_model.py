"""What a commit to Delta tables needs of them, without the library that reads their logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

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


DeltaVersion: TypeAlias = TableVersion[DeltaFile]
DeltaStore: TypeAlias = TableLogs[DeltaFile]
