"""The positions of the rows that a round deletes, in their data files.

Rules of this file:
- A file is searched once in all attempts of a commit.
- Only key columns are read. Their size is checked before the first one is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyroaring import BitMap64

from coordinator.row_deletes.parquet_rows import Positions, RowFilter, deleted_positions
from coordinator.row_deletes.round_deletes import RoundDeletes, SourceFile


def bitmap(positions: Positions) -> BitMap64:
    """Return positions as a bitmap."""
    values = array("Q")
    values.frombytes(np.ascontiguousarray(positions, np.uint64).tobytes())
    return BitMap64(values)


@dataclass(slots=True)
class RowPositions:
    """The positions of one round; used by one thread.

    Attributes:
        deletes: of the round.
        by_path: positions by the path of their file; empty where the file has none.
        bytes_read: size of the columns that were read.
    """

    deletes: RoundDeletes
    by_path: dict[str, BitMap64] = field(default_factory=dict)
    bytes_read: int = 0

    def of(self, sources: Sequence[SourceFile]) -> dict[str, BitMap64]:
        """Return the positions of rows that the round deletes, by the path of their file.

        Raises:
            NotResolved: a limit is reached. RetriableError: ``storage_unavailable``.
        """
        budget = self.deletes.budget
        budget.check_time()
        read, size = [], 0
        for source in sources:
            if source.path not in self.by_path and (rows := self.deletes.rows_of(source)).keys:
                read.append(source)
                size += source.key_bytes(rows)
        budget.check_bytes(self.bytes_read + size)
        self.by_path.update(self.deletes.each(read, self._positions))
        self.bytes_read += size
        return {s.path: self.by_path[s.path] for s in sources if self.by_path.get(s.path)}

    def _positions(self, source: SourceFile, file: Any, rows: RowFilter) -> tuple[str, BitMap64]:
        out = BitMap64()
        for part in deleted_positions(file, rows, self.deletes.budget.check_time):
            if len(part):
                out |= bitmap(part)
        return source.path, out
