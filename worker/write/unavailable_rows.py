"""Rows with Debezium's placeholder in place of a value that the source did not send."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.records.unavailable_values import UNAVAILABLE

_KINDS: Final = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_large_string,
    pa.types.is_large_binary,
)


def unavailable_rows(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Return which values are the placeholder, or a list with it alone; None if there is none.

    Args:
        column: one chunk, of any type.
    """
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        alone = pc.equal(pc.list_value_length(column), 1)
        if not pc.any(alone).as_py():
            return None
        places = np.flatnonzero(pc.fill_null(alone, False).to_numpy(zero_copy_only=False))  # noqa: FBT003 - Arrow's
        inner = unavailable_rows(pc.list_flatten(column.take(pa.array(places))))
        if inner is None:
            return None
        rows = np.zeros(len(column), np.bool_)
        rows[places[inner]] = True
        return rows
    if not any(is_kind(column.type) for is_kind in _KINDS):
        return None
    equal = pc.equal(column, pa.scalar(UNAVAILABLE.encode()).cast(column.type))
    rows = pc.fill_null(equal, False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's
    return rows if rows.any() else None
