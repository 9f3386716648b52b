"""``InsertField`` by columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from connect.records.transforms.insert_field import insertions
from worker.transforms.rows import (
    ChainPlan,
    ColumnStep,
    Rows,
    valid,
)

_INSTANT: Final = pa.timestamp("ms", "UTC")


class Insert:
    """Inserts fields that do not come from the value."""

    def __init__(
        self,
        columns: Mapping[str, Callable[[Rows], pa.Array]],
        *,
        timed: bool,
        instants: frozenset[str] = frozenset(),
    ) -> None:
        self._made = columns
        self._is_timed = timed
        self._instants = instants

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        for name in self._made:
            chain_plan.fields.pop(name, None)

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        if rows.is_typed and not rows.columns.keys().isdisjoint(self._made):
            rows.suspect_all()  # two fields of one name
            return
        for name, make in self._made.items():
            column = make(rows)
            is_instant = rows.is_typed and name in self._instants
            rows.columns[name] = column.cast(_INSTANT) if is_instant else column
        if self._is_timed and not rows.is_typed:
            stamps = rows.origins.column("timestamp")
            if stamps.null_count:
                rows.suspect(~valid(stamps))


def constant(text: str | None) -> Callable[[Rows], pa.Array]:
    """Return what makes a column of one text."""
    return lambda rows: pa.repeat(pa.scalar(text, pa.string()), rows.count)


ORIGINS: Final[Mapping[str, Callable[[Rows], pa.Array]]] = {
    "topic": lambda rows: rows.current_topics,
    "partition": lambda rows: rows.origins.column("partition"),
    "offset": lambda rows: rows.origins.column("offset"),
    "timestamp": lambda rows: rows.origins.column("timestamp"),
}


def insert_field(options: Mapping[str, Any]) -> ColumnStep | None:
    """Return the step of ``InsertField``."""
    inserted_fields = insertions(options)
    columns = {
        each.name: ORIGINS.get(each.kind) or constant(options["static.value"])
        for each in inserted_fields
    }
    if len(columns) < len(inserted_fields):
        return None
    instants = frozenset(each.name for each in inserted_fields if each.kind == "timestamp")
    return Insert(columns, timed=bool(instants), instants=instants)
