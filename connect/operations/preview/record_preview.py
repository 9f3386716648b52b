"""Runs records through a connector's converters, transformations, routes and conversion.

Rules of this file:
- Nothing is written: no file, no table, no offset, no dead letter.
- Tables are created and widened in memory only, in the order in which a task does it: all records
  are read first, tables get their schemas, then every record is converted with the final schema.
- A rejected record does not stop the preview; its outcome says what a task would do with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from connect.config.connector import ConnectorConfig
from connect.config.table_formats import DEAD_LETTER as DEAD_LETTER_ACTION
from connect.config.table_formats import FAIL
from connect.errors import ConfigError, RecordError
from connect.model.records import KafkaRecord, SinkRecord
from connect.model.table_types import arrow_schema
from connect.records.conversion.row_converter import NAME_MAPPING_PROPERTY
from connect.records.record_path import ReferencePath
from connect.records.routing import UNMATCHED, WITHOUT_TABLE
from connect.records.row_operations import (
    KEYLESS_CHANGE,
    ChangeRules,
    Keyless,
    Operation,
    key_columns,
    message_key_names,
)
from connect.records.tables.schema_changes import SchemaChanges, apply_changes, merge
from connect.records.tables.schema_evolution import changes, partition_names
from connect.records.tables.table_creation import table_for
from connect.records.tables.type_conflicts import TypeConflicts, action_of

SCHEMA_ROUNDS_MAX: Final = 10
_SQL: Final = "Sql"

WRITTEN: Final = "written"
DROPPED: Final = "dropped"
DEAD_LETTER: Final = "dead letter"
TASK_FAILS: Final = "task fails"

_Position: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """One row that a record gives.

    Attributes:
        table: name of the table.
        operation: ``insert``; in a connector of row-level changes ``update`` or ``delete`` too,
            and ``append`` for a row without key.
        values: column name -> Python value of the column's Arrow type; of a delete the key only.
    """

    table: str
    operation: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a record cannot be handled.

    Attributes:
        stage: Kafka Connect's stage name, or ``ROUTE``.
        code: code of the error.
        message: the error without the record's content.
        transform: alias of the transformation that raised it.
        column: path of the column that does not take the value.
    """

    stage: str
    code: str
    message: str
    transform: str | None = None
    column: str | None = None


@dataclass(frozen=True, slots=True)
class RecordPreview:
    """What a task would do with one record.

    Attributes:
        record: as the broker delivered it.
        outcome: ``written``, ``dropped``, ``dead letter`` or ``task fails``.
        rows: the rows it gives; none unless it is written.
        rejection: set for ``dead letter`` and ``task fails``, and for an unmatched record that
            ``iceberg.tables.unmatched`` drops.
    """

    record: KafkaRecord
    outcome: str
    rows: tuple[PreviewRow, ...] = ()
    rejection: Rejection | None = None


@dataclass(slots=True)
class TablePreview:
    """A table as the records would leave it.

    Attributes:
        name: of the table.
        exists: False for a table that the connector would create.
        schema: with all changes.
        spec: partitioning.
        before: the schema in the catalog; None for a new table.
        location: of a new table, where the configuration names one.
        properties: table properties.
        last_column_id: highest field id in use.
        partition_names: of the fields of all partition specs.
    """

    name: str
    exists: bool
    schema: Schema
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    before: Schema | None = None
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    last_column_id: int = 0
    partition_names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, name: str, table: Table) -> TablePreview:
        """A table that exists."""
        return cls(
            name=name,
            exists=True,
            schema=table.schema(),
            spec=table.spec(),
            before=table.schema(),
            location=table.location(),
            properties=table.properties,
            last_column_id=table.metadata.last_column_id,
            partition_names=partition_names(table),
        )


@dataclass(frozen=True, slots=True)
class Preview:
    """The records and the tables.

    Attributes:
        records: in the order given.
        tables: by name, those that rows go to or that would be created.
    """

    records: tuple[RecordPreview, ...]
    tables: Mapping[str, TablePreview]


def preview(
    config: ConnectorConfig,
    records: Sequence[KafkaRecord],
    load: Callable[[str], Table | None],
) -> Preview:
    """Return what a task of the connector would make of records.

    Args:
        config: the connector, placeholders resolved.
        records: in the order of reading.
        load: a table by name; None when it does not exist.

    Raises:
        ConfigError: a converter, transformation or route cannot be built; a ``Sql``
            transformation, which only Spark runs.
    """
    if any(each.class_name.rpartition(".")[2] == _SQL for each in config.transforms):
        raise ConfigError(
            "the preview cannot run the transformation Sql, which needs Spark; remove it from a "
            "copy of the configuration to see the records that it reads",
            connector=config.name,
        )
    return _RecordPreviews(config, load).run(records)


