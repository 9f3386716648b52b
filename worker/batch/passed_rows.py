"""Rows on their way from the Spark task that read them to the one that writes them.

Rules of this file:
- Rows travel as Arrow batches of all tables with equal columns, sorted by table. Tasks of one
  machine leave them in a file, and Spark carries their place. Otherwise Spark carries the bytes.
- A file belongs to one attempt of one Spark task. The driver removes the folder after the batch.
- Rows of row-level changes have more columns: operation, order and rank. Their parts are complete:
  the last part of some blocks says so, and only then a step may end.
- Each attempt has a name, and its rows are counted. If Spark repeats a part of a batch, so that
  tasks read different attempts, the counts differ and the batch must not be used.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from worker.batch.descriptors import received_row, sent_row
from worker.batch.distribution import Distribution

PASSED: Final = "passed"
MARKS: Final = ("operation", "order", "rank")
PASSED_SCHEMA: Final = pa.schema(
    [("task", pa.int32()), ("kind", pa.string()), ("payload", pa.binary())]
)

_FREE_SHARE_MAX: Final = 0.25
"""Share of the free disk that one write may take."""
_PART_BYTES: Final = 4 * 2**20
"""Arrow bytes that Spark carries in one row, unless a single row of a table has more."""
_ALIGNMENT: Final = 64
_HEADER_BYTES: Final = 4
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class PassedTable:
    """Rows of one table.

    Attributes:
        name: of the table.
        rows: columns in the table's order, named by their positions; for row-level changes
            followed by ``MARKS``.
        size: Arrow bytes of the rows.
        key_ids: of the key columns, for row-level changes.
    """

    name: str
    rows: pa.Table
    size: int
    key_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PassedPart:
    """Rows of tables with equal columns.

    Attributes:
        sender: the attempt of a Spark task that passed them on.
        is_last: whether the sender has no more rows of the same blocks for this task.
        tables: in the order of their rows.
        rows: of all tables.
        bounds: first row of each table, with the end appended.
        are_on_disk: whether they are read in place from a file.
    """

    sender: str
    is_last: bool
    tables: tuple[tuple[str, tuple[int, ...]], ...]
    rows: pa.Table
    bounds: np.ndarray[Any, Any]
    are_on_disk: bool


@dataclass(slots=True)
class _Waiting:
    """Rows for one Spark task, by the columns of their tables."""

    by_columns: dict[tuple[str, ...], dict[str, list[PassedTable]]] = field(default_factory=dict)

    def add(self, columns: tuple[str, ...], table: PassedTable) -> None:
        self.by_columns.setdefault(columns, {}).setdefault(table.name, []).append(table)


class PassedRows:
    """The rows that one attempt of a Spark task passes on.

    Args:
        distribution: of the batch.
        sender: unique name of the attempt.
        bytes_max: of all rows that go to a file.
    """

    def __init__(self, distribution: Distribution, sender: str, bytes_max: int) -> None:
        self._distribution = distribution
        self._sender = sender
        self._bytes_max = bytes_max
        self._waiting: dict[int, _Waiting] = {}
        self._ready: list[tuple[int, bytes]] = []
        self._rows = 0
        self._file: _RowFile | None = None
        self.waiting_bytes = 0

    def add(self, task: int, columns: tuple[str, ...], table: PassedTable) -> None:
        """Take rows.

        Args:
            task: the one that writes them.
            columns: key of the table's columns; equal for tables with equal columns.
            table: its rows.
        """
        self._waiting.setdefault(task, _Waiting()).add(columns, table)
        self.waiting_bytes += table.size

    def flush(self) -> bool:
        """Pass on all rows; return whether that was possible.

        If the disk has no room, all rows still wait.
        """
        folder = self._distribution.folder
        ready: list[tuple[int, bytes]] = []
        try:
            if folder is not None and not self._has_room(folder):
                return False
            for task, waiting in self._waiting.items():
                ready.extend((task, payload) for payload in self._payloads(waiting, folder))
        except OSError:
            if folder is None:
                raise
            return False
        self._rows += sum(
            table.rows.num_rows
            for waiting in self._waiting.values()
            for alike in waiting.by_columns.values()
            for tables in alike.values()
            for table in tables
        )
        self._ready.extend(ready)
        self._waiting, self.waiting_bytes = {}, 0
        return True

    def taken_back(self) -> list[PassedTable]:
        """Return the rows that wait, and forget them."""
        waiting, self._waiting, self.waiting_bytes = self._waiting, {}, 0
        return [
            table
            for each in waiting.values()
            for alike in each.by_columns.values()
            for tables in alike.values()
            for table in tables
        ]

    def abort(self) -> None:
        """Forget all rows that no other task has."""
        self._waiting, self._ready, self.waiting_bytes = {}, [], 0
        self._close()

    def end(self) -> tuple[str, bytes]:
        """Return the descriptor of what was passed on."""
        self._close()
        return sent_row(self._sender, self._rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what is ready, as rows of ``DISTRIBUTED_DDL``, and forget it."""
        while self._ready:
            ready: list[tuple[int, bytes]] = []
            size = 0
            while self._ready and size < _PART_BYTES:
                ready.append(self._ready.pop(0))
                size += len(ready[-1][1])
            yield pa.record_batch(
                [
                    pa.array([task for task, _ in ready], pa.int32()),
                    pa.array([PASSED] * len(ready), pa.string()),
                    pa.array([payload for _, payload in ready], pa.binary()),
                ],
                schema=PASSED_SCHEMA,
            )

    def framed(self, descriptors: pa.RecordBatch) -> pa.RecordBatch:
        """Return descriptors with a task that forwards them; it is the same for all of them."""
        task = self._distribution.task_of(self._sender)
        tasks = pa.array(np.full(descriptors.num_rows, task, np.int32))
        return pa.record_batch([tasks, *descriptors.columns], schema=PASSED_SCHEMA)

    def _has_room(self, folder: str) -> bool:
        written = 0 if self._file is None else self._file.size
        if written + self.waiting_bytes > self._bytes_max:
            return False
        return self.waiting_bytes <= shutil.disk_usage(folder).free * _FREE_SHARE_MAX

    def _payloads(self, waiting: _Waiting, folder: str | None) -> Iterator[bytes]:
        parts = [
            part
            for alike in waiting.by_columns.values()
            for part in _parts(list(chain(*alike.values())), is_bounded=folder is None)
        ]
        for number, part in enumerate(parts):
            rows = pa.concat_tables([table.rows for table in part]).combine_chunks()
            header: dict[str, Any] = {
                "sender": self._sender,
                "last": number == len(parts) - 1,
                "tables": _counted(part),
            }
            if folder is None:
                yield _payload(header, _stream(rows))
                continue
            if self._file is None:
                self._file = _RowFile(Path(folder) / self._sender)
            header["path"] = str(self._file.path)
            header["start"], header["size"] = self._file.write(rows)
            yield _payload(header)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()


