"""The keys that a round deletes, and the rows that have one of them.

Rules of this file:
- Null equals null, as in Iceberg's equality deletes.
- The steps of a round are numbered. A delete reaches the rows of earlier steps only; the rows of
  the table are earlier than all steps.
- All work is done by columns.

Source:
    Iceberg specification, "Equality Delete Files".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Steps = npt.NDArray[np.int64]
NEVER: Final = -1
"""The step of a key that no delete has."""
IN_TABLE: Final = -1
"""The step of rows that the table holds already."""
_TRANSFORMED_MAX: Final = 10_000


class DeletedKeys:
    """Keys of the same columns, with the last step that deletes each.

    Args:
        parts: the keys of each delete file by column, and its step; at least one.
    """

    def __init__(self, parts: Sequence[tuple[int, Sequence[pa.Array]]]) -> None:
        columns = [
            pa.concat_arrays([part[at] for _, part in parts]) for at in range(len(parts[0][1]))
        ]
        steps = np.concatenate([np.full(len(part[0]), step, np.int64) for step, part in parts])
        self._values = [column.unique() for column in columns]
        self._levels: list[Steps] = []
        self._ordered: dict[int, _Ordered] = {}
        self._transformed: dict[tuple[int, str], frozenset[Any] | None] = {}
        self._sorted: dict[tuple[int, str], list[Any]] = {}
        codes = _codes(columns[0], self._values[0])
        size = len(self._values[0])
        for column, values in zip(columns[1:], self._values[1:], strict=True):
            known, codes = np.unique(
                codes * len(values) + _codes(column, values), return_inverse=True
            )
            self._levels.append(known)
            size = len(known)
        self._last = np.full(size, NEVER, np.int64)
        np.maximum.at(self._last, codes, steps)

    def last_steps(self, columns: Sequence[pa.Array]) -> Steps:
        """Return the last step that deletes each row; ``NEVER`` where none does.

        Args:
            columns: the rows' key columns, in the types of the keys.
        """
        if not len(self._last):
            return np.full(len(columns[0]), NEVER, np.int64)
        codes = _codes(columns[0], self._values[0])
        for column, values, known in zip(columns[1:], self._values[1:], self._levels, strict=True):
            more = _codes(column, values)
            combined = codes * len(values) + more
            at = np.searchsorted(known, combined)
            at[at == len(known)] = 0
            codes = np.where((codes >= 0) & (more >= 0) & (known[at] == combined), at, NEVER)
        return np.where(codes >= 0, self._last[codes], NEVER)

    @cached_property
    def last_step(self) -> int:
        """Return the last step of any key."""
        return int(self._last.max(initial=NEVER))

    def has_null(self, at: int) -> bool:
        """Return whether a key has null in a column."""
        return int(self._values[at].null_count) > 0

    def has_between(self, at: int, low: Any, high: Any) -> bool:
        """Return whether a key has a value within bounds in a column.

        Args:
            at: place of the column.
            low: in Iceberg's internal form.
            high: as ``low``.
        """
        if at not in self._ordered:
            self._ordered[at] = _Ordered(self._values[at])
        ordered = self._ordered[at]
        first: int = bisect_left(ordered, low)
        is_within: bool = first < len(ordered) and ordered[first] <= high
        return is_within

    def transformed(
        self, at: int, name: str, transform: Callable[[Any], Any]
    ) -> frozenset[Any] | None:
        """Return the results of a partition transform over a column; None for too many keys.

        Args:
            at: place of the column.
            name: of the transform.
            transform: takes and returns values in Iceberg's internal form.
        """
        if (at, name) not in self._transformed:
            values = self._values[at]
            self._transformed[at, name] = (
                None
                if len(values) > _TRANSFORMED_MAX
                else frozenset(map(transform, internal(values).to_pylist()))
            )
        return self._transformed[at, name]

    def may_be_between(
        self, at: int, name: str, transform: Callable[[Any], Any], low: Any, high: Any
    ) -> bool:
        """Return whether a result of a partition transform may be within bounds.

        Args:
            at: place of the column.
            name: of the transform.
            transform: as for ``transformed``.
            low: in Iceberg's internal form.
            high: as ``low``.
        """
        results = self.transformed(at, name, transform)
        if results is None:
            return True
        if (at, name) not in self._sorted:
            self._sorted[at, name] = sorted(value for value in results if value is not None)
        ordered = self._sorted[at, name]
        first = bisect_left(ordered, low)
        return first < len(ordered) and bool(ordered[first] <= high)


class _Ordered(Sequence[Any]):
    """The values of a column, sorted, without null; a value is made when it is asked for."""

    def __init__(self, values: pa.Array) -> None:
        plain = internal(values.drop_null())
        self._values = plain.take(pc.sort_indices(plain))

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, at: Any) -> Any:
        return self._values[at].as_py()


def internal(values: pa.Array) -> pa.Array:
    """Return dates, times and timestamps as Iceberg's numbers; other values as they are."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return values.cast(pa.int64())
    return values


def _codes(column: pa.Array, values: pa.Array) -> Steps:
    """Return the place of each value among ``values``; -1 where it is none of them."""
    places = pc.index_in(column, value_set=values)
    codes: Steps = places.fill_null(NEVER).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
