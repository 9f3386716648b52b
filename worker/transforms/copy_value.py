"""``CopyValue`` by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from worker.transforms.rows import (
    ChainPlan,
    Rows,
)


class CopyFieldStep:
    """Copies a field to another one."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._source, self._target = options["source.field"], options["target.field"]

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        guess = chain_plan.fields.pop(self._target, pa.string())
        chain_plan.fields.setdefault(self._source, guess)

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        if rows.is_typed and (self._source not in rows.columns or self._target in rows.columns):
            rows.suspect_all()
        rows.columns[self._target] = rows.column(self._source)
