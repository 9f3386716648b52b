"""Rows that are written to tables, and sent to topics if a condition holds for them.

Rules of this file:
- A row is encoded when it is added to its table. Rows that no output takes cost one condition.
- The messages of a block are in the order of its records.
- Messages are bounded by bytes. More of them end the Spark task, and the batch is read again in
  smaller batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.config.output_config import OutputConfig
from connect.errors import ConfigError, RetriableError
from worker.batch.blocks import Block, one_chunk
from worker.batch.descriptors import messages_row
from worker.batch.error_rows import OUTPUT_COLUMN, OUTPUT_FULL
from worker.batch.messages import SCHEMA, MessageChunk
from worker.batch.pipeline_spec import PipelineLimits
from worker.outputs.conditions import Condition
from worker.outputs.json_columns import json_objects, texts
from worker.write.table_writer import TableWriter
from worker.write.upsert_writer import Appends, Descriptor, Marks, RowWriters

Rows = npt.NDArray[np.int64]

_CHUNK_BYTES: Final = 4 * 2**20


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Messages of rows that were added together; ``orders`` as in ``Marks``."""

    output: int
    keys: pa.Array
    values: pa.Array
    orders: Rows


class Output:
    """Encodes the rows of one output.

    Args:
        number: of the output in the configuration.
        config: the output's.
    """

    def __init__(self, number: int, config: OutputConfig) -> None:
        self._number = number
        self._config = config
        self._where = None if config.where is None else Condition(config.where)

    def encode(self, table: TableWriter, rows: pa.Table, orders: Rows) -> _Encoded | None:
        """Return the messages of rows of a table; None if the output takes none of them.

        Raises:
            ConfigError: ``output_column``: the table lacks a column that the output names.
        """
        config = self._config
        if config.tables and table.plan.name not in config.tables:
            return None
        fields = list(table.row_schema)
        columns = [one_chunk(column) for column in rows.columns]
        if self._where is not None:
            holds = self._where.holds(columns, fields, rows.num_rows)
            if not holds.any():
                return None
            if not holds.all():
                mask = pa.array(holds)
                columns, orders = [column.filter(mask) for column in columns], orders[holds]
        by_name = {f.name: (c, f) for c, f in zip(columns, fields, strict=True)}
        chosen = [self._column(name, by_name, table) for name in config.columns or by_name]
        values = json_objects([c for c, _ in chosen], [f for _, f in chosen], len(orders))
        return _Encoded(self._number, self._keys(by_name, table, len(orders)), values, orders)

    def _column(
        self, name: str, by_name: dict[str, tuple[pa.Array, pa.Field]], table: TableWriter
    ) -> tuple[pa.Array, pa.Field]:
        if name not in by_name:
            raise ConfigError(
                f"output {self._config.name} names column {name}, which the table does not have; "
                f"add the column, or change icefloe.output.{self._config.name}.*",
                code=OUTPUT_COLUMN,
                table=table.plan.name,
            )
        return by_name[name]

    def _keys(
        self, by_name: dict[str, tuple[pa.Array, pa.Field]], table: TableWriter, count: int
    ) -> pa.Array:
        if not self._config.key:
            return pa.nulls(count, pa.large_string())
        first, *rest = self._config.key
        column, named = self._column(first, by_name, table)
        kind = named.type
        for name in rest:
            index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
            if index < 0:
                self._column(".".join(self._config.key), {}, table)
            column, kind = pc.struct_field(column, [index]), kind.field(index).type
        return texts(column, kind)


@dataclass(slots=True)
class _Messages:
    """Chunks of a Spark task, and the rows that are not in a chunk yet."""

    chunks: list[MessageChunk] = field(default_factory=list)
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    size: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.waiting.append(rows)
        self.waiting_bytes += rows.nbytes
        self.size += rows.nbytes
        if self.waiting_bytes >= _CHUNK_BYTES:
            self.end_chunk()

    def end_chunk(self) -> None:
        if self.waiting:
            table = pa.Table.from_batches(self.waiting).unify_dictionaries().combine_chunks()
            self.chunks.extend(MessageChunk.of(batch) for batch in table.to_batches())
        self.waiting, self.waiting_bytes = [], 0


class AppendsWithOutputs(Appends):
    """Writes rows that are only added, and encodes those that outputs take.

    Args:
        limits: of the writers, and of the messages.
        outputs: of the connector.
        writers: as of ``Appends``.
        has_tables: whether rows are written to tables, too.
    """

    has_outputs = True

    def __init__(
        self,
        limits: PipelineLimits,
        outputs: Sequence[OutputConfig],
        writers: RowWriters | None = None,
        *,
        has_tables: bool = True,
    ) -> None:
        super().__init__(limits, writers)
        self._has_tables = has_tables
        self._outputs = [Output(number, config) for number, config in enumerate(outputs)]
        self._bytes_max = limits.output_bytes_max
        self._encoded: list[_Encoded] = []
        self._messages = _Messages()

    def add(
        self,
        table: TableWriter,
        rows: pa.Table,
        marks: Marks | None = None,
        size: int | None = None,
    ) -> None:
        """Take rows with their places; see ``Writers.add``."""
        assert marks is not None, "a message has a place in the order of the records"
        if self._has_tables:
            super().add(table, rows, marks, size)
        else:
            self._rows += rows.num_rows
        for output in self._outputs:
            encoded = output.encode(table, rows, marks.orders)
            if encoded is not None and len(encoded.orders):
                self._encoded.append(encoded)

    def end_block(self, block: Block, first: int) -> None:
        """Put the messages of a block into the order of its records.

        Raises:
            RetriableError: ``output_full``: the messages of the batch exceed their bound.
        """
        encoded, self._encoded = self._encoded, []
        if not encoded:
            return
        orders = np.concatenate([each.orders for each in encoded]) - first
        by_order = np.argsort(orders, kind="stable")
        places = pa.array(orders[by_order])
        counts = [len(each.orders) for each in encoded]
        outputs = np.repeat(np.array([each.output for each in encoded], np.int32), counts)
        taken = pa.array(by_order)
        origin = block.table.select(["topic", "partition", "offset"]).take(places)
        columns = [
            pa.array(outputs[by_order]),
            _together([each.keys for each in encoded], taken),
            _together([each.values for each in encoded], taken),
            block.timestamps_ms.take(places),
            *(one_chunk(origin.column(name)) for name in origin.column_names),
        ]
        columns[4] = columns[4].cast(pa.string()).dictionary_encode()
        rows = pa.RecordBatch.from_arrays(
            [column.cast(f.type) for column, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )
        has_more = self._messages.size > 0 or orders.min() != orders.max()
        self._messages.add(rows)
        if has_more and self._messages.size > self._bytes_max:
            raise RetriableError(
                f"the rows of one batch for outputs take more than {self._bytes_max} bytes, and it "
                "cannot be made smaller",
                code=OUTPUT_FULL,
            )

    def finish(self) -> Iterator[Descriptor]:
        """End all files; yield their descriptors, the count of rows, and the messages."""
        yield from super().finish()
        self._messages.end_chunk()
        for chunk in self._messages.chunks:
            yield messages_row(chunk)

    def abort(self) -> None:
        """Delete what was written, and forget the messages."""
        super().abort()
        self._encoded, self._messages = [], _Messages()


def _together(columns: list[pa.Array], order: pa.Array) -> pa.Array:
    joined = columns[0] if len(columns) == 1 else pa.concat_arrays(columns)
    return joined.take(order)
