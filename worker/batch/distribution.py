"""Which Spark task writes which rows, where the rows of a batch are distributed by table.

Rules of this file:
- The rows of a table in a batch go to one Spark task, so that they make one file for each partition
  value. A table is too large for one task if its share of the last batches was that of a task or
  more. Its rows are written by the tasks that read them, as without a distribution.
- A table that was small may be large in the next batch. So a task that reads passes on a bounded
  number of rows for each table, and writes the others itself. This holds where rows are only added:
  changes of a key must stay together.
- A distribution decides about files, never about results. Each task reports how many rows it passed
  on or received, and ``collect`` compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from control_schemas.events import ContentFile

DISTRIBUTED_DDL: Final = "task int, kind string, payload binary"

_WINDOW_ROWS: Final = 1_000_000
"""Rows that decide about the shares of tables: those of the last batches."""
_PLACED_SHARE: Final = 8
"""Tables with so many parts of a task's share, or less of them, are placed by their hash."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of one batch.

    Attributes:
        task_count: Spark tasks that write.
        rows_max: rows of a table, or of a partition of a large table, that a task passes on.
        kept: large tables, whose rows are written by the tasks that read them.
        placed: the tasks of tables that are neither large nor small.
        folder: where tasks of one machine leave rows for each other; None sends rows through Spark.
    """

    task_count: int
    rows_max: int
    kept: frozenset[str] = frozenset()
    placed: Mapping[str, int] = field(default_factory=dict)
    folder: str | None = None

    def task_of(self, table: str, partition: str = "") -> int:
        """Return the task that writes a table, or a partition of a large table."""
        placed = None if partition else self.placed.get(table)
        if placed is not None:
            return placed
        return crc32(f"{table}\0{partition}".encode()) % self.task_count


@dataclass(slots=True)
class TableShares:
    """The rows of tables in the last batches."""

    _rows: dict[str, float] = field(default_factory=dict)

    @property
    def are_known(self) -> bool:
        """Whether a batch was counted."""
        return bool(self._rows)

    def add(self, files: Mapping[str, Sequence[ContentFile]]) -> None:
        """Count the files of a batch; older batches count less, and then not at all."""
        counts = {name: sum(f.record_count for f in listed) for name, listed in files.items()}
        added, before = sum(counts.values()), sum(self._rows.values())
        share = min(1.0, max(0, _WINDOW_ROWS - added) / before) if before else 0.0
        rows = {name: count * share for name, count in self._rows.items() if count * share >= 1}
        for name, count in counts.items():
            rows[name] = rows.get(name, 0.0) + count
        self._rows = rows

    def distribution(
        self, task_count: int, *, read_tasks: int, records: int, folder: str | None
    ) -> Distribution:
        """Return the distribution of the next batch.

        Args:
            task_count: Spark tasks that write.
            read_tasks: Spark tasks that read.
            records: of the batch, at most.
            folder: as ``Distribution.folder``.
        """
        share = sum(self._rows.values()) / task_count
        kept = frozenset(name for name, rows in self._rows.items() if rows >= share)
        loads = [0.0] * task_count
        placed: dict[str, int] = {}
        for rows, name in sorted(((r, n) for n, r in self._rows.items()), reverse=True):
            if name in kept or rows * _PLACED_SHARE < share:
                continue
            placed[name] = loads.index(min(loads))
            loads[placed[name]] += rows
        rows_max = -(-records // (task_count * read_tasks))
        return Distribution(task_count, rows_max, kept, placed, folder)
