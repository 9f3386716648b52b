"""The keys that a round deletes, and the rows that have one of them.

Rules of this file:
- Null equals null, as in Iceberg's equality deletes.
- The steps of a round are numbered. A delete reaches the rows of earlier steps only; the rows of
  the table are earlier than all steps.
- All work is done by columns.
- Bounds and partitions exclude a file only if it certainly has no key. ``may_be_in`` decides that
  for files and manifests of every format.

Source:
    Iceberg specification, "Equality Delete Files".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

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
        self._ordered: dict[tuple[int, str], Sequence[Any] | None] = {}
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

    def may_be_in(self, at: int, known: KnownValues, result: KeyResult | None = None) -> bool:
        """Return whether a key may be in a file, or a manifest, by one column: yes unless excluded.

        Args:
            at: place of the column.
            known: of the values there, or of the results of a partition transform over them.
            result: of that transform; None for the values themselves.
        """
        if known.may_be_null and self._values[at].null_count:
            return True
        if known.is_null:
            return False
        if known.low is None or known.high is None:
            return True
        ordered = self._in_order(at, result)
        if ordered is None:
            return True
        first: int = bisect_left(ordered, known.low)
        is_within: bool = first < len(ordered) and ordered[first] <= known.high
        return is_within

    def _in_order(self, at: int, result: KeyResult | None) -> Sequence[Any] | None:
        """The values of a column, or what a transform returns for them; None if it is not known."""
        name = "" if result is None else result.name
        if (at, name) not in self._ordered:
            values = self._values[at].drop_null()
            ordered: Sequence[Any] | None = None
            if result is None:
                ordered = _Ordered(values)
            elif len(values) <= _TRANSFORMED_MAX:
                keys = internal(values).to_pylist()
                results = set(map(result.of, keys))
                ordered = None if None in results else sorted(results)
            self._ordered[at, name] = ordered
        return self._ordered[at, name]


class KnownValues(NamedTuple):
    """What is known of the values of one column in a file, or in the files of a manifest.

    Attributes:
        low: no value is less, in Iceberg's internal form; None where that is not known.
        high: no value is greater; None where that is not known.
        may_be_null: whether a value may be null.
        is_null: whether all values are null.
    """

    low: Any = None
    high: Any = None
    may_be_null: bool = True
    is_null: bool = False


class KeyResult(NamedTuple):
    """A partition transform.

    Attributes:
        name: with its parameters.
        of: returns the result for a value in Iceberg's internal form; None where writers differ.
    """

    name: str
    of: Callable[[Any], Any]


class _Ordered(Sequence[Any]):
    """Values without null, sorted; a value is made when it is asked for."""

    def __init__(self, values: pa.Array) -> None:
        plain = internal(values)
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
