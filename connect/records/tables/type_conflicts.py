"""Values of a record that their columns do not take, and the columns that take them.

Rules of this file:
- A value is converted to its column where that is possible. Only other values move.
- A column of the table decides as a whole: a value inside a struct, list or map moves all of it.
- Columns of the key are never null, so their values stay errors. So do values of required columns
  that cannot become optional, and values for a column that the record fills itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, StringType

from connect.config.connector import ConnectorConfig
from connect.config.table_formats import DEAD_LETTER, FAIL, TEXT
from connect.errors import RecordError
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.conversion.named_values import has_meaning, of_items
from connect.records.conversion.row_converter import (
    Conflict,
    Conflicts,
    ConversionOptions,
    column_converter,
)
from connect.records.tables.folder_columns import folder_column_type
from connect.records.tables.schema_changes import Path, SchemaChanges
from connect.records.tables.schema_evolution import check_added
from connect.records.tables.table_creation import check_type
from connect.records.tables.type_inference import column_type, infer_type


def action_of(config: ConnectorConfig, table: str) -> str:
    """Return what to do with values that their columns of a table do not take."""
    action = config.table(table).type_conflict
    return action if action == FAIL or config.evolve_schema_enabled else DEAD_LETTER


@dataclass(slots=True)
class TypeConflicts:
    """The conflicts of one record with one table.

    Args:
        schema: of the table.
        config: of the connector.
        action: of ``action_of``, not ``dead-letter``.
        keys: names of the table's key columns.
        partition_names: of the table's partition fields.

    Attributes:
        columns: the columns whose values move, and where to; with ``fail``, nowhere.
        changes: what the table needs before it can take the values.
    """

    schema: Schema
    config: ConnectorConfig
    action: str
    keys: Collection[str]
    partition_names: Collection[str] = ()
    columns: dict[str, str] = field(default_factory=dict)
    changes: SchemaChanges = field(default_factory=lambda: SchemaChanges({}, {}))

    def settle(self, row: dict[str, Any], conflicts: Conflicts) -> None:
        """Move values to their columns.

        Args:
            row: a row with null in place of the values; gets the moved values of known columns.
            conflicts: the values.

        Raises:
            Unconvertible: a value has to stay an error.
            RecordError: the table cannot have the new columns.
        """
        fields = {self._folded(each.name): each for each in self.schema.fields}
        adds: dict[Path, IcebergType] = {}
        optionals: list[Path] = []
        for name, conflict in conflicts.items():
            column = fields[self._folded(name)]
            may_be_null = self.config.is_iceberg or not column.required
            if self._is_key(name) or not may_be_null:
                raise conflict.refusal
            if self.action == FAIL:
                self.columns[name] = ""
                continue
            if column.required:
                optionals.append((name,))
            kind = self._new_type(name, conflict)
            target = f"{name}__{_suffix(self.action, kind)}"
            known = fields.get(self._folded(target))
            moved = self._moved(conflict, kind if known is None else known.field_type)
            if known is None:
                adds[target,] = kind
            elif known.name in conflicts or row.get(known.name) is not None:
                raise conflict.refusal
            else:
                row[known.name] = moved
            self.columns[name] = target if known is None else known.name
        self.changes = SchemaChanges(adds, {}, tuple(optionals))
        check_added(self.schema, self.changes, self.config, self.partition_names)

    def _is_key(self, name: str) -> bool:
        names = map(self.schema.find_column_name, self.schema.identifier_field_ids)
        return name in self.keys or any(f"{each}.".startswith(f"{name}.") for each in names)

    def _folded(self, name: str) -> str:
        return name.lower() if self.config.schema_case_insensitive else name

    def _new_type(self, name: str, conflict: Conflict) -> IcebergType:
        if self.action == TEXT:
            return StringType()
        try:
            kind = (
                infer_type(conflict.value)
                if conflict.schema is None
                else column_type(conflict.schema, self.config)
            )
            if kind is None:
                raise conflict.refusal
            check_type(kind, case_insensitive=self.config.schema_case_insensitive, level=1)
            return kind if self.config.is_iceberg else folder_column_type(name, kind)
        except RecordError:
            raise conflict.refusal from None

    def _moved(self, conflict: Conflict, kind: IcebergType) -> Any:
        named = of_items(conflict.schema)
        options = ConversionOptions(
            timestamp_unit=self.config.timestamp_unit,
            case_insensitive=self.config.schema_case_insensitive,
            declared=named if has_meaning(named) else None,
        )
        try:
            return column_converter(kind, options)(conflict.value)
        except Unconvertible:
            raise conflict.refusal from None


def _suffix(action: str, kind: IcebergType) -> str:
    """Return the name of a type without its parameters: ``decimal`` for ``decimal(8, 2)``."""
    return TEXT if action == TEXT else str(kind).partition("(")[0].partition("<")[0]
