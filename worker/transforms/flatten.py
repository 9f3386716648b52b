"""``Flatten`` by columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from worker.transforms.rows import (
    ChainPlan,
    ColumnStep,
    Fields,
    Mask,
    Rows,
    children,
    valid,
    want,
)

_NAMES_MAX: Final = 500


def flatten(options: Mapping[str, Any]) -> ColumnStep | None:
    """Return the step of ``Flatten``."""
    return _Flatten(options["delimiter"]) if options["delimiter"] else None


class _Flatten:
    """Makes fields of structs fields of the top level.

    A name with the delimiter may be the name of a field, or a path. All readings of the requested
    names are decoded. Where a record may hold two of them their order decides, so it is ambiguous.
    """

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter

    def plan(self, chain_plan: ChainPlan) -> None:
        chain_plan.reads_text = True
        readings = {name: list(self._readings(name)) for name in chain_plan.fields}
        if sum(map(len, readings.values())) > _NAMES_MAX:
            chain_plan.is_hopeless = True
            return
        fields: Fields = {}
        for name, kind in chain_plan.fields.items():
            # a struct leaves no field of its own name
            fields[name] = pa.struct([]) if pa.types.is_struct(kind) else kind
        for name, paths in readings.items():
            for path in paths:
                if len(path) > 1 and not pa.types.is_struct(chain_plan.fields[name]):
                    want(fields, path, chain_plan.fields[name])
        chain_plan.fields = fields

    def _readings(self, name: str) -> Iterator[tuple[str, ...]]:
        yield (name,)
        start = name.find(self._delimiter)
        while start >= 0:
            for rest in self._readings(name[start + len(self._delimiter) :]):
                yield (name[:start], *rest)
            start = name.find(self._delimiter, start + 1)

    def apply(self, rows: Rows) -> None:
        if rows.is_mixed and any(pa.types.is_nested(c.type) for c in rows.columns.values()):
            rows.suspect_all()
        rows.suspect(rows.origins.with_empty_names())  # no delimiter follows an empty name
        by_name: dict[str, list[tuple[tuple[str, ...], pa.Array]]] = {}
        for path, column in _leaves((), rows.columns):
            if pa.types.is_map(column.type):
                rows.suspect_all()  # refused in a schema, flattened without one
            name = path[0] if len(path) == 1 else self._delimiter.join(path)
            if "" in path:
                rows.suspect_all()
            by_name.setdefault(name, []).append((path, column))
        rows.columns = {name: self._one(rows, some) for name, some in by_name.items()}

    def _one(self, rows: Rows, some: list[tuple[tuple[str, ...], pa.Array]]) -> pa.Array:
        """Return a flat field from all fields that get its name."""
        if rows.is_typed:
            if len(some) > 1:
                rows.suspect_all()
            return some[0][1]
        some = sorted(some, key=lambda path_and_column: path_and_column[1].null_count)
        chosen = some[0][1]
        held = valid(chosen)
        for _, other in some[1:]:
            if other.null_count == rows.count:
                continue
            more = valid(other)
            rows.suspect(held & more)
            held |= more
            if other.type != chosen.type:
                rows.suspect(more)
            else:
                chosen = pc.coalesce(chosen, other)
        if len(some) > 1 and held.any():
            rows.suspect(self._nulls_of_others(rows, held, [path for path, _ in some]))
        return chosen

    def _nulls_of_others(self, rows: Rows, held: Mask, paths: list[tuple[str, ...]]) -> Mask:
        """Return rows that may hold a null under another reading of a name that has a value."""
        hidden = rows.origins.with_null(held & ~rows.ambiguous)
        if not hidden.any():
            return hidden
        there = []
        for path in paths:
            rest = hidden
            for part in path:
                rest = rows.origins.with_name(part, rest)
            there.append(rest)
        mask: Mask = np.sum(there, axis=0) > 1
        return mask


def _leaves(
    path: tuple[str, ...], columns: Mapping[str, pa.Array]
) -> Iterator[tuple[tuple[str, ...], pa.Array]]:
    for name, column in columns.items():
        if pa.types.is_struct(column.type):
            yield from _leaves((*path, name), children(column))
        else:
            yield (*path, name), column