class _RecordPreviews:
    """One preview; see ``preview``."""

    def __init__(self, config: ConnectorConfig, load: Callable[[str], Table | None]) -> None:
        self._config = config
        self._load = load
        self._path = ReferencePath(config)
        self._rules = ChangeRules(config)
        self._tables: dict[str, TablePreview] = {}
        self._missing: set[str] = set()
        self._failures: dict[str, RecordError] = {}
        self._converted: dict[_Position, tuple[SinkRecord, ...] | RecordError] = {}

    def run(self, records: Sequence[KafkaRecord]) -> Preview:
        for record in records:
            self._find_tables(record)
        if self._config.evolve_schema_enabled:
            for _ in range(SCHEMA_ROUNDS_MAX):
                if not self._widen(records):
                    break
        previews = tuple(self._preview_of(record) for record in records)
        used = {row.table for each in previews for row in each.rows}
        tables = {
            name: table
            for name, table in sorted(self._tables.items())
            if name in used or not table.exists
        }
        return Preview(previews, tables)

    # ------------------------------------------------------------ tables

    def _find_tables(self, record: KafkaRecord) -> None:
        """Load or create the tables that a record names; its errors are reported later."""
        try:
            for converted in self._read(record):
                for name in self._path.route(converted):
                    self._find_table(name, converted)
        except RecordError:
            return

    def _find_table(self, name: str, record: SinkRecord) -> None:
        if name in self._tables:
            return
        if name not in self._missing:
            table = self._load(name)
            if table is not None:
                self._tables[name] = TablePreview.of(name, table)
                return
            self._missing.add(name)
        if self._config.auto_create_enabled and record.value is not None:
            new = table_for(name, record, self._config)
            self._tables[name] = TablePreview(
                name=name,
                exists=False,
                schema=new.schema,
                spec=new.spec,
                partition_names=frozenset(field.name for field in new.spec.fields),
                location=new.location,
                properties=new.properties,
                last_column_id=new.schema.highest_field_id,
            )

    def _widen(self, records: Sequence[KafkaRecord]) -> bool:
        """Make the changes that the records ask for; whether there were any."""
        changes_by_table: dict[str, list[SchemaChanges]] = {}
        for record in records:
            try:
                for name, converted in self._routed(record):
                    table = self._tables.get(name)
                    if table is not None and self._adds(table, converted, record):
                        mapping = table.properties.get(NAME_MAPPING_PROPERTY)
                        if schema_changes := changes(
                            table.schema,
                            converted,
                            self._config,
                            mapping,
                            table.partition_names,
                            table_name=name,
                        ) or self._moves(table, converted, record):
                            changes_by_table.setdefault(name, []).append(schema_changes)
            except RecordError:
                continue
        is_changed = False
        for name, of_table in changes_by_table.items():
            table = self._tables[name]
            try:
                merged = merge(*of_table, config=self._config)
            except RecordError as error:
                self._failures[name] = error
                continue
            schema, last_id = apply_changes(table.schema, merged, table.last_column_id)
            if schema.as_struct() != table.schema.as_struct():
                table.schema, table.last_column_id = schema, last_id
                is_changed = True
        return is_changed

    # ------------------------------------------------------------ records

    def _preview_of(self, record: KafkaRecord) -> RecordPreview:
        try:
            is_routed = False
            rows = []
            for name, converted in self._routed(record):
                is_routed = True
                rows.append(self._row(name, converted, record))
        except RecordError as error:
            return self._rejected(record, error)
        return RecordPreview(record, WRITTEN if is_routed else DROPPED, tuple(rows))

    def _rejected(self, record: KafkaRecord, error: RecordError) -> RecordPreview:
        if error.code in WITHOUT_TABLE:
            outcomes = {"drop": DROPPED, "dead-letter": DEAD_LETTER}
            outcome = outcomes.get(self._config.unmatched, TASK_FAILS)
        else:
            is_kept = error.code == KEYLESS_CHANGE and self._config.keeps_keyless_changes
            outcome = DEAD_LETTER if is_kept or self._config.errors.tolerance_all else TASK_FAILS
        at = error.coordinates
        return RecordPreview(
            record,
            outcome,
            rejection=Rejection(
                error.stage, error.code, error.message, at.get("transform"), at.get("column")
            ),
        )

    def _routed(self, record: KafkaRecord) -> list[tuple[str, SinkRecord]]:
        routed = []
        for converted in self._read(record):
            for name in self._path.route(converted):
                is_delete_of_nothing = converted.value is None and name not in self._tables
                if not is_delete_of_nothing:
                    routed.append((name, converted))
        return routed

    def _read(self, record: KafkaRecord) -> tuple[SinkRecord, ...]:
        """Return the converted record; every pass needs it, and it is converted once."""
        position = (record.topic, record.partition, record.offset)
        if position not in self._converted:
            try:
                self._converted[position] = self._path.read(record)
            except RecordError as error:
                self._converted[position] = error
        converted = self._converted[position]
        if isinstance(converted, RecordError):
            raise converted
        return converted

    def _adds(self, table: TablePreview, record: SinkRecord, source: KafkaRecord) -> bool:
        return self._operation(table, record, source) is not Operation.DELETE

    def _operation(self, table: TablePreview, record: SinkRecord, source: KafkaRecord) -> Operation:
        """Return the operation of a record, which was made of a source record, on a table."""
        if not self._config.is_row_level:
            return Operation.INSERT
        operation = self._rules.operation(record)
        if record.key is None and source.key is None and not self._key_names(table):
            operation = Keyless.of(self._config.table(table.name)).operation(operation)
        return operation

    def _row(self, name: str, record: SinkRecord, source: KafkaRecord) -> PreviewRow:
        table = self._tables.get(name)
        if table is None:
            if self._config.auto_create_enabled:
                table_for(name, record, self._config)  # says why the table cannot be created
            raise RecordError("the table does not exist", stage="ROUTE", code=UNMATCHED, table=name)
        if (failure := self._failures.get(name)) is not None:
            raise failure
        operation = self._operation(table, record, source)
        schema = table.schema
        mapping = table.properties.get(NAME_MAPPING_PROPERTY)
        if self._config.evolve_schema_enabled and operation is not Operation.DELETE:
            # refuses names that no column can have
            names = table.partition_names
            changes(schema, record, self._config, mapping, names, table_name=name)
        if self._config.is_row_level and operation is not Operation.APPEND:
            key_schema = self._key_schema(table, record)
            if operation is Operation.DELETE:
                key = self._path.key_row(record, key_schema, mapping)
                return PreviewRow(name, "delete", _typed(key, key_schema))
        has_key = operation is not Operation.APPEND
        conflicts = self._conflicts(table, record, has_key=has_key)
        settle = None if conflicts is None else conflicts.settle
        values = self._path.row(record, schema, mapping, settle)
        if conflicts is not None and conflicts.action == FAIL and conflicts.columns:
            raise RecordError(
                "the table fails, because it does not take the value's type",
                code="type_conflict",
                column=next(iter(conflicts.columns)),
            )
        if operation is Operation.INSERT and self._config.upsert_enabled:
            operation = Operation.UPDATE
        return PreviewRow(name, operation.name.lower(), _typed(values, schema))

    def _moves(
        self, table: TablePreview, record: SinkRecord, source: KafkaRecord
    ) -> SchemaChanges | None:
        """Return the columns that take values of a record which their own columns do not take."""
        has_key = self._operation(table, record, source) is not Operation.APPEND
        conflicts = self._conflicts(table, record, has_key=has_key)
        if conflicts is None:
            return None
        mapping = table.properties.get(NAME_MAPPING_PROPERTY)
        self._path.row(record, table.schema, mapping, conflicts.settle)
        return conflicts.changes

    def _conflicts(
        self, table: TablePreview, record: SinkRecord, *, has_key: bool
    ) -> TypeConflicts | None:
        action = action_of(self._config, table.name)
        if action == DEAD_LETTER_ACTION:
            return None
        keys = self._config.table(table.name).id_columns
        if self._config.is_row_level and has_key:
            keys = tuple(self._key_schema(table, record).column_names)
        return TypeConflicts(table.schema, self._config, action, keys, table.partition_names)

    def _key_names(self, table: TablePreview) -> tuple[str, ...]:
        """Return the key columns that the configuration or the table names."""
        ids = self._config.table(table.name).id_columns
        return tuple(column.name for column in key_columns(table.schema, ids, table=table.name))

    def _key_schema(self, table: TablePreview, record: SinkRecord) -> Schema:
        schema = table.schema
        names = self._key_names(table) or message_key_names(record.key, schema)
        return Schema(*(column for column in schema.fields if column.name in names))


def _typed(values: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The values as their columns hold them: timestamps as such, not as numbers."""
    kinds = arrow_schema(schema)
    return {
        column.name: pa.array([values.get(column.name)], column.type)[0].as_py() for column in kinds
    }
