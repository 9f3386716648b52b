"""``ReplaceField`` by columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connect.records.transforms.replace_field import renames_of
from worker.transforms.rows import (
    ChainPlan,
    Fields,
    Rows,
)


class Replace:
    """Drops and renames fields."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._exclude = frozenset(options["exclude"])
        self._include = frozenset(options["include"])
        self._renames = renames_of(options["renames"])

    def _source(self, name: str) -> str | None:
        olds = [old for old, new in self._renames.items() if new == name and self._keeps(old)]
        if olds:
            return olds[0]
        return name if self._keeps(name) and name not in self._renames else None

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        fields: Fields = {}
        for name, kind in chain_plan.fields.items():
            source = self._source(name)
            if source is not None:
                fields[source] = kind
        # a field takes the name of another: their order in the record decides
        kept = [new for old, new in self._renames.items() if self._keeps(old)]
        clashes = {new for new in kept if kept.count(new) > 1}
        clashes |= {new for new in kept if self._keeps(new) and new not in self._renames}
        chain_plan.shadowed |= clashes & chain_plan.fields.keys()
        chain_plan.fields = fields

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        kept = {name: column for name, column in rows.columns.items() if self._keeps(name)}
        rows.columns = {self._renames.get(name, name): column for name, column in kept.items()}
        if rows.is_typed and len(rows.columns) < len(kept):
            rows.suspect_all()  # two fields of one name
