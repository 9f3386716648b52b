"""Makes record batches of the blocks that ``worker/spark/java`` reads.

Rules of this file:
- A block is a row whose values are the buffers of Arrow arrays. No byte of a record is copied.
- The columns have the names and types of Spark's Kafka source, except ``timestamp``, which has
  milliseconds, as Kafka has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

_STAMP: Final = pa.timestamp("ms", "UTC")
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "value",
    "value_ends",
    "value_valid",
    "key",
    "key_ends",
    "key_valid",
    "header_ends",
    "header_key",
    "header_key_ends",
    "header_value",
    "header_value_ends",
    "header_value_valid",
)
"""Of a block, after the number of its records and its topics; see ``Block.java``."""

_NUMBER: Final = struct.Struct(">q")


def is_of_blocks(schema: pa.Schema) -> bool:
    """Return whether rows of this schema are blocks."""
    return "value_ends" in schema.names


def records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of blocks; batches of records are yielded as they are."""
    for batch in batches:
        if not is_of_blocks(batch.schema):
            yield batch
            continue
        for row in range(batch.num_rows):
            yield _records(batch.slice(row, 1))


def blocks_of(payload: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the records of blocks that were read without a Spark task (``DriverBlocks.java``)."""
    whole, at = pa.py_buffer(payload), 0
    while at < len(payload):
        (count,) = _NUMBER.unpack_from(payload, at)
        at += _NUMBER.size
        columns: list[pa.Buffer | None] = []
        for _ in ("topics", *_COLUMNS):
            (length,) = _NUMBER.unpack_from(payload, at)
            at += _NUMBER.size
            columns.append(None if length < 0 else whole.slice(at, length))
            at += max(0, -(-length // _NUMBER.size) * _NUMBER.size)
        topics, *buffers = columns
        assert topics is not None
        names = topics.to_pybytes().decode()
        yield _batch(count, names, dict(zip(_COLUMNS, buffers, strict=True)))


def _records(block: pa.RecordBatch) -> pa.RecordBatch:
    buffers = {
        name: column[0].as_buffer() if column[0].is_valid else None
        for name, column in zip(block.schema.names, block.columns, strict=True)
        if name not in ("count", "topics")
    }
    return _batch(block.column("count")[0].as_py(), block.column("topics")[0].as_py(), buffers)


def _batch(count: int, topic_names: str, buffers: dict[str, Any]) -> pa.RecordBatch:
    topics = pa.array(topic_names.split(" "), pa.string())
    columns: dict[str, pa.Array] = {
        "value": _texts(pa.binary(), count, buffers, "value"),
        "topic": _topics(topics, count, buffers["topic"]),
        "partition": pa.Array.from_buffers(pa.int32(), count, [None, buffers["partition"]]),
        "offset": pa.Array.from_buffers(pa.int64(), count, [None, buffers["offset"]]),
        "timestamp": pa.Array.from_buffers(_STAMP, count, [None, buffers["timestamp"]]),
    }
    if buffers["key_ends"] is not None:
        columns["key"] = _texts(pa.binary(), count, buffers, "key")
    if buffers["header_ends"] is not None:
        columns["headers"] = _headers(count, buffers)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _topics(topics: pa.Array, count: int, numbers: pa.Buffer | None) -> pa.Array:
    if numbers is None:  # all records are of the first topic
        return pa.repeat(topics[0], count)
    places = pa.Array.from_buffers(pa.int32(), count, [None, numbers])
    return topics.take(places)


def _headers(count: int, buffers: dict[str, Any]) -> pa.Array:
    ends = buffers["header_ends"]
    headers = pa.Array.from_buffers(pa.int32(), count + 1, [None, ends])[count].as_py()
    pairs = [
        _texts(pa.string(), headers, buffers, "header_key"),
        _texts(pa.binary(), headers, buffers, "header_value"),
    ]
    structs = pa.StructArray.from_arrays(pairs, fields=list(_HEADER))
    return pa.Array.from_buffers(pa.list_(_HEADER), count, [None, ends], children=[structs])


def _texts(of_type: pa.DataType, count: int, buffers: dict[str, Any], name: str) -> pa.Array:
    valid = buffers.get(f"{name}_valid")
    return pa.Array.from_buffers(of_type, count, [valid, buffers[f"{name}_ends"], buffers[name]])
