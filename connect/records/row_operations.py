"""Row-level changes: insert, replace or delete the row with the record's key.

Rules of this file:
- ``iceberg.tables.cdc-field``: the first letter of the field selects the operation. U replaces the
  row, D deletes it, and so does true, the value of Debezium's ``__deleted``. Known values for new
  rows, false, null and a missing field insert a row. Any other value is an error. In upsert mode,
  the writer lets an insert replace the row.
- A tombstone with a key deletes the row if no route field selects the table.
- Key columns are primitive and not floating point, because Iceberg defines equality for them.
- A record has no key if neither its Kafka record nor the transformations give it a message key. If
  its table takes the key from message keys, ``iceberg.tables.no-key`` decides about it.

Source:
    Iceberg Kafka Connect 0.6 (tabular), ``IcebergWriter`` and ``BaseDeltaTaskWriter``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField

from connect.config.connector import ConnectorConfig, TableConfig
from connect.errors import ConfigError, RecordError
from connect.model.records import SinkRecord, Struct
from connect.records.conversion.text import java_text
from connect.records.routing import field_value

UNKNOWN_OPERATION: Final = -1
KEYLESS_CHANGE: Final = "keyless_change"
"""Code of an update or delete that no key and no setting lets the table take."""

_DELETES: Final = frozenset({"true"})
_UPDATES: Final = frozenset({"replace"})
_INSERTS: Final = frozenset(
    {
        *("", "i", "insert", "inserted", "c", "create", "created", "r", "read", "false"),
        *("a", "add", "added", "n", "new", "s", "snapshot", "l", "load", "bootstrap-insert"),
    }
)


class Operation(IntEnum):
    """The operation on the row with a record's key. APPEND adds a row that has no key."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    APPEND = 3


class Keyless(IntEnum):
    """What a table does with records without message key, if it takes the key from them."""

    REFUSE = 0
    APPEND_INSERTS = 1
    APPEND = 2

    @classmethod
    def of(cls, table: TableConfig) -> Keyless:
        """Return what the settings of a table say."""
        if not table.appends_without_key:
            return cls.REFUSE
        return cls.APPEND if table.appends_keyless_changes else cls.APPEND_INSERTS

    def operation(self, operation: Operation) -> Operation:
        """Return the operation of a record without message key on the table.

        Raises:
            RecordError: ``keyless_change``; only inserts are appended.
        """
        if self is Keyless.REFUSE:
            return operation
        if self is Keyless.APPEND_INSERTS and operation is not Operation.INSERT:
            raise RecordError(
                f"the record without message key is no insert ({operation.name.lower()}), and no "
                "row can be found for it: give the source table a key, or set "
                "iceberg.tables.no-key-changes=append",
                code=KEYLESS_CHANGE,
            )
        return Operation.APPEND


class ChangeRules:
    """Determines the row operation of a connector's records.

    Args:
        config: configuration of a connector that is row-level (``is_row_level``).
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self.path = tuple(config.cdc_field.split(".")) if config.cdc_field else ()

    def operation(self, record: SinkRecord) -> Operation:
        """Return the operation of a record.

        Raises:
            RecordError: code ``cdc_field``; a value on the path has no fields, or the field has a
                value that is no operation.
        """
        if record.value is None:
            return Operation.DELETE
        if not self.path:
            return Operation.INSERT
        try:
            value = field_value(record.value, self.path)
        except RecordError:
            raise RecordError(
                f"a value on the path {'.'.join(self.path)} (iceberg.tables.cdc-field) "
                "has no fields",
                code="cdc_field",
            ) from None
        return self.meaning(value)

    def meaning(self, value: Any) -> Operation:
        """Return the operation for a value of the CDC field.

        Raises:
            RecordError: code ``cdc_field``; the value is no operation.
        """
        text = "" if value is None else java_text(value).strip().lower()
        if text[:1] == "d" or text in _DELETES:
            return Operation.DELETE
        if text[:1] == "u" or text in _UPDATES:
            return Operation.UPDATE
        if text in _INSERTS:
            return Operation.INSERT
        raise RecordError(
            f"{text[:40]!r} in the field {'.'.join(self.path)} (iceberg.tables.cdc-field) is no "
            "operation: I, C and R insert, U updates, D deletes, true deletes, false inserts",
            code="cdc_field",
        )

    def known_meaning(self, value: Any) -> int:
        """Return the operation for a value, or ``UNKNOWN_OPERATION``."""
        try:
            return int(self.meaning(value))
        except RecordError:
            return UNKNOWN_OPERATION


def key_columns(schema: Schema, names: tuple[str, ...], *, table: str) -> tuple[NestedField, ...]:
    """Return the columns that identify the rows of a table.

    Args:
        schema: the table's schema.
        names: the configured ``id-columns``; if empty, the table's identifier fields are used.
        table: the table's name, for error messages.

    Returns:
        The key columns in schema order. Empty if neither names any; then the fields of the message
        key identify the row.

    Raises:
        ConfigError: ``key_columns``; a name is not a column, or the column cannot be a key.
    """
    columns_by_name = {field.name: field for field in schema.fields}
    by_id = {field.field_id: field.name for field in schema.fields}
    if not names:
        names = tuple(by_id.get(i, f"#{i}") for i in sorted(schema.identifier_field_ids))
    for name in names:
        column = columns_by_name.get(name)
        reason = None
        if column is None:
            reason = "is no top-level column of the table"
        elif not column.field_type.is_primitive:
            reason = f"is a {column.field_type}, whose values cannot be compared"
        elif isinstance(column.field_type, FloatType | DoubleType):
            reason = "is a floating-point column, which Iceberg does not allow as a key"
        if reason is not None:
            raise ConfigError(
                f"the id column {name!r} {reason}: set iceberg.table.{table}.id-columns",
                code="key_columns",
                table=table,
            )
    return tuple(field for field in schema.fields if field.name in names)


def message_key_names(key: Any, schema: Schema) -> tuple[str, ...]:
    """Return the table's columns named by the fields of a message key.

    Raises:
        RecordError: ``no_key``; the key has no fields, or the table lacks one of its fields.
    """
    names = field_names(key)
    columns = {field.name for field in schema.fields}
    missing = sorted(set(names) - columns)
    if not names or missing:
        reason = f"the table has no column {missing[0]!r}" if names else "it has no fields"
        more = ", or iceberg.tables.no-key=append" if key is None else ""
        raise RecordError(
            f"the message key does not name a row: {reason}; set the table's id-columns{more}",
            code="no_key",
        )
    return names


def key_value(record: SinkRecord, names: tuple[str, ...]) -> Mapping[str, Any] | Struct:
    """Return the values of the key columns from a tombstone's message key.

    If the key has no fields, it is the value of the only key column.

    Raises:
        RecordError: ``no_key``; the key lacks a key column.
    """
    key = record.key
    key_names = field_names(key)
    if key_names:
        missing = sorted(set(names) - set(key_names))
        if not missing:
            whole: Mapping[str, Any] | Struct = key
            return whole
        defect = f"lacks {missing[0]!r}"
    elif len(names) == 1:
        return {names[0]: key}
    else:
        defect = f"has no fields, and the rows' key are the columns {', '.join(names)}"
    raise RecordError(
        f"the tombstone's message key {defect}: use a key.converter that gives the fields, or drop "
        "tombstones with a Filter transformation",
        code="no_key",
    )


def field_names(key: Any) -> tuple[str, ...]:
    """Return the names of the fields of a message key; empty if it has none."""
    if type(key) is Struct:
        return tuple(name for name, _ in key.schema.fields)
    return tuple(map(str, key)) if isinstance(key, Mapping) else ()
