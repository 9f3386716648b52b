"""``HeaderFrom`` by columns, and transformations of headers only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker.transforms.rows import (
    ChainPlan,
    Rows,
)


class NoColumnStep:
    """A transformation of headers, which changes no column."""

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        del chain_plan

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        del rows


class ToHeaders:
    """Moves or copies fields to headers, which no column holds: the fields are dropped or stay."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._names = frozenset(options["fields"])
        self._moved = self._names if options["operation"] == "move" else frozenset()

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        chain_plan.fields = {
            n: kind for n, kind in chain_plan.fields.items() if n not in self._moved
        }

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        if rows.is_typed and not rows.columns.keys() >= self._names:
            rows.suspect_all()
        rows.columns = {n: column for n, column in rows.columns.items() if n not in self._moved}
