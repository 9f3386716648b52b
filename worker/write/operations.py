"""What the rows of a block do to the rows of their keys, by the values of the cdc field."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.config.connector import ConnectorConfig
from connect.records.row_operations import ChangeRules
from worker.batch.blocks import one_chunk

Mask = npt.NDArray[np.bool_]


class ColumnOperations:
    """Finds operations; asks the reference's rules once per distinct value.

    Args:
        config: the connector's.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._rules = ChangeRules(config)
        self.path = self._rules.path

    def of(self, table: pa.Table) -> tuple[npt.NDArray[np.int64], Mask | None]:
        """Return an ``Operation`` per decoded row, and a mask of rows the reference must judge."""
        if not self.path:
            plain = int(self._rules.meaning(None))
            return np.full(table.num_rows, plain, np.int64), None
        column = one_chunk(table.column(self.path[0]))
        for name in self.path[1:]:
            if not pa.types.is_struct(column.type):
                return self._only_nulls(column)
            column = pc.struct_field(column, [column.type.get_field_index(name)])
        if not (pa.types.is_string(column.type) or pa.types.is_boolean(column.type)):
            return self._only_nulls(column)
        encoded = column.dictionary_encode(null_encoding="encode")
        meanings = [int(self._rules.meaning(v)) for v in encoded.dictionary.to_pylist()]
        codes: Any = encoded.indices.to_numpy(zero_copy_only=False)
        return np.array(meanings, np.int64)[codes], None

    def _only_nulls(self, column: pa.Array) -> tuple[npt.NDArray[np.int64], Mask | None]:
        """Values whose text only the reference knows."""
        ambiguous: Mask = column.is_valid().to_numpy(zero_copy_only=False)
        return np.full(len(column), int(self._rules.meaning(None)), np.int64), ambiguous
