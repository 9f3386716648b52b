"""``ParseJson`` by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from connect.records.transforms.value_paths import steps as path_of
from worker.batch.blocks import one_chunk
from worker.decode.scanned_json import ScannedJson, json_decoder, together
from worker.transforms.rows import (
    ChainPlan,
    Mask,
    Rows,
    at_path,
    fields_of,
    put_at,
    type_at,
    valid,
    with_type_at,
)


class ParseJson:
    """``ParseJson``: parses texts that are objects; other texts are ambiguous.

    Args:
        options: of the transformation.

    Attributes:
        names: of the record's fields that are read and written.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._source = path_of(options["field"])
        self._target = path_of(options["target"]) if options["target"] else self._source
        self._decoder: ScannedJson | None = None
        self._is_alone = self._is_read = False
        self.names = (self._source[0], self._target[0])

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        first, *rest = self._target
        fields = fields_of(type_at(chain_plan.fields.get(first), rest))
        evolves = chain_plan.evolves
        self._decoder = json_decoder(fields, report_unexpected=evolves, keeps=evolves)
        source = self._source
        known = chain_plan.fields.get(source[0])
        is_replaced = self._target == source or (known is None and not evolves)
        self._is_alone = len(source) == 1 and is_replaced and bool(fields)
        chain_plan.fields[source[0]] = with_type_at(known, source[1:], pa.string())

    def read_before(self) -> ScannedJson | None:
        """Return what decodes the texts within the record's decoder, if no other field needs them.

        No earlier step may read or change the field. Where that decoder decoded the texts, the
        column is a struct.
        """
        self._is_read = self._is_alone
        return self._decoder if self._is_alone else None

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        rows.lose_schema()
        column = at_path(rows.columns, self._source, rows.count)
        held = valid(column)
        if not held.any():
            return
        is_deep = max(len(self._source), len(self._target)) > 1
        if self._is_read and pa.types.is_struct(column.type):
            values, ambiguous = rows.columns.pop(self._source[0]), np.zeros(rows.count, np.bool_)
        elif not pa.types.is_string(column.type) or (rows.had_schema and is_deep):
            rows.suspect(held)
            return
        else:
            parsed = self._parsed(column, held)
            if parsed is None:
                rows.suspect(held)
                return
            values, ambiguous = parsed
        if self._target != self._source:
            own = at_path(rows.columns, self._target, rows.count)
            ambiguous |= valid(own) & ~held  # it stays where there is no text
        rows.suspect(ambiguous)
        # without a text no value is put, and no struct is made on the way to it
        rows.suspect(put_at(rows.columns, self._target, values, rows.count, makes=is_deep))
        if is_deep:
            rows.suspect(~held)

    def _parsed(self, column: pa.Array, held: Mask) -> tuple[pa.Array, Mask] | None:
        """Return the parsed texts, and ambiguous rows; None where no text is read."""
        assert self._decoder is not None
        places = np.flatnonzero(held)
        is_all = len(places) == len(held)
        texts = (column if is_all else column.take(pa.array(places))).cast(pa.binary())
        table, good, unexpected = together(list(self._decoder.decode(texts)), len(texts))
        ambiguous = held.copy()
        ambiguous[places[good]] = False
        ambiguous[places[unexpected]] = True
        if not table.num_columns or not len(good):
            return None
        columns = [one_chunk(c) for c in table.columns]
        whole = pa.StructArray.from_arrays(columns, names=table.column_names)
        if is_all and np.array_equal(good, places):
            return whole, ambiguous
        index = np.full(len(held), -1, np.int64)
        index[places[good]] = np.arange(len(good))
        return whole.take(pa.array(index, mask=index < 0)), ambiguous
