"""Joins record batches of Spark's Kafka source into blocks that are decoded at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.model.records import KafkaRecord
from worker.batch.pipeline_spec import PipelineLimits, RecordPlace
from worker.batch.record_blocks import records

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


class Block:
    """Records in columns.

    Args:
        table: the columns of ``PipelineSpec.columns``.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.count: int = table.num_rows
        self.values = one_chunk(table.column("value"))
        self.tombstones: Mask = self.values.is_null().to_numpy(zero_copy_only=False)

    @property
    def has_key(self) -> Mask:
        """Mask of records with a key; all false if keys were not read."""
        keys = self.column("key")
        if keys is None:
            return np.zeros(self.count, np.bool_)
        valid: Mask = keys.is_valid().to_numpy(zero_copy_only=False)
        return valid

    @property
    def may_have_map_key(self) -> Mask:
        """Mask of records with a brace in their key: only those keys can be a map."""
        keys = self.column("key")
        if keys is None:
            return np.zeros(self.count, np.bool_)
        at = pc.fill_null(pc.find_substring(keys, b"{"), -1)
        mask: Mask = at.to_numpy(zero_copy_only=False) >= 0
        return mask

    def holds(self, places: Collection[RecordPlace]) -> Mask | None:
        """Return the mask of records at these places; None if there are none."""
        if not places:
            return None
        mask = np.zeros(self.count, np.bool_)
        for place in places:
            names = ("topic", "partition", "offset")
            one, two, three = (
                pc.equal(one_chunk(self.table.column(name)), value).to_numpy(zero_copy_only=False)
                for name, value in zip(names, place, strict=True)
            )
            mask |= one & two & three
        return mask if mask.any() else None

    def only(self, mask: Mask) -> Block:
        """Return the records of a mask."""
        return Block(self.table.filter(pa.array(mask)))

    def column(self, name: str) -> pa.Array | None:
        """Return one column; None if the spec does not need it."""
        return one_chunk(self.table.column(name)) if name in self.table.column_names else None

    @property
    def sizes(self) -> pa.Array:
        """Bytes of each record's value, and of its key if keys were read."""
        size_column = self.column("size")  # set where the bytes themselves are not in the block
        if size_column is not None:
            return size_column
        sizes = pc.fill_null(pc.binary_length(self.values), 0).cast(pa.int64())
        keys = self.column("key")
        if keys is not None:
            sizes = pc.add(sizes, pc.fill_null(pc.binary_length(keys), 0).cast(pa.int64()))
        return sizes

    @property
    def timestamps_ms(self) -> pa.Array:
        """Record timestamps; null for a record without one."""
        stamps = one_chunk(self.table.column("timestamp"))
        has_micros = stamps.type.unit == "us"  # of Spark; Kafka's timestamps are in milliseconds
        millis = stamps.cast(pa.int64())
        if has_micros:
            millis = pc.divide(millis, 1000)
        return pc.if_else(pc.less(millis, 0), pa.scalar(None, pa.int64()), millis)

    def records(self, places: Rows) -> Iterator[KafkaRecord]:
        """Yield the records at these places, one by one."""
        part = self.table.take(pa.array(places))
        stamps = Block(part).timestamps_ms.to_pylist()
        names = part.column_names
        columns: list[list[Any]] = [
            part[name].to_pylist() for name in ("topic", "partition", "offset", "value")
        ]
        nothing: list[Any] = [None] * len(places)
        keys = part["key"].to_pylist() if "key" in names else nothing
        headers = part["headers"].to_pylist() if "headers" in names else nothing
        rows = zip(*columns, keys, headers, stamps, strict=True)
        for topic, partition, offset, value, key, header, stamp in rows:
            yield KafkaRecord(
                topic,
                partition,
                offset,
                stamp,
                0 if stamp is not None else -1,
                key,
                value,
                tuple((h["key"], h["value"]) for h in header or ()),
            )


def one_chunk(column: Any) -> pa.Array:
    """Return a column as one array, without a copy if it has one chunk."""
    if isinstance(column, pa.ChunkedArray) and column.num_chunks == 1:
        return column.chunk(0)
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        return joined.chunk(0) if joined.num_chunks else pa.array([], joined.type)
    return joined


def blocks(batches: Iterator[pa.RecordBatch], limits: PipelineLimits) -> Iterator[Block]:
    """Yield records in blocks of bounded size."""
    return map(Block, joined(records(batches), limits))


def joined(batches: Iterator[pa.RecordBatch], limits: PipelineLimits) -> Iterator[pa.Table]:
    """Join batches up to the rows or bytes of a block; split larger batches."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for part in _parts(batch, limits):
            if waiting and rows + part.num_rows > limits.block_rows:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(part)
            rows += part.num_rows
            size += part.nbytes
            if size >= limits.block_bytes:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(waiting)


def _parts(batch: pa.RecordBatch, limits: PipelineLimits) -> Iterator[pa.RecordBatch]:
    pieces = max(-(-batch.num_rows // limits.block_rows), batch.nbytes // (limits.block_bytes * 2))
    step = max(-(-batch.num_rows // max(pieces, 1)), 1)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
