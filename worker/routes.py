"""Which tables the rows of a block go to, by the distinct values of the route field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.records import SinkRecord

Route = Callable[[SinkRecord], tuple[str, ...]]
Codes = npt.NDArray[np.int64]

DOUBTFUL: Final = None
_KEPT_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Routed:
    """Where the rows of a block go.

    Attributes:
        codes: per row the index of its target; None when all rows have target 0.
        targets: tables of a code; None where the reference must route (and perhaps refuse) the
            row.
    """

    codes: Codes | None
    targets: tuple[tuple[str, ...] | None, ...]


class ColumnRouter:
    """Routes blocks; asks the reference once per distinct value.

    Args:
        config: the connector's.
        route: the reference's answer for a record.
    """

    def __init__(self, config: ConnectorConfig, route: Route) -> None:
        self.path = tuple(config.route_field.split(".")) if config.route_field else ()
        self._is_constant = not config.dynamic_enabled and not self.path
        self._route = route
        self._known: dict[Any, tuple[str, ...] | None] = {}

    def route(self, table: pa.Table) -> Routed:
        """Route decoded rows."""
        if self._is_constant:
            return Routed(None, (self._target(None),))
        column = table.column(self.path[0]).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for name in self.path[1:]:
            if not pa.types.is_struct(column.type):
                return self._only_nulls(column)
            column = pc.struct_field(column, [column.type.get_field_index(name)])
        kind = column.type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            return self._only_nulls(column)
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return _merged(codes, [self._target(value) for value in encoded.dictionary.to_pylist()])

    def _only_nulls(self, column: pa.Array) -> Routed:
        """Values whose text only the reference knows."""
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return Routed(valid.astype(np.int64), (self._target(None), DOUBTFUL))

    def _target(self, value: Any) -> tuple[str, ...] | None:
        key = (type(value), value)
        if key not in self._known:
            if len(self._known) >= _KEPT_MAX:
                self._known.clear()
            nested = value
            for name in reversed(self.path):
                nested = {name: nested}
            try:
                self._known[key] = self._route(
                    SinkRecord("", 0, 0, None, value={} if nested is None else nested)
                )
            except RecordError:
                self._known[key] = DOUBTFUL
        return self._known[key]


def _merged(codes: Codes, targets: list[tuple[str, ...] | None]) -> Routed:
    """Give values with one target one code, so that a table's rows are cut out once."""
    index: dict[tuple[str, ...] | None, int] = {}
    places = np.array([index.setdefault(target, len(index)) for target in targets], np.int64)
    merged = tuple(index)
    if len(merged) <= 1:
        return Routed(None, merged or ((),))
    return Routed(places[codes], merged)