class ReceivedRows:
    """The rows that one Spark task receives."""

    def __init__(self) -> None:
        self._files: dict[str, pa.MemoryMappedFile] = {}
        self._rows: dict[str, int] = {}

    def part(self, payload: pa.Buffer) -> PassedPart:
        """Return the rows of a payload."""
        length = int.from_bytes(payload[:_HEADER_BYTES].to_pybytes())
        header = json.loads(payload[_HEADER_BYTES : _HEADER_BYTES + length].to_pybytes())
        path = header.get("path")
        if path is None:
            body = payload[_HEADER_BYTES + length :]
        else:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = pa.memory_map(path)
            file.seek(header["start"])
            body = file.read_buffer(header["size"])
        with pa.ipc.open_stream(body) as reader:
            rows = reader.read_all()
        counts = [count for _, count, _ in header["tables"]]
        sender = header["sender"]
        self._rows[sender] = self._rows.get(sender, 0) + rows.num_rows
        return PassedPart(
            sender,
            header["last"],
            tuple((name, tuple(key_ids)) for name, _, key_ids in header["tables"]),
            rows,
            np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
            are_on_disk=path is not None,
        )

    def descriptors(self) -> Iterator[tuple[str, bytes]]:
        """Return the descriptor of what was received."""
        yield received_row(self._rows)


def _parts(tables: Sequence[PassedTable], *, is_bounded: bool) -> Iterator[list[PassedTable]]:
    """Return tables in parts; large ones are split if parts are bounded."""
    if not is_bounded:
        yield list(tables)
        return
    part: list[PassedTable] = []
    size = 0.0
    for table in tables:
        mean = max(table.size / table.rows.num_rows, 1)
        step = max(int(_PART_BYTES / mean), 1)
        for start in range(0, table.rows.num_rows, step):
            rows = table.rows.slice(start, step)
            if part and size + rows.num_rows * mean > _PART_BYTES:
                yield part
                part, size = [], 0.0
            part.append(PassedTable(table.name, rows, 0, table.key_ids))
            size += rows.num_rows * mean
    if part:
        yield part


def _counted(tables: Sequence[PassedTable]) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return names and rows of tables; rows of one table that follow each other are one entry."""
    counted: list[tuple[str, int, tuple[int, ...]]] = []
    for table in tables:
        before = 0
        if counted and counted[-1][0] == table.name:
            before = counted.pop()[1]
        counted.append((table.name, before + table.rows.num_rows, table.key_ids))
    return counted


def _payload(header: dict[str, Any], body: pa.Buffer | None = None) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    head = len(text).to_bytes(_HEADER_BYTES) + text
    return head if body is None else b"".join((head, body))


def _stream(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
        writer.write_table(rows)
    return sink.getvalue()


class _RowFile:
    """A file of Arrow streams, each of which is read in place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._file = pa.OSFile(str(path), "wb")

    def write(self, rows: pa.Table) -> tuple[int, int]:
        """Write rows; return where they begin, and their bytes."""
        start = self.size + -self.size % _ALIGNMENT
        self._file.write(bytes(start - self.size))
        with pa.ipc.new_stream(self._file, rows.schema) as writer:
            writer.write_table(rows)
        self.size = self._file.tell()
        return start, self.size - start

    def close(self) -> None:
        """End the file."""
        if not self._file.closed:
            self._file.close()
