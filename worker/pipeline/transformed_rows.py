"""Decoded rows through a connector's transformations.

Rules of this file:
- A record that transformations made into several rows stays whole: all its rows are in the table,
  or the record path takes the record.
- With schema evolution, rows with fields that no table has are found row by row. Changes that a
  schema asks for are found by a sample, because rows of one schema leave with one schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.model.records import ConnectSchema
from connect.records.record_path import ReferencePath
from connect.records.tables.schema_evolution import changes
from worker.batch.blocks import Block, one_chunk
from worker.decode.decoded_rows import Columns
from worker.decode.registered_messages import unfit_tables
from worker.transforms.rows import (
    ColumnStep,
    Fields,
    MessageKeyReader,
    OriginColumns,
    Rows,
    TooManyRows,
)
from worker.transforms.step_chain import applied, unknown_rows
from worker.write.table_writers import AlikeTables

_SCHEMAS_KEPT = 16


class ColumnChain:
    """Runs steps over decoded rows.

    Args:
        steps: at least one.
        wanted_fields: fields of all tables.
        config: the connector's.
        tables: all tables.
        reference: of the connector, for samples.
        keys: reads message keys, None where no step asks for them.
    """

    def __init__(
        self,
        steps: Sequence[ColumnStep],
        wanted_fields: Fields,
        config: ConnectorConfig,
        tables: Sequence[AlikeTables],
        *,
        reference: ReferencePath,
        keys: MessageKeyReader | None,
    ) -> None:
        self._steps = tuple(steps)
        self._output_fields = wanted_fields
        self._config = config
        self._tables = tables
        self._reference = reference
        self._keys = keys
        self._reported: list[tuple[ConnectSchema, frozenset[str]]] = []

    def run(self, block: Block, decoded: Columns, *, is_typed: bool) -> Iterator[Columns]:
        """Run the steps.

        Args:
            block: of the rows.
            decoded: one row per record.
            is_typed: whether the records have a schema.
        """
        count = decoded.table.num_rows
        if not count:
            yield decoded
            return
        try:
            columns = self._run(block, decoded, is_typed=is_typed)
        except TooManyRows:
            if count == 1:
                yield replace(decoded, table=decoded.table.slice(0, 0), places=decoded.places[:0])
                return
            half = count // 2
            yield from self.run(block, _part(decoded, 0, half), is_typed=is_typed)
            rest = replace(_part(decoded, half, count), unexpected=decoded.unexpected[:0])
            yield from self.run(block, rest, is_typed=is_typed)
            return
        yield columns

    def _run(self, block: Block, decoded: Columns, *, is_typed: bool) -> Columns:
        count = decoded.table.num_rows
        columns = {
            n: one_chunk(c)
            for n, c in zip(decoded.table.column_names, decoded.table.columns, strict=True)
        }
        nothing = np.zeros(count, np.bool_)
        origins = OriginColumns(
            block,
            decoded.places,
            self._keys,
            is_text=not is_typed,
            seen=decoded.seen,
            schema_name=decoded.schema_name,
        )
        rows = Rows(columns, origins, nothing.copy(), nothing.copy())
        rows.is_typed = rows.had_schema = is_typed
        if decoded.is_whole:
            (rows.whole,), rows.columns = columns.values(), {}
        table = applied(self._steps, rows, self._output_fields)
        unfit = decoded.unfit
        if self._config.evolve_schema_enabled:
            if not rows.is_typed:
                rows.suspect(unknown_rows(table, self._output_fields))
            if is_typed:
                unfit = unfit | self._unfit(block, rows)
        table = table.select(list(self._output_fields))
        places = rows.origins.places
        refused = [decoded.unexpected, places[rows.ambiguous], *rows.refused]
        unexpected = np.unique(np.concatenate(refused))
        keep = ~rows.dropped
        left = np.zeros(block.count, np.bool_)
        left[places[keep]] = True
        left[unexpected] = True
        dropped = decoded.places[~left[decoded.places]]
        name = decoded.schema_name  # used only where no step changes it
        result = Columns(
            table, places, unexpected, unfit, dropped, rows.topics, name, tombstones=rows.tombstones
        )
        if keep.all():
            return result
        chosen = pa.array(keep)
        return replace(
            result,
            table=table.filter(chosen).combine_chunks(),
            places=places[keep],
            topics=None if rows.topics is None else rows.topics.filter(chosen),
            tombstones=None if rows.tombstones is None else rows.tombstones[keep],
        )

    def _unfit(self, block: Block, rows: Rows) -> frozenset[str]:
        """Return the tables that the transformed rows ask to change, found by a sample."""
        everything = frozenset(name for alike in self._tables for name in alike.names)
        sure_rows = ~rows.ambiguous & ~rows.dropped
        if rows.tombstones is not None:
            sure_rows &= ~rows.tombstones  # they ask for no column
        sure = np.flatnonzero(sure_rows)
        if not len(sure):
            return frozenset()
        if not rows.is_typed and any(pa.types.is_nested(c.type) for c in rows.columns.values()):
            return everything  # each record may have another schema inside
        (record,) = block.records(rows.origins.places[sure[:1]])
        try:
            records = self._reference.read(record)
            if not rows.is_typed:
                return frozenset(
                    name
                    for alike in self._tables
                    if any(changes(alike.sample.schema, r, self._config) for r in records)
                    for name in alike.names
                )
        except RecordError:
            return everything
        if len(records) != 1 or records[0].value_schema is None:
            return everything
        return self._asked_by(records[0].value_schema)

    def _asked_by(self, schema: ConnectSchema) -> frozenset[str]:
        for reported_schema, unfit in self._reported:
            if reported_schema == schema:
                return unfit
        unfit = unfit_tables(schema, self._config, self._tables)
        self._reported = [(schema, unfit), *self._reported[: _SCHEMAS_KEPT - 1]]
        return unfit


def _part(decoded: Columns, start: int, end: int) -> Columns:
    table = decoded.table.slice(start, end - start)
    return replace(decoded, table=table, places=decoded.places[start:end])
