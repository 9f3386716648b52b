"""``ValueToKey`` by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker.transforms.message_keys import _made
from worker.transforms.rows import (
    ChainPlan,
    Rows,
    fields_of,
    want,
)


class ToKey:
    """Makes a key of fields of the value."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._names = tuple(dict.fromkeys(options["fields"]))

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        kind, chain_plan.key = chain_plan.key, None
        for name, inner in fields_of(kind).items():
            if name in self._names:
                want(chain_plan.fields, (name,), inner)

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        if rows.is_typed and not rows.columns.keys() >= set(self._names):
            rows.suspect_all()
        rows.key = _made(rows, is_typed=rows.is_typed, had_schema=rows.had_schema)
        rows.key.columns = {name: rows.column(name) for name in self._names}
