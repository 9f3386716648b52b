"""Rows for topics, as executors encode them and as the driver sends them.

Rules of this file:
- A chunk is a compressed Arrow stream. It is opened when it is sent: until then neither process has
  an object per row.
- The rows of a chunk are in the order of their source records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connect.gateways.kafka.kafka_clients import ProducerMessage

SCHEMA: Final = pa.schema(
    [
        ("output", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
"""Number of the output; key, JSON and timestamp (ms or null) of the message; its source record."""

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd")
_OVERHEAD_BYTES: Final = 64  # of a message in memory


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One row for an output.

    Attributes:
        id: of the row: topic, partition and offset of its record, and its number among the rows
            of that record. Equal when the record is read again.
        key: of the message.
        value: JSON.
        timestamp_ms: of the record; None if it has none.
        topic, partition, offset: of the record.
    """

    id: str
    key: bytes | None
    value: bytes
    timestamp_ms: int | None
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class MessageChunk:
    """Rows for outputs.

    Attributes:
        payload: Arrow stream of ``SCHEMA``, compressed.
        count: rows.
        size: bytes of keys and values, with overhead.
        largest: bytes of the largest key and value together.
    """

    payload: bytes
    count: int
    size: int
    largest: int

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> MessageChunk:
        """Return the chunk of rows of ``SCHEMA``."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA, options=_OPTIONS) as writer:
            writer.write_batch(rows)
        sizes = _sizes(rows)
        return cls(
            sink.getvalue().to_pybytes(),
            rows.num_rows,
            int(pc.sum(sizes).as_py() or 0) + _OVERHEAD_BYTES * rows.num_rows,
            int(pc.max(sizes).as_py() or 0),
        )

    def rows(self) -> pa.Table:
        """Return the rows."""
        with pa.ipc.open_stream(pa.py_buffer(self.payload)) as reader:
            return reader.read_all()

    def largest_row(self, outputs: list[int]) -> tuple[dict[str, Any], int]:
        """Return the largest row of some outputs, and the bytes of its key and value."""
        rows = self.rows()
        rows = rows.filter(pc.is_in(rows["output"], pa.array(outputs, pa.int32())))
        if not rows.num_rows:
            return {}, 0
        (batch,) = rows.combine_chunks().to_batches()
        sizes = _sizes(batch)
        place = int(pc.index(sizes, pc.max(sizes)).as_py())
        return batch.slice(place, 1).to_pylist()[0], int(sizes[place].as_py())

    def output_rows(self, output: int) -> Iterator[OutputRow]:
        """Yield the rows of one output."""
        table = self.rows()
        table = table.filter(pc.equal(table["output"], output))
        last, number = None, 0
        for row in table.to_pylist():
            place = row["topic"], row["partition"], row["offset"]
            number = number + 1 if place == last else 0
            last = place
            name = f"{place[0]}/{place[1]}/{place[2]}/{number}"
            yield OutputRow(name, row["key"], row["value"], row["timestamp"], *place)

    def messages(self, topics: tuple[str | None, ...]) -> Iterator[ProducerMessage]:
        """Yield the messages.

        Args:
            topics: of the outputs, by their number; None for those without a topic.
        """
        for batch in self.rows().to_batches(max_chunksize=10_000):
            names = ("output", "key", "value", "timestamp")
            columns = (batch.column(name).to_pylist() for name in names)
            for output, key, value, timestamp_ms in zip(*columns, strict=True):
                topic = topics[output]
                if topic is not None:
                    yield ProducerMessage(topic, key, value, (), timestamp_ms)


def _sizes(rows: pa.RecordBatch) -> pa.Array:
    lengths = (pc.fill_null(pc.binary_length(rows.column(name)), 0) for name in ("key", "value"))
    return pc.add(*(each.cast(pa.int64()) for each in lengths))
