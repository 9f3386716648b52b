"""An Arrow table of a topic's records.

Rules of this file:
- Records are decoded twice: for the columns' types, and for their values. Values of Python would
  need several times the memory of a record's bytes.
- A record that cannot be decoded is left out and counted, with its coordinates.
- A field with the name of a record's own column, or of another field in other letters, gets a
  number: SQL names are case-insensitive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import IcebergType

from connect.errors import RecordError
from connect.model.records import ConnectSchema, KafkaRecord, Struct
from connect.operations.report.column_types import ColumnType, cell_count
from connect.operations.report.kept_records import ReportLimits
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.conversion.row_converter import ConversionOptions, column_converter
from connect.records.converters.converter import Converter
from connect.records.tables.type_inference import type_of

KEY: Final = "_key"
VALUE: Final = "_value"
OWN_COLUMNS: Final = (KEY, "_partition", "_offset", "_timestamp")
EXAMPLES_MAX: Final = 20
BATCH_ROWS: Final = 2_000
BATCH_CELLS: Final = 1_000_000
SCHEMAS_KEPT: Final = 256
_TIMESTAMP: Final = pa.timestamp("ms", "UTC")


@dataclass(slots=True)
class UnusableRecords:
    """Records that are not in a table of the report.

    Attributes:
        count: of all.
        examples: the first ones: coordinates and reason, without the content.
    """

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, record: KafkaRecord, reason: str) -> None:
        """Count a record."""
        self.count += 1
        if len(self.examples) < EXAMPLES_MAX:
            place = f"{record.topic}-{record.partition}@{record.offset}"
            self.examples.append(f"{place}: {reason}")


class _SideType:
    """The type of the keys or values of a topic: fields, or other values."""

    def __init__(self) -> None:
        self.kind = ColumnType()
        self._seen: dict[int, ConnectSchema] = {}

    def add(self, schema: ConnectSchema | None, value: Any) -> None:
        if value is None:
            return
        if schema is None:
            self.kind.add_value(value)
        elif self._seen.get(id(schema)) is not schema:
            self.kind.add_type(type_of(schema, force_optional=True))
            if len(self._seen) >= SCHEMAS_KEPT:
                self._seen.clear()
            self._seen[id(schema)] = schema  # kept, so that its id is not used again


class RecordTable:
    """Builds the table of one topic.

    Args:
        key: converter of keys.
        value: converter of values.
        options: conversion to columns.
        limits: of the report.
        unusable: counts records that cannot be decoded.
    """

    def __init__(
        self,
        key: Converter,
        value: Converter,
        options: ConversionOptions,
        limits: ReportLimits,
        unusable: UnusableRecords,
    ) -> None:
        self._converters = key, value
        self._options = options
        self._limits = limits
        self._unusable = unusable
        self._key = _SideType()
        self._fields = _SideType()
        self._value = _SideType()
        self._has_values = False

    def of(self, records: Sequence[KafkaRecord]) -> pa.Table:
        """Return the records as a table; those that cannot be decoded are counted.

        Raises:
            ReportTooLarge: the table needs too much memory, or has too many columns.
            RetriableError: the schema registry is unavailable.
        """
        usable = [record for record in records if self._add_types(record)]
        names = _unique([*OWN_COLUMNS, *([VALUE] if self._has_values else [])])
        fields = list(self._fields.kind.fields)
        unique = _unique([*names, *fields])[len(names) :]
        types: list[tuple[str, pa.DataType]] = [(KEY, _arrow(self._key.kind))]
        types += [
            (name, _arrow(self._fields.kind.fields[field_name]))
            for name, field_name in zip(unique, fields, strict=True)
        ]
        if self._has_values:
            types.append((VALUE, _arrow(self._value.kind)))
        types += [("_partition", pa.int32()), ("_offset", pa.int64()), ("_timestamp", _TIMESTAMP)]
        schema = pa.schema(types)
        rows = self._rows(usable, fields)
        rows_at_once = max(1, min(BATCH_ROWS, BATCH_CELLS // len(schema)))
        batches = []
        while batch := list(islice(rows, rows_at_once)):
            columns = zip(*batch, strict=True)
            arrays = [pa.array(c, t.type) for c, t in zip(columns, schema, strict=True)]
            batches.append(pa.record_batch(arrays, schema))
        return pa.Table.from_batches(batches, schema)

    def _decoded(self, record: KafkaRecord) -> list[tuple[ConnectSchema | None, Any]]:
        sides = zip(self._converters, (record.key, record.value), strict=True)
        return [c.to_connect(record.topic, record.headers, data) for c, data in sides]

    def _add_types(self, record: KafkaRecord) -> bool:
        """Widen the columns for a record; return whether it can be decoded."""
        try:
            key, value = self._decoded(record)
            self._key.add(*key)
            if _has_fields(*value):
                self._fields.add(*value)
            elif value[1] is not None:
                self._value.add(*value)
                self._has_values = True
        except RecordError as error:
            self._unusable.add(record, f"{error.stage}: {error.message}")
            return False
        return True

    def _rows(self, records: Sequence[KafkaRecord], fields: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the values of each record, in the order of the columns."""
        to_key = self._converter(self._key.kind.result())
        to_value = self._converter(self._value.kind.result())
        to_row = column_converter(self._fields.kind.struct(), self._options)
        key_cells = cell_count(self._key.kind.result())
        row_cells = cell_count(self._fields.kind.struct())
        value_cells = cell_count(self._value.kind.result())
        for record in records:
            try:
                (_, key), (schema, value) = self._decoded(record)
                is_row = _has_fields(schema, value)
                count = key_cells(key) + row_cells(value if is_row else None)
                if self._has_values:
                    count += value_cells(None if is_row else value)
                self._limits.add_cells(count + len(OWN_COLUMNS), record.topic)
                row = to_row(value) if is_row else {}
                cells = [to_key(key), *(row.get(name) for name in fields)]
                if self._has_values:
                    cells.append(None if is_row else to_value(value))
            except Unconvertible as error:
                where = f"column {'.'.join(error.path)}: " if error.path else ""
                self._unusable.add(record, f"{where}{error.message}")
            except RecordError as error:
                self._unusable.add(record, f"{error.stage}: {error.message}")
            except RecursionError:
                self._unusable.add(record, "the value is nested too deeply")
            else:
                yield [*cells, record.partition, record.offset, record.timestamp_ms]

    def _converter(self, kind: IcebergType) -> Any:
        convert = column_converter(kind, self._options)
        return lambda value: None if value is None else convert(value)


def _arrow(kind: ColumnType) -> pa.DataType:
    return schema_to_pyarrow(kind.result(), include_field_ids=False)


def _has_fields(schema: ConnectSchema | None, value: Any) -> bool:
    return type(value) is Struct or (schema is None and type(value) is dict)


def _unique(names: Sequence[str]) -> list[str]:
    """Return names that differ case-insensitively; later ones get a number."""
    taken: set[str] = set()
    unique = []
    for name in names:
        chosen, number = name, 0
        while chosen.lower() in taken:
            number += 1
            chosen = f"{name}_{number}"
        taken.add(chosen.lower())
        unique.append(chosen)
    return unique
