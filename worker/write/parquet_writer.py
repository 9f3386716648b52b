"""Rows of tables into Parquet files with their metrics.

Rules of this file:
- Arrow bytes that wait for their row group are bounded over all tables together. The partition
  with the most waiting bytes is written first, so that a few rows of one table do not force small
  row groups on all tables.
- Waiting rows do not keep the blocks alive that they were cut from: they are copied when those
  blocks exceed the bound.
- A file is described only when it is closed. A file that fails or is aborted is deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from control_schemas.events import ContentFile
from worker.batch.pipeline_spec import PipelineLimits
from worker.write.partitions import PartitionKey
from worker.write.table_writer import OpenFile, TableWriter, repeating_columns

_COPY_BYTES: Final = 64 * 2**20


@dataclass(slots=True)
class _OpenPartition:
    """Waiting rows and the open file of one partition of one table."""

    table: TableWriter
    key: PartitionKey
    waiting: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    file: OpenFile | None = None


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

    def add(self, table: TableWriter, rows: pa.Table) -> None:
        """Take rows in a table's Arrow schema."""
        for key, part in table.partitioner.split(rows):
            name = (id(table), key.values, key.path)  # a table's deletes have another writer
            partition = self._partitions.get(name)
            if partition is None:
                partition = self._partitions[name] = _OpenPartition(table, key)
            size = part.nbytes
            partition.waiting.append(part)
            partition.rows += part.num_rows
            partition.bytes += size
            self._waiting_bytes += size
            if (
                partition.rows >= self._limits.group_rows
                or partition.bytes >= table.settings.group_bytes
            ):
                self._flush(partition)
        while self._waiting_bytes > self._limits.buffered_bytes_max:
            self._flush(max(self._partitions.values(), key=lambda p: p.bytes))

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
        for partition in self._partitions.values():
            self._flush(partition)
            self._roll(partition)
        self._partitions.clear()
        files, self._files = self._files, []
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
        self._partitions.clear()
        self._open.clear()
        self._files = []
        self._waiting_bytes = 0

    def _flush(self, partition: _OpenPartition) -> None:
        if not partition.rows:
            return
        rows = pa.concat_tables(partition.waiting)
        self._waiting_bytes -= partition.bytes
        partition.waiting, partition.rows, partition.bytes = [], 0, 0
        if partition.file is None:
            if len(self._open) >= self._limits.open_files_max:
                self._roll(next(iter(self._open.values())))
            columns = partition.table.columns_key
            if columns not in self._dictionaries:
                self._dictionaries[columns] = repeating_columns(rows)
            partition.file = partition.table.open(partition.key, self._dictionaries[columns])
        self._open.pop(id(partition), None)
        self._open[id(partition)] = partition
        partition.table.append(partition.file, rows)
        if partition.file.stream.tell() >= partition.table.settings.target_bytes:
            self._roll(partition)

    def _roll(self, partition: _OpenPartition) -> None:
        self._open.pop(id(partition), None)
        file, partition.file = partition.file, None
        if file is not None:
            self._files.append((partition.table, partition.table.finish(file)))


def copied(tables: list[pa.Table]) -> pa.Table:
    """Copy rows out of the blocks that they were cut from."""
    joined = pa.concat_tables(tables)
    if len(tables) > 1:
        return joined.combine_chunks()
    return joined.take(pa.array(range(joined.num_rows)))
