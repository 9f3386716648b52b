"""What a table knows about the rows of a data file: row ids, and rows that were deleted before.

Rules of this file:
- A row that a copy keeps has the row id and the sequence number that readers had for it. The value
  in the file counts; where it is null, the row inherits from the entry of its file.
- A file that was in the table before it got format version 3 may have no row ids yet. Its rows
  then have null in the copy, and get ids with the commit, as the rows of all other such files do.

Source:
    Iceberg specification, "Row Lineage", "Row Lineage for Upgraded Tables"; Iceberg 1.12.0
    ``MetadataColumns``, ``ParquetValueReaders``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from coordinator.row_deletes.limits import FORM, NotResolved

Mask = npt.NDArray[np.bool_]
WithIds = Callable[[pa.Schema], pa.Schema]
"""Adds the field ids to the schema of a file without any."""
_ROW_ID: Final = 2_147_483_540
_SEQUENCE_NUMBER: Final = 2_147_483_539
_NAMES: Final = {_ROW_ID: "_row_id", _SEQUENCE_NUMBER: "_last_updated_sequence_number"}
_FIELD_ID: Final = b"PARQUET:field_id"
_WINDOW_ROWS: Final = 2**20
"""Rows whose positions are in memory as numbers at a time."""


@dataclass(frozen=True, slots=True)
class RowLineage:
    """What the rows of a data file inherit.

    Attributes:
        first_row_id: row id of the first row; None before the table has row ids.
        sequence_number: data sequence number of the file.
    """

    first_row_id: int | None
    sequence_number: int


@dataclass(frozen=True, slots=True)
class RowState:
    """What a table knows about the rows of a data file.

    Attributes:
        lineage: that a copy keeps; None if rows have none, or get a new one.
        deleted: positions of rows that a deletion vector marks.
    """

    lineage: RowLineage | None = None
    deleted: BitMap64 | None = None

    def mark(self, mask: Mask, first: int) -> None:
        """Mark the rows that were deleted before.

        Args:
            mask: of consecutive rows; it is changed.
            first: position of the first one in the file.
        """
        if self.deleted is None:
            return
        end = first + len(mask)
        for start in range(first, end, _WINDOW_ROWS):
            window = BitMap64()
            window.add_range(start, min(start + _WINDOW_ROWS, end))
            positions = np.asarray((self.deleted & window).to_array(), np.int64)
            mask[positions - first] = True


UNKNOWN: Final = RowState()


def without_ids(_: pa.Schema) -> pa.Schema:
    """Refuse a file without field ids.

    Raises:
        NotResolved: always.
    """
    raise NotResolved(FORM, "a data file has no field ids, so its copy has no row ids")


def _places(schema: pa.Schema) -> dict[int, int]:
    """Return the place of each column by its field id."""
    return {
        int(field.metadata[_FIELD_ID]): place
        for place, field in enumerate(schema)
        if _FIELD_ID in (field.metadata or {})
    }


class LineageColumns:
    """The columns of a copy whose rows keep their row ids.

    Args:
        source: schema of the file that is copied.
        lineage: of its rows.
        with_ids: adds the field ids to a schema without any.

    Raises:
        NotResolved: the columns cannot be added to the file.
    """

    def __init__(
        self, source: pa.Schema, lineage: RowLineage, with_ids: WithIds = without_ids
    ) -> None:
        self._lineage = lineage
        places = _places(source)
        if not places:
            # with an id in some column, readers no longer find the others by their names
            source = with_ids(source)
            places = _places(source)
        self._places = {field_id: places.get(field_id) for field_id in _NAMES}
        self.schema = source
        for field_id, name in _NAMES.items():
            place = self._places[field_id]
            if place is None:
                if name in source.names:
                    raise NotResolved(FORM, f"a data file has another column {name}")
                field = pa.field(name, pa.int64(), metadata={_FIELD_ID: str(field_id)})
                self.schema = self.schema.append(field)
            elif source.field(place).type != pa.int64():
                raise NotResolved(FORM, f"column {name} of a data file has another type")

    def of(self, rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Return rows with their row ids and sequence numbers.

        Args:
            rows: of the file.
            first: position of the first one in the file.
        """
        stored = {
            field_id: None if place is None else rows.column(place)
            for field_id, place in self._places.items()
        }
        row_ids = _or_inherited(stored[_ROW_ID], self._row_ids(first, rows.num_rows))
        number = pa.scalar(self._lineage.sequence_number, pa.int64())
        numbers = _or_inherited(stored[_SEQUENCE_NUMBER], pa.repeat(number, rows.num_rows))
        columns = list(rows.columns)
        for field_id, column in ((_ROW_ID, row_ids), (_SEQUENCE_NUMBER, numbers)):
            place = self._places[field_id]
            if place is None:
                columns.append(column)
            else:
                columns[place] = column
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _row_ids(self, first: int, rows: int) -> pa.Array:
        if self._lineage.first_row_id is None:
            return pa.nulls(rows, pa.int64())
        start = self._lineage.first_row_id + first
        return pa.array(np.arange(start, start + rows, dtype=np.int64))


def _or_inherited(stored: pa.Array | None, inherited: pa.Array) -> pa.Array:
    return inherited if stored is None else pc.coalesce(stored, inherited)
