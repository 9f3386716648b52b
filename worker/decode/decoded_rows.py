"""What of a block went into columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from worker.decode.json_cursor import Seen

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Columns:
    """The rows of a block that were decoded.

    Attributes:
        table: the fields of all tables, in decoded types.
        places: positions of its rows in the block; one that a transformation made into several
            stands there as often.
        unexpected: positions in the block of records that the reference must take; where they are
            decoded, too, they have fields no table has, or transformations are in doubt.
        unfit: tables that must be changed before they take these rows.
        dropped: positions in the block of records that transformations dropped; not in the table.
        topics: the rows' topics where transformations may have changed them.
        schema_name: of the rows' one schema; None where they have none, or it has no name.
        seen: see ``worker.decode.json_decoder.DecodedBlock``.
        is_whole: whether the one column is the value itself, which is no struct and no map.
    """

    table: pa.Table
    places: Rows
    unexpected: Rows
    unfit: frozenset[str] = frozenset()
    dropped: Rows | None = None
    topics: pa.Array | None = None
    schema_name: str | None = None
    seen: Seen | None = None
    is_whole: bool = False
