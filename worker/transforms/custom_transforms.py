"""Users' column functions as steps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from connect.records.transforms.column_function import ColumnApply
from worker.batch.blocks import one_chunk
from worker.transforms.rows import ChainPlan, Rows


class OwnColumns:
    """Applies a user's function to the rows that are not ambiguous.

    Args:
        apply: the function.
    """

    def __init__(self, apply: ColumnApply) -> None:
        self._apply = apply

    def plan(self, chain_plan: ChainPlan) -> None:
        """Request the fields that the function reads; fields that it writes are not decoded."""
        for name in self._apply.writes:
            chain_plan.fields.pop(name, None)
        chain_plan.fields.update(self._apply.reads)

    def apply(self, rows: Rows) -> None:
        """Apply the function; records with a schema and blocks of other types are ambiguous."""
        read = {name: rows.column(name) for name in self._apply.reads}
        read = {
            name: pa.nulls(rows.count, kind) if pa.types.is_null(read[name].type) else read[name]
            for name, kind in self._apply.reads.items()
        }
        fits = not rows.is_typed and all(
            read[name].type == kind for name, kind in self._apply.reads.items()
        )
        if not fits:
            rows.suspect(np.ones(rows.count, np.bool_))
            for name, kind in self._apply.writes.items():
                rows.columns[name] = pa.nulls(rows.count, kind)
            return
        places = np.flatnonzero(~(rows.ambiguous | rows.dropped))
        written, bad = self._apply.tried(pa.table(read).take(pa.array(places)))
        ambiguous = np.zeros(rows.count, np.bool_)
        ambiguous[places[bad]] = True
        rows.suspect(ambiguous)
        index = np.full(rows.count, -1, np.int64)
        index[places] = np.arange(len(places))
        chosen = pa.array(index, mask=index < 0)
        for name in self._apply.writes:
            rows.columns[name] = one_chunk(written.column(name)).take(chosen)
