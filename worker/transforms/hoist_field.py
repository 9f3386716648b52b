"""``HoistField`` by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker.transforms.rows import (
    ChainPlan,
    Rows,
    fields_of,
    is_struct,
    struct_of,
)


class Hoist:
    """Puts the whole value into one field."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._name = options["field"]

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        kind = chain_plan.fields.get(self._name)
        chain_plan.fields, chain_plan.whole = fields_of(kind), None if is_struct(kind) else kind

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        column = rows.whole
        if column is None:
            column = struct_of(rows.columns, rows.count, rows.absent)
        rows.columns, rows.whole, rows.absent = {self._name: column}, None, None
