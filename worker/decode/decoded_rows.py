"""The rows of a block that were decoded into columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from worker.decode.json_cursor import Seen

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Columns:
    """Decoded rows of a block.

    Attributes:
        table: the fields of all tables, in decoded types.
        places: positions of its rows in the block; a record that a transformation made into several
            rows has its position several times.
        unexpected: positions in the block of records that the record path must take. If they are
            decoded, too, they have fields that no table has, or a transformation is ambiguous.
        unfit: tables that must be changed before they take these rows.
        dropped: positions in the block of records that transformations dropped; not in the table.
        topics: the rows' topics where transformations may have changed them.
        schema_name: of the rows' one schema; None where they have none, or it has no name.
        seen: see ``worker.decode.json_decoder.DecodedBlock``.
        missing: fields that no record of the rows has.
        nulls_are_missing: rows in which each null is a field that the record lacks; None where that
            is not known.
        tombstones: rows without a value, which have the fields of their key; None where there are
            none.
        is_whole: whether the only column is the value itself, which is no struct and no map.
    """

    table: pa.Table
    places: Rows
    unexpected: Rows
    unfit: frozenset[str] = frozenset()
    dropped: Rows | None = None
    topics: pa.Array | None = None
    schema_name: str | None = None
    seen: Seen | None = None
    missing: frozenset[str] = frozenset()
    nulls_are_missing: Mask | None = None
    is_whole: bool = False
    tombstones: Mask | None = None
