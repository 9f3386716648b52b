"""Rows that wait for their file on the disk, because they exceed the memory of a Spark task.

Rules of this file:
- A file has no name: it is removed as soon as it is mapped, so that a killed process leaves none.
- Rows are read in place. Their pages belong to the system, which takes them back under pressure.
- A disk that is full, or refuses, is no error: the rows then go to their data files earlier.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa

_FREE_SHARE_MAX: Final = 0.25
"""Share of the free disk that one write may take: other tasks and Spark write to it as well."""


class SpilledRows:
    """Keeps rows in files of the temporary folder.

    Args:
        bytes_max: of all files.

    Attributes:
        bytes: Arrow bytes that were written.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0

    def write(self, rows: pa.Table) -> pa.Table | None:
        """Write rows, one chunk per column; return them as they are on the disk.

        Returns:
            The rows in their order; None if they do not fit on the disk.
        """
        size = rows.nbytes
        folder = tempfile.gettempdir()
        if self.bytes + size > self._bytes_max:
            return None
        try:
            if size > shutil.disk_usage(folder).free * _FREE_SHARE_MAX:
                return None
            mapped = _written(rows, folder)
        except OSError:
            return None
        self.bytes += size
        return mapped


def _written(rows: pa.Table, folder: str) -> pa.Table:
    handle, name = tempfile.mkstemp(prefix="rows-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        return pa.ipc.open_file(pa.memory_map(name)).read_all()
    finally:
        Path(name).unlink()
