"""``ExtractField`` by columns, of values and of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from connect.records.transforms.field_path import steps_of
from worker.transforms.rows import (
    ChainPlan,
    Rows,
    child,
    children,
    nested_type,
    valid,
)


class Extract:
    """Replaces the value by a struct's fields."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._path = steps_of(options["field"], options["field.syntax.version"])

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        kind = pa.struct(list(chain_plan.fields.items()))
        for name in reversed(self._path[1:]):
            kind = pa.struct([(name, kind)])
        chain_plan.fields = {self._path[0]: kind}

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        column = rows.column(self._path[0])
        for name in self._path[1:]:
            column = child(column, name)
        if rows.is_mixed:
            rows.suspect_all()
        if not pa.types.is_struct(column.type):
            rows.columns = {}
            rows.suspect_all()
            return
        rows.columns = children(column)
        if column.null_count:
            rows.suspect(~valid(column))


class ExtractKey:
    """Replaces the key by one of its fields."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._path = steps_of(options["field"], options["field.syntax.version"])

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        leaf, chain_plan.fields = chain_plan.whole, {}
        if leaf is not None or len(self._path) > 1:
            leaf = pa.string() if leaf is None else leaf
            chain_plan.fields = {self._path[0]: nested_type(self._path, leaf)}

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        column = rows.column(self._path[0])
        for name in self._path[1:]:
            column = child(column, name)
        if rows.is_mixed or (rows.is_typed and pa.types.is_null(column.type)):
            rows.suspect_all()  # refused, where the schema has no such field
        rows.columns, rows.whole = {}, column
