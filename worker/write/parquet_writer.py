"""Rows of tables into Parquet files with their metrics.

Rules of this file:
- Arrow bytes that wait for their row group are bounded over all tables together. Above the bound
  the partition with the most waiting bytes is written. If even that one is small, the rows of all
  partitions go to the disk until the task ends: a row group, or even a file, for a few rows of
  each of many tables costs more than its rows.
- Waiting rows do not keep the blocks alive that they were cut from: they are copied when those
  blocks exceed the bound.
- A file is described only when it is closed. A file that fails or is aborted is deleted.
- Files of a remote store are ended in threads, because each waits for several answers of the store.
- The file of rows that wait on the disk has no name: it is removed as soon as it is mapped, so that
  a killed process leaves none. The rows are read in place. The system may take their pages back.
- A disk that is full, or refuses, is no error: the rows then go to their data files earlier.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from control_schemas.events import ContentFile
from worker.batch.pipeline_spec import PipelineLimits
from worker.write.partitions import PartitionKey
from worker.write.table_writer import OpenFile, TableWriter, repeating_columns

_COPY_BYTES: Final = 64 * 2**20
_SMALL_BYTES: Final = 4 * 2**20
"""Waiting bytes of a partition that are not worth a row group of their own."""
_ENDED_AT_ONCE: Final = 16
"""Files of a remote store that are ended at the same time."""
_FREE_SHARE_MAX: Final = 0.25
"""Share of the free disk that one write may take: other tasks and Spark write to it as well."""


@dataclass(slots=True)
class _OpenPartition:
    """Waiting rows and the open file of one partition of one table.

    ``spilled`` are rows on the disk, ``waiting`` newer ones in memory.
    """

    table: TableWriter
    key: PartitionKey
    spilled: list[pa.Table] = field(default_factory=list)
    waiting: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    spilled_bytes: int = 0
    waiting_bytes: int = 0
    file: OpenFile | None = None

    @property
    def bytes(self) -> int:
        """Arrow bytes of its rows that are in no file."""
        return self.spilled_bytes + self.waiting_bytes

    def taken(self) -> pa.Table:
        """Return the rows that are in no file, and forget them."""
        rows = self.table.named(pa.concat_tables([*self.spilled, *self.waiting]))
        self.spilled, self.waiting = [], []
        self.rows = self.spilled_bytes = self.waiting_bytes = 0
        return rows


class Writers:
    """Writes the files of one Spark task.

    Args:
        limits: bounds.
    """

    def __init__(self, limits: PipelineLimits) -> None:
        self._limits = limits
        self._partitions: dict[tuple[int, tuple[Any, ...], str], _OpenPartition] = {}
        self._open: dict[int, _OpenPartition] = {}  # by identity, least recently used first
        self._waiting_bytes = 0
        self._pinned_bytes = 0
        self._files: list[tuple[TableWriter, ContentFile]] = []
        self._dictionaries: dict[tuple[str, ...], list[str]] = {}  # by ``columns_key``
        self._spilled = SpilledRows(limits.spilled_bytes_max)

    def add(
        self,
        table: TableWriter,
        rows: pa.Table,
        size: int | None = None,
        *,
        are_on_disk: bool = False,
    ) -> None:
        """Take rows, whose columns are in the order of the table's.

        Args:
            table: theirs; all rows of tables with equal columns have the same names.
            rows: the rows.
            size: their Arrow bytes; None if they are not known.
            are_on_disk: whether they are read in place from a file, so that they take no memory
                while they wait. All rows of this task then are.
        """
        if not rows.num_rows:
            return
        mean = (rows.nbytes if size is None else size) / rows.num_rows
        stay = are_on_disk and not table.partitioner.is_partitioned  # a partition's are copied
        for key, part in table.partitioner.split(rows):
            name = (id(table), key.values, key.path)  # a table's deletes have another writer
            partition = self._partitions.get(name)
            if partition is None:
                partition = self._partitions[name] = _OpenPartition(table, key)
            part_bytes = int(mean * part.num_rows)
            partition.rows += part.num_rows
            if stay:
                partition.spilled.append(part)
                partition.spilled_bytes += part_bytes
            else:
                partition.waiting.append(part)
                partition.waiting_bytes += part_bytes
                self._waiting_bytes += part_bytes
            if (
                partition.rows >= self._limits.group_rows
                or partition.bytes >= table.settings.group_bytes
            ):
                self._flush(partition)
        while self._waiting_bytes > self._limits.buffered_bytes_max:
            self._make_room()

    def pin(self, block_bytes: int) -> None:
        """Account for a block that added rows were cut from."""
        self._pinned_bytes += block_bytes
        if self._pinned_bytes > self._waiting_bytes + _COPY_BYTES:
            for partition in self._partitions.values():
                if partition.waiting:
                    partition.waiting = [copied(partition.waiting)]
            self._pinned_bytes = self._waiting_bytes

    def finish(self) -> Iterator[tuple[TableWriter, ContentFile]]:
        """Write waiting rows and end all files; yield each file's table and description."""
        partitions = list(self._partitions.values())
        remote = [p for p in partitions if not p.table.is_local and p.bytes < _SMALL_BYTES]
        if len(remote) > 1:
            self._end_together(remote)
        for partition in partitions:
            self._end(partition)
        files, self._files = self._files, []
        self._forget()
        yield from files

    def abort(self) -> None:
        """Delete every file of this task."""
        for partition in self._partitions.values():
            file, partition.file = partition.file, None
            if file is not None:
                file.writer.is_open = False  # else its close tries to write a footer
                with contextlib.suppress(OSError):  # a store that refuses files refuses this, too
                    file.stream.close()
                partition.table.discard(file.path)
        for table, described in self._files:
            table.discard(described.file_path)
        self._files = []
        self._forget()

    def _forget(self) -> None:
        self._partitions.clear()
        self._open.clear()
        self._spilled = SpilledRows(self._limits.spilled_bytes_max)
        self._waiting_bytes = self._pinned_bytes = 0

    def _make_room(self) -> None:
        largest = max(self._partitions.values(), key=lambda p: p.waiting_bytes)
        if largest.bytes >= _SMALL_BYTES or not self._spill():
            self._flush(largest)

    def _spill(self) -> bool:
        """Move all waiting rows to the disk; return whether it has room."""
        alike: dict[tuple[str, ...], list[_OpenPartition]] = {}
        for partition in self._partitions.values():
            if partition.waiting:
                alike.setdefault(partition.table.columns_key, []).append(partition)
        for partitions in alike.values():
            waiting = [rows for partition in partitions for rows in partition.waiting]
            spilled = self._spilled.write(pa.concat_tables(waiting).combine_chunks())
            if spilled is None:
                return False
            start = 0
            for partition in partitions:
                count = sum(rows.num_rows for rows in partition.waiting)
                partition.spilled.append(spilled.slice(start, count))
                start += count
                self._waiting_bytes -= partition.waiting_bytes
                partition.spilled_bytes += partition.waiting_bytes
                partition.waiting, partition.waiting_bytes = [], 0
        self._pinned_bytes = self._waiting_bytes
        return True

    def _flush(self, partition: _OpenPartition) -> None:
        """Write the rows of a partition as a row group."""
        self._waiting_bytes -= partition.waiting_bytes
        is_open = partition.file is not None
        if not is_open and len(self._open) >= self._limits.open_files_max:
            self._roll(next(iter(self._open.values())))
        self._write(partition)
        self._open.pop(id(partition), None)
        self._open[id(partition)] = partition
        assert partition.file is not None
        if partition.file.stream.tell() >= partition.table.settings.target_bytes:
            self._roll(partition)

    def _write(self, partition: _OpenPartition) -> None:
        rows = partition.taken()
        if partition.file is None:
            columns = partition.table.columns_key
            if columns not in self._dictionaries:
                self._dictionaries[columns] = repeating_columns(rows)
            partition.file = partition.table.open(partition.key, self._dictionaries[columns])
        partition.table.append(partition.file, rows)

    def _roll(self, partition: _OpenPartition) -> None:
        self._open.pop(id(partition), None)
        self._close(partition)

    def _close(self, partition: _OpenPartition) -> None:
        if partition.file is not None:
            described = partition.table.finish(partition.file)
            self._files.append((partition.table, described))
            partition.file = None

    def _end(self, partition: _OpenPartition) -> None:
        if partition.rows:
            self._write(partition)
        self._close(partition)

    def _end_together(self, partitions: list[_OpenPartition]) -> None:
        """End files in threads; the first error is raised when no thread is busy."""
        if pa.io_thread_count() < _ENDED_AT_ONCE:  # Arrow's clients send requests in these
            pa.set_io_thread_count(_ENDED_AT_ONCE)
        with ThreadPoolExecutor(min(_ENDED_AT_ONCE, len(partitions)), "end-file") as pool:
            try:
                for ended in as_completed([pool.submit(self._end, p) for p in partitions]):
                    ended.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise


