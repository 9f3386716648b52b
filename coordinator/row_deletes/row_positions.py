"""Positions of deleted rows in their data files: of a round, and in position delete files.

Rules of this file:
- A file is searched once in all attempts of a commit.
- Only key columns are read. Their size is checked before the first one is read.
- Position delete files are read in batches of bounded size. Only bitmaps of them stay in memory.

Source:
    Iceberg specification, "Position Delete Files".
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from coordinator.row_deletes.limits import NotResolved
from coordinator.row_deletes.parquet_rows import Positions, RowFilter, deleted_positions
from coordinator.row_deletes.round_deletes import RoundDeletes, SourceFile

POSITION_DELETES: Final = "position_deletes"
"""The reason of ``NotResolved`` where position deletes cannot be resolved."""
_PATH: Final = "file_path"
_POSITION: Final = "pos"
_BATCH_ROWS: Final = 2**17


def bitmap(positions: Positions) -> BitMap64:
    """Return positions as a bitmap."""
    values = array("Q")
    values.frombytes(np.ascontiguousarray(positions, np.uint64).tobytes())
    return BitMap64(values)


def positions_by_path(file: pq.ParquetFile, check: Callable[[], None]) -> dict[str, BitMap64]:
    """Return the positions in a position delete file by the path of their data file.

    Args:
        file: open.
        check: called between batches.

    Raises:
        NotResolved: the file has other columns.
    """
    schema = file.schema_arrow
    kinds = [schema.field(name).type for name in (_PATH, _POSITION) if name in schema.names]
    if kinds not in ([pa.string(), pa.int64()], [pa.large_string(), pa.int64()]):
        raise NotResolved(POSITION_DELETES, "a position delete file has other columns")
    out: dict[str, BitMap64] = defaultdict(BitMap64)
    columns = [_PATH, _POSITION]
    for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
        check()
        if any(column.null_count for column in batch.columns):
            raise NotResolved(POSITION_DELETES, "a position delete file has nulls")
        if not batch.num_rows:
            continue
        paths = batch.column(_PATH).dictionary_encode()
        codes = paths.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        starts = np.flatnonzero(np.diff(codes)) + 1
        positions = np.split(batch.column(_POSITION).to_numpy()[order], starts)
        for path, of_path in zip(paths.dictionary.to_pylist(), positions, strict=True):
            out[path] |= bitmap(of_path)
    return dict(out)


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
