"""Steps that change some fields, each without the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from worker.convert.typed_columns import plain_numbers
from worker.transforms.rows import (
    ChainPlan,
    Mask,
    Rows,
)


class EachFieldStep:
    """Changes some fields, each without the others.

    Args:
        guesses: the type to decode each field as, by the type requested of it.
        change: changes a field, given its name and column; returns the ambiguous rows, too.
    """

    def __init__(
        self,
        guesses: Mapping[str, Callable[[pa.DataType | None], pa.DataType]],
        change: Callable[[str, pa.Array], tuple[pa.Array, Mask | None]],
    ) -> None:
        self._guesses = guesses
        self._change = change

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        for name, guess in self._guesses.items():
            chain_plan.fields[name] = guess(chain_plan.fields.get(name))

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        for name in self._guesses:
            if rows.is_typed and name not in rows.columns:
                continue
            column = rows.column(name)
            if rows.is_typed:
                column = _plain(column)
            rows.columns[name], ambiguous = self._change(name, column)
            rows.suspect(ambiguous)


def _plain(column: pa.Array) -> pa.Array:
    """Return whole numbers of a schema as those without a schema."""
    return column.cast(pa.int64()) if pa.types.is_int32(column.type) else plain_numbers(column)