def copied(tables: list[pa.Table]) -> pa.Table:
    """Copy rows out of the blocks that they were cut from."""
    joined = pa.concat_tables(tables)
    if len(tables) > 1:
        return joined.combine_chunks()
    return joined.take(pa.array(np.arange(joined.num_rows)))


def sizes_of(rows: pa.Table, bounds: np.ndarray[Any, Any]) -> list[int]:
    """Return the Arrow bytes of consecutive parts of some rows.

    Args:
        rows: one chunk per column, from the first row to the last.
        bounds: the first row of each part, with the end appended.
    """
    counts = np.diff(bounds)
    sizes = np.zeros(len(counts), np.float64)
    for column in rows.columns:
        offsets = _text_offsets(column)
        if offsets is None:
            sizes += counts * (column.nbytes / max(rows.num_rows, 1))
        else:
            sizes += np.diff(offsets[bounds]) + counts * offsets.itemsize
    sized: list[int] = sizes.astype(np.int64).tolist()
    return sized


_TEXT_OFFSETS: Final[tuple[tuple[Callable[[pa.DataType], bool], Any], ...]] = (
    (pa.types.is_string, np.int32),
    (pa.types.is_binary, np.int32),
    (pa.types.is_large_string, np.int64),
    (pa.types.is_large_binary, np.int64),
)


def _text_offsets(column: pa.ChunkedArray) -> np.ndarray[Any, Any] | None:
    """Return where the values of a column of texts or bytes begin and end."""
    form = next((form for is_kind, form in _TEXT_OFFSETS if is_kind(column.type)), None)
    if form is None or column.num_chunks != 1:
        return None
    chunk = column.chunk(0)
    buffer = chunk.buffers()[1]
    if buffer is None or not len(chunk):
        return None
    return np.frombuffer(buffer, form)[chunk.offset : chunk.offset + len(chunk) + 1]


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
