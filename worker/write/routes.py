"""Routes of the rows of a block to tables, by the distinct values of the route field."""

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
from connect.model.records import ConnectSchema, SinkRecord
from connect.records.table_names import NameTemplate

Route = Callable[[SinkRecord], tuple[str, ...]]
Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

AMBIGUOUS: Final = None
_KEPT_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Routed:
    """The tables of the rows of a block.

    Attributes:
        codes: per row the index of its target; None when all rows have target 0.
        targets: tables of a code; None where the record path must route or refuse the row.
    """

    codes: Codes | None
    targets: tuple[tuple[str, ...] | None, ...]


class ColumnRouter:
    """Routes blocks; routes one record per distinct value.

    Args:
        config: the connector's.
        route: the record path's answer for a record.
    """

    def __init__(self, config: ConnectorConfig, route: Route) -> None:
        self.paths, self.uses_topic, self.uses_schema = _inputs(config)
        self._route = route
        self._known: dict[Any, tuple[str, ...] | None] = {}

    def route(
        self, table: pa.Table, topics: pa.Array | None = None, schema_name: str | None = None
    ) -> Routed:
        """Route decoded rows.

        Args:
            table: the rows.
            topics: their topics, where they count.
            schema_name: of the schema that they all have.
        """
        schema = schema_name if self.uses_schema else None
        if not self.paths and not self.uses_topic:
            return Routed(None, (self._target(None, (), schema),))
        columns: list[pa.Array] = [] if topics is None else [topics]
        ambiguous: npt.NDArray[np.bool_] | None = None
        for path in self.paths:
            column, more = _leaf(table, path)
            columns.append(column)
            ambiguous = (
                more if ambiguous is None else ambiguous if more is None else ambiguous | more
            )
        codes, values = _distinct(columns)
        targets = [self._target(*self._reported(row), schema) for row in values]
        if ambiguous is not None and ambiguous.any():
            codes = np.where(ambiguous, len(targets), codes)
            targets.append(AMBIGUOUS)
        return _merged(codes, targets)

    def _reported(self, row: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        return (row[0], row[1:]) if self.uses_topic else (None, row)

    def _target(
        self, topic: Any, values: tuple[Any, ...], schema: str | None
    ) -> tuple[str, ...] | None:
        key = (schema, topic, *((type(value), value) for value in values))
        if key not in self._known:
            if len(self._known) >= _KEPT_MAX:
                self._known.clear()
            record_value: dict[str, Any] = {}
            for path, value in zip(self.paths, values, strict=False):
                _put(record_value, path, value)
            named = None if schema is None else ConnectSchema("struct", name=schema)
            try:
                self._known[key] = self._route(
                    SinkRecord(topic or "", 0, 0, None, value=record_value, value_schema=named)
                )
            except RecordError:
                self._known[key] = AMBIGUOUS
        return self._known[key]


def _inputs(config: ConnectorConfig) -> tuple[tuple[tuple[str, ...], ...], bool, bool]:
    """Return the fields that decide about tables, and whether topics and schemas do."""
    if config.names_tables_by_record and not config.dynamic_enabled:
        if not config.name_template:
            return (), True, False
        template = NameTemplate(config.name_template, config.topics_regex)
        uses_topic = bool(config.topic_tables) or template.uses_topic
        return template.fields, uses_topic, template.uses_schema
    return ((tuple(config.route_field.split(".")),) if config.route_field else ()), False, False


def _leaf(table: pa.Table, path: tuple[str, ...]) -> tuple[pa.Array, Mask | None]:
    """Return the column at a path, and the ambiguous rows."""
    column = table.column(path[0]).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    for name in path[1:]:
        if not pa.types.is_struct(column.type):
            return _unknown(column)
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return _unknown(column)
    return column, None


def _unknown(column: pa.Array) -> tuple[pa.Array, Mask]:
    valid: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return pa.nulls(len(column), pa.string()), valid


def _distinct(columns: list[pa.Array]) -> tuple[Codes, list[tuple[Any, ...]]]:
    """Return each row's number of its combination of values, and the combinations."""
    codes: Codes | None = None
    values: list[tuple[Any, ...]] = [()]
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        dictionary = encoded.dictionary.to_pylist()
        if codes is None:
            codes, values = own, [(value,) for value in dictionary]
            continue
        both, codes = np.unique(codes * len(dictionary) + own, return_inverse=True)
        values = [
            (*values[i // len(dictionary)], dictionary[i % len(dictionary)]) for i in both.tolist()
        ]
    assert codes is not None
    return codes, values


def _put(value: dict[str, Any], path: tuple[str, ...], leaf: Any) -> None:
    if leaf is None:
        return
    for name in path[:-1]:
        value = value.setdefault(name, {})
    value[path[-1]] = leaf


def _merged(codes: Codes, targets: list[tuple[str, ...] | None]) -> Routed:
    """Give values with one target one code, so that the rows of a table are sliced once."""
    index: dict[tuple[str, ...] | None, int] = {}
    places = np.array([index.setdefault(target, len(index)) for target in targets], np.int64)
    merged = tuple(index)
    if len(merged) <= 1:
        return Routed(None, merged or ((),))
    return Routed(places[codes], merged)
