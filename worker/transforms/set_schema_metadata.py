"""``SetSchemaMetadata`` by columns."""

from __future__ import annotations

from worker.transforms.rows import (
    ChainPlan,
    Rows,
)


class Metadata:
    """Changes name or version of a schema, which no column holds."""

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        del chain_plan

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        if not rows.is_typed:
            rows.suspect_all()
