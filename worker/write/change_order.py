"""The order of row-level changes, and the keys that two Spark tasks have changed.

Rules of this file:
- The changes of a source partition keep their order. Between partitions the later record timestamp
  wins, then topic and partition. So a rank is the highest timestamp of the partition so far.
- Equal keys have equal hashes. Unequal keys with one hash cost a repetition, never a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.model.layout import TopicPartition
from worker.batch.blocks import Block, one_chunk

Ranks = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_PLACE_BITS: Final = 20
_TIME_MS_MAX: Final = 2**42
_PART_BYTES: Final = 8
_HASHED_BYTES: Final = 256  # of a text; longer ones with equal beginnings count as equal
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_NULL: Final = np.uint64(0x5851F42D4C957F2D)


class ChangeOrder:
    """Ranks the records of one Spark task.

    Args:
        sources: the source partitions of the connector task, if it applies row-level changes.

    Attributes:
        taken: number of records of the blocks before.
    """

    def __init__(self, sources: Sequence[TopicPartition]) -> None:
        ordered = enumerate(sorted(sources, key=lambda tp: (tp.topic, tp.partition)))
        self._places = {(tp.topic, tp.partition): place for place, tp in ordered}
        self.taken = 0
        self._newest_ms: dict[tuple[str, int], int] = {}

    def ranks(self, block: Block) -> Ranks:
        """Return a rank for each record of a block; of equal ones the later record is newer."""
        if len(self._places) <= 1:
            return np.zeros(block.count, np.int64)
        stamps = pc.fill_null(block.timestamps_ms, 0).to_numpy(zero_copy_only=False)
        times = np.clip(stamps.astype(np.int64), 0, _TIME_MS_MAX - 1)
        ranks = np.empty(block.count, np.int64)
        for source, rows in _rows_by_source(block):
            newest = np.maximum.accumulate(times[rows])
            newest = np.maximum(newest, self._newest_ms.get(source, 0))
            self._newest_ms[source] = int(newest[-1])
            place = self._places.get(source, len(self._places))
            ranks[rows] = (newest << _PLACE_BITS) | min(place, 2**_PLACE_BITS - 1)
        return ranks


def _rows_by_source(block: Block) -> list[tuple[tuple[str, int], Any]]:
    """Return the rows of each source partition of a block."""
    topics = one_chunk(block.table.column("topic"))
    partitions = one_chunk(block.table.column("partition"))
    first = (topics[0].as_py(), partitions[0].as_py())
    if (
        pc.all(pc.equal(partitions, first[1])).as_py()
        and pc.all(pc.equal(topics, first[0])).as_py()
    ):
        return [(first, slice(None))]
    topics, partitions = topics.dictionary_encode(), partitions.dictionary_encode()
    names, numbers = topics.dictionary.to_pylist(), partitions.dictionary.to_pylist()
    codes = topics.indices.to_numpy().astype(np.int64) * len(numbers)
    codes += partitions.indices.to_numpy()
    return [
        ((names[code // len(numbers)], numbers[code % len(numbers)]), np.flatnonzero(codes == code))
        for code in np.flatnonzero(np.bincount(codes)).tolist()
    ]


def key_hashes(columns: Sequence[pa.Array]) -> Hashes:
    """Return a hash for each key.

    Args:
        columns: the key columns; not nested, no floating-point numbers.
    """
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        each = _texts(column) if _is_text(column.type) else _fixed(column)
        if column.null_count:
            each[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
        hashes = _mixed(hashes, each)
    return hashes


def _mixed(hashes: Hashes, parts: Hashes) -> Hashes:
    mixed = (hashes ^ parts) * _ODD
    return mixed ^ (mixed >> _HALF)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def _fixed(column: pa.Array) -> Hashes:
    """Hash values of a fixed size."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    width = column.type.bit_width // 8
    data = np.frombuffer(column.buffers()[1], np.uint8)
    data = data[column.offset * width : (column.offset + len(column)) * width]
    parts = -(-width // _PART_BYTES)
    padded = np.zeros((len(column), parts * _PART_BYTES), np.uint8)
    padded[:, :width] = data.reshape(len(column), width)
    hashes = np.zeros(len(column), np.uint64)
    for part in padded.view(np.uint64).T:
        hashes = _mixed(hashes, part)
    return hashes


def _texts(column: pa.Array) -> Hashes:
    """Hash values of any length, 8 bytes at a time."""
    wide = column.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    ends = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    starts, lengths = ends[:-1], np.minimum(np.diff(ends), _HASHED_BYTES)
    padded = np.zeros((0 if data is None else data.size) + _PART_BYTES, np.uint8)
    if data is not None:
        padded[: data.size] = np.frombuffer(data, np.uint8)
    parts = np.ndarray((len(padded) - _PART_BYTES + 1,), np.uint64, padded, strides=(1,))
    hashes = lengths.astype(np.uint64)
    for first in range(0, int(lengths.max(initial=0)), _PART_BYTES):
        rows = np.flatnonzero(lengths > first)
        unused = np.maximum(_PART_BYTES - (lengths[rows] - first), 0).astype(np.uint64)
        kept = np.uint64(2**64 - 1) >> (unused * np.uint64(_PART_BYTES))
        hashes[rows] = _mixed(hashes[rows], parts[starts[rows] + first] & kept)
    return hashes
