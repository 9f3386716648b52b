"""Record batches of Spark's Kafka source, joined to blocks worth decoding at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.model.records import KafkaRecord
from worker.batch.pipeline_spec import PipelineLimits

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


class Block:
    """Some records, column by column.

    Args:
        table: columns as ``PipelineSpec.columns`` names them.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.count: int = table.num_rows
        self.values = one_chunk(table.column("value"))
        self.tombstones: Mask = self.values.is_null().to_numpy(zero_copy_only=False)

    @property
    def has_key(self) -> Mask:
        """Records with a key, where keys were asked for."""
        keys = self.column("key")
        if keys is None:
            return np.zeros(self.count, np.bool_)
        valid: Mask = keys.is_valid().to_numpy(zero_copy_only=False)
        return valid

    @property
    def may_have_map_key(self) -> Mask:
        """Records whose key may be read as a map: others have no brace in it."""
        keys = self.column("key")
        if keys is None:
            return np.zeros(self.count, np.bool_)
        at = pc.fill_null(pc.find_substring(keys, b"{"), -1)
        found: Mask = at.to_numpy(zero_copy_only=False) >= 0
        return found

    def column(self, name: str) -> pa.Array | None:
        """One column, None when the spec did not ask for it."""
        return one_chunk(self.table.column(name)) if name in self.table.column_names else None

    @property
    def sizes(self) -> pa.Array:
        """Bytes of each record's value, and of its key where keys were asked for."""
        known = self.column("size")  # where the bytes themselves were left behind
        if known is not None:
            return known
        found = pc.fill_null(pc.binary_length(self.values), 0).cast(pa.int64())
        keys = self.column("key")
        if keys is not None:
            found = pc.add(found, pc.fill_null(pc.binary_length(keys), 0).cast(pa.int64()))
        return found

    @property
    def timestamps_ms(self) -> pa.Array:
        """Record timestamps, null where a record has none."""
        stamps = one_chunk(self.table.column("timestamp")).cast(pa.int64())
        millis = pc.divide(stamps, 1000)  # Kafka's are whole milliseconds
        return pc.if_else(pc.less(millis, 0), pa.scalar(None, pa.int64()), millis)

    def records(self, places: Rows) -> Iterator[KafkaRecord]:
        """Some of the records, one by one."""
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
    """A column as one array; one that is one already is not copied."""
    if isinstance(column, pa.ChunkedArray) and column.num_chunks == 1:
        return column.chunk(0)
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        return joined.chunk(0) if joined.num_chunks else pa.array([], joined.type)
    return joined


def blocks(batches: Iterator[pa.RecordBatch], limits: PipelineLimits) -> Iterator[Block]:
    """Records in blocks of bounded size."""
    return map(Block, joined(batches, limits))


def joined(batches: Iterator[pa.RecordBatch], limits: PipelineLimits) -> Iterator[pa.Table]:
    """Join batches until there are the rows or bytes of a block; split what is larger alone."""
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
